//! Finds the user at the other end of a Unix socket, and the ids of a user of this host. Both
//! answers come from the system and not from the client. `Access` decides about tokens and
//! certificates.

use farcall_rpc_proto::User;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd;
use rustix::fd::AsFd;
use std::io;

/// The number by which the system tells of users who have none in a user namespace.
const NOBODY: u32 = 65534;

/// The user of the process at the other end of a Unix socket. The process may have no number here,
/// as one outside of a container has none in it; `rustix` takes that for an error.
///
/// # Errors
/// The socket is not a Unix socket.
pub fn user_of_peer(socket: impl AsFd) -> io::Result<User> {
    let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
    Ok(match (peer.pid(), peer.uid()) {
        // Several users outside may have this number here.
        (0, NOBODY) => User::anonymous(),
        (_, uid) => User::of_process(uid),
    })
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
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
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

    /// The test that a server in a container makes of a client outside.
    #[test]
    fn a_peer_outside_of_the_own_processes_has_a_user() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let look = move || {
            // Only children of this thread are in the new namespace.
            if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
                eprintln!("SKIPPED: {error}");
                return;
            }
            let expected = format!("uid:{}", rustix::process::getuid().as_raw());
            // SAFETY: the C library makes its locks anew in the child, which asks and ends.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let is_known = user_of_peer(&ours).is_ok_and(|user| user.name() == expected);
                    // SAFETY: a plain system call.
                    unsafe { nix::libc::_exit(i32::from(!is_known)) }
                }
                ForkResult::Parent { child } => {
                    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
                }
            }
        };
        std::thread::spawn(look).join().unwrap();
    }

    #[test]
    fn users_of_this_host_have_names() {
        assert_eq!(host_user("root").unwrap(), Some((0, 0)));
        assert_eq!(host_user("nobody of that name").unwrap(), None);
        assert_eq!(host_user("a\0b").ok().flatten(), None);
    }
}
