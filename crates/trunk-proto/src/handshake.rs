//! Agrees on fresh keys for one peering: the Noise handshake `NNpsk0` (revision 34 of the Noise
//! specification) with the key that all nodes share. `keys` decides when a handshake runs. The
//! ephemeral keys exist only during a handshake, so nobody who learns the shared key later can read
//! recorded frames.

use crate::Mac;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
/// Bytes of each of the two messages: an ephemeral public key and a tag.
pub(crate) const NOISE_BYTES: usize = 48;

/// A message of the handshake.
pub(crate) type Noise = [u8; NOISE_BYTES];

/// A key for each direction.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKeys {
    pub(crate) from_initiator: [u8; 32],
    pub(crate) from_responder: [u8; 32],
}

/// Random bytes for ephemeral keys, derived from the seed that the caller draws. Each draw replaces
/// the seed, so that nobody who reads it later learns what was drawn before.
pub(crate) struct Entropy {
    seeded: Option<Hmac<Sha256>>,
}

impl Entropy {
    pub(crate) fn new(seed: &[u8; 32]) -> Entropy {
        Entropy {
            seeded: Hmac::<Sha256>::new_from_slice(seed).ok(),
        }
    }

    /// Returns bytes that it never returned before.
    fn draw(&mut self) -> Option<[u8; 32]> {
        let seeded = self.seeded.take()?;
        let derive = |label: &[u8]| -> [u8; 32] {
            let mut mac = seeded.clone();
            mac.update(label);
            mac.finalize().into_bytes().into()
        };
        *self = Entropy::new(&derive(b"next seed"));
        Some(derive(b"drawn"))
    }
}

/// The shared secret of the handshake, which differs from the key that authenticates control
/// messages.
pub(crate) fn shared_secret(key: &[u8]) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(b"farcall trunk: shared secret of the handshake");
    Some(mac.finalize().into_bytes().into())
}

/// The two ends of a handshake. Both put it into the handshake, so that a message for another
/// peering, session or key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) initiator: (Mac, u32),
    pub(crate) responder: (Mac, u32),
    /// Number of the key.
    pub(crate) number: u32,
}

impl Ends {
    fn prologue(&self) -> Vec<u8> {
        let mut bytes = b"farcall trunk 2".to_vec();
        for (node, session) in [self.initiator, self.responder] {
            bytes.extend(node.0);
            bytes.extend(session.to_be_bytes());
        }
        bytes.extend(self.number.to_be_bytes());
        bytes
    }
}

/// A handshake that waits for the answer.
pub(crate) struct Initiator(HandshakeState);

impl Initiator {
    /// Starts a handshake and returns its first message.
    pub(crate) fn start(
        secret: &[u8; 32],
        ends: &Ends,
        entropy: &mut Entropy,
    ) -> Option<(Initiator, Noise)> {
        let prologue = ends.prologue();
        let mut state = builder(secret, &prologue, entropy)?
            .build_initiator()
            .ok()?;
        let mut message = [0; NOISE_BYTES];
        let length = state.write_message(&[], &mut message).ok()?;
        (length == NOISE_BYTES).then_some((Initiator(state), message))
    }

    /// Takes the answer, and returns the keys if it is authentic.
    pub(crate) fn finish(mut self, answer: &Noise) -> Option<SessionKeys> {
        self.0.read_message(answer, &mut []).ok()?;
        keys(&mut self.0)
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
}

/// Takes the first message, and returns the answer and the keys if the message is authentic.
pub(crate) fn respond(
    secret: &[u8; 32],
    ends: &Ends,
    entropy: &mut Entropy,
    request: &Noise,
) -> Option<(Noise, SessionKeys)> {
    let prologue = ends.prologue();
    let mut state = builder(secret, &prologue, entropy)?
        .build_responder()
        .ok()?;
    state.read_message(request, &mut []).ok()?;
    let mut answer = [0; NOISE_BYTES];
    let length = state.write_message(&[], &mut answer).ok()?;
    let keys = keys(&mut state)?;
    (length == NOISE_BYTES).then_some((answer, keys))
}

/// The keys of a finished handshake. Frames have headers that a transport of Noise does not cover,
/// so `cipher` uses the keys itself.
fn keys(state: &mut HandshakeState) -> Option<SessionKeys> {
    if !state.is_handshake_finished() {
        return None;
    }
    let (from_initiator, from_responder) = state.dangerously_get_raw_split();
    Some(SessionKeys {
        from_initiator,
        from_responder,
    })
}

fn builder<'a>(
    secret: &'a [u8; 32],
    prologue: &'a [u8],
    entropy: &mut Entropy,
) -> Option<Builder<'a>> {
    let seed = entropy.draw()?;
    let builder = Builder::with_resolver(PATTERN.parse().ok()?, Box::new(Seeded(seed)));
    builder.psk(0, secret).ok()?.prologue(prologue).ok()
}

/// The primitives of one handshake, whose random bytes come from a seed of its own.
struct Seeded([u8; 32]);

impl CryptoResolver for Seeded {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Stream(Entropy::new(&self.0))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

struct Stream(Entropy);

impl Random for Stream {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        for part in dest.chunks_mut(32) {
            let bytes = self.0.draw().ok_or(snow::Error::Rng)?;
            part.copy_from_slice(&bytes[..part.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [9; 32];
    const ENDS: Ends = Ends {
        initiator: (Mac([2; 6]), 5),
        responder: (Mac([4; 6]), 6),
        number: 1,
    };

    #[test]
    fn both_ends_get_the_same_fresh_keys() {
        let (mut own, mut peers) = (Entropy::new(&[1; 32]), Entropy::new(&[2; 32]));
        let mut run = || {
            let (initiator, request) = Initiator::start(&SECRET, &ENDS, &mut own).unwrap();
            let (answer, theirs) = respond(&SECRET, &ENDS, &mut peers, &request).unwrap();
            let ours = initiator.finish(&answer).unwrap();
            assert!(ours == theirs);
            ours
        };
        let (first, second) = (run(), run());
        let all = [
            first.from_initiator,
            first.from_responder,
            second.from_initiator,
            second.from_responder,
        ];
        for (index, key) in all.iter().enumerate() {
            assert!(!all[..index].contains(key));
        }
    }

    #[test]
    fn strangers_and_other_peerings_are_refused() {
        let mut entropy = Entropy::new(&[1; 32]);
        let (_, request) = Initiator::start(&SECRET, &ENDS, &mut entropy).unwrap();
        let mut refused =
            |secret, ends, request| respond(&secret, &ends, &mut entropy, &request).is_none();
        assert!(refused([8; 32], ENDS, request));
        for ends in [
            Ends { number: 2, ..ENDS },
            Ends {
                initiator: (Mac([2; 6]), 7),
                ..ENDS
            },
            Ends {
                responder: (Mac([6; 6]), 6),
                ..ENDS
            },
        ] {
            assert!(refused(SECRET, ends, request));
        }
        for at in 0..NOISE_BYTES {
            let mut changed = request;
            changed[at] ^= 1;
            assert!(refused(SECRET, ENDS, changed), "{at}");
        }
        assert!(!refused(SECRET, ENDS, request));
        // An answer to another request is refused as well.
        let (initiator, _) = Initiator::start(&SECRET, &ENDS, &mut entropy).unwrap();
        let (answer, _) = respond(&SECRET, &ENDS, &mut entropy, &request).unwrap();
        assert!(initiator.finish(&answer).is_none());
    }

    #[test]
    fn the_shared_secret_is_not_the_key() {
        let secret = shared_secret(b"a key of the laboratory").unwrap();
        assert!(secret != shared_secret(b"another key").unwrap());
    }
}
