//! `farcall release`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_client::ReservationName;

/// End reservations before their time
///
/// Calls that compute go on; those that wait do so as all others from then on.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall release 3")]
pub(crate) struct Arguments {
    /// Numbers of reservations, as `farcall reserve` printed them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<ReservationName>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    for name in &arguments.ids {
        let server = match &name.at {
            Some(address) => server.behind(address)?,
            None => server.clone(),
        };
        server.release(name.id)?;
    }
    Ok(())
}
