//! `farcall drop`

use super::id;
use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_client::HandleId;

/// Let a server forget an array
///
/// Calls that use it go on.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall drop 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77")]
pub(crate) struct Arguments {
    /// Ids of arrays, as `farcall put` printed them
    #[arg(required = true, value_parser = id)]
    ids: Vec<HandleId>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for id in &arguments.ids {
        server.handle(*id)?.drop_array()?;
    }
    Ok(())
}
