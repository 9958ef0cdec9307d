//! `farcall drop`

use super::{Kept, kept};
use crate::failure::Failure;
use crate::target::Target;
use clap::Args;

/// Let a server forget an array, or data with a name
///
/// Calls that use it go on.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77
  farcall drop data:atoms")]
pub(crate) struct Arguments {
    /// Ids of arrays, as `farcall put` printed them, or data:NAME
    #[arg(required = true, value_name = "ID|data:NAME", value_parser = kept)]
    arrays: Vec<Kept>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for array in &arguments.arrays {
        match array {
            Kept::Handle(id) => server.handle(*id)?.drop_array()?,
            Kept::Data(name) => server.drop_data(name)?,
        }
    }
    Ok(())
}
