//! Users: the name for whom a call runs. How a name is proved is the concern of `access` and of the
//! shell.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;

/// The user of a connection. No other user can reach what belongs to this one.
///
/// The name says how the user is known. `uid:1000` is a user of this host, as the system reports
/// for a Unix socket. `local:1000` is one over TCP, which proves less. `anonymous` are all clients
/// over TCP that prove nothing. Any other name is that of a token or a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct User(Arc<str>);

impl User {
    /// The user of clients that prove nothing.
    pub fn anonymous() -> User {
        User("anonymous".into())
    }

    /// The user with this name, known by a token, a certificate or an earlier record.
    pub fn named(name: &str) -> User {
        User(name.into())
    }

    /// A user of this host.
    pub fn of_process(uid: u32) -> User {
        User(format!("uid:{uid}").into())
    }

    /// The user of connections that read one lent array. It owns nothing; no token or certificate
    /// can have this name.
    pub fn reader() -> User {
        User("(reader of a lent array)".into())
    }

    /// The name of the user.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether the user proves nothing.
    pub fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
