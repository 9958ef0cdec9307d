//! Calls that are submitted and fetched later.

pub(crate) mod cancel;
pub(crate) mod fetch;
pub(crate) mod list;
pub(crate) mod submit;

use farcall_client::{DurableStatus, JobId};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The id of a job, as `farcall submit` prints it.
fn id(text: &str) -> Result<JobId, String> {
    text.parse()
        .map_err(|error| format!("{error}; `farcall jobs` lists those there are"))
}

fn to_json(status: &DurableStatus) -> Value {
    let failure = status.failure.as_ref();
    json!({
        "id": status.id.to_string(),
        "function": status.function,
        "state": status.state.name(),
        "submitted": seconds(status.submitted),
        "started": status.started.map(seconds),
        "ended": status.ended.map(seconds),
        "expires": status.expires.map(seconds),
        "bytes": status.bytes,
        "failure": failure.map(|failure| &failure.message),
    })
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}

/// A time that has passed or is to come, for people.
fn ago(time: SystemTime) -> String {
    let now = SystemTime::now();
    let (span, past) = match now.duration_since(time) {
        Ok(span) => (span, true),
        Err(error) => (error.duration(), false),
    };
    let seconds = span.as_secs();
    let text = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    match past {
        true => format!("{text} ago"),
        false => format!("in {text}"),
    }
}
