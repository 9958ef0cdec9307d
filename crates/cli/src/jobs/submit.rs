//! `farcall submit`: submits a durable call, with the arguments of `farcall call`. It prints the
//! job id only after the server has recorded the call. Behind a metaserver it says which server has
//! the call, because only that server knows the job id.

use crate::call::Call;
use crate::failure::{self, Failure};
use crate::form::Form;
use crate::objects;
use crate::target::Target;
use clap::Args;
use farcall_client::ReservationName;
use serde_json::json;
use std::time::Duration;

/// Submit a durable call, which survives a lost client and a restart of the server
///
/// The command prints the job id when the server has recorded the call. `farcall fetch` gets the
/// results.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall submit dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --retention 48
  farcall submit dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --reservation 3")]
pub(crate) struct Arguments {
    /// Name of the function, with or without its module
    function: String,
    /// Arguments by name, as for `farcall call`: scalars, and the arrays that the call reads
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Use this reservation, which `farcall reservation make` has made
    #[arg(long, value_name = "ID")]
    reservation: Option<ReservationName>,
    /// Hours for which the server keeps the results, at most as many as its operator allows (720 by
    /// default) [default: the retention of the server]
    #[arg(long, alias = "keep", value_name = "HOURS", value_parser = hours)]
    retention: Option<Duration>,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let function = objects::no_method(&server, &arguments.function)?;
    let function = function.with_reservation(arguments.reservation.clone());
    let name = function.qualified_name().to_string();
    let job = Call::to_submit(function, &arguments.arguments)?.submit(arguments.retention)?;
    let (id, at) = (job.id().to_string(), job.address().to_string());
    let fields = || json!({ "id": id, "function": name, "server": at });
    arguments.form.answer(|| id.clone(), fields);
    if server.is_metaserver() {
        failure::say(format!(
            "the call is at {at}: `farcall fetch {id} --server {at}` gets its results"
        ));
    }
    Ok(())
}

fn hours(text: &str) -> Result<Duration, String> {
    let hours: Option<f64> = text.parse().ok();
    let time = hours.and_then(|hours| Duration::try_from_secs_f64(hours * 3600.0).ok());
    let time = time.filter(|time| !time.is_zero());
    time.ok_or_else(|| "write a number of hours greater than 0".to_owned())
}
