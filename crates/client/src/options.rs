//! Options of a connection: credentials, time limits and shared memory. The default values come
//! from the environment where it names them. Credentials are never part of the debug text.

use crate::credentials::Credentials;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

/// Options of a connection to a server or metaserver.
#[derive(Clone)]
pub struct Options {
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for one operation, from its start to its end. `None` waits for ever.
    pub timeout: Option<Duration>,
    /// A server counts as lost if it sends nothing for this time while requests are open, although
    /// it was asked for a sign of life. `None` waits for ever. The default is that of the
    /// environment: `FARCALL_LOST_AFTER`, a number of seconds or a time such as `30s`, else 15 s.
    pub lost_after: Option<Duration>,
    /// Longest time for which a thread polls for an answer before it sleeps, while the cores are
    /// idle. Polling saves the time to wake up; zero saves processor time instead. A thread that
    /// submits durable calls polls longer, up to 1 ms, if the server's disk is quick.
    pub spin: Duration,
    /// Whether to use a Unix socket and shared memory if the server is on this host.
    pub same_host: bool,
    /// Most connections over which the arrays of one call may travel at once. The client adds
    /// connections while it measures that they help; 1 keeps to one.
    pub streams: usize,
    /// How the client proves who it is, and which servers it trusts.
    pub credentials: Credentials,
    /// A random number by which the records of servers tell which calls one client made. It is the
    /// same on all connections that are opened with these options.
    pub client: u64,
    /// Called when a signal interrupts a wait, and ten times a second, because a signal may arrive
    /// just before the wait. If it returns `true`, the client gives the operation up.
    pub on_interrupt: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
    /// Whether [`close_inherited`](crate::close_inherited) closes the connections in a forked
    /// child.
    pub close_in_children: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(10),
            timeout: None,
            lost_after: lost_after().unwrap_or(Some(LOST_AFTER)),
            spin: Duration::from_micros(100),
            same_host: true,
            streams: 8,
            credentials: Credentials::from_environment(),
            client: RandomState::new().hash_one(std::process::id()),
            on_interrupt: None,
            close_in_children: false,
        }
    }
}

const LOST_AFTER: Duration = Duration::from_secs(15);

/// The time in the environment after which a silent server is lost, or what is wrong with it.
pub(crate) fn lost_after() -> Result<Option<Duration>, String> {
    let text = std::env::var_os("FARCALL_LOST_AFTER").unwrap_or_default();
    match text.is_empty() {
        true => Ok(Some(LOST_AFTER)),
        false => silence(&text.to_string_lossy()),
    }
}

/// The longest silence that a user writes; 0 means that no silence is too long.
fn silence(text: &str) -> Result<Option<Duration>, String> {
    let seconds = farcall_quantity::seconds(text).ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = time.ok_or_else(|| {
        format!("FARCALL_LOST_AFTER is `{text}`, which is no time: write 30 or 30s, or 0 for never")
    })?;
    Ok(Some(time).filter(|time| !time.is_zero()))
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_a_time() {
        for (text, time) in [("30", 30_000), ("30s", 30_000), ("500ms", 500)] {
            assert_eq!(silence(text), Ok(Some(Duration::from_millis(time))));
        }
        assert_eq!(silence("0"), Ok(None));
        for wrong in ["never", "-1", "30KB", "1e30"] {
            let error = silence(wrong).unwrap_err();
            assert!(error.contains(&format!("`{wrong}`, which is no time")));
        }
    }
}
