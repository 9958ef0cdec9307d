//! Derives the name and the secret of a token. The name travels in the open and says nothing about
//! the secret. The debug text leaves the secret out.

use crate::Key;
use alloc::string::String;
use core::fmt::Write as _;
use sha2::{Digest, Sha256};

/// Bytes of the name.
const NAME_BYTES: usize = 16;

/// What a token stands for in an exchange. The name is public; it tells nothing about the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name, in hexadecimal digits.
    pub name: String,
    /// The secret: the SHA-256 of the token, in hexadecimal digits.
    pub secret: String,
}

impl Secret {
    /// The secret of a token.
    pub fn of_token(token: &str) -> Secret {
        Secret::of_digest(&Sha256::digest(token.as_bytes()).into())
    }

    /// The secret of a token with this SHA-256.
    pub fn of_digest(digest: &Key) -> Secret {
        let secret = hex(digest);
        let name: Key = Sha256::new()
            .chain_update(b"farcall token name ")
            .chain_update(&secret)
            .finalize()
            .into();
        Secret {
            name: hex(&name[..NAME_BYTES]),
            secret,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Leaves the secret out.
impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Secret({})", self.name)
    }
}
