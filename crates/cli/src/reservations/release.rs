//! `farcall reservation release`: ends reservations before their time. Calls that compute continue.
//! The name of a reservation leads to its server, which may be another one than the command's. An
//! error does not keep the others from being released.

use crate::failure::{self, Failure};
use crate::target::Target;
use clap::Args;
use farcall_client::{ReservationName, Server};

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
    failure::of_all(arguments.ids.iter().map(|name| release(&server, name)))
}

fn release(server: &Server, name: &ReservationName) -> Result<(), Failure> {
    let server = match &name.at {
        Some(address) => server.behind(address)?,
        None => server.clone(),
    };
    server.release(name.id)?;
    Ok(())
}
