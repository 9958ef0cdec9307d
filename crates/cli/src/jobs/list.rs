//! `farcall jobs`: lists the caller's durable calls at a server, with their states. The server
//! lists only calls of the user who asks.

use super::{ago, to_json};
use crate::failure::Failure;
use crate::form::Form;
use crate::target::Named;
use clap::Args;
use farcall_client::DurableStatus;

/// List your durable calls
///
/// Each user sees only calls of their own.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall jobs farcall://localhost:3717")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    arguments.form.list("jobs", &server.jobs()?, to_json, line);
    Ok(())
}

fn line(job: &DurableStatus) -> String {
    let when = match (job.ended, job.started) {
        (Some(ended), _) => format!("ended {}", ago(ended)),
        (None, Some(started)) => format!("started {}", ago(started)),
        (None, None) => format!("submitted {}", ago(job.submitted)),
    };
    let failure = job.failure.as_ref();
    let failure = failure.map_or(String::new(), |failure| format!(": {}", failure.message));
    let (id, state, function) = (job.id, job.state.name(), &job.function);
    format!("{id}  {state:9}  {when:20}  {function}{failure}")
}
