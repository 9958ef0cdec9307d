//! `farcall jobs`

use super::{ago, to_json};
use crate::failure::Failure;
use crate::target::Target;
use clap::Args;
use farcall_client::JobStatus;
use serde_json::json;

/// List your submitted calls
///
/// Nobody sees those of another user.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall jobs farcall://localhost:3717")]
pub(crate) struct Arguments {
    /// Server to ask; the same as --server
    #[arg(value_name = "SERVER")]
    address: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(arguments.address.as_deref())?;
    let jobs = server.jobs()?;
    if arguments.json {
        let jobs: Vec<_> = jobs.iter().map(to_json).collect();
        println!("{}", json!({ "schema": 1, "jobs": jobs }));
        return Ok(());
    }
    for job in &jobs {
        println!("{}", line(job));
    }
    Ok(())
}

fn line(job: &JobStatus) -> String {
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
