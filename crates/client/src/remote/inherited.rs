//! Which sockets to servers a forked child of this process is to close: those whose options have
//! `close_in_children`. A child that keeps such a socket also keeps the connection of its parent
//! open after the parent has ended. Other connections stay open in children, because the program
//! may use or close them there.
//!
//! The list has no lock, because a lock could be held at the moment of the fork. It has a place for
//! each of the first connections only; a child keeps those without a place until it ends.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

const FREE: RawFd = -1;

static OPEN: [AtomicI32; 256] = [const { AtomicI32::new(FREE) }; 256];

fn exchange(from: RawFd, to: RawFd) {
    let replaces = |place: &&AtomicI32| {
        let replaced = place.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        replaced.is_ok()
    };
    let _ = OPEN.iter().find(replaces);
}

/// The socket is open.
pub(super) fn opened(number: RawFd) {
    exchange(FREE, number);
}

/// The socket is about to be closed.
pub(super) fn closes(number: RawFd) {
    exchange(number, FREE);
}

/// Closes the sockets of the parent's connections that were opened with `close_in_children`, in a
/// forked child. It takes no lock, so that a handler of `pthread_atfork` can call it.
///
/// # Safety
/// The child never uses or drops a server of its parent with this option, nor its functions and
/// arrays.
pub unsafe fn close_inherited() {
    for place in &OPEN {
        let number = place.swap(FREE, Ordering::AcqRel);
        if number != FREE {
            // SAFETY: by the caller's promise nobody owns the descriptor in this process.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::socket::{Socket, pair};
    use super::*;

    fn is_listed(number: RawFd) -> bool {
        OPEN.iter()
            .any(|place| place.load(Ordering::Relaxed) == number)
    }

    #[test]
    fn a_socket_is_listed_as_long_as_it_is_open() {
        let (stream, _peer) = pair().unwrap();
        let socket = Socket::Unix(stream);
        let number = socket.number();
        opened(number);
        assert!(is_listed(number));
        drop(socket);
        assert!(!is_listed(number));
    }
}
