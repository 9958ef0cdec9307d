//! Objects that stay at a server: `farcall new` and `objects`; `farcall drop` destroys one.

pub(crate) mod list;
pub(crate) mod new;

use crate::failure::Failure;
use farcall_client::{Function, HandleId, Server};

/// What names an object at a server: `object:ID`, its method `object:ID.METHOD`.
const PREFIX: &str = "object:";

/// The id in `object:ID`, or nothing where it is no object.
pub(crate) fn named(text: &str) -> Option<Result<HandleId, String>> {
    let id = text.strip_prefix(PREFIX)?.parse();
    Some(id.map_err(|error| format!("{error}; `farcall objects` lists the objects there are")))
}

/// The function of a name, or the method of an object.
pub(crate) fn function(server: &Server, name: &str) -> Result<Function, Failure> {
    if !name.starts_with(PREFIX) {
        return Ok(server.function(name)?);
    }
    let method = name.split_once('.');
    let Some((Some(id), method)) = method.map(|(object, method)| (named(object), method)) else {
        return Err(Failure::usage(format!("`{name}`: write object:ID.METHOD")));
    };
    Ok(server.object(id.map_err(Failure::usage)?)?.method(method)?)
}

/// The function of a name, which is to be no method: a submitted call may outlive its object.
pub(crate) fn no_method(server: &Server, name: &str) -> Result<Function, Failure> {
    if name.starts_with(PREFIX) {
        let text =
            "a submitted call outlives the server, and an object does not: use `farcall call`";
        return Err(Failure::usage(text));
    }
    Ok(server.function(name)?)
}
