//! Objects that stay at a server: `farcall new` and `objects`; `farcall drop` destroys one.

pub(crate) mod list;
pub(crate) mod new;

use farcall_client::{Error, Function, HandleId, Server};

/// What names an object at a server: `object:ID`, its method `object:ID.METHOD`.
const PREFIX: &str = "object:";

/// The id in `object:ID`, or nothing where it is no object.
pub(crate) fn named(text: &str) -> Option<Result<HandleId, String>> {
    let id = text.strip_prefix(PREFIX)?.parse();
    Some(id.map_err(|error| format!("{error}; `farcall objects` lists the objects there are")))
}

/// The function of a name, or the method of an object.
pub(crate) fn function(server: &Server, name: &str) -> Result<Function, Error> {
    let method = name
        .starts_with(PREFIX)
        .then(|| name.split_once('.'))
        .flatten();
    match method.and_then(|(object, method)| Some((named(object)?.ok()?, method))) {
        Some((id, method)) => server.object(id)?.method(method),
        None => server.function(name),
    }
}
