//! `farcall trunk down`: stops a running trunk through its control socket, and returns when its
//! name is free. Only root and the user of the trunk can do it.

use crate::failure::Failure;
use clap::Args;

/// Stop a trunk on this machine
#[derive(Args)]
#[command(after_help = "Example:\n  farcall trunk down")]
pub(crate) struct Arguments {
    /// Name of the virtual interface
    #[arg(long, value_name = "NAME", default_value = "fc0")]
    name: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    farcall_trunk::end(&arguments.name).map_err(Failure::failed)
}
