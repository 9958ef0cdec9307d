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
const DIFFERS: &str = "FARCALL_TOKEN differs from the token of the daemon";

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
    let challenge = hear(link, end).map_err(|failure| match failure {
        Failure::Lost(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let text = "it closed the connection; if it is of an earlier version, which expects \
                        the secret itself, update it";
            Failure::Refused(text.to_string())
        }
        other => other,
    })?;
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
