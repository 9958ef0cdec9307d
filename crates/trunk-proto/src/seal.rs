//! Authenticates control messages with a pre-shared key: HMAC-SHA-256 (RFC 2104), truncated to 16
//! bytes. Without a key, every message is accepted. The tag does not protect against replays:
//! `trunk` compares the counters of the messages.

use crate::Mac;
use alloc::vec::Vec;
use hmac::{Hmac, KeyInit, Mac as _};
use sha2::Sha256;

/// Bytes that follow each control message if a key is set.
pub(crate) const TAG_BYTES: usize = 16;

/// Adds and checks the tags of control messages. Without a key it does neither.
#[derive(Clone)]
pub(crate) struct Sealer {
    keyed: Option<Hmac<Sha256>>,
}

impl Sealer {
    pub(crate) fn new(key: Option<&[u8]>) -> Sealer {
        let keyed = key.and_then(|key| Hmac::<Sha256>::new_from_slice(key).ok());
        Sealer { keyed }
    }

    /// Appends the tag of a message. It covers the header, the source address and the message.
    pub(crate) fn seal(&self, shim: &[u8], source: Mac, message: &mut Vec<u8>) {
        if let Some(mut mac) = self.keyed.clone() {
            mac.update(shim);
            mac.update(&source.0);
            mac.update(message);
            message.extend_from_slice(&mac.finalize().into_bytes()[..TAG_BYTES]);
        }
    }

    /// Returns the message without its tag, or none if the tag is wrong.
    pub(crate) fn open<'a>(&self, shim: &[u8], source: Mac, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let Some(mut mac) = self.keyed.clone() else {
            return Some(sealed);
        };
        let (message, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_BYTES)?)?;
        mac.update(shim);
        mac.update(&source.0);
        mac.update(message);
        mac.verify_truncated_left(tag).ok().map(|()| message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: Mac = Mac([2; 6]);

    #[test]
    fn only_the_sealed_message_opens() {
        let sealer = Sealer::new(Some(b"a key of the laboratory"));
        let mut message = b"grant".to_vec();
        sealer.seal(b"header", FROM, &mut message);
        assert_eq!(sealer.open(b"header", FROM, &message), Some(&b"grant"[..]));
        assert_eq!(sealer.open(b"heather", FROM, &message), None);
        assert_eq!(sealer.open(b"header", Mac([4; 6]), &message), None);
        message[0] ^= 1;
        assert_eq!(sealer.open(b"header", FROM, &message), None);
        assert_eq!(sealer.open(b"header", FROM, b"short"), None);
        let other = Sealer::new(Some(b"another key"));
        message[0] ^= 1;
        assert_eq!(other.open(b"header", FROM, &message), None);
    }

    #[test]
    fn without_a_key_messages_pass() {
        let sealer = Sealer::new(None);
        let mut message = b"grant".to_vec();
        sealer.seal(b"header", FROM, &mut message);
        assert_eq!(sealer.open(b"", FROM, &message), Some(&b"grant"[..]));
    }
}
