//! `farcall object`: persistent objects, and how other commands name an object in place of a
//! function. A durable call of a method is refused, because it may outlive its object.

mod drop;
mod list;
mod new;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_client::{Function, HandleId, Server};

/// Make persistent objects, which keep their state from call to call
///
/// Call a method with `farcall call object:ID.METHOD`.
#[derive(Args)]
#[command(after_help = "Examples:
  id=$(farcall object new counters/Counter)
  farcall call object:$id.add n=3
  farcall object list
  farcall object drop $id")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::Arguments),
    List(list::Arguments),
    Drop(drop::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::New(arguments) => new::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Drop(arguments) => drop::run(arguments),
    }
}

/// The prefix of an object, `object:ID`, and of its method, `object:ID.METHOD`.
const PREFIX: &str = "object:";

/// The id in `object:ID`; nothing for any other text.
pub(crate) fn named(text: &str) -> Option<Result<HandleId, String>> {
    Some(object(text.strip_prefix(PREFIX)?))
}

/// `ID` as `farcall object new` prints it, or `object:ID`.
fn object(text: &str) -> Result<HandleId, String> {
    let id = text.strip_prefix(PREFIX).unwrap_or(text).parse();
    id.map_err(|error| format!("{error}; `farcall object list` lists your objects"))
}

/// The function with this name, or the method of an object.
pub(crate) fn function(server: &Server, name: &str) -> Result<Function, Failure> {
    if !name.starts_with(PREFIX) {
        return Ok(server.function(name)?);
    }
    let method = name.split_once('.');
    let Some((Some(id), method)) = method.map(|(object, method)| (named(object), method)) else {
        return Err(Failure::usage(format!(
            "`{name}` is not a method: write object:ID.METHOD"
        )));
    };
    Ok(server.object(id.map_err(Failure::usage)?)?.method(method)?)
}

/// The function with this name. A durable call cannot call a method, because it may outlive the
/// object.
pub(crate) fn no_method(server: &Server, name: &str) -> Result<Function, Failure> {
    if name.starts_with(PREFIX) {
        let text = "a durable call survives a restart, but an object does not: use `farcall call`";
        return Err(Failure::usage(text));
    }
    Ok(server.function(name)?)
}
