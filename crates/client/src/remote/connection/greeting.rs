//! Opens a connection: the greetings, the proof, and what they say about the server. `socket` makes
//! the byte stream. No request is sent to a server that has not proved that it knows the token, if
//! the client has one and knows the server by no other means.

use super::Connection;
use super::proof::{self, Proof};
use super::silence::Silence;
use super::state::{Loss, State};
use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::process;
use crate::remote::socket::{Socket, Waker};
use farcall_rpc_proto::{
    CALL_STATUS, CALLBACKS, CREDIT, DEADLINES, DIRECTORY, ESTIMATES, FILES, HANDLES, Hello, JOBS,
    KEPT_OBJECTS, LOANS, NAMES, OBJECTS, OPERATION, OUTCOMES, OUTPUT, PARTS, ProtocolError,
    REGISTER, RESERVATIONS, ROWS, SHARED_MEMORY, SNAPSHOTS, SOURCES, WRITES,
};
use farcall_spin::{Latency, Spin};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What this client can do, besides memory that it shares with the server.
const FEATURES: u64 = ESTIMATES
    | CALLBACKS
    | OUTPUT
    | FILES
    | JOBS
    | HANDLES
    | LOANS
    | NAMES
    | OBJECTS
    | OPERATION
    | REGISTER
    | DIRECTORY
    | PARTS
    | CREDIT
    | KEPT_OBJECTS
    | RESERVATIONS
    | SOURCES
    | CALL_STATUS
    | SNAPSHOTS
    | DEADLINES
    | WRITES
    | ROWS
    | OUTCOMES;
/// How often a client connects if the connection ends before a greeting, or the server says that it
/// drains. This happens when another server takes over and listens there already.
const TRIES: usize = 5;
/// Time between two tries.
const NAP: Duration = Duration::from_millis(10);
/// Longest silence of a metaserver before it counts as lost.
const MOST_SILENCE: Duration = Duration::from_secs(3);
/// Most other addresses of a server that a client considers.
const MOST_WAYS: usize = 16;

impl Connection {
    /// Connects and exchanges greetings. Changes to a Unix socket if the server offers one. If the
    /// server refuses the client there, the connection over TCP serves only a client that has
    /// proved its token: the server would take any other for another user.
    pub(crate) fn open(address: &Address, options: &Options) -> Result<Arc<Connection>, Error> {
        let connection = Connection::open_by(address, options, None)?;
        let local = connection.lock().peer.local.take();
        let is_proved = connection.lock().peer.signature.is_some();
        let may_change = options.same_host && !options.credentials.is_stranger();
        let may_change = may_change && connection.socket.is_within_host();
        let may_change = may_change && !connection.socket.is_unix();
        let Some(name) = local.filter(|_| may_change) else {
            return Ok(connection);
        };
        let connect = Socket::connect_local(&name, options);
        match Connection::over(connect, address, options) {
            Ok(changed) => Ok(changed),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error @ Error::Refused { .. }) if !is_proved && !error.was_cut_off() => Err(error),
            Err(_) => Ok(connection),
        }
    }

    /// Connects and exchanges greetings, at another address of the server if one is given.
    pub(crate) fn open_by(
        address: &Address,
        options: &Options,
        way: Option<SocketAddr>,
    ) -> Result<Arc<Connection>, Error> {
        let knows_processes = matches!(address, Address::Unix(_) | Address::Ssh(_));
        if knows_processes && options.credentials.is_stranger() {
            return Err(Error::Refused {
                address: address.clone(),
                reason: "the server would take a caller without a token for the user of this \
                         process; call with a token"
                    .into(),
            });
        }
        let mut tries = TRIES;
        loop {
            let connect = Socket::connect(address, way, options);
            tries -= 1;
            match Connection::over(connect, address, options) {
                Err(error) if tries > 0 && error.was_cut_off() => std::thread::sleep(NAP),
                other => return other,
            }
        }
    }

    fn over(
        socket: io::Result<Socket>,
        address: &Address,
        options: &Options,
    ) -> Result<Arc<Connection>, Error> {
        let failed = |source: io::Error| match source.kind() {
            // The program wants to see what has interrupted it.
            io::ErrorKind::Interrupted => Error::Interrupted,
            _ => Error::Connect {
                address: address.clone(),
                source,
            },
        };
        let socket = socket.map_err(failed)?;
        let mut hello = Hello::new(concat!("farcall-client ", env!("CARGO_PKG_VERSION")));
        hello.features |= FEATURES;
        if socket.passes_memory() {
            hello.features |= SHARED_MEMORY;
        }
        if options.credentials.is_strict() && !socket.is_private() {
            return Err(Error::Refused {
                address: address.clone(),
                reason: "a token is never used over a network without TLS: use farcalls://".into(),
            });
        }
        let token = options.credentials.token().filter(|_| socket.is_private());
        let begin = |token| Proof::begin(token, socket.is_tls());
        let mut proof = None;
        if let Some((begun, first)) = token.map(begin).transpose().map_err(failed)? {
            (proof, hello.proof) = (Some(begun), Some(first));
        }
        hello.loan = options.credentials.loan();
        hello.client = Some(options.client);
        let is_remote = !socket.is_within_host();
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mut connection = Connection {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            process: process::generation(),
            address: address.clone(),
            options: options.clone(),
            socket,
            waker: Waker::new().map_err(failed)?,
            state: Mutex::new(State::new(
                &hello,
                is_remote,
                Silence::new(options.lost_after),
            )),
            features: 0,
            pool: Mutex::default(),
            spin: Spin::new(options.spin),
            records: Latency::default(),
            bulk: Arc::default(),
            contenders: AtomicUsize::new(0),
        };
        connection.greet(proof)?;
        let features = connection.lock().peer.features;
        connection.features = features;
        if connection.is_to_metaserver() {
            // It computes nothing, and calls wait for its answers.
            let limit = options.lost_after.map(|limit| limit.min(MOST_SILENCE));
            connection.lock().silence = Silence::new(limit);
        }
        Ok(Arc::new(connection))
    }

    /// Exchanges greetings. A client with a proof answers the challenge of the server.
    fn greet(&self, proof: Option<Proof>) -> Result<(), Error> {
        let mut proof = proof;
        let deadline = Instant::now().checked_add(self.options.connect_timeout);
        loop {
            let outlook = {
                let mut state = self.lock();
                state.progress(&self.socket, None);
                if let (Some(proof), Some(challenge)) = (&mut proof, state.peer.challenge.take()) {
                    let answer = proof.answer(&challenge, self.socket.binding().as_ref());
                    let answer = answer.map_err(|error| proof::refused(&self.address, error))?;
                    state.prove(answer, &self.socket);
                }
                if state.is_connected() {
                    let signature = state.peer.signature.as_deref();
                    let checked = proof.map_or(Ok(()), |proof| {
                        proof.check(signature, is_known(&self.socket, &self.options))
                    });
                    return checked.map_err(|reason| Error::Refused {
                        address: self.address.clone(),
                        reason,
                    });
                }
                if let Some(loss) = &state.lost {
                    return Err(self.refusal(loss));
                }
                state.outlook()
            };
            self.wait(outlook, deadline, self.options.connect_timeout)?;
        }
    }

    /// The error of a server that refuses the client.
    fn refusal(&self, loss: &Loss) -> Error {
        let Loss::Protocol(ProtocolError::Goodbye(reason)) = loss else {
            return self.error(loss.clone());
        };
        let has_token = self.options.credentials.token().is_some();
        let hint = match (has_token, self.socket.is_private()) {
            (true, false) => "; a token is never used over a network without TLS: use farcalls://",
            // The words of servers that ask for the token itself.
            (true, true) if reason.ends_with("asks for a token; set FARCALL_TOKEN") => {
                "; this client has one and never sends it, and the server is too old to take a \
                 proof: update the server"
            }
            _ => "",
        };
        Error::Refused {
            address: self.address.clone(),
            reason: format!("{reason}{hint}"),
        }
    }

    /// The server's program and version.
    pub(crate) fn agent(&self) -> String {
        self.lock().peer.agent.clone()
    }

    /// Other addresses at which the server listens.
    pub(crate) fn paths(&self) -> Vec<SocketAddr> {
        let state = self.lock();
        let paths = state.peer.paths.iter().filter_map(|way| way.parse().ok());
        let peer = self.socket.peer();
        paths
            .filter(|way| Some(*way) != peer)
            .take(MOST_WAYS)
            .collect()
    }
}

/// Whether the client knows the server without a proof: by its certificate, its Unix socket, ssh,
/// or a metaserver. Who connects for others accepts no server that does not ask for the proof.
fn is_known(socket: &Socket, options: &Options) -> bool {
    let is_strict = options.credentials.is_strict();
    let is_known = socket.is_unix() || socket.is_ssh() || socket.is_tls();
    !is_strict && (is_known || options.credentials.is_named())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credentials;

    #[test]
    fn no_server_takes_a_stranger_for_the_user_of_this_process() {
        let options = Options {
            credentials: Credentials::of_stranger().for_named_server(),
            ..Options::default()
        };
        for address in ["unix:///nowhere/socket", "ssh://nowhere"] {
            let opened = Connection::open(&address.parse().unwrap(), &options);
            let error = opened.err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains("call with a token"), "{error}");
        }
    }
}
