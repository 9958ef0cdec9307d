//! The side that calls: it proves that it knows the secret, and checks the signature of the server.
//! It does not keep derived keys.

use crate::verifier::{Salted, stored_key};
use crate::{
    Binding, ITERATIONS, Key, ScramError, attribute, bound_to, check_length, decode, decode_key,
    digest, encode, header, mac, signed, xor,
};
use alloc::format;
use alloc::string::String;
use hmac::Mac;

/// A client that has said who it is.
#[derive(Debug)]
pub struct Client {
    nonce: String,
    bare: String,
}

impl Client {
    /// Begins an exchange as `name`, with a random `nonce` of at least 16 bytes. Returns the first
    /// message. `is_bound` says whether the connection is a TLS session.
    pub fn new(name: &str, nonce: &[u8], is_bound: bool) -> (Client, String) {
        Client::with_nonce(name, encode(nonce), is_bound)
    }

    pub(crate) fn with_nonce(name: &str, nonce: String, is_bound: bool) -> (Client, String) {
        let bare = format!("n={name},r={nonce}");
        let message = format!("{}{bare}", header(is_bound));
        (Client { nonce, bare }, message)
    }

    /// Answers the challenge of the server with a proof. `derive` makes the key from the salt and
    /// the number of iterations; it may remember it.
    ///
    /// # Errors
    /// The challenge is malformed, or belongs to another exchange.
    pub fn answer(
        &self,
        challenge: &str,
        binding: Option<&Binding>,
        derive: impl FnOnce(&[u8], u32) -> Salted,
    ) -> Result<(Expected, String), ScramError> {
        check_length(challenge)?;
        let (nonce, rest) = attribute(challenge, "r")?;
        let (salt, rest) = attribute(rest, "s")?;
        let (iterations, _) = attribute(rest, "i")?;
        let theirs = nonce.strip_prefix(self.nonce.as_str());
        if theirs.is_none_or(str::is_empty) {
            return Err(ScramError::Replayed);
        }
        let iterations = iterations.parse().map_err(|_| ScramError::Malformed)?;
        if !ITERATIONS.contains(&iterations) {
            return Err(ScramError::Derivation);
        }
        let salted = derive(&decode(salt)?, iterations);
        let bare = format!("c={},r={nonce}", bound_to(binding));
        let signed = signed(&self.bare, challenge, &bare);
        let client_key = salted.client_key();
        let signature = digest(&stored_key(&client_key), &[signed.as_bytes()]);
        let proof = encode(&xor(client_key, &signature));
        let server_key = salted.server_key();
        Ok((Expected { server_key, signed }, format!("{bare},p={proof}")))
    }
}

/// A client that waits for the signature of the server.
pub struct Expected {
    server_key: Key,
    signed: String,
}

impl Expected {
    /// Checks that the server knows the secret too.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self, signature: &str) -> Result<(), ScramError> {
        check_length(signature)?;
        let (value, _) = attribute(signature, "v")?;
        let signature = decode_key(value)?;
        let right = mac(&self.server_key, &[self.signed.as_bytes()]).verify_slice(&signature);
        right.map_err(|_| ScramError::WrongServer)
    }
}

/// Leaves the key out.
impl core::fmt::Debug for Expected {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Expected(…)")
    }
}
