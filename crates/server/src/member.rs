//! How a server is a member of a metaserver's directory: it joins, says how it stands, and leaves.

mod held;

use crate::Standing;
use farcall_client::{Address, Error, Metaserver, Options};
use farcall_directory::message::{Function, Join, MOST_LEARNED, Report, Times};
use held::Held;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two tries to reach a metaserver that is away.
const RETRY: Duration = Duration::from_millis(500);
/// How long a metaserver may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// The lease is renewed so many times while it holds.
const RENEWALS: f64 = 3.0;

/// A server that joins a metaserver.
pub struct Member {
    /// The metaserver.
    pub metaserver: Address,
    /// The server's random number, the same at every metaserver.
    pub server: u64,
    /// Where clients reach the server.
    pub address: String,
    /// Whom it believes, and what it shows.
    pub options: Options,
}

/// A random number for a server.
///
/// # Errors
/// The system has no randomness.
pub fn random_number() -> io::Result<u64> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(random))
}

/// What is known of the server, and of the way to the metaserver.
struct Membership {
    member: Member,
    functions: Vec<Function>,
    standing: Option<Standing>,
    /// All that the server has learned.
    learned: BTreeMap<String, Times>,
    /// Names whose times the metaserver does not know yet.
    untold: Vec<String>,
    held: Held,
    metaserver: Option<Metaserver>,
    renew_every: Duration,
    retry_at: Instant,
    /// Whether it was said that the metaserver is away.
    complained: bool,
}

impl Member {
    /// Starts a thread that joins, tells of every `standing`, renews the lease, and joins again
    /// when the metaserver comes back. When the server ends, it leaves.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(mut self, standings: Receiver<Standing>) -> io::Result<JoinHandle<()>> {
        self.options.timeout = Some(PATIENCE);
        self.options.connect_timeout = PATIENCE;
        self.options.spin = Duration::ZERO;
        let mut membership = Membership {
            member: self,
            functions: Vec::new(),
            standing: None,
            learned: BTreeMap::new(),
            untold: Vec::new(),
            held: Held::default(),
            metaserver: None,
            renew_every: RETRY,
            retry_at: Instant::now(),
            complained: false,
        };
        let run = move || membership.run(&standings);
        thread::Builder::new().name("member".into()).spawn(run)
    }
}

impl Membership {
    fn run(&mut self, standings: &Receiver<Standing>) {
        loop {
            match standings.recv_timeout(self.renew_every) {
                Ok(standing) => self.take(standing),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tell();
        }
        if let Some(metaserver) = self.metaserver.take() {
            // Its lease would end otherwise.
            let _ = metaserver.leave(self.member.server);
        }
    }

    fn take(&mut self, mut standing: Standing) {
        for times in std::mem::take(&mut standing.report.learned) {
            self.untold.push(times.function.clone());
            self.learned.insert(times.function.clone(), times);
        }
        if let Some(data) = standing.data.take() {
            self.held.set(data);
        }
        if let Some(functions) = standing.functions.take() {
            self.functions = functions;
            if let Some(metaserver) = &self.metaserver
                && let Err(error) = metaserver.join(&self.join(&standing))
            {
                self.lose(&error);
            }
        }
        self.standing = Some(standing);
    }

    /// Says how the server stands, on a new connection where there is none.
    fn tell(&mut self) {
        let Some(standing) = self.standing.clone() else {
            return;
        };
        if self.metaserver.is_none() && !self.connect(&standing) {
            return;
        }
        loop {
            let names: Vec<String> = {
                let count = self.untold.len().min(MOST_LEARNED);
                self.untold.drain(..count).collect()
            };
            let report = Report {
                server: self.member.server,
                learned: names
                    .iter()
                    .filter_map(|name| self.learned.get(name))
                    .cloned()
                    .collect(),
                ..standing
                    .report
                    .clone()
                    .after(standing.at.elapsed().as_secs_f64())
            };
            let Some(metaserver) = &self.metaserver else {
                return;
            };
            let told = metaserver.report(&report);
            let told = match told {
                Err(error) if Metaserver::wants_join(&error) => {
                    self.untold = self.learned.keys().cloned().collect();
                    self.held.begin_anew();
                    metaserver.join(&self.join(&standing))
                }
                other => other,
            };
            match told {
                Ok(noted) => self.renew_in(noted.lease_s),
                Err(error) => return self.lose(&error),
            }
            if self.untold.is_empty() {
                return self.tell_data();
            }
        }
    }

    /// Says which named data the server holds, as far as the metaserver does not know.
    fn tell_data(&mut self) {
        let server = self.member.server;
        while let Some(metaserver) = self.metaserver.as_ref().filter(|one| one.knows_data())
            && let Some(hold) = self.held.next(server)
        {
            match metaserver.hold(&hold) {
                Ok(_) => self.held.told(&hold),
                // It is told after the server has joined again.
                Err(error) if Metaserver::wants_join(&error) => return,
                Err(error) => return self.lose(&error),
            }
        }
    }

    fn connect(&mut self, standing: &Standing) -> bool {
        if Instant::now() < self.retry_at {
            return false;
        }
        let (address, options) = (&self.member.metaserver, &self.member.options);
        let joined = Metaserver::connect(address, options)
            .and_then(|metaserver| Ok((metaserver.join(&self.join(standing))?, metaserver)));
        match joined {
            Ok((noted, metaserver)) => {
                tracing::info!("joined the metaserver {address}");
                if !metaserver.knows_data() {
                    tracing::info!(
                        "the metaserver {address} is too old to know data by name; update it"
                    );
                }
                self.metaserver = Some(metaserver);
                self.complained = false;
                self.untold = self.learned.keys().cloned().collect();
                self.held.begin_anew();
                self.renew_in(noted.lease_s);
                true
            }
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    fn renew_in(&mut self, lease_s: f64) {
        let seconds = (lease_s / RENEWALS).clamp(0.01, 3600.0);
        self.renew_every = Duration::from_secs_f64(seconds);
    }

    fn lose(&mut self, error: &Error) {
        if !self.complained {
            let address = &self.member.metaserver;
            tracing::warn!("metaserver {address}: {error}; the server goes on, and tries again");
        }
        self.complained = true;
        self.metaserver = None;
        self.renew_every = RETRY;
        self.retry_at = Instant::now() + RETRY;
    }

    fn join(&self, standing: &Standing) -> Join {
        Join {
            server: self.member.server,
            address: self.member.address.clone(),
            agent: concat!("farcall ", env!("CARGO_PKG_VERSION")).to_string(),
            pes: standing.pes,
            memory: standing.memory,
            functions: self.functions.clone(),
        }
    }
}
