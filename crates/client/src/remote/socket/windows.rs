//! What sockets do on Windows. It has no Unix sockets that the standard library knows, no pairs of
//! sockets and no signals, and no memory arrives with bytes.

use super::GiveUp;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::RecvFlags;
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// A stream within this host.
pub(crate) type Stream = TcpStream;

/// Looks at what has arrived, and does not take it. The socket itself never waits.
pub(super) const LOOK: RecvFlags = RecvFlags::PEEK;

/// Two connected streams, through the loopback network. A stranger who connects there is turned
/// away.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let own = ours.local_addr()?;
    let theirs = loop {
        let (stream, peer) = listener.accept()?;
        if peer == own {
            break stream;
        }
    };
    ours.set_nodelay(true)?;
    theirs.set_nodelay(true)?;
    Ok((ours, theirs))
}

/// Connects over TCP. Windows has no signals that could ask to give up.
pub(super) fn connect_tcp(
    to: &SocketAddr,
    timeout: Duration,
    _: GiveUp<'_>,
) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(to, timeout)
}

/// Fails: Windows has no such sockets.
pub(super) fn connect_path(_: &Path, _: Duration, _: GiveUp<'_>) -> io::Result<Stream> {
    let text = "a client on Windows has no Unix sockets; let the server listen on TCP, and use \
                farcall://localhost";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Fails: only Linux has abstract names.
pub(super) fn connect_abstract(_: &str, _: Duration, _: GiveUp<'_>) -> io::Result<Stream> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Nothing: Windows raises no signals.
pub(super) fn silence(_: BorrowedFd<'_>) -> io::Result<()> {
    Ok(())
}

/// Leaves the size of the buffers to the system.
pub(super) fn bound_queue(_: &TcpStream, _is_within_host: bool) -> io::Result<()> {
    Ok(())
}

/// Reads bytes.
pub(super) fn receive(
    mut stream: &Stream,
    places: &mut [IoSliceMut<'_>],
    _handed_over: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    stream.read_vectored(places)
}

/// Writes bytes.
pub(super) fn send(mut stream: &Stream, sources: &[IoSlice<'_>]) -> io::Result<usize> {
    stream.write_vectored(sources)
}

/// Windows does not tell what the system of the peer has accepted.
pub(super) fn unsent(_: BorrowedFd<'_>) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_carries_bytes_both_ways() {
        let (mut one, mut other) = pair().unwrap();
        let mut heard = [0; 4];
        for _ in 0..2 {
            one.write_all(b"ring").unwrap();
            other.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"ring");
            std::mem::swap(&mut one, &mut other);
        }
        drop(one);
        assert_eq!(other.read(&mut heard).unwrap(), 0);
    }
}
