//! Puts arguments that are given by name into the order of the interface. `call` checks their types
//! and sizes. Each argument must be given once, except work space, which may be left out.

use super::Argument;
use crate::error::ArgumentError;
use farcall_idl::{Interface, Mode};
use farcall_spelling::closest;

/// Arguments in the order of the interface: parameters first, then callbacks.
pub(crate) fn in_order<'n, 'a>(
    interface: &Interface,
    given: impl IntoIterator<Item = (&'n str, Argument<'a>)>,
) -> Result<Vec<Argument<'a>>, ArgumentError> {
    let params = interface.params.iter().map(|param| &param.name);
    let callbacks = interface.callbacks.iter().map(|callback| &callback.name);
    let names: Vec<&String> = params.chain(callbacks).collect();
    let mut arguments: Vec<Option<Argument<'a>>> = names.iter().map(|_| None).collect();
    for (name, argument) in given {
        let Some(index) = names.iter().position(|known| *known == name) else {
            let known: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
            let close = closest(name, known.iter().copied(), 1);
            return Err(ArgumentError::Unknown {
                argument: name.to_string(),
                hint: close.map_or_else(String::new, |known| format!(" did you mean `{known}`?")),
                known: known.join(", "),
            });
        };
        if arguments[index].replace(argument).is_some() {
            let argument = name.to_string();
            return Err(ArgumentError::Twice { argument });
        }
    }
    let is_work = |index: usize| {
        let param = interface.params.get(index);
        param.is_some_and(|param| param.mode == Mode::Work)
    };
    let ordered = arguments.into_iter().enumerate();
    let ordered = ordered.map(|(index, argument)| match argument {
        Some(argument) => Ok(argument),
        None if is_work(index) => Ok(Argument::Skip),
        None => Err(ArgumentError::Missing {
            argument: names[index].clone(),
        }),
    });
    ordered.collect()
}
