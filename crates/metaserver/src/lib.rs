//! The metaserver. It keeps the directory of servers and tells clients which server to use for a
//! call.
//!
//! [`Metaserver::bind`] takes a typed [`Config`] and listens; [`Metaserver::run`] serves until
//! SIGTERM, SIGINT or SIGUSR1. `farcall_directory` makes all decisions. This crate has the sockets,
//! the threads and the store.
//!
//! Each connection has a thread, which reads a request, asks the directory under its lock, and
//! answers. The number of connections is bounded. One more thread writes changes of the directory
//! to the store, and reads what other metaservers have written there. The server decides on its own
//! how it joins.

mod access;
mod session;
mod snapshot;
mod spans;
mod status;
mod store;

pub use store::{StoreAddress, StoreError, copies};

use access::Access;
use farcall_access::{Accepting, Tls, TokenError, allow_connections};
use farcall_directory::{Directory, Settings};
use farcall_metrics::Text;
use farcall_otlp::{EndpointError, Exporter};
use farcall_record::Budget;
use farcall_recorder::Recorder;
use farcall_schedule::placement::Policy;
use farcall_tls::{FileError, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spans::PlacedSpan;
use std::io::{self, IsTerminal, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::keeper::{self, Keeper};

/// The settings of a metaserver.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on. Port 0 selects a free port.
    pub listen: Vec<SocketAddr>,
    /// TLS settings. `None` uses clear text.
    pub tls: Option<Tls>,
    /// File of tokens. If it is set, a client must have one of the tokens or a trusted certificate.
    pub tokens: Option<PathBuf>,
    /// Users, by the names of their tokens or certificates, whose servers can join. If clients need
    /// no credentials, all servers can join.
    pub server_users: Vec<String>,
    /// The store of the directory, which other metaservers can share. Without a store, the
    /// directory is lost when the metaserver ends.
    pub store: Option<StoreAddress>,
    /// The policy that chooses a server.
    pub policy: Policy,
    /// Seconds for which the metaserver keeps a server in the directory without a report.
    pub lease_s: f64,
    /// The record of placements, servers and paths, if there is one.
    pub record: Option<Record>,
    /// The address of a collector, `http://HOST:PORT`, which gets the spans of placements. Without
    /// one, the metaserver makes no spans.
    pub otlp: Option<String>,
    /// Largest number of open connections. The metaserver tells further clients that it is full and
    /// closes their connections.
    pub connections: usize,
}

/// Where the record is, and how large it may be.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: Vec::new(),
            tls: None,
            tokens: None,
            server_users: Vec::new(),
            store: None,
            policy: Policy::default(),
            lease_s: 10.0,
            record: None,
            otlp: None,
            connections: 1000,
        }
    }
}

/// The reason why a metaserver cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The metaserver cannot listen on an address.
    #[error("cannot listen on {address}: {source}; choose another port, or port 0")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate, its key or the certificates of clients cannot be used.
    #[error("TLS: {}; {}", .0, .0.remedy())]
    Tls(#[from] FileError),
    /// The tokens cannot be used.
    #[error("tokens: {0}")]
    Tokens(#[from] TokenError),
    /// The lease is not an accepted time.
    #[error("a lease of {0} s is out of range; use 0.1 to 86400 seconds")]
    Lease(f64),
    /// Spans cannot go where they should.
    #[error("{0} (--otlp)")]
    Tracing(#[from] EndpointError),
    /// Another operation of the system failed.
    #[error("cannot start the metaserver: {0}")]
    System(#[from] io::Error),
}

/// The state that the threads share.
pub(crate) struct Shared {
    directory: Mutex<Directory>,
    access: Mutex<Access>,
    identity: Option<Identity>,
    connections: AtomicUsize,
    most_connections: usize,
    lease_s: f64,
    start: Instant,
    /// Seconds since 1970, UTC, when the metaserver started, as the system's clock said then.
    start_s: f64,
    /// Milliseconds by which the system's clock is ahead of [`Shared::now`].
    calendar_ms: AtomicI64,
    /// Whether the store answers. Always true without a store.
    stored: AtomicBool,
    /// Whether the directory has the rows of the store. Always true without a store.
    has_read: AtomicBool,
    /// When the store was asked, in milliseconds after the start and at least 1. Zero if it has
    /// answered.
    asked_store: AtomicU64,
    store: Option<StoreAddress>,
    ends: AtomicBool,
    spans: Option<Exporter<PlacedSpan>>,
}

impl Shared {
    /// The clock of leases, in seconds. It continues steadily if the system's clock is set.
    pub(crate) fn now(&self) -> f64 {
        self.start_s + self.start.elapsed().as_secs_f64()
    }

    /// The date of a moment, in seconds since 1970, UTC. Rows of the store and spans have dates.
    pub(crate) fn date(&self, moment: f64) -> f64 {
        moment + self.calendar_ms.load(Ordering::Relaxed) as f64 * 1e-3
    }

    /// Follows the system's clock, which says this date. Small differences remain.
    fn follow_calendar(&self, date: f64) {
        let set_s = date - self.date(self.now());
        if set_s.abs() < TOLERATED * self.lease_s {
            return;
        }
        tracing::warn!(
            "the system's clock was set {} by {:.1} s; new rows of the store follow it, and leases \
             go on",
            if set_s > 0.0 { "forward" } else { "back" },
            set_s.abs()
        );
        let ahead_s = date - self.now();
        self.calendar_ms
            .store((ahead_s * 1e3) as i64, Ordering::Relaxed);
        self.directory().set_calendar(ahead_s);
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A metaserver that is listening.
pub struct Metaserver {
    listeners: Vec<TcpListener>,
    recorder: Option<Recorder>,
    tls: Option<Tls>,
    shared: Arc<Shared>,
}

impl Metaserver {
    /// Starts to listen and reads the directory from the store.
    ///
    /// # Errors
    /// The configuration cannot be used. If the store cannot be reached, this is not an error: the
    /// metaserver logs it and tries again.
    pub fn bind(config: Config) -> Result<Metaserver, StartError> {
        if !(0.1..=86400.0).contains(&config.lease_s) {
            return Err(StartError::Lease(config.lease_s));
        }
        let identity = config.tls.as_ref().map(Tls::identity).transpose()?;
        let access = Access::new(&config)?;
        let listen = |address: &SocketAddr| {
            let listener = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(listener)
            });
            listener.map_err(|source| StartError::Listen {
                address: *address,
                source,
            })
        };
        let listeners = config
            .listen
            .iter()
            .map(listen)
            .collect::<Result<Vec<_>, _>>()?;
        access.warn(&config);
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)?;
        let first = listeners.first().and_then(|one| one.local_addr().ok());
        let address = first.map_or_else(String::new, |address| address.to_string());
        let recorder = config
            .record
            .as_ref()
            .map(|record| recorder(record, &address));
        let recorder = recorder.transpose()?;
        let spans = config
            .otlp
            .as_deref()
            .map(|url| spans::exporter(url, &address));
        let settings = Settings {
            policy: config.policy,
            lease_s: config.lease_s,
            first_placement: u64::from_le_bytes(random) >> 1,
            ..Settings::default()
        };
        let mut directory = Directory::new(settings);
        if let Some(record) = &config.record {
            directory.keep_record(Budget::of_day(record.bytes));
        }
        let shared = Arc::new(Shared {
            directory: Mutex::new(directory),
            access: Mutex::new(access),
            identity,
            connections: AtomicUsize::new(0),
            most_connections: allow_connections(config.connections, "--connections"),
            lease_s: config.lease_s,
            start: Instant::now(),
            start_s: system_date(),
            calendar_ms: AtomicI64::new(0),
            stored: AtomicBool::new(true),
            has_read: AtomicBool::new(config.store.is_none()),
            asked_store: AtomicU64::new(0),
            store: config.store,
            ends: AtomicBool::new(false),
            spans: spans.transpose()?,
        });
        Ok(Metaserver {
            listeners,
            recorder,
            tls: config.tls,
            shared,
        })
    }

    /// A function that returns the present metrics for Prometheus. Any thread can call it.
    pub fn readings(&self) -> impl Fn() -> Text + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || status::metrics(&shared)
    }

    /// The addresses that it listens on, in the form that clients write.
    pub fn addresses(&self) -> Vec<String> {
        let scheme = if self.shared.identity.is_some() {
            "farcalls"
        } else {
            "farcall"
        };
        let address = |listener: &TcpListener| match listener.local_addr() {
            Ok(address) => format!("{scheme}://{address}"),
            Err(error) => format!("{scheme}://? ({error})"),
        };
        self.listeners.iter().map(address).collect()
    }

    /// Serves until SIGTERM, SIGINT or SIGUSR1. After SIGHUP, it reads its certificates and tokens
    /// again.
    ///
    /// # Errors
    /// The system cannot create a thread or wait for events.
    pub fn run(mut self) -> io::Result<()> {
        let (signals, theirs) = UnixStream::pair()?;
        let (reloads, reload) = UnixStream::pair()?;
        // A metaserver that was started at a terminal ends when the terminal closes.
        let hangup = if io::stderr().is_terminal() {
            &theirs
        } else {
            &reload
        };
        for (signal, pipe) in [
            (libc::SIGTERM, &theirs),
            (libc::SIGINT, &theirs),
            // It makes a server drain. A metaserver has no calls that it must wait for.
            (libc::SIGUSR1, &theirs),
            (libc::SIGHUP, hangup),
        ] {
            signal_hook::low_level::pipe::register(signal, pipe.try_clone()?)?;
        }
        let keeper = keeper::start(&self.shared, keeper::PATIENCE)?;
        let mut door = Door::default();
        let mut looked = Instant::now();
        loop {
            let mut waits = vec![
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&reloads, PollFlags::IN),
            ];
            waits.extend(
                self.listeners
                    .iter()
                    .map(|one| PollFd::new(one, PollFlags::IN)),
            );
            match poll(&mut waits, Some(&TICK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !waits[0].revents().is_empty() {
                break;
            }
            if !waits[1].revents().is_empty() {
                let _ = (&reloads).read(&mut [0; 64]);
                self.reload();
            }
            if looked.elapsed() >= CALENDAR {
                looked = Instant::now();
                self.shared.follow_calendar(system_date());
            }
            self.advance();
            keeper.iter().for_each(Keeper::watch);
            self.record(false);
            for listener in &self.listeners {
                door.accept(&self.shared, listener);
            }
        }
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(keeper) = keeper {
            // The keeper writes the last changes before it ends.
            keeper.end();
        }
        self.record(true);
        self.recorder = None;
        if let Some(spans) = &self.shared.spans {
            spans.flush(LAST_SPANS);
        }
        Ok(())
    }

    /// Ends leases. Without a store, nobody else takes the changes of the directory.
    fn advance(&self) {
        let mut directory = self.shared.directory();
        directory.advance(self.shared.now());
        if self.shared.store.is_none() {
            drop(directory.changes());
        }
    }

    /// Passes the lines that have gathered to the recorder.
    fn record(&mut self, is_end: bool) {
        if let Some(recorder) = &mut self.recorder {
            let lines = self.shared.directory().take_lines(is_end);
            lines.into_iter().for_each(|line| recorder.record(line));
        }
    }

    /// Reads certificates and tokens again. Tokens are also read again whenever their file changes,
    /// but only when a client comes.
    fn reload(&self) {
        tracing::info!("SIGHUP: reading certificates and tokens again");
        if let (Some(tls), Some(identity)) = (&self.tls, &self.shared.identity)
            && let Err(error) = tls.reload(identity)
        {
            tracing::error!("TLS: {error}; the metaserver goes on with what it has");
        }
        let access = self.shared.access.lock();
        let mut access = access.unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = access.reread() {
            tracing::error!(
                "tokens: {error}; clients with tokens are refused until the file can be used"
            );
        }
    }
}

/// What the metaserver knows of those who connect.
#[derive(Default)]
struct Door {
    /// The number of the last connection.
    number: u64,
    accepting: Accepting,
}

impl Door {
    /// Accepts the waiting connections and gives each a number.
    fn accept(&mut self, shared: &Arc<Shared>, listener: &TcpListener) {
        loop {
            let error = match listener.accept() {
                Ok((stream, peer)) => {
                    self.number += 1;
                    let (shared, number) = (shared.clone(), self.number);
                    let serve = move || session::serve(&shared, stream, peer, number);
                    if let Err(error) = thread::Builder::new().spawn(serve) {
                        tracing::warn!(
                            "{peer}: cannot create a thread for the connection: {error}"
                        );
                    }
                    continue;
                }
                Err(error) => error,
            };
            if let Some(text) = self.accepting.news(&error) {
                tracing::warn!("{text}");
            }
            if error.kind() != io::ErrorKind::WouldBlock {
                // The usual reason is a lack of descriptors, which ends when connections close.
                thread::sleep(Duration::from_millis(100));
            }
            return;
        }
    }
}

/// What writes the record of a metaserver at this address.
fn recorder(record: &Record, address: &str) -> io::Result<Recorder> {
    Recorder::start(farcall_recorder::Settings {
        folder: record.folder.clone(),
        bytes: record.bytes,
        server: format!("meta://{address}"),
        id: String::new(),
        program: concat!("farcall-metaserver ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

/// The date of the system's clock, in seconds since 1970, UTC.
fn system_date() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Interval between looks at the system's clock.
const CALENDAR: Duration = Duration::from_secs(60);
/// The part of a lease by which the system's clock may differ. Its corrections are mostly smaller.
const TOLERATED: f64 = 0.1;
/// How long an ending metaserver waits for its last spans.
const LAST_SPANS: Duration = Duration::from_secs(1);
/// Interval between checks of the leases.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_is_followed_and_leases_go_on() {
        let shared = Metaserver::bind(Config::default()).unwrap().shared;
        let ahead = |shared: &Shared| shared.date(0.0);
        let now = shared.now();
        shared.follow_calendar(now + 0.5);
        assert_eq!(ahead(&shared), 0.0, "a small difference remains");
        for set_s in [3600.0, -86400.0] {
            shared.follow_calendar(now + set_s);
            assert!((ahead(&shared) - set_s).abs() < 60.0);
            assert!((shared.now() - now).abs() < 60.0);
        }
    }
}
