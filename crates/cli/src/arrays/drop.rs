//! `farcall drop`

use super::id;
use crate::failure::Failure;
use crate::objects;
use crate::target::Target;
use clap::Args;
use farcall_client::HandleId;

/// Let a server forget an array, or destroy an object
///
/// Calls that use an array go on; a method that runs on an object is ended.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77
  farcall drop object:$id")]
pub(crate) struct Arguments {
    /// Ids of arrays, as `farcall put` printed them; object:ID for an object of `farcall new`
    #[arg(required = true, value_parser = kept)]
    ids: Vec<Kept>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for kept in &arguments.ids {
        match kept {
            Kept::Array(id) => server.handle(*id)?.drop_array()?,
            Kept::Object(id) => server.drop_object(*id)?,
        }
    }
    Ok(())
}

/// What stays at a server.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Array(HandleId),
    Object(HandleId),
}

fn kept(text: &str) -> Result<Kept, String> {
    match objects::named(text) {
        Some(id) => id.map(Kept::Object),
        None => id(text).map(Kept::Array),
    }
}
