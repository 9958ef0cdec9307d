//! The thread of a server's membership at a metaserver. `farcall_server_proto::member` decides what
//! to tell it, and when.

use crate::ServerStatus;
use farcall_client::{Address, Error, Metaserver, Options};
use farcall_server_proto::member::{self, Answer, Ask};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longest wait for a metaserver's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A server that joins a metaserver.
pub struct Member {
    /// The metaserver.
    pub metaserver: Address,
    /// The server's random number, the same at every metaserver.
    pub server: u64,
    /// Address of the server for clients.
    pub address: String,
    /// Credentials and trusted authorities.
    pub options: Options,
}

/// A random number for a server.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn random_number() -> io::Result<u64> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(random))
}

/// The state of the membership, and the connection to the metaserver.
struct Membership {
    what: Member,
    member: member::Member,
    metaserver: Option<Metaserver>,
    start: Instant,
    /// Whether the log says already that the metaserver is away.
    complained: bool,
}

impl Member {
    /// Starts a thread that joins, reports every status, renews the lease, and joins again when the
    /// metaserver returns. It leaves when the server ends.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(mut self, subscribers: Receiver<ServerStatus>) -> io::Result<JoinHandle<()>> {
        self.options.timeout = Some(PATIENCE);
        self.options.connect_timeout = PATIENCE;
        self.options.spin = Duration::ZERO;
        let agent = concat!("farcall ", env!("CARGO_PKG_VERSION"));
        let mut membership = Membership {
            member: member::Member::new(self.server, self.address.clone(), agent),
            what: self,
            metaserver: None,
            start: Instant::now(),
            complained: false,
        };
        let run = move || membership.run(&subscribers);
        thread::Builder::new().name("member".into()).spawn(run)
    }
}

impl Membership {
    fn run(&mut self, subscribers: &Receiver<ServerStatus>) {
        loop {
            let next = self.member.next_deadline().map(Duration::from_nanos);
            let wait = next.map_or(Duration::MAX, |next| next.saturating_sub(self.now()));
            match subscribers.recv_timeout(wait) {
                Ok(told) => {
                    let at = told.at.saturating_duration_since(self.start);
                    self.member.take(at.as_nanos() as u64, told.status);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some(ask) = self.member.poll(self.now().as_nanos() as u64) {
                self.ask(ask);
            }
        }
        if let Some(metaserver) = self.metaserver.take() {
            // Otherwise its lease would have to expire first.
            let _ = metaserver.leave(self.member.server());
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn ask(&mut self, ask: Ask) {
        let joins = matches!(ask, Ask::Join(_));
        let told = match (ask, &self.metaserver) {
            (Ask::Join(join), Some(metaserver)) => metaserver.join(&join),
            (Ask::Report(report), Some(metaserver)) => metaserver.report(&report),
            (Ask::Hold(hold), Some(metaserver)) => metaserver.hold(&hold),
            _ => return self.connect(),
        };
        let answer = match told {
            Ok(noted) => Answer::Noted(noted),
            Err(error) if Metaserver::wants_join(&error) => Answer::WantsJoin,
            Err(error) => return self.lose(&error),
        };
        if joins {
            tracing::info!("joined the metaserver {}", self.what.metaserver);
            self.complained = false;
        }
        self.member.answered(self.now().as_nanos() as u64, answer);
    }

    fn connect(&mut self) {
        let (address, options) = (&self.what.metaserver, &self.what.options);
        match Metaserver::connect(address, options) {
            Ok(metaserver) => {
                if !metaserver.knows_data() {
                    tracing::info!("the metaserver {address} is too old for named data; update it");
                }
                self.member.connected(metaserver.knows_data());
                self.metaserver = Some(metaserver);
            }
            Err(error) => self.lose(&error),
        }
    }

    fn lose(&mut self, error: &Error) {
        if !self.complained {
            let address = &self.what.metaserver;
            tracing::warn!("metaserver {address}: {error}; the server continues and tries again");
        }
        self.complained = true;
        self.metaserver = None;
        self.member.lost(self.now().as_nanos() as u64);
    }
}
