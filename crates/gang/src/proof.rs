//! How daemons and front ends prove over TCP that they know the secret of the daemons (SCRAM,
//! RFC 5802). The secret itself never travels.
//!
//! The one that connects sends its first message, the daemon a challenge, then follow the proof and
//! the signature of the daemon. Each is a [`Message::Proof`].

use crate::link::Link;
use farcall_gang_proto::Message;
use farcall_scram::{Client, Exchange, First, Salted, Secret, Verifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::time::{Duration, Instant};

/// Time within which a daemon must answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The reason for a peer whose secret is another one.
const DIFFERS: &str = "FARCALL_TOKEN differs from the token of the daemon; if it is not set, the \
                       secret in the file gang-token of the user counts";

/// Why the other side is not accepted.
#[derive(Debug)]
pub(crate) enum Failure {
    /// One side says why.
    Refused(String),
    /// The connection broke.
    Lost(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error)
    }
}

/// What a daemon keeps to check the proofs of others.
pub(crate) struct Gate {
    name: String,
    verifier: Verifier,
}

fn random() -> io::Result<[u8; 18]> {
    let mut random = [0; 18];
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(random)
}

impl Gate {
    pub(crate) fn new(token: &str) -> io::Result<Gate> {
        let Secret { name, secret } = Secret::of_token(token);
        let verifier = Verifier::new(&secret, &random()?);
        Ok(Gate { name, verifier })
    }

    /// Asks a peer for its proof. Returns the challenge.
    pub(crate) fn challenge(&self, first: &str) -> Result<(Exchange, String), String> {
        let first = First::parse(first).map_err(|error| error.to_string())?;
        if first.name() != self.name {
            return Err(DIFFERS.to_string());
        }
        let nonce = random().map_err(|error| error.to_string())?;
        let made = first.challenge(self.verifier.clone(), &nonce, None);
        made.map_err(|error| error.to_string())
    }
}

/// Proves over a new link that this side knows the secret, and checks that the daemon does.
pub(crate) fn prove(link: &mut Link, token: &str) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    let Secret { name, secret } = Secret::of_token(token);
    let (client, first) = Client::new(&name, &random()?, false);
    link.send(&Message::Proof(first));
    let challenge = hear(link, end).map_err(explained)?;
    let refused = |error: farcall_scram::ScramError| Failure::Refused(error.to_string());
    let derive = |salt: &[u8], iterations| Salted::new(&secret, salt, iterations);
    let (expected, proof) = client.answer(&challenge, None, derive).map_err(refused)?;
    link.send(&Message::Proof(proof));
    let signature = hear(link, end)?;
    expected.check(&signature).map_err(|_| {
        let text = "it does not know FARCALL_TOKEN, so it might be another program";
        Failure::Refused(text.to_string())
    })
}

/// Explains what a program that is no gang daemon of this version does with the first message.
fn explained(failure: Failure) -> Failure {
    let kind = match &failure {
        Failure::Lost(error) => error.kind(),
        Failure::Refused(_) => return failure,
    };
    let what = match kind {
        io::ErrorKind::UnexpectedEof => "it closed the connection",
        io::ErrorKind::InvalidData => "it did not answer as a gang daemon",
        _ => return failure,
    };
    Failure::Refused(format!(
        "{what}. Another program may have this address, such as a server, or a gang daemon of an \
         earlier version: check the address, or update the daemon"
    ))
}

/// The next message of the proof.
fn hear(link: &mut Link, end: Instant) -> Result<String, Failure> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Lost(io::ErrorKind::TimedOut.into()));
        }
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, link.wants_to_send());
        let mut fds = [PollFd::from_borrowed_fd(link.fd(), flags)];
        match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::Lost(error.into())),
        }
        link.flush()?;
        match link.receive()?.into_iter().next() {
            None => {}
            Some(Message::Proof(text)) => return Ok(text),
            Some(Message::Refused(text)) => return Err(Failure::Refused(text)),
            Some(_) => return Err(Failure::Lost(io::ErrorKind::InvalidData.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_program_that_is_no_gang_daemon_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let answers: [&[u8]; 2] = [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"];
        let server = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a peer");
                let read = stream.read(&mut [0; 4096]);
                assert!(read.expect("a proof") > 0);
                stream.write_all(answer).expect("it listens");
            }
        });
        for what in ["it closed the connection", "it did not answer as a gang"] {
            let stream = TcpStream::connect(address).expect("it listens");
            let mut link = Link::tcp(stream, Duration::from_secs(30)).expect("a link");
            match prove(&mut link, "a secret of sixteen").expect_err("no daemon") {
                Failure::Refused(text) => {
                    assert!(text.starts_with(what) && text.contains("check the address"));
                }
                Failure::Lost(error) => panic!("{error}"),
            }
        }
        server.join().expect("it ends");
    }
}
