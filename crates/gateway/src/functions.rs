//! The functions of a server, or of all servers behind a metaserver, that can be described now.
//! What a description says is up to `openapi`.

use crate::failure::Failure;
use farcall_client::{Error, FailureKind, Function, Server};

/// All functions but methods of objects. A function that vanishes meanwhile is left out. So are
/// those of a server that cannot be reached, if there are others: with the rest of their module, so
/// that the caller waits for such a server once.
pub(crate) fn described(server: &Server) -> Result<Vec<Function>, Failure> {
    let listed = server.functions()?;
    let names = listed.iter().map(|one| one.name.as_str());
    // Methods have a class in their names.
    let plain = names.filter(|name| !name.contains('.'));
    Ok(reached(plain, |name| server.function(name))?)
}

/// What `ask` finds for these names. An error only if it finds nothing.
fn reached<'n, T>(
    names: impl Iterator<Item = &'n str>,
    ask: impl Fn(&str) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let (mut found, mut away) = (Vec::new(), Vec::new());
    let mut first = None;
    for name in names {
        let module = name.split('/').next().unwrap_or_default();
        if away.contains(&module) {
            continue;
        }
        match ask(name) {
            Ok(one) => found.push(one),
            Err(error) => {
                if !has_vanished(&error) {
                    away.push(module);
                }
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

fn has_vanished(error: &Error) -> bool {
    matches!(error, Error::Failed(failure) if failure.kind == FailureKind::UnknownFunction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_client::Failure as Failed;
    use std::cell::RefCell;

    fn failed(kind: FailureKind) -> Error {
        Error::Failed(Failed {
            kind,
            message: "away".to_owned(),
            earliest: None,
        })
    }

    #[test]
    fn a_server_that_is_away_hides_its_own_functions_alone() {
        let asked = RefCell::new(Vec::new());
        let ask = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            match name {
                "a/gone" => Err(failed(FailureKind::UnknownFunction)),
                name if name.starts_with("b/") => Err(failed(FailureKind::NoServer)),
                name => Ok(name.to_owned()),
            }
        };
        let names = ["a/gone", "a/one", "b/one", "b/two", "c/one"];
        assert_eq!(reached(names.into_iter(), ask).unwrap(), ["a/one", "c/one"]);
        assert_eq!(asked.borrow()[..], ["a/gone", "a/one", "b/one", "c/one"]);
        let error = reached(["b/one", "b/two"].into_iter(), ask).unwrap_err();
        assert!(error.to_string().contains("away"), "{error}");
        assert!(reached([].into_iter(), ask).unwrap().is_empty());
    }
}
