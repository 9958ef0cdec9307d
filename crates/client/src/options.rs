//! How to talk to a server.

use crate::credentials::Credentials;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How to talk to a server.
#[derive(Clone)]
pub struct Options {
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for one operation, from its start to its end; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Longest time for which a thread looks for the answer before it sleeps, while the cores have
    /// nothing else to do. It saves the time to wake up; zero saves the processor instead.
    pub spin: Duration,
    /// Whether to change to a Unix socket and shared memory where the server is on this host.
    pub same_host: bool,
    /// Connections over which the arrays of one call may travel at once, where measurement shows
    /// that they pay; 1 keeps to one.
    pub streams: usize,
    /// What proves who the client is, and which servers it believes.
    pub credentials: Credentials,
    /// Asked whenever a signal interrupts the wait for the server, and ten times a second, because
    /// a signal may come just before the wait; `true` gives the operation up.
    pub on_interrupt: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(10),
            timeout: None,
            spin: Duration::from_micros(100),
            same_host: true,
            streams: 8,
            credentials: Credentials::from_environment(),
            on_interrupt: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
