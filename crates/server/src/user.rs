//! Who calls.

use rustix::fd::AsFd;
use std::fmt;
use std::sync::Arc;

/// The user of a connection. What one user has at the server, nobody else can reach.
///
/// The name says how the user is known: `uid:1000` is a user of this host, by what the system says
/// of the other end of a Unix socket; `anonymous` are all who come over TCP and prove nothing.
/// Any other name is that of a token or of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User(Arc<str>);

impl User {
    pub(crate) fn anonymous() -> User {
        User("anonymous".into())
    }

    /// The user of this name, by a token or a certificate, or who was here before.
    pub(crate) fn named(name: &str) -> User {
        User(name.into())
    }

    /// Whether it is one who proves nothing.
    pub(crate) fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }

    /// The user of the process at the other end of a Unix socket.
    pub(crate) fn of_peer(socket: impl AsFd) -> rustix::io::Result<User> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        Ok(User::of_process(peer.uid.as_raw()))
    }

    /// A user of this host.
    pub(crate) fn of_process(uid: u32) -> User {
        User(format!("uid:{uid}").into())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_system_says_who_is_at_the_other_end() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(
            User::of_peer(&ours).unwrap().to_string(),
            format!("uid:{uid}")
        );
    }
}
