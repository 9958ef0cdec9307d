//! `farcall cancel`: cancels durable calls, or forgets them with their results. The server ends the
//! call. A call that ended before keeps its result, unless it is forgotten.

use super::{id, to_json};
use crate::failure::Failure;
use crate::form::Form;
use crate::target::Target;
use clap::Args;
use farcall_client::JobId;

/// Cancel a durable call
///
/// If the call runs, the server ends it. The command prints the state of the call: a call that
/// ended earlier keeps its result.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall cancel 5f0c8a4f0e9d4d0f8f1f0a3c2b1d9e77 --forget")]
pub(crate) struct Arguments {
    /// Job id, which `farcall submit` has printed
    #[arg(value_parser = id)]
    id: JobId,
    #[command(flatten)]
    target: Target,
    /// Make the server delete the call and its results
    #[arg(long)]
    forget: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let job = arguments.target.connect(None)?.job(arguments.id);
    let status = match arguments.forget {
        true => job.forget()?,
        false => job.cancel()?,
    };
    let words = || status.state.name().to_string();
    arguments.form.answer(words, || to_json(&status));
    Ok(())
}
