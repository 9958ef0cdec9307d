//! `farcall object drop`: destroys persistent objects, which ends their processes. The server does
//! it only for the user who made the object. An error does not keep the others from being
//! destroyed.

use super::object;
use crate::failure::{self, Failure};
use crate::target::Target;
use clap::Args;
use farcall_client::HandleId;

/// Destroy persistent objects
///
/// If a method of an object runs, the server ends it.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall object drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77")]
pub(crate) struct Arguments {
    /// Ids of objects, which `farcall object new` has printed
    #[arg(required = true, value_name = "ID", value_parser = object)]
    ids: Vec<HandleId>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let dropped = arguments.ids.iter().map(|id| server.drop_object(*id));
    failure::of_all(dropped.map(|dropped| dropped.map_err(Failure::from)))
}
