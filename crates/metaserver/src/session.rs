//! One connection. Its thread reads a request, asks the directory, and answers.

use crate::access::Access;
use crate::spans::PlacedSpan;
use crate::{Shared, snapshot, status};
use farcall_access::{Claim, Found, Proving, Refusal, User};
use farcall_client::Address;
use farcall_directory::session::{self, Peer};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{Hello, Limits, ProtocolError, Transmit};
use farcall_tls::{Session as Tls, may_greet};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time within which a client must send its whole greeting, and must accept each answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after which an idle connection is closed. The client then opens a new one.
const IDLE: Duration = Duration::from_secs(3600);
/// Largest number of bytes read at once.
const INPUT_BYTES: usize = 64 << 10;

/// A socket. Until the client is admitted, all its bytes together have a bound of time, so that one
/// that sends a byte now and then keeps no place.
struct Socket {
    stream: TcpStream,
    greets_until: Option<Instant>,
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.greets_until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A socket, with TLS if the metaserver uses it.
struct Wire {
    socket: Socket,
    tls: Option<Tls>,
}

impl Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(buffer),
            Some(tls) => tls.read(&mut self.socket, &mut [IoSliceMut::new(buffer)]),
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes);
        };
        while !bytes.is_empty() {
            let count = tls.write(&mut self.socket, &[IoSlice::new(bytes)])?;
            bytes = &bytes[count..];
        }
        tls.flush(&mut self.socket)
    }
}

/// The state of a connection.
struct Session<'s> {
    shared: &'s Shared,
    wire: Wire,
    proto: Connection,
    peer: SocketAddr,
    number: u64,
    /// What the client is allowed to do. `None` until it has been admitted.
    session: Option<session::Session>,
    /// The client's program and version.
    agent: String,
    /// What the client was asked for.
    proving: Option<Box<Proving>>,
    /// Whether the client speaks in clear text to a metaserver that speaks TLS.
    lacks_tls: bool,
}

/// The reason why a connection ends.
enum End {
    /// The client closed the connection, or it broke.
    Left,
    /// The metaserver ends it and sends this reason to the client.
    Told(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                End::Told("the connection was idle for too long; connect again".to_string())
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
            // Do not wait for a client that does not read the reason.
            let _ = session.flush();
        }
        if let Some(session) = session.session.take() {
            session.end(&mut shared.directory(), shared.now());
        }
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
    stream.set_write_timeout(Some(PATIENCE))?;
    let socket = Socket {
        stream,
        greets_until: Some(Instant::now() + PATIENCE),
    };
    let tls = shared.identity.as_ref().map(Tls::server).transpose()?;
    let hello = session::hello(concat!("farcall-metaserver ", env!("CARGO_PKG_VERSION")));
    Ok(Session {
        shared,
        wire: Wire { socket, tls },
        proto: Connection::new(Limits::default(), hello),
        peer,
        number,
        session: None,
        agent: String::new(),
        proving: None,
        lacks_tls: false,
    })
}

impl Session<'_> {
    fn run(&mut self) -> End {
        if let Err(error) = self.look_for_tls() {
            return error.into();
        }
        let mut input = vec![0; INPUT_BYTES];
        loop {
            if let Err(end) = self.turn(&mut input) {
                return end;
            }
        }
    }

    /// Looks at a client's first bytes: a client that does not speak TLS gets its answer in clear
    /// text.
    fn look_for_tls(&mut self) -> io::Result<()> {
        if self.wire.tls.is_none() {
            return Ok(());
        }
        let stream = &self.wire.socket.stream;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut first = [0; 2];
        let count = stream.peek(&mut first)?;
        if !may_greet(&first[..count]) {
            (self.wire.tls, self.lacks_tls) = (None, true);
        }
        Ok(())
    }

    fn turn(&mut self, input: &mut [u8]) -> Result<(), End> {
        let count = self.wire.read(input)?;
        if count == 0 {
            return Err(End::Left);
        }
        let mut left = &input[..count];
        while !left.is_empty() {
            if self.proto.incoming().is_some() {
                return Err(End::Told(
                    "a metaserver does not accept array data".to_string(),
                ));
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
            Event::Connected(hello) => return self.identify(hello),
            Event::Proof(proof) => return self.check(&proof),
            _ => {}
        }
        let (proto, peer) = (&mut self.proto, host(self.peer));
        let Some(session) = &mut self.session else {
            return Err(End::Left);
        };
        let reached = |address: &str| reachable(address, peer);
        let asked = self.shared.now();
        session.came(asked);
        let mut directory = self.shared.directory();
        let now = self.shared.now();
        let left = session.handle((&mut directory, now), proto, event, reached);
        drop(directory);
        if let (Some(placed), Some(spans)) = (session.take_placed(), &self.shared.spans)
            && placed.context.is_sampled()
        {
            let from_to = [asked, self.shared.now()].map(|moment| self.shared.date(moment));
            spans.send(PlacedSpan { placed, from_to });
        }
        match left {
            None => Ok(()),
            Some(Event::AskSnapshot(request, asked)) => {
                let text = snapshot::text(self.shared, session.peer(), &asked);
                self.proto.status_text(request, text);
                Ok(())
            }
            Some(Event::Status(request)) => {
                let text = status::text(self.shared);
                self.proto.status_text(request, text);
                Ok(())
            }
            // The metaserver does not offer the features of these requests.
            Some(_) => Err(End::Told(
                "a metaserver does not serve this request; ask a server".to_string(),
            )),
        }
    }

    fn identify(&mut self, hello: Hello) -> Result<(), End> {
        if self.lacks_tls {
            let text = "this address speaks TLS; connect to metas://";
            return Err(self.refuse(Refusal::of(text)));
        }
        let tls = self.wire.tls.as_ref();
        let shown = (tls.and_then(Tls::peer_name), tls.and_then(Tls::binding));
        let claim = match (&hello.proof, &hello.token) {
            (Some(first), _) => Claim::First(first),
            (None, Some(_)) => Claim::Token,
            (None, None) => Claim::Nothing,
        };
        let found = lock(&self.shared.access).user(claim, shown, self.peer.ip());
        self.agent = hello.agent;
        match found {
            Ok(Found::User(user)) => self.welcome(&user, None),
            Ok(Found::Challenge(proving, text)) => {
                self.proving = Some(proving);
                self.proto.challenge(text);
                Ok(())
            }
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    fn check(&mut self, proof: &str) -> Result<(), End> {
        let Some(proving) = self.proving.take() else {
            return Err(End::Left);
        };
        let checked = lock(&self.shared.access).check(&proving, proof);
        match checked {
            Ok((user, signature)) => self.welcome(&user, Some(signature)),
            Err(refusal) => Err(self.refuse(refusal)),
        }
    }

    fn welcome(&mut self, user: &User, signature: Option<String>) -> Result<(), End> {
        let user = user.to_string();
        tracing::debug!("{}: connected, {}, user {user}", self.peer, self.agent);
        let access = lock(&self.shared.access);
        let peer = Peer {
            sees_all: access.is_open(),
            may_not_join: access.may_join(&user).err(),
            site: host(self.peer).to_string(),
            user,
        };
        drop(access);
        self.session = Some(session::Session::new(self.number, peer));
        self.proto.welcome(signature);
        self.wire.socket.greets_until = None;
        self.wire.socket.stream.set_read_timeout(Some(IDLE))?;
        Ok(())
    }

    fn refuse(&mut self, refusal: Refusal) -> End {
        if let Some(text) = refusal.logged {
            tracing::warn!("{}: refused: {text}", self.peer);
        }
        self.proto.refuse(refusal.text);
        let _ = self.flush();
        End::Left
    }
}

fn lock(access: &Mutex<Access>) -> MutexGuard<'_, Access> {
    access.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host of a peer. A socket for IPv4 and IPv6 shows addresses of IPv4 in a form that hosts
/// without IPv6 cannot use, and that no certificate names.
fn host(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// The address at which clients reach a server that listens on `address`. If the server listens on
/// every address of its host, this is the address that its connection comes from.
fn reachable(address: &str, peer: IpAddr) -> Result<String, String> {
    let parsed: Address = address.parse().map_err(|error| format!("{error}"))?;
    let is_any = |host: &str| host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    let host = peer.to_string();
    Ok(match parsed {
        Address::Tcp { host: any, port } if is_any(&any) => Address::Tcp { host, port }.to_string(),
        Address::Tls { host: any, port } if is_any(&any) => Address::Tls { host, port }.to_string(),
        Address::Unix(_) => {
            return Err(format!("{address} can be reached only from its own host"));
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_greeting_of_single_bytes_ends_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let start = Instant::now();
        let mut socket = Socket {
            stream: listener.accept().unwrap().0,
            greets_until: Some(start + Duration::from_millis(200)),
        };
        let sender = std::thread::spawn(move || {
            while client.write_all(b"x").is_ok() && start.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        while socket.read(&mut [0]).is_ok() {}
        assert!(start.elapsed() >= Duration::from_millis(200));
        assert!(start.elapsed() < Duration::from_secs(10));
        drop(socket);
        sender.join().unwrap();
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_at_its_peer_address() {
        // The metaserver listens everywhere too.
        let peer = host("[::ffff:192.0.2.7]:41234".parse().unwrap());
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
