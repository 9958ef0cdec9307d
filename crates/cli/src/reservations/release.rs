//! `farcall release`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;

/// End reservations before their time
///
/// Calls that compute go on; those that wait do so as all others from then on.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall release 3")]
pub(crate) struct Arguments {
    /// Numbers of reservations, as `farcall reserve` printed them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<u64>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for id in &arguments.ids {
        server.release(*id)?;
    }
    Ok(())
}
