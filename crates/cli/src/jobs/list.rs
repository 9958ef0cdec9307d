//! `farcall jobs`: lists the caller's durable calls at a server, with their states. The server
//! lists only calls of the user who asks.

use super::{ago, status_json, to_json};
use crate::failure::Failure;
use crate::form::Form;
use crate::target::Named;
use clap::Args;
use farcall_client::{CallStatus, DurableStatus};
use serde_json::Value;

/// Durable calls that are asked why they wait: each takes a question to the server.
const MOST_ASKED: usize = 100;

/// List your durable calls
///
/// Each user sees only calls of their own. For calls that wait, the list says why, and when they
/// will probably start.
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
    let jobs = server.jobs()?;
    let mut asked = 0..MOST_ASKED;
    let jobs = jobs.into_iter().map(|job| {
        let is_open = !job.state.is_over() && asked.next().is_some();
        // A call that has ended meanwhile has no such status.
        let call = is_open.then(|| server.job(job.id).call_status().ok());
        (job, call.flatten())
    });
    let jobs: Vec<(DurableStatus, Option<CallStatus>)> = jobs.collect();
    arguments.form.list("jobs", &jobs, json, line);
    Ok(())
}

fn json((job, call): &(DurableStatus, Option<CallStatus>)) -> Value {
    let mut json = to_json(job);
    json["call"] = call.as_ref().map_or(Value::Null, status_json);
    json
}

fn line((job, call): &(DurableStatus, Option<CallStatus>)) -> String {
    if let Some(call) = call {
        let (id, state, function) = (job.id, job.state.name(), &job.function);
        let when = format!("submitted {}", ago(job.submitted));
        return format!("{id}  {state:9}  {when:20}  {function}: {call}");
    }
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
