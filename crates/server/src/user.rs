//! Who calls.

use rustix::fd::AsFd;
use std::fmt;
use std::rc::Rc;

/// The user of a connection. What one user has at the server, nobody else can reach.
///
/// The name says how the user is known: `uid:1000` is a user of this host, by what the system says
/// of the other end of a Unix socket; `anonymous` are all who come over TCP and prove nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct User(Rc<str>);

impl User {
    pub(crate) fn anonymous() -> User {
        User("anonymous".into())
    }

    /// The user of that name, who was here before.
    pub(crate) fn named(name: &str) -> User {
        User(name.into())
    }

    /// The user of the process at the other end of a Unix socket.
    pub(crate) fn of_peer(socket: impl AsFd) -> rustix::io::Result<User> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        Ok(User(format!("uid:{}", peer.uid.as_raw()).into()))
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
