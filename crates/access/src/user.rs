//! Finds the user at the other end of a Unix socket, and the ids of a user of this host. Both
//! answers come from the system and not from the client. `Access` decides about tokens and
//! certificates.

use farcall_rpc_proto::User;
use nix::unistd;
use rustix::fd::AsFd;
use std::io;

/// The user of the process at the other end of a Unix socket.
///
/// # Errors
/// The socket is not a Unix socket.
pub fn user_of_peer(socket: impl AsFd) -> rustix::io::Result<User> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(User::of_process(peer.uid.as_raw()))
}

/// The user id and group id of a user of this host, from all sources that the host's name service
/// uses. `None` if there is no such user.
///
/// # Errors
/// The name service fails.
pub fn host_user(name: &str) -> io::Result<Option<(u32, u32)>> {
    let user = unistd::User::from_name(name)?;
    Ok(user.map(|user| (user.uid.as_raw(), user.gid.as_raw())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_system_reports_the_user_of_the_peer() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(
            user_of_peer(&ours).unwrap().to_string(),
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
