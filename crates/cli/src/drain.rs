//! `farcall drain`

use crate::failure::Failure;
use crate::target::Named;
use clap::Args;

/// Have a server take no more calls, and end when those that it has are done
///
/// Only its operators may: root, the user it runs as, and those in its configuration. SIGUSR1 does
/// the same.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall drain farcall://localhost:3717")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let calls = server.drain()?;
    println!("draining: {calls} calls are to end");
    Ok(())
}
