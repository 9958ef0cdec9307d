//! Proves to a server that the client knows its token, without sending it (RFC 5802, RFC 7677). It
//! also checks that the server knows the token. The state machine is in the crate `scram`; this
//! module draws the nonce and keeps derived keys. A client that has a token accepts no server
//! without a proof, except a server that it knows by other means.

use crate::address::Address;
use crate::error::Error;
use farcall_scram::{Binding, Client, Expected, Salted, ScramError, Secret};
use std::collections::HashMap;
use std::io;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Bytes of a nonce.
const NONCE_BYTES: usize = 18;
/// Most derived keys that this process keeps.
const MOST_KEPT: usize = 256;

/// A derived key is kept for its secret, salt and iterations, because it takes a millisecond.
type Derivation = (String, Vec<u8>, u32);
static DERIVED: LazyLock<Mutex<HashMap<Derivation, Salted>>> = LazyLock::new(Mutex::default);

/// The proof of one connection.
pub(super) struct Proof {
    secret: Secret,
    client: Client,
    expected: Option<Expected>,
}

impl Proof {
    /// Begins to prove a token. Returns the first message.
    pub(super) fn begin(token: &str, is_tls: bool) -> io::Result<(Proof, String)> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let secret = Secret::of_token(token);
        let (client, first) = Client::new(&secret.name, &nonce, is_tls);
        let proof = Proof {
            secret,
            client,
            expected: None,
        };
        Ok((proof, first))
    }

    /// Answers the challenge of the server.
    pub(super) fn answer(
        &mut self,
        challenge: &str,
        binding: Option<&Binding>,
    ) -> Result<String, ScramError> {
        let secret = &self.secret.secret;
        let derive = |salt: &[u8], iterations| derive(secret, salt, iterations);
        let (expected, proof) = self.client.answer(challenge, binding, derive)?;
        self.expected = Some(expected);
        Ok(proof)
    }

    /// Checks the greeting of the server. A server that did not ask for the proof shows nothing.
    /// `is_known` says whether the client knows the server without the proof.
    pub(super) fn check(&self, signature: Option<&str>, is_known: bool) -> Result<(), String> {
        match (&self.expected, signature) {
            (Some(expected), Some(signature)) => expected.check(signature).map_err(|error| {
                format!("{error}, so it might be another program that listens there")
            }),
            (None, None) if is_known => Ok(()),
            _ => Err(
                "the server did not prove that it knows the token, so it might be another program \
                 that listens there. If it has no tokens, or is older than this client, unset \
                 FARCALL_TOKEN; otherwise check who listens there, and update the server"
                    .to_string(),
            ),
        }
    }
}

fn derive(secret: &str, salt: &[u8], iterations: u32) -> Salted {
    let derivation = (secret.to_string(), salt.to_vec(), iterations);
    let lock = || DERIVED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&derivation) {
        return *known;
    }
    let derived = Salted::new(secret, salt, iterations);
    let mut kept = lock();
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    kept.insert(derivation, derived);
    derived
}

/// The error of a challenge that the client does not answer.
pub(super) fn refused(address: &Address, error: ScramError) -> Error {
    Error::Refused {
        address: address.clone(),
        reason: error.to_string(),
    }
}
