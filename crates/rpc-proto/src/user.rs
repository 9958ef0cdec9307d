//! Who calls.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;

/// The user of a connection. What one user has at the server, nobody else can reach.
///
/// The name says how the user is known: `uid:1000` is a user of this host, by what the system says
/// of the other end of a Unix socket; `anonymous` are all who come over TCP and prove nothing.
/// Any other name is that of a token or of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct User(Arc<str>);

impl User {
    /// The user who proves nothing.
    pub fn anonymous() -> User {
        User("anonymous".into())
    }

    /// The user of this name, by a token or a certificate, or who was here before.
    pub fn named(name: &str) -> User {
        User(name.into())
    }

    /// A user of this host.
    pub fn of_process(uid: u32) -> User {
        User(format!("uid:{uid}").into())
    }

    /// What the user is called.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether it is one who proves nothing.
    pub fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
