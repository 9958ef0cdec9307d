//! What a server stores of a secret. The exchange itself is in `client` and `server`. With a
//! verifier alone, nobody can act as the client. The debug texts leave the keys out.

use crate::{ITERATIONS, Key, MOST_PART, ScramError, decode, decode_key, digest, encode};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use sha2::{Digest, Sha256};

/// The name of the mechanism in the text of a verifier, as in RFC 5803.
const MECHANISM: &str = "SCRAM-SHA-256";
/// Iterations of new verifiers. Secrets of Farcall are random, so that nobody can guess them.
const FEWEST: u32 = 4096;

/// A secret after the key derivation. It is as good as the secret for one salt.
#[derive(Clone, Copy)]
pub struct Salted(pub(crate) Key);

impl Salted {
    /// Derives a key from a secret, which takes about a millisecond.
    pub fn new(secret: &str, salt: &[u8], iterations: u32) -> Salted {
        Salted(pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(
            secret.as_bytes(),
            salt,
            iterations,
        ))
    }

    pub(crate) fn client_key(&self) -> Key {
        digest(&self.0, &[b"Client Key"])
    }

    pub(crate) fn server_key(&self) -> Key {
        digest(&self.0, &[b"Server Key"])
    }
}

/// Leaves the key out.
impl fmt::Debug for Salted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salted(…)")
    }
}

/// What a server keeps of a secret. Nobody can act as the client with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
}

impl Verifier {
    /// The verifier of a secret, with a random salt.
    pub fn new(secret: &str, salt: &[u8]) -> Verifier {
        let salted = Salted::new(secret, salt, FEWEST);
        Verifier {
            salt: salt.to_vec(),
            iterations: FEWEST,
            stored_key: stored_key(&salted.client_key()),
            server_key: salted.server_key(),
        }
    }
}

pub(crate) fn stored_key(client_key: &Key) -> Key {
    Sha256::digest(client_key).into()
}

/// `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, as in RFC 5803.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(encode);
        write!(
            f,
            "{MECHANISM}${}:{salt}${stored}:{server}",
            self.iterations
        )
    }
}

impl FromStr for Verifier {
    type Err = ScramError;

    fn from_str(text: &str) -> Result<Verifier, ScramError> {
        let parts = text.strip_prefix(MECHANISM);
        let parts = parts.and_then(|rest| rest.strip_prefix('$')?.split_once('$'));
        let (derivation, keys) = parts.ok_or(ScramError::Malformed)?;
        let (iterations, salt) = derivation.split_once(':').ok_or(ScramError::Malformed)?;
        let (stored_key, server_key) = keys.split_once(':').ok_or(ScramError::Malformed)?;
        let verifier = Verifier {
            salt: decode(salt)?,
            iterations: iterations.parse().map_err(|_| ScramError::Malformed)?,
            stored_key: decode_key(stored_key)?,
            server_key: decode_key(server_key)?,
        };
        let is_usual = ITERATIONS.contains(&verifier.iterations);
        match is_usual && (1..=MOST_PART).contains(&verifier.salt.len()) {
            true => Ok(verifier),
            false => Err(ScramError::Derivation),
        }
    }
}

/// Leaves the keys out.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({MECHANISM}, {} iterations)", self.iterations)
    }
}
