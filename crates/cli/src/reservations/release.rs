//! `farcall reservation release`: ends reservations before their time. Calls that compute continue.
//! Behind a metaserver, the name of a reservation leads to its server.

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_client::ReservationName;

/// End reservations before their time
///
/// Calls that compute continue. Calls that wait for the reservation wait like all other calls.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall reservation release 3")]
pub(crate) struct Arguments {
    /// Ids of reservations, which `farcall reservation make` has printed
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
