//! Who calls.

use nix::unistd;
use rustix::fd::AsFd;
use std::sync::Arc;
use std::{fmt, io};

/// The user of a connection. What one user has at the server, nobody else can reach.
///
/// The name says how the user is known: `uid:1000` is a user of this host, by what the system says
/// of the other end of a Unix socket; `anonymous` are all who come over TCP and prove nothing.
/// Any other name is that of a token or of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User(Arc<str>);

impl User {
    /// All who prove nothing.
    pub fn anonymous() -> User {
        User("anonymous".into())
    }

    /// The user of this name, by a token or a certificate, or who was here before.
    pub fn named(name: &str) -> User {
        User(name.into())
    }

    /// What the user is called.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Whether it is one who proves nothing.
    pub fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }

    /// The user of the process at the other end of a Unix socket.
    ///
    /// # Errors
    /// It is not a Unix socket.
    pub fn of_peer(socket: impl AsFd) -> rustix::io::Result<User> {
        let peer = rustix::net::sockopt::socket_peercred(socket)?;
        Ok(User::of_process(peer.uid.as_raw()))
    }

    /// A user of this host.
    pub fn of_process(uid: u32) -> User {
        User(format!("uid:{uid}").into())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The numbers of a user of this host and of its group, by all the ways in which the host knows
/// users; none where it knows no such user.
///
/// # Errors
/// The host cannot say.
pub fn host_user(name: &str) -> io::Result<Option<(u32, u32)>> {
    let user = unistd::User::from_name(name)?;
    Ok(user.map(|user| (user.uid.as_raw(), user.gid.as_raw())))
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

    #[test]
    fn users_of_this_host_have_names() {
        assert_eq!(host_user("root").unwrap(), Some((0, 0)));
        assert_eq!(host_user("nobody of that name").unwrap(), None);
        assert_eq!(host_user("a\0b").ok().flatten(), None);
    }
}
