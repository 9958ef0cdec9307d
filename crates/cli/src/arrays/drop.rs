//! `farcall drop`

use super::{Kept, kept};
use crate::failure::Failure;
use crate::objects;
use crate::target::Target;
use clap::Args;
use farcall_client::HandleId;

/// Let a server forget an array or data with a name, or destroy an object
///
/// Calls that use an array go on; a method that runs on an object is ended.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77
  farcall drop data:atoms
  farcall drop object:$id")]
pub(crate) struct Arguments {
    /// Ids of arrays, as `farcall put` printed them; data:NAME; object:ID for an object of
    /// `farcall new`
    #[arg(required = true, value_name = "ID|data:NAME|object:ID", value_parser = dropped)]
    ids: Vec<Dropped>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for dropped in &arguments.ids {
        match dropped {
            Dropped::Array(Kept::Handle(id)) => server.handle(*id)?.drop_array()?,
            Dropped::Array(Kept::Data(name)) => server.drop_data(name)?,
            Dropped::Object(id) => server.drop_object(*id)?,
        }
    }
    Ok(())
}

/// What stays at a server.
#[derive(Clone, Debug)]
enum Dropped {
    Array(Kept),
    Object(HandleId),
}

fn dropped(text: &str) -> Result<Dropped, String> {
    match objects::named(text) {
        Some(id) => id.map(Dropped::Object),
        None => kept(text).map(Dropped::Array),
    }
}
