//! Arrays that come from other servers: a thread for each reads it into memory of this one.
//!
//! The other server is believed in nothing: only TCP, only networks that the operator allows
//! (`data.peers`), a bound on time, and no memory shared with it.

use super::Reactor;
use crate::buffer::JobBuffer;
use crate::connection::Offer;
use crate::spool::Spool;
use crate::user::User;
use farcall_client::{Address, Credentials, Options};
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Pull, Put};
use ipnet::IpNet;
use std::collections::HashMap;
use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Arrays that come at the same time.
const MOST: usize = 32;

/// The slowest link that is waited for, in bytes per second.
const SLOWEST: f64 = 1e5;

/// Arrays on their way.
pub(super) struct Pulls {
    last: u64,
    under_way: HashMap<u64, Waiting>,
    sender: Sender<Pulled>,
    receiver: Receiver<Pulled>,
    /// Read from the environment when it is first needed, once for all.
    credentials: Option<Credentials>,
}

/// Who waits for an array.
struct Waiting {
    /// None where the client has gone.
    connection: Option<usize>,
    request: CallId,
    put: Put,
    user: User,
}

/// What a thread has read.
struct Pulled {
    number: u64,
    buffer: JobBuffer,
    read: Result<(), String>,
}

impl Default for Pulls {
    fn default() -> Pulls {
        let (sender, receiver) = channel();
        Pulls {
            last: 0,
            under_way: HashMap::new(),
            sender,
            receiver,
            credentials: None,
        }
    }
}

impl Pulls {
    /// A connection has ended: nobody waits for its arrays.
    pub(super) fn forget(&mut self, connection: usize) {
        for waiting in self.under_way.values_mut() {
            waiting.connection = waiting.connection.filter(|key| *key != connection);
        }
    }
}

impl Reactor {
    /// A client has an array read from another server.
    pub(super) fn offer_pull(&mut self, key: usize, id: CallId, pull: Pull) {
        let user = self.connections[key].user.clone();
        let failure = match self.prepare_pull(&pull, &user) {
            Ok((put, address, Some(buffer))) => {
                return self.start_pull(key, id, put, user, address, pull.loan, buffer);
            }
            Ok((_, _, None)) => {
                self.connections[key].waiting = Some((id, Offer::Pull(pull)));
                return self.starved.push_back(key);
            }
            Err(failure) => failure,
        };
        self.connections[key].proto.fail(id, &failure);
    }

    fn prepare_pull(
        &mut self,
        pull: &Pull,
        user: &User,
    ) -> Result<(Put, Address, Option<JobBuffer>), Failure> {
        if self.draining || self.stopping.is_some() {
            let text = "the server is draining; connect anew";
            return Err(Failure::new(FailureKind::Draining, text));
        }
        if self.pulls.under_way.len() >= MOST {
            let text = format!("{MOST} arrays come from other servers already; try again");
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let bad = |text: String| Failure::new(FailureKind::BadArgument, text);
        let address: Address = pull
            .address
            .parse()
            .map_err(|error| bad(format!("{error}")))?;
        if let Address::Unix(_) = address {
            let text = "arrays come from other servers over TCP, not over Unix sockets";
            return Err(bad(text.to_string()));
        }
        let put = Put {
            form: pull.form.clone(),
            data_bytes: 0,
            stays: pull.stays,
        };
        let bytes = self.store.check(&put, user)?;
        Ok((put, address, self.memory_for_array(bytes, user)?))
    }

    #[expect(clippy::too_many_arguments, reason = "each comes from another place")]
    fn start_pull(
        &mut self,
        key: usize,
        request: CallId,
        put: Put,
        user: User,
        address: Address,
        loan: HandleId,
        buffer: JobBuffer,
    ) {
        let bytes = put.form.bytes().unwrap_or(0);
        let credentials = self
            .pulls
            .credentials
            .get_or_insert_with(Credentials::from_environment);
        let reading = Reading {
            number: self.pulls.last + 1,
            address,
            credentials: credentials.clone(),
            peers: self.config.data.peers.clone(),
            loan,
            bytes,
        };
        self.pulls.last += 1;
        self.store.reserve(&user, bytes);
        let waiting = Waiting {
            connection: Some(key),
            request,
            put,
            user,
        };
        let number = reading.number;
        self.pulls.under_way.insert(number, waiting);
        let started = self.doorbell.try_clone().and_then(|doorbell| {
            let sender = self.pulls.sender.clone();
            reading.start(sender, doorbell)
        });
        match started {
            // The thread is there, and waits for nothing else.
            Ok(thread) => drop(thread.send(buffer)),
            Err(error) => self.pulled(Pulled {
                number,
                buffer,
                read: Err(format!("it cannot be read: {error}")),
            }),
        }
    }

    /// Takes the arrays that have come. Returns whether there were any.
    pub(super) fn serve_pulls(&mut self) -> bool {
        let mut any = false;
        while let Ok(pulled) = self.pulls.receiver.try_recv() {
            any = true;
            self.pulled(pulled);
        }
        any
    }

    fn pulled(&mut self, pulled: Pulled) {
        let Some(waiting) = self.pulls.under_way.remove(&pulled.number) else {
            return self.pool.retire(pulled.buffer);
        };
        let id = pulled.read.and_then(|()| {
            let id = Spool::new_id().map_err(|error| error.to_string())?;
            Ok(HandleId(id.0))
        });
        let (Some(key), Ok(id)) = (waiting.connection, &id) else {
            self.forget_put(&waiting.put, &waiting.user, pulled.buffer);
            if let (Some(key), Err(error)) = (waiting.connection, id) {
                let failure = Failure::new(FailureKind::Unreachable, error);
                self.connections[key].proto.fail(waiting.request, &failure);
                self.answered(key);
            }
            return;
        };
        let Waiting { put, user, .. } = waiting;
        self.store.insert(*id, &put, user, key, pulled.buffer);
        if let Some(record) = self.store.record(*id) {
            self.connections[key].proto.handle(waiting.request, &record);
            self.answered(key);
        }
    }
}

/// What a thread reads.
struct Reading {
    number: u64,
    address: Address,
    credentials: Credentials,
    peers: Vec<IpNet>,
    loan: HandleId,
    bytes: u64,
}

impl Reading {
    /// Starts a thread that reads into the buffer which it is given.
    fn start(self, sender: Sender<Pulled>, doorbell: OwnedFd) -> io::Result<Sender<JobBuffer>> {
        let (give, take) = channel();
        let thread = std::thread::Builder::new().name("pull".to_string());
        thread.spawn(move || {
            let Ok(buffer) = take.recv() else { return };
            let read = self.read(&buffer);
            let number = self.number;
            let pulled = Pulled {
                number,
                buffer,
                read: read.map_err(|error| format!("{}: {error}", self.address)),
            };
            // Where the server has ended, nobody waits.
            if sender.send(pulled).is_ok() {
                let _ = rustix::io::write(&doorbell, &1u64.to_ne_bytes());
            }
        })?;
        Ok(give)
    }

    fn read(&self, buffer: &JobBuffer) -> Result<(), String> {
        self.check_peer()?;
        let options = Options {
            timeout: Some(Duration::from_secs_f64(30.0 + self.bytes as f64 / SLOWEST)),
            same_host: false,
            spin: Duration::ZERO,
            credentials: self.credentials.clone(),
            ..Options::default()
        };
        let server = farcall_client::Server::connect(&self.address.to_string(), options);
        let server = server.map_err(|error| error.to_string())?;
        // SAFETY: nobody else has the buffer.
        let bytes = unsafe { buffer.part(0, self.bytes) };
        server
            .redeem(self.loan, bytes)
            .map_err(|error| error.to_string())
    }

    /// Whether all addresses of the other server are in networks that the operator allows.
    fn check_peer(&self) -> Result<(), String> {
        let (Address::Tcp { host, port } | Address::Tls { host, port }) = &self.address else {
            return Err("it is not reached over TCP".to_string());
        };
        let found = (host.as_str(), *port).to_socket_addrs();
        for address in found.map_err(|error| error.to_string())? {
            let ip = address.ip().to_canonical();
            if !self.peers.iter().any(|network| network.contains(&ip)) {
                return Err(format!(
                    "arrays may not come from {ip}; its network is not among data.peers in the \
                     server's configuration"
                ));
            }
        }
        Ok(())
    }
}
