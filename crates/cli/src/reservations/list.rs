//! `farcall reservation list`: lists the caller's reservations, at one server or at all that have a
//! function. Each server lists only reservations of the user who asks.

use super::{line, to_json};
use crate::failure::Failure;
use crate::form::Form;
use crate::target::Named;
use clap::Args;

/// List your reservations
///
/// Each user sees only reservations of their own.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall reservation list farcall://localhost:3717
  farcall reservation list meta://head --function dgesv")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// Behind a metaserver: list the reservations at the servers that have this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let reservations = match &arguments.function {
        Some(name) => server.function(name)?.reservations()?,
        None => server.reservations()?,
    };
    let line = |one: &_| line(one, server.is_metaserver());
    let form = &arguments.form;
    form.list("reservations", &reservations, to_json, line);
    Ok(())
}
