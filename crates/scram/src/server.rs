//! The side that is called: it asks for a proof, checks it and signs. It does not know where
//! verifiers are kept.

use crate::verifier::{Verifier, stored_key};
use crate::{
    Binding, MOST_PART, ScramError, attribute, bound_to, check_length, decode_key, digest, encode,
    header, signed, xor,
};
use alloc::format;
use alloc::string::{String, ToString};
use subtle::ConstantTimeEq;

/// The first message of a client: who it says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    name: String,
    nonce: String,
    bare: String,
    is_bound: bool,
}

impl First {
    /// Reads a first message.
    ///
    /// # Errors
    /// It is malformed.
    pub fn parse(message: &str) -> Result<First, ScramError> {
        check_length(message)?;
        let bound = message.strip_prefix(header(true));
        let bare = bound.or_else(|| message.strip_prefix(header(false)));
        let bare = bare.ok_or(ScramError::Malformed)?;
        let (name, rest) = attribute(bare, "n")?;
        let (nonce, rest) = attribute(rest, "r")?;
        if !rest.is_empty() || name.len() > MOST_PART || nonce.len() > MOST_PART {
            return Err(ScramError::Malformed);
        }
        Ok(First {
            name: name.to_string(),
            nonce: nonce.to_string(),
            bare: bare.to_string(),
            is_bound: bound.is_some(),
        })
    }

    /// The name that the client gives.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Challenges the client, with a random `nonce` of at least 16 bytes. Returns the message.
    /// `binding` is that of the TLS session, if the connection is one.
    ///
    /// # Errors
    /// Only one side speaks TLS.
    pub fn challenge(
        self,
        verifier: Verifier,
        nonce: &[u8],
        binding: Option<&Binding>,
    ) -> Result<(Exchange, String), ScramError> {
        self.challenge_with(verifier, &encode(nonce), binding)
    }

    pub(crate) fn challenge_with(
        self,
        verifier: Verifier,
        nonce: &str,
        binding: Option<&Binding>,
    ) -> Result<(Exchange, String), ScramError> {
        if self.is_bound != binding.is_some() {
            return Err(ScramError::Relayed);
        }
        let nonce = format!("{}{nonce}", self.nonce);
        let (salt, iterations) = (encode(&verifier.salt), verifier.iterations);
        let challenge = format!("r={nonce},s={salt},i={iterations}");
        let exchange = Exchange {
            verifier,
            first: self.bare,
            challenge: challenge.clone(),
            nonce,
            bound: bound_to(binding),
        };
        Ok((exchange, challenge))
    }
}

/// A server that waits for the proof of a client.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    first: String,
    challenge: String,
    nonce: String,
    bound: String,
}

impl Exchange {
    /// Checks the proof of the client. Returns the signature of the server.
    ///
    /// # Errors
    /// The proof is wrong, or of another exchange or TLS session.
    pub fn check(&self, message: &str) -> Result<String, ScramError> {
        check_length(message)?;
        let (bare, _) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let (bound, rest) = attribute(message, "c")?;
        let (nonce, rest) = attribute(rest, "r")?;
        let (proof, _) = attribute(rest, "p")?;
        if nonce != self.nonce {
            return Err(ScramError::Replayed);
        }
        if bound != self.bound {
            return Err(ScramError::Relayed);
        }
        let signed = signed(&self.first, &self.challenge, bare);
        let signature = digest(&self.verifier.stored_key, &[signed.as_bytes()]);
        let client_key = xor(decode_key(proof)?, &signature);
        let is_right = stored_key(&client_key).ct_eq(&self.verifier.stored_key);
        if !bool::from(is_right) {
            return Err(ScramError::WrongSecret);
        }
        let answer = digest(&self.verifier.server_key, &[signed.as_bytes()]);
        Ok(format!("v={}", encode(&answer)))
    }
}
