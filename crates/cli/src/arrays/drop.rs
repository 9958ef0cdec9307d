//! `farcall data drop`: drops stored arrays by id, and named data by name. It also accepts objects.
//! An error does not keep the others from being dropped.

use super::{Stored, stored};
use crate::failure::{self, Failure};
use crate::objects;
use crate::target::Target;
use clap::Args;
use farcall_client::{Error, HandleId, Server};

/// Drop stored arrays or named data
///
/// Calls that use an array at this time complete first.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall data drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77
  farcall data drop data:atoms")]
pub(crate) struct Arguments {
    /// Ids of stored arrays, which `farcall data put` has printed, or data:NAME; object:ID destroys
    /// a persistent object
    #[arg(required = true, value_name = "ID|data:NAME", value_parser = dropped)]
    ids: Vec<Dropped>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let dropped = arguments
        .ids
        .iter()
        .map(|dropped| drop_one(&server, dropped));
    failure::of_all(dropped.map(|dropped| dropped.map_err(Failure::from)))
}

fn drop_one(server: &Server, dropped: &Dropped) -> Result<(), Error> {
    match dropped {
        Dropped::Array(Stored::Handle(id)) => server.handle(*id)?.drop_array(),
        Dropped::Array(Stored::Data(name)) => server.drop_data(name),
        Dropped::Object(id) => server.drop_object(*id),
    }
}

/// An array or an object at a server.
#[derive(Clone, Debug)]
enum Dropped {
    Array(Stored),
    Object(HandleId),
}

fn dropped(text: &str) -> Result<Dropped, String> {
    match objects::named(text) {
        Some(id) => id.map(Dropped::Object),
        None => stored(text).map(Dropped::Array),
    }
}
