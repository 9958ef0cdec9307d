//! The metaserver: keeps the directory of servers, and tells clients where a call goes.
//!
//! [`Metaserver::bind`] takes a typed [`Config`] and listens; [`Metaserver::run`] serves until
//! SIGTERM or SIGINT. `farcall_directory` decides; here are sockets, threads and the store.
//!
//! Each connection has a thread, which reads a request, asks the directory under its lock, and
//! answers; their number is bounded. One thread more passes what has changed on to the store, and
//! takes in what other metaservers have put there. How a server joins is
//! the server's own matter.

mod access;
mod session;
mod status;
mod store;

pub use store::{StoreAddress, StoreError};

use access::Access;
use farcall_access::{Tls, TokenError};
use farcall_directory::{Directory, Settings};
use farcall_metrics::Text;
use farcall_schedule::placement::Policy;
use farcall_tls::{FileError, Identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use store::keeper;

/// What an operator can set.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; port 0 picks a free one.
    pub listen: Vec<SocketAddr>,
    /// TLS, instead of clear text.
    pub tls: Option<Tls>,
    /// File of tokens; only who has one may come in, or who shows a certificate that is believed.
    pub tokens: Option<PathBuf>,
    /// Users, by the names of their tokens or certificates, whose servers may join. Where nobody
    /// has to prove anything, all may.
    pub server_users: Vec<String>,
    /// Where the directory is kept and shared; without one it is forgotten at the end.
    pub store: Option<StoreAddress>,
    /// How a server is chosen.
    pub policy: Policy,
    /// Seconds for which a server is believed to be there without a report.
    pub lease_s: f64,
    /// Open connections; more are told so and closed.
    pub connections: usize,
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
            connections: 1000,
        }
    }
}

/// Why a metaserver cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another port, or port 0")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate, its key or the certificates of clients cannot be used.
    #[error("TLS: {0}; `farcall access certificate` makes certificates and keys")]
    Tls(#[from] FileError),
    /// The tokens cannot be used.
    #[error("tokens: {0}")]
    Tokens(#[from] TokenError),
    /// The lease is no time.
    #[error("a lease of {0} s: give 0.1 to 86400 seconds")]
    Lease(f64),
    /// The system refused something else.
    #[error("cannot start the metaserver: {0}")]
    System(#[from] io::Error),
}

/// What the threads share.
pub(crate) struct Shared {
    directory: Mutex<Directory>,
    access: Mutex<Access>,
    identity: Option<Identity>,
    connections: AtomicUsize,
    most_connections: usize,
    lease_s: f64,
    start: Instant,
    /// Seconds from 1970, UTC, until then.
    start_s: f64,
    /// The store answers; always, where there is none.
    stored: AtomicBool,
    store: Option<StoreAddress>,
    ends: AtomicBool,
}

impl Shared {
    /// Seconds since 1970, UTC. Leases go by it: when the calendar is set, it goes on as before.
    pub(crate) fn now(&self) -> f64 {
        self.start_s + self.start.elapsed().as_secs_f64()
    }

    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A metaserver that listens.
pub struct Metaserver {
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
}

impl Metaserver {
    /// Listens, and reads what the store knows.
    ///
    /// # Errors
    /// The configuration cannot be used. A store that cannot be reached is no error: it is logged,
    /// and tried again.
    pub fn bind(config: Config) -> Result<Metaserver, StartError> {
        if !(0.1..=86400.0).contains(&config.lease_s) {
            return Err(StartError::Lease(config.lease_s));
        }
        let identity = config.tls.as_ref().map(Tls::identity);
        let identity = identity.transpose()?;
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
        access.warn_of_strangers(&config.listen);
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)?;
        let settings = Settings {
            policy: config.policy,
            lease_s: config.lease_s,
            first_placement: u64::from_le_bytes(random) >> 1,
            ..Settings::default()
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let shared = Arc::new(Shared {
            directory: Mutex::new(Directory::new(settings)),
            access: Mutex::new(access),
            identity,
            connections: AtomicUsize::new(0),
            most_connections: config.connections,
            lease_s: config.lease_s,
            start: Instant::now(),
            start_s: since.unwrap_or_default().as_secs_f64(),
            stored: AtomicBool::new(true),
            store: config.store,
            ends: AtomicBool::new(false),
        });
        Ok(Metaserver { listeners, shared })
    }

    /// A way to ask, from any thread, for what Prometheus is to be told.
    pub fn readings(&self) -> impl Fn() -> Text + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move || status::metrics(&shared)
    }

    /// Where it listens, as clients write it.
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

    /// Serves until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The system refuses a thread or a wait.
    pub fn run(self) -> io::Result<()> {
        let (signals, theirs) = UnixStream::pair()?;
        for signal in [libc::SIGTERM, libc::SIGINT] {
            signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
        }
        let keeper = keeper::start(&self.shared)?;
        let mut number = 0;
        loop {
            let mut waits = vec![PollFd::new(&signals, PollFlags::IN)];
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
            let now = self.shared.now();
            self.shared.directory().advance(now);
            for listener in &self.listeners {
                number = self.accept(listener, number);
            }
        }
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(keeper) = keeper {
            // It writes what has changed last.
            let _ = keeper.join();
        }
        Ok(())
    }

    /// Takes the connections that wait; each has a number of its own.
    fn accept(&self, listener: &TcpListener, mut number: u64) -> u64 {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    number += 1;
                    let shared = self.shared.clone();
                    let serve = move || session::serve(&shared, stream, peer, number);
                    if let Err(error) = thread::Builder::new().spawn(serve) {
                        tracing::warn!("{peer}: no thread for it: {error}");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return number,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    // Mostly for lack of descriptors, which passes when connections end.
                    thread::sleep(std::time::Duration::from_millis(100));
                    return number;
                }
            }
        }
    }
}

/// How often leases are looked at.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
