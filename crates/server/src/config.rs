//! What an operator can set. `docs/farcall.toml` is the same with comments for people.

use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a server. Every field has a default; unknown names are errors.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct Config {
    /// TCP addresses to listen on; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// Unix socket to listen on.
    pub unix: Option<PathBuf>,
    /// Folder for what outlives the server; none means that nothing does.
    pub state: Option<PathBuf>,
    /// Bounds on what clients may ask for.
    pub limits: Limits,
    /// The processes that call the libraries.
    pub workers: Workers,
    /// Calls that are submitted, and fetched later.
    pub jobs: Jobs,
    /// Arrays that stay at the server.
    pub data: Data,
    /// Whether IDL files may contain C text, which is compiled and run.
    pub allow_code: bool,
}

/// Bounds on what clients may ask for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections; more are told so and closed.
    pub connections: usize,
    /// Calls open at once on one connection.
    pub calls_per_connection: usize,
    /// Bytes of all job buffers together. A larger call is refused, others wait for room.
    pub memory: u64,
    /// Seconds within which a new connection must greet.
    pub greeting_s: f64,
    /// Seconds within which a client must answer a callback of the function it called; 0 means
    /// that there is no limit.
    pub callback_s: f64,
}

/// The processes that call the libraries.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// Calls that compute at the same time; 0 means processor cores divided by `threads`.
    pub count: usize,
    /// Threads that the library may use in each call.
    pub threads: usize,
    /// Seconds after which a call is ended; 0 means never.
    pub time_limit_s: f64,
    /// Bytes of private memory of one worker; 0 means no limit.
    pub memory: u64,
    /// Microseconds for which the server and its workers look for new work before they sleep,
    /// while the cores have nothing else to do. It saves the time to wake up; 0 saves the
    /// processor instead.
    pub spin_us: u64,
}

/// Calls that are submitted, and fetched later. They are kept in the folder `state`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Hours for which the outcome of a call is kept, where the caller does not say.
    pub keep_h: f64,
    /// The most hours that a caller may ask for.
    pub longest_h: f64,
    /// Calls of one user, in any state.
    pub per_user: usize,
    /// Bytes of one user's arguments and results.
    pub bytes_per_user: u64,
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            keep_h: 168.0,
            longest_h: 720.0,
            per_user: 10_000,
            bytes_per_user: 16_000_000_000,
        }
    }
}

/// Arrays that stay at the server, to be used in calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Bytes of memory for them, a part of `limits.memory`; 0 means a quarter of it. Beyond that,
    /// those that were not used for longest go to the folder `state`, where there is one.
    pub memory: u64,
    /// Arrays of one user.
    pub per_user: usize,
    /// Bytes of one user's arrays, in memory and on the disk.
    pub bytes_per_user: u64,
    /// Hours after its last use for which an array is kept.
    pub keep_h: f64,
}

impl Default for Data {
    fn default() -> Data {
        Data {
            memory: 0,
            per_user: 1000,
            bytes_per_user: 16_000_000_000,
            keep_h: 24.0,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        let memory = physical_memory() / 2;
        Limits {
            connections: 4096,
            calls_per_connection: 256,
            memory,
            greeting_s: 10.0,
            callback_s: 60.0,
        }
    }
}

impl Default for Workers {
    fn default() -> Workers {
        Workers {
            count: 0,
            threads: 1,
            time_limit_s: 0.0,
            memory: 0,
            spin_us: 100,
        }
    }
}

impl Config {
    /// Reads the text of a configuration file.
    pub fn parse(text: &str) -> Result<Config, toml::de::Error> {
        toml::from_str(text)
    }
}

impl Limits {
    /// How long a callback may take at the client.
    pub(crate) fn callback(&self) -> Option<Duration> {
        (self.callback_s > 0.0).then(|| Duration::from_secs_f64(self.callback_s.min(1e9)))
    }
}

impl Workers {
    /// Calls that compute at the same time, at least 1.
    pub(crate) fn slots(&self) -> usize {
        if self.count > 0 {
            return self.count;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / self.threads.max(1)).max(1)
    }

    pub(crate) fn time_limit(&self) -> Option<Duration> {
        (self.time_limit_s > 0.0).then(|| Duration::from_secs_f64(self.time_limit_s))
    }

    /// How long to spin at most.
    pub(crate) fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }
}

fn physical_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commented_file_states_the_defaults() {
        let text = include_str!("../../../docs/farcall.toml");
        let mut config = Config::parse(text).unwrap();
        // The default depends on the machine, so the file cannot state it.
        config.limits.memory = Limits::default().memory;
        let expected = Config {
            listen: config.listen.clone(),
            ..Config::default()
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn unknown_names_are_errors() {
        assert!(Config::parse("lissten = []").is_err());
        assert!(Config::parse("[workers]\ncount = -1").is_err());
    }
}
