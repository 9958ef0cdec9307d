//! The status of a call that is under way, as its server tells it: how far it has come, why it
//! waits, and when it will start and end. An older server tells nothing of this, and the phase is
//! then all that is known.

use farcall_rpc_proto as proto;
use std::fmt;
use std::time::Duration;

pub use proto::CallPhase;

/// The status of a call that is under way. Its text, by [`fmt::Display`], is a sentence such as
/// "waits for 2 processor elements; 3 of your calls are before it; starts in 20 s (80 %: 5 s to 70
/// s)".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStatus {
    /// How far it has come.
    pub phase: CallPhase,
    /// What it does or waits for, in words. It never names other users.
    pub reason: String,
    /// When it will start to compute, if it waits and the server can predict it.
    pub starts: Option<Expected>,
    /// When it will have computed, if the server can predict it.
    pub ends: Option<Expected>,
}

/// A moment to come, as a time from now. It lies between `low` and `high` in four of five cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// One of ten is earlier.
    pub low: Duration,
    /// As many are earlier as later.
    pub likely: Duration,
    /// One of ten is later.
    pub high: Duration,
}

impl CallStatus {
    /// The status of a call that has ended.
    pub fn over() -> CallStatus {
        CallStatus {
            phase: CallPhase::Over,
            reason: "has ended".to_owned(),
            starts: None,
            ends: None,
        }
    }

    /// The status of a call that the client has not sent yet: a server allows a connection so many
    /// open calls.
    pub(crate) fn kept_back() -> CallStatus {
        CallStatus {
            phase: CallPhase::Arriving,
            reason: "is not sent yet, and waits for other calls of its connection".to_owned(),
            ..CallStatus::over()
        }
    }

    /// The status of a call at a server that does not tell it.
    pub(crate) fn untold() -> CallStatus {
        CallStatus {
            phase: CallPhase::Waiting,
            reason: "is under way; its server is too old to say more".to_owned(),
            ..CallStatus::over()
        }
    }
}

impl From<proto::CallStatus> for CallStatus {
    fn from(status: proto::CallStatus) -> CallStatus {
        CallStatus {
            phase: status.phase,
            reason: status.reason.chars().filter(|c| !c.is_control()).collect(),
            starts: status.starts.map(Expected::from),
            ends: status.ends.map(Expected::from),
        }
    }
}

impl From<proto::Expected> for Expected {
    fn from(expected: proto::Expected) -> Expected {
        let likely = expected.likely;
        Expected {
            low: Duration::from_nanos(expected.low.min(likely)),
            likely: Duration::from_nanos(likely),
            high: Duration::from_nanos(expected.high.max(likely)),
        }
    }
}

impl fmt::Display for CallStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if let Some(starts) = &self.starts {
            write!(f, "; starts {starts}")?;
        } else if let Some(ends) = &self.ends {
            write!(f, "; ends {ends}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, likely, high] = [self.low, self.likely, self.high].map(Rounded);
        write!(f, "in {likely} (80 %: {low} to {high})")
    }
}

/// A time with two digits or so, for people.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        match seconds {
            ..0.0995 => write!(f, "{seconds:.2} s"),
            ..9.95 => write!(f, "{seconds:.1} s"),
            ..120.0 => write!(f, "{seconds:.0} s"),
            ..7200.0 => write!(f, "{:.0} min", seconds / 60.0),
            ..172_800.0 => write!(f, "{:.1} h", seconds / 3600.0),
            _ => write!(f, "{:.1} days", seconds / 86_400.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_reads_as_a_sentence() {
        let seconds = |seconds: u64| seconds * 1_000_000_000;
        let status = CallStatus::from(proto::CallStatus {
            phase: CallPhase::Waiting,
            reason: "waits for 2 processor elements\u{1b}".to_owned(),
            starts: Some(proto::Expected {
                low: seconds(30),
                likely: seconds(20),
                high: seconds(9000),
            }),
            ends: None,
        });
        assert_eq!(
            status.to_string(),
            "waits for 2 processor elements; starts in 20 s (80 %: 20 s to 2.5 h)"
        );
        let times = [0.0, 0.05, 3.21, 99.9, 4000.0, 864_000.0];
        let texts = times.map(|seconds| Rounded(Duration::from_secs_f64(seconds)).to_string());
        assert_eq!(
            texts,
            ["0.00 s", "0.05 s", "3.2 s", "100 s", "67 min", "10.0 days"]
        );
    }
}
