//! Tests that tokens are proved and never sent. A server that does not know the token is found out,
//! and a recorded or relayed proof is of no use.

use farcall_client::{Credentials, Error, Options, Server};
use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{Hello, Limits, Transmit, client};
use farcall_scram::{Client, First, Salted, Secret, Verifier};
use farcall_system::{BOUND, ServerProcess, farcall};
use farcall_tls::{Identity, IdentityFiles, Session, Trust};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us) Calls \"C\" usleep(us);
";
const TOKEN: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75e";

fn options(token: &str) -> Options {
    Options {
        connect_timeout: BOUND,
        timeout: Some(BOUND),
        credentials: Credentials::default().with_token(token),
        ..Options::default()
    }
}

/// A server with tokens, the folder of these, and the token of its user.
fn serve() -> (TempDir, ServerProcess, String) {
    let serving = ServerProcess::of(&[IDL]);
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    let token = add(&tokens, "alice");
    let server = serving
        .options(&["--tokens", tokens.to_str().unwrap()])
        .start();
    (folder, server, token)
}

fn add(tokens: &Path, name: &str) -> String {
    let words = ["access", "token", "add", tokens.to_str().unwrap(), name];
    let output = farcall().args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

/// What an impostor does with a client.
#[derive(Clone, Copy)]
enum Impostor {
    /// It greets at once.
    Greets,
    /// It asks for the proof, and signs with a wrong key.
    Challenges,
}

/// Occupies a port. Returns its address, and what one client has sent there.
fn impostor(acts: Impostor) -> (String, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let mut proto = Connection::new(Limits::default(), Hello::new("impostor"));
        let (mut seen, mut input) = (Vec::new(), [0; 4096]);
        loop {
            let count = stream.read(&mut input).unwrap_or(0);
            if count == 0 {
                return seen;
            }
            seen.extend_from_slice(&input[..count]);
            match proto.handle_input(&input[..count], 0).unwrap().1 {
                Some(Event::Connected(hello)) => match acts {
                    Impostor::Greets => proto.welcome(None),
                    Impostor::Challenges => {
                        let first = First::parse(&hello.proof.unwrap()).unwrap();
                        let verifier = Verifier::new("guess", b"salt");
                        let (_, text) = first.challenge(verifier, &[1; 18], None).unwrap();
                        proto.challenge(text);
                    }
                },
                Some(Event::Proof(_)) => {
                    let guess = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
                    proto.welcome(Some(guess.to_string()));
                }
                _ => {}
            }
            let mut out = Vec::new();
            while proto.poll_transmit(&mut out, 0) != Transmit::Idle {}
            stream.write_all(&out).unwrap();
        }
    });
    (address, thread)
}

#[test]
fn an_impostor_on_the_port_sees_no_token_and_is_found_out() {
    for acts in [Impostor::Greets, Impostor::Challenges] {
        let (address, thread) = impostor(acts);
        let error = Server::connect(&address, options(TOKEN)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Refused { .. }), "{text}");
        assert!(
            text.contains("another program that listens there"),
            "{text}"
        );
        let seen = thread.join().unwrap();
        let Secret { name, secret } = Secret::of_token(TOKEN);
        let has = |text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has(&name), "the client says which token it has");
        assert!(!has(TOKEN) && !has(&secret), "the impostor sees the token");
    }
}

/// A client that speaks the protocol by hand.
struct ByHand {
    stream: TcpStream,
    proto: client::Connection,
}

impl ByHand {
    fn connect(server: &ServerProcess, hello: &Hello) -> ByHand {
        let stream = TcpStream::connect(server.host_and_port()).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let proto = client::Connection::new(Limits::default(), hello);
        let mut client = ByHand { stream, proto };
        client.flush();
        client
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        while self.proto.poll_transmit(&mut out) != Transmit::Idle {}
        self.stream.write_all(&out).unwrap();
    }

    /// What the server says next, or why it ends the connection.
    fn hear(&mut self) -> Result<client::Event, String> {
        let mut input = [0; 4096];
        let mut kept = Vec::new();
        loop {
            let count = self.stream.read(&mut input).unwrap();
            assert!(count > 0, "the server says nothing");
            kept.extend_from_slice(&input[..count]);
            let handled = self.proto.handle_input(&kept);
            let (taken, event) = handled.map_err(|error| error.to_string())?;
            kept.drain(..taken);
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }
}

/// A greeting with the first message of a proof.
fn greeting(token: &str) -> (Hello, Client) {
    let (client, first) = Client::new(&Secret::of_token(token).name, &[7; 18], false);
    let mut hello = Hello::new("by hand");
    hello.proof = Some(first);
    (hello, client)
}

fn challenge(client: &mut ByHand) -> String {
    match client.hear() {
        Ok(client::Event::Challenge(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_recorded_conversation_is_of_no_use() {
    let (_folder, server, token) = serve();
    let (hello, begun) = greeting(&token);
    let mut first = ByHand::connect(&server, &hello);
    let asked = challenge(&mut first);
    let secret = Secret::of_token(&token).secret;
    let derive = |salt: &[u8], count| Salted::new(&secret, salt, count);
    let (expected, proof) = begun.answer(&asked, None, derive).unwrap();
    first.proto.prove(proof.clone());
    first.flush();
    match first.hear() {
        Ok(client::Event::Connected(hello)) => {
            assert_eq!(expected.check(&hello.proof.unwrap()), Ok(()));
        }
        other => panic!("{other:?}"),
    }
    let mut second = ByHand::connect(&server, &hello);
    assert_ne!(challenge(&mut second), asked);
    second.proto.prove(proof);
    second.flush();
    let refused = second.hear().unwrap_err();
    assert!(
        refused.contains("belongs to another connection"),
        "{refused}"
    );
}

#[test]
fn a_token_that_is_sent_as_it_is_is_refused() {
    let (_folder, server, token) = serve();
    let mut hello = Hello::new("an old client");
    hello.token = Some(token);
    let refused = ByHand::connect(&server, &hello).hear().unwrap_err();
    assert!(refused.contains("update the client"), "{refused}");
}

#[test]
fn a_request_before_the_proof_ends_the_connection() {
    let (_folder, server, token) = serve();
    let (hello, _) = greeting(&token);
    let mut client = ByHand::connect(&server, &hello);
    challenge(&mut client);
    // A List frame, which the client's side of the protocol would hold back.
    let frame = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x81, 0];
    client.stream.write_all(&frame).unwrap();
    let refused = client.hear().unwrap_err();
    assert!(refused.contains("unexpected List frame"), "{refused}");
}

#[test]
fn tokens_of_an_earlier_version_go_on_to_work() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    let secret = Secret::of_token("a token of before").secret;
    std::fs::write(&tokens, format!("alice {secret}\n")).unwrap();
    let file = tokens.to_str().unwrap();
    let server = ServerProcess::of(&[IDL])
        .options(&["--tokens", file])
        .start();
    let connect = || Server::connect(server.address(), options("a token of before"));
    connect().unwrap().function("nap").unwrap();
    let words = ["access", "token", "upgrade", file];
    let output = farcall().args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!std::fs::read_to_string(&tokens).unwrap().contains(&secret));
    connect().unwrap().function("nap").unwrap();
}

#[test]
fn a_gang_daemon_shows_its_secret_to_no_parent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let parent = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let mut seen = [0; 4096];
        let count = stream.read(&mut seen).unwrap();
        seen[..count].to_vec()
    });
    let mut command = farcall();
    command.args([
        "gang",
        "daemon",
        "--listen",
        "127.0.0.1:0",
        "--parent",
        &parent,
    ]);
    let control = format!("@farcall-proofs-{}", std::process::id());
    command.args(["--control", &control]);
    let output = command.env("FARCALL_TOKEN", TOKEN).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("the parent daemon at"), "{text}");
    let seen = thread.join().unwrap();
    let Secret { name, secret } = Secret::of_token(TOKEN);
    let has = |text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(has(&name), "the daemon says which secret it has");
    assert!(!has(TOKEN) && !has(&secret), "the parent sees the secret");
}

/// Passes bytes on between a client and a server, and ends the TLS session of both.
fn relay(listener: &TcpListener, server: &str, folder: &Path) {
    let files = IdentityFiles {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
        clients: None,
        revoked: None,
    };
    let identity = Identity::load(&files).unwrap();
    let trust = Trust::load(Some(&folder.join("authority.pem")), None).unwrap();
    let (front, _) = listener.accept().unwrap();
    let mut streams = [front, TcpStream::connect(server).unwrap()];
    let back = Session::client(&trust, "127.0.0.1").unwrap();
    let mut sessions = [Session::server(&identity).unwrap(), back];
    for stream in &streams {
        stream.set_nonblocking(true).unwrap();
    }
    let mut waiting = [Vec::new(), Vec::new()];
    loop {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut input = [0; 4096];
            let places = &mut [IoSliceMut::new(&mut input)];
            match sessions[from].read(&mut streams[from], places) {
                Ok(0) => return,
                Ok(count) => waiting[to].extend_from_slice(&input[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            let sent = sessions[to].write(&mut streams[to], &[IoSlice::new(&waiting[to])]);
            drop(waiting[to].drain(..sent.unwrap_or(0)));
            let _ = sessions[to].flush(&mut streams[to]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_proof_holds_for_one_tls_session() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = folder.path().join("tls");
    let file = certificates.to_str().unwrap();
    let words = ["access", "certificate", "server", file, "127.0.0.1"];
    assert!(farcall().args(words).output().unwrap().status.success());
    let tokens = folder.path().join("tokens");
    let token = add(&tokens, "alice");
    let options_of = ["--tokens", tokens.to_str().unwrap(), "--tls", file];
    let server = ServerProcess::of(&[IDL]).options(&options_of).start();
    let connect = |address: &str| {
        let credentials = Credentials::default().with_token(token.as_str());
        let options = Options {
            credentials: credentials.with_authorities(certificates.join("authority.pem")),
            ..options(&token)
        };
        Server::connect(address, options)
    };
    connect(server.address()).unwrap().function("nap").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = format!("farcalls://{}", listener.local_addr().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| relay(&listener, server.host_and_port(), &certificates));
        let refused = connect(&between).unwrap_err().to_string();
        assert!(
            refused.contains("something between ends its TLS session"),
            "{refused}"
        );
    });
}
