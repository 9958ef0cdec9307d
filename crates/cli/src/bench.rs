//! `farcall bench`

use crate::failure::Failure;
use clap::Args;

/// Measure, beside a peer or a physical limit in the same run
#[derive(Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    Err(Failure::usage("later"))
}
