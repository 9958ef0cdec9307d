//! Greetings and goodbyes: version, features, and who is speaking. Both ends of a connection wait
//! for the greeting of the other. Unknown features are ignored, so that older and newer peers
//! understand each other. If there is no common version, the connection ends.

use crate::ProtocolError;
use crate::ids::HandleId;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Oldest protocol version this code speaks.
pub const VERSION_MIN: u32 = 1;

/// Newest protocol version this code speaks.
pub const VERSION_MAX: u32 = 1;

/// Feature bit: the peer is a metaserver, which has a directory of servers.
pub const DIRECTORY: u64 = 1 << 17;

/// First bytes of every greeting. They show at once whether the peer speaks Farcall.
const MAGIC: &str = "farcall";

/// Greeting of either side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Hello {
    #[n(0)]
    magic: String,
    /// Oldest version spoken; in the server's greeting, the version chosen.
    #[n(1)]
    pub version_min: u32,
    /// Newest version spoken; in the server's greeting, the version chosen.
    #[n(2)]
    pub version_max: u32,
    /// Optional features, one bit each; unknown bits are ignored.
    #[n(3)]
    pub features: u64,
    /// Program and version, for logs and error messages.
    #[n(4)]
    pub agent: String,
    /// The token of a client of an earlier version. No client sends it any more, and no server
    /// accepts it.
    #[n(5)]
    pub token: Option<String>,
    /// In the server's greeting to a client on the same host: the abstract Unix socket at which the
    /// server also listens.
    #[n(6)]
    pub local: Option<String>,
    /// In the server's greeting, with [`PARTS`](crate::PARTS): the other IP addresses and ports at
    /// which the server listens.
    #[n(7)]
    pub ways: Option<Vec<String>>,
    /// In the server's greeting: how many requests may be open at once.
    #[n(8)]
    pub calls: Option<u32>,
    /// In the greeting of a server that reads an array from another one: the name under which the
    /// array is lent, instead of credentials. Such a connection can read this array and nothing
    /// else.
    #[n(9)]
    pub loan: Option<HandleId>,
    /// SCRAM-SHA-256: in the client's greeting, the first message of a client that has a token. In
    /// the server's greeting, the signature of a server that knows the token too.
    #[n(10)]
    pub proof: Option<String>,
    /// In the client's greeting: a random number, the same on all its connections, by which the
    /// records of servers tell which calls one client made.
    #[n(11)]
    pub client: Option<u64>,
}

impl Hello {
    /// A greeting for every version this code speaks.
    pub fn new(agent: &str) -> Hello {
        Hello {
            magic: MAGIC.to_string(),
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: 0,
            agent: agent.to_string(),
            token: None,
            local: None,
            ways: None,
            calls: None,
            loan: None,
            proof: None,
            client: None,
        }
    }

    /// The newest version both sides speak.
    pub(crate) fn agree(&self) -> Result<u32, ProtocolError> {
        if self.magic != MAGIC {
            return Err(ProtocolError::NotFarcall);
        }
        let newest = self.version_max.min(VERSION_MAX);
        if newest < self.version_min.max(VERSION_MIN) {
            return Err(ProtocolError::Version {
                theirs_min: self.version_min,
                theirs_max: self.version_max,
            });
        }
        Ok(newest)
    }
}

/// A message between the two greetings of a client that proves who it is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ProofMessage {
    #[n(0)]
    pub(crate) text: String,
}

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct GoodbyeMessage {
    #[n(0)]
    pub(crate) reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_without_overlap_are_refused() {
        let mut hello = Hello::new("test");
        hello.version_min = VERSION_MAX + 1;
        hello.version_max = VERSION_MAX + 3;
        assert!(matches!(hello.agree(), Err(ProtocolError::Version { .. })));
        hello.version_min = VERSION_MIN;
        assert_eq!(hello.agree(), Ok(VERSION_MAX));
    }
}
