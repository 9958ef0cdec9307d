//! `farcall reservations`

use super::{line, to_json};
use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use serde_json::json;

/// List your reservations
///
/// Nobody sees those of another user.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall reservations farcall://localhost:3717
  farcall reservations meta://head --function dgesv")]
pub(crate) struct Arguments {
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// At a metaserver, those at the servers that have this function
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let reservations = match &arguments.function {
        Some(name) => server.function(name)?.reservations()?,
        None => server.reservations()?,
    };
    if arguments.json {
        let reservations: Vec<_> = reservations.iter().map(to_json).collect();
        println!("{}", json!({ "schema": 1, "reservations": reservations }));
        return Ok(());
    }
    for reservation in &reservations {
        println!("{}", line(reservation, server.is_metaserver()));
    }
    Ok(())
}
