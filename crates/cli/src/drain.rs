//! `farcall drain`

use crate::failure::Failure;
use crate::target::Target;
use clap::Args;

/// Have a server take no more calls, and end when those that it has are done
///
/// Only its operators may: root, the user it runs as, and those in its configuration. SIGUSR1 does
/// the same.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall drain farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Server to end; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let calls = server.drain()?;
    println!("draining: {calls} calls are to end");
    Ok(())
}
