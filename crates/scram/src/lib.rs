//! SCRAM-SHA-256 (RFC 5802, RFC 7677): both sides prove that they know a secret, and neither sends
//! it.
//!
//! ```text
//! client                                       server
//!   Client::new        --- first message --->    First::parse
//!   Client::answer     <-- challenge --------    First::challenge
//!                      --- proof ----------->    Exchange::check
//!   Expected::check    <-- signature --------
//! ```
//!
//! The server keeps a [`Verifier`], from which nobody can find the secret or act as the client. On
//! TLS, both sides bind the exchange to their session (RFC 9266), so that nobody can relay it.
//! This crate does no I/O and draws no random number: nonces and salts come from the caller.
#![no_std]

extern crate alloc;

mod client;
mod secret;
mod server;
mod verifier;

#[cfg(test)]
mod tests;

pub use client::{Client, Expected};
pub use secret::Secret;
pub use server::{Exchange, First};
pub use verifier::{Salted, Verifier};

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A digest or a key.
pub type Key = [u8; 32];

/// What a TLS session exports for the exchange: `tls-exporter` of RFC 9266.
pub type Binding = [u8; 32];

/// Longest message in bytes.
const MOST_BYTES: usize = 1024;
/// Longest name, nonce or salt in bytes.
const MOST_PART: usize = 256;
/// Fewest and most iterations of the key derivation. RFC 7677 asks for the fewest; the most bound
/// what a server can make a client compute.
const ITERATIONS: core::ops::RangeInclusive<u32> = 4096..=100_000;

/// Why an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// A message breaks the rules.
    #[error("a message of the authentication is malformed")]
    Malformed,
    /// The nonce is not the one of this exchange: a message was replayed.
    #[error("a message of the authentication belongs to another connection")]
    Replayed,
    /// The other side sees another TLS session, or none.
    #[error(
        "the connection does not lead straight to the other side: something between ends its TLS \
         session"
    )]
    Relayed,
    /// The derivation is too cheap or too expensive.
    #[error("the server asks for an unusual key derivation")]
    Derivation,
    /// The client does not know the secret.
    #[error("the client does not know the secret")]
    WrongSecret,
    /// The server does not know the verifier of the secret.
    #[error("the server does not know the secret")]
    WrongServer,
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of every length.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| unreachable!());
    for part in parts {
        mac.update(part);
    }
    mac
}

fn digest(key: &[u8], parts: &[&[u8]]) -> Key {
    mac(key, parts).finalize().into_bytes().into()
}

fn xor(a: Key, b: &Key) -> Key {
    let mut out = a;
    for (byte, other) in out.iter_mut().zip(b) {
        *byte ^= other;
    }
    out
}

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(text: &str) -> Result<Vec<u8>, ScramError> {
    if text.len() > 2 * MOST_PART {
        return Err(ScramError::Malformed);
    }
    STANDARD.decode(text).map_err(|_| ScramError::Malformed)
}

fn decode_key(text: &str) -> Result<Key, ScramError> {
    decode(text)?.try_into().map_err(|_| ScramError::Malformed)
}

/// The value of an attribute such as `r=...`, and what follows its comma.
fn attribute<'m>(text: &'m str, name: &str) -> Result<(&'m str, &'m str), ScramError> {
    let rest = text
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='));
    let rest = rest.ok_or(ScramError::Malformed)?;
    let (value, rest) = rest.split_once(',').unwrap_or((rest, ""));
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic());
    match is_plain && !value.is_empty() && value.len() <= 2 * MOST_PART {
        true => Ok((value, rest)),
        false => Err(ScramError::Malformed),
    }
}

fn check_length(message: &str) -> Result<(), ScramError> {
    match message.len() <= MOST_BYTES {
        true => Ok(()),
        false => Err(ScramError::Malformed),
    }
}

/// How the first message says whether the exchange is bound to a TLS session.
fn header(is_bound: bool) -> &'static str {
    match is_bound {
        true => "p=tls-exporter,,",
        false => "n,,",
    }
}

/// The part of a proof that tells what the exchange is bound to.
fn bound_to(binding: Option<&Binding>) -> String {
    let mut bytes = Vec::from(header(binding.is_some()));
    bytes.extend(binding.into_iter().flatten());
    encode(&bytes)
}

/// What both sides sign: all messages before the proof.
fn signed(first: &str, challenge: &str, bare: &str) -> String {
    format!("{first},{challenge},{bare}")
}
