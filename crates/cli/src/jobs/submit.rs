//! `farcall submit`

use crate::call::Call;
use crate::failure::Failure;
use crate::form::Form;
use crate::objects;
use crate::target::Target;
use clap::Args;
use farcall_client::ReservationName;
use serde_json::json;
use std::time::Duration;

/// Submit a call: the server runs it, and keeps what it comes to, whatever happens meanwhile
///
/// Prints the id of the call once the server has recorded it. `farcall fetch` gets the results.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall submit dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --keep 48
  farcall submit dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --reservation 3")]
pub(crate) struct Arguments {
    /// Name of the function, with or without its module
    function: String,
    /// Arguments by name: scalars and IN arrays, @FILE.npy or numbers with commas between
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Compute on the processor elements of this reservation, which `farcall reserve` has made
    #[arg(long, value_name = "ID")]
    reservation: Option<ReservationName>,
    /// Hours for which the outcome is kept [default: the server's]
    #[arg(long, value_name = "HOURS")]
    keep: Option<f64>,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let keep = arguments.keep.map(|hours| {
        let keep = Duration::try_from_secs_f64(hours * 3600.0).ok();
        keep.filter(|keep| !keep.is_zero())
            .ok_or_else(|| Failure::usage("--keep: give hours greater than 0"))
    });
    let keep = keep.transpose()?;
    let server = arguments.target.connect(None)?;
    let function = objects::no_method(&server, &arguments.function)?;
    let function = function.with_reservation(arguments.reservation.clone());
    let name = function.qualified_name().to_string();
    let job = Call::to_submit(function, &arguments.arguments)?.submit(keep)?;
    let id = job.id().to_string();
    let fields = || json!({ "id": id, "function": name });
    arguments.form.answer(|| id.clone(), fields);
    Ok(())
}
