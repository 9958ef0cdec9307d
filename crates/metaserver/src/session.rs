//! One connection: its thread reads a request, asks the directory, and answers.

use crate::{Shared, now, status};
use farcall_client::Address;
use farcall_directory::message::{
    Choose, Find, FindData, Found, Hold, Invalid, Join, Leave, ListData, Message, Noted, Observe,
    Report,
};
use farcall_directory::{Refusal, Viewer};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{
    DIRECTORY, Failure, FailureKind, FunctionSummary, Hello, Kind, Limits, Listing, NAMES,
    OPERATION, ProtocolError, Transmit,
};
use farcall_tls::Session as Tls;
use std::collections::BTreeSet;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Within this time a connection must greet, and take each answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection on which nothing comes for so long is closed; its client makes another.
const IDLE: Duration = Duration::from_secs(3600);
/// Bytes read at once.
const INPUT_BYTES: usize = 64 << 10;
/// Functions of one page of a listing.
const PAGE: usize = 256;
/// Servers that may join by one connection.
const MOST_JOINED: usize = 16;

/// A socket, with TLS where the metaserver speaks it.
struct Wire {
    stream: TcpStream,
    tls: Option<Tls>,
}

impl Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(buffer),
            Some(tls) => tls.read(&mut self.stream, &mut [IoSliceMut::new(buffer)]),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(bytes);
        };
        while !bytes.is_empty() {
            let count = tls.write(&mut self.stream, &[IoSlice::new(bytes)])?;
            bytes = &bytes[count..];
        }
        tls.flush(&mut self.stream)
    }
}

/// A connection, as its thread knows it.
struct Session<'s> {
    shared: &'s Shared,
    wire: Wire,
    proto: Connection,
    peer: SocketAddr,
    number: u64,
    user: Option<String>,
    /// Servers that have joined by it.
    joined: BTreeSet<u64>,
}

/// Why a connection ends.
enum End {
    /// The other side has closed it, or broke off.
    Left,
    /// It is told why.
    Told(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                End::Told("nothing came for too long; connect anew".to_string())
            }
            _ => End::Left,
        }
    }
}

impl From<ProtocolError> for End {
    fn from(error: ProtocolError) -> End {
        match error {
            ProtocolError::NotFarcall | ProtocolError::Goodbye(_) => End::Left,
            other => End::Told(other.to_string()),
        }
    }
}

/// Serves a connection until it ends.
pub(crate) fn serve(shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr, number: u64) {
    let open = shared.connections.fetch_add(1, Ordering::Relaxed);
    if let Ok(mut session) = begin(shared, stream, peer, number) {
        let end = match open < shared.most_connections {
            true => session.run(),
            false => End::Told(format!(
                "the metaserver is full ({} connections)",
                shared.most_connections
            )),
        };
        if let End::Told(reason) = end {
            tracing::debug!("{peer}: closed: {reason}");
            session.proto.goodbye(reason);
            // Whoever does not take it is not waited for.
            let _ = session.flush();
        }
        session.lose_joined();
    }
    shared.connections.fetch_sub(1, Ordering::Relaxed);
}

fn begin(
    shared: &Shared,
    stream: TcpStream,
    peer: SocketAddr,
    number: u64,
) -> io::Result<Session<'_>> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let tls = shared.identity.as_ref().map(Tls::server).transpose()?;
    let mut hello = Hello::new(concat!("farcall-metaserver ", env!("CARGO_PKG_VERSION")));
    hello.features |= DIRECTORY | OPERATION | NAMES;
    Ok(Session {
        shared,
        wire: Wire { stream, tls },
        proto: Connection::new(Limits::default(), hello),
        peer,
        number,
        user: None,
        joined: BTreeSet::new(),
    })
}

impl Session<'_> {
    fn run(&mut self) -> End {
        let mut input = vec![0; INPUT_BYTES];
        loop {
            if let Err(end) = self.turn(&mut input) {
                return end;
            }
        }
    }

    fn turn(&mut self, input: &mut [u8]) -> Result<(), End> {
        let count = self.wire.read(input)?;
        if count == 0 {
            return Err(End::Left);
        }
        let mut left = &input[..count];
        while !left.is_empty() {
            if self.proto.incoming().is_some() {
                return Err(End::Told("a metaserver takes no array data".to_string()));
            }
            let (taken, event) = self.proto.handle_input(left, 0)?;
            left = &left[taken..];
            if let Some(event) = event {
                self.handle(event)?;
            }
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        while self.proto.poll_transmit(&mut out, 0) != Transmit::Idle {}
        self.wire.write_all(&out)
    }

    fn handle(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Connected(hello) => return self.welcome(&hello),
            Event::List(request, from) => {
                let listing = self.page(from as usize);
                self.proto.listing(request, &listing);
            }
            Event::Status(request) => {
                let text = status::text(self.shared);
                self.proto.standing(request, text);
            }
            Event::Directory(request, kind, message) => {
                match self.direct(kind, &message) {
                    Ok(Some((kind, answer))) => self.proto.directory(request, kind, &answer),
                    Ok(None) => {}
                    // Nothing answers an observation.
                    Err(_) if kind == Kind::Observe => {}
                    Err(failure) => self.proto.fail(request, &failure),
                }
            }
            Event::Drain(request) => {
                let text = "this is a metaserver: drain its servers one by one, which `farcall \
                            status` lists, and end a metaserver with SIGTERM";
                let failure = Failure::new(FailureKind::NotAllowed, text);
                self.proto.fail(request, &failure);
            }
            Event::Describe(request, _) | Event::Call(request, _) => {
                let text = "this is a metaserver: it computes nothing; a newer client asks it \
                            where to call";
                let failure = Failure::new(FailureKind::NotAllowed, text);
                self.proto.fail(request, &failure);
            }
            // Their features are not offered.
            _ => return Err(End::Told("a metaserver does not do this".to_string())),
        }
        Ok(())
    }

    fn welcome(&mut self, hello: &Hello) -> Result<(), End> {
        let certificate = self.wire.tls.as_ref().and_then(Tls::peer_name);
        let access = self.shared.access.lock();
        let mut access = access.unwrap_or_else(PoisonError::into_inner);
        match access.user(hello.token.as_deref(), certificate) {
            Ok(user) => {
                tracing::debug!("{}: connected, {}, user {user}", self.peer, hello.agent);
                self.user = Some(user);
                self.wire.stream.set_read_timeout(Some(IDLE))?;
                Ok(())
            }
            Err(reason) => {
                tracing::warn!("{}: refused: {reason}", self.peer);
                self.proto.refuse(reason);
                let _ = self.flush();
                Err(End::Left)
            }
        }
    }

    /// What the directory says.
    fn direct(&mut self, kind: Kind, message: &[u8]) -> Result<Option<(Kind, Vec<u8>)>, Failure> {
        match kind {
            Kind::Join => self.join(read(message)?)?,
            Kind::Report => {
                let report: Report = read(message)?;
                self.check_joined(report.server)?;
                let reported = self.shared.directory().report(now(), report);
                reported.map_err(refusal)?;
            }
            Kind::Leave => {
                let Leave { server } = read(message)?;
                self.check_joined(server)?;
                self.joined.remove(&server);
                self.shared.joined().remove(&server);
                self.shared.directory().leave(now(), server);
                tracing::info!("server {server:016x} has left");
            }
            Kind::Hold => {
                let hold: Hold = read(message)?;
                self.check_joined(hold.server)?;
                let held = self.shared.directory().hold(now(), hold);
                held.map_err(refusal)?;
            }
            Kind::FindData => {
                let find: FindData = read(message)?;
                let viewer = self.viewer();
                let found = self.shared.directory().find_data(now(), viewer, &find);
                return Ok(Some((Kind::DataFound, found.to_bytes())));
            }
            Kind::ListData => {
                let ListData { after } = read(message)?;
                let viewer = self.viewer();
                let listed = self
                    .shared
                    .directory()
                    .list_data(now(), viewer, after.as_ref());
                return Ok(Some((Kind::DataListed, listed.to_bytes())));
            }
            Kind::Find => {
                let Find { function } = read(message)?;
                let site = self.site();
                let found = self.shared.directory().find(now(), &site, &function);
                let (function, records) = found.map_err(refusal)?;
                let found = Found { function, records };
                return Ok(Some((Kind::Found, found.to_bytes())));
            }
            Kind::Choose => {
                let wanted: Choose = read(message)?;
                let site = self.site();
                let chosen = self.shared.directory().choose(now(), &site, &wanted);
                return Ok(Some((Kind::Chosen, chosen.map_err(refusal)?.to_bytes())));
            }
            _ => {
                let observed: Observe = read(message)?;
                let site = self.site();
                self.shared.directory().observe(now(), &site, &observed);
                return Ok(None);
            }
        }
        let lease_s = self.shared.lease_s;
        Ok(Some((Kind::Noted, Noted { lease_s }.to_bytes())))
    }

    /// Who asks for data.
    fn viewer(&self) -> Viewer<'_> {
        let access = self.shared.access.lock();
        let access = access.unwrap_or_else(PoisonError::into_inner);
        Viewer {
            user: self.user.as_deref().unwrap_or_default(),
            sees_all: access.is_open(),
        }
    }

    /// Where the client is.
    fn site(&self) -> String {
        self.peer.ip().to_string()
    }

    fn join(&mut self, mut join: Join) -> Result<(), Failure> {
        let refuse = |text: String| Failure::new(FailureKind::NotAllowed, text);
        let user = self.user.as_deref().unwrap_or_default();
        let access = self.shared.access.lock();
        let access = access.unwrap_or_else(PoisonError::into_inner);
        access.may_join(user).map_err(refuse)?;
        drop(access);
        if self.joined.len() >= MOST_JOINED {
            return Err(refuse(format!(
                "{MOST_JOINED} servers have joined by one connection"
            )));
        }
        join.address = reachable(&join.address, self.peer.ip())
            .map_err(|text| Failure::new(FailureKind::BadArgument, text))?;
        let (server, address) = (join.server, join.address.clone());
        let functions = join.functions.len();
        self.shared.directory().join(now(), join).map_err(refusal)?;
        self.joined.insert(server);
        self.shared.joined().insert(server, self.number);
        tracing::info!("server {server:016x} at {address} has joined with {functions} functions");
        Ok(())
    }

    fn check_joined(&self, server: u64) -> Result<(), Failure> {
        match self.joined.contains(&server) {
            true => Ok(()),
            false => Err(refusal(Refusal::NotJoined)),
        }
    }

    /// The connection has ended: its servers, unless they have joined anew, get no calls until
    /// they report.
    fn lose_joined(&mut self) {
        for server in std::mem::take(&mut self.joined) {
            let mut joined = self.shared.joined();
            if joined.get(&server) == Some(&self.number) {
                joined.remove(&server);
                drop(joined);
                self.shared.directory().lose(now(), server);
                tracing::warn!("server {server:016x} is lost: its connection has ended");
            }
        }
    }

    fn page(&self, from: usize) -> Listing {
        let mut directory = self.shared.directory();
        directory.advance(now());
        let functions = directory.functions().skip(from).take(PAGE);
        let functions = functions.map(|function| FunctionSummary {
            name: function.name.clone(),
            title: function.title.clone(),
        });
        let functions: Vec<FunctionSummary> = functions.collect();
        let next = (functions.len() == PAGE).then_some((from + PAGE) as u32);
        Listing { functions, next }
    }
}

fn read<M: Message>(message: &[u8]) -> Result<M, Failure> {
    M::from_bytes(message)
        .map_err(|error: Invalid| Failure::new(FailureKind::BadArgument, error.to_string()))
}

fn refusal(refusal: Refusal) -> Failure {
    let kind = match refusal {
        Refusal::NotJoined => FailureKind::NotJoined,
        Refusal::Full(_) => FailureKind::Busy,
        Refusal::Unknown { .. } | Refusal::Ambiguous { .. } => FailureKind::UnknownFunction,
        Refusal::NoServer { .. } => FailureKind::NoServer,
    };
    Failure::new(kind, refusal.to_string())
}

/// Where clients reach a server that says it listens there: one that listens on every address of
/// its host is reached at the one from which it came.
fn reachable(address: &str, peer: IpAddr) -> Result<String, String> {
    let parsed: Address = address.parse().map_err(|error| format!("{error}"))?;
    let is_any = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let host = peer.to_string();
    Ok(match parsed {
        Address::Tcp { host: any, port } if is_any(&any) => Address::Tcp { host, port }.to_string(),
        Address::Tls { host: any, port } if is_any(&any) => Address::Tls { host, port }.to_string(),
        Address::Unix(_) => {
            return Err(format!("{address} is reached from its own host only"));
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_reached_where_it_came_from() {
        let peer = "192.0.2.7".parse().unwrap();
        for (says, is) in [
            ("farcall://0.0.0.0:5", "farcall://192.0.2.7:5"),
            ("farcalls://[::]:5", "farcalls://192.0.2.7:5"),
            ("farcall://host:5", "farcall://host:5"),
        ] {
            assert_eq!(reachable(says, peer).as_deref(), Ok(is));
        }
        assert!(reachable("unix:///x", peer).is_err());
        assert!(reachable("http://x", peer).is_err());
    }
}
