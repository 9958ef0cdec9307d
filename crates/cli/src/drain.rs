//! `farcall server drain`: asks a server to finish its calls and stop. The server decides whether
//! the user may ask. The command does not wait for the end.

use crate::failure::Failure;
use crate::target::Named;
use clap::Args;

/// Make a server refuse new calls, complete its present ones, and exit
///
/// Only operators can do this: root, the user that runs the server, and the users in
/// `access.operators` of its configuration. The signal SIGUSR1 does the same.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall server drain farcall://localhost:3717")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let calls = server.drain()?;
    println!("draining; calls under way: {calls}");
    Ok(())
}
