//! A stream of messages to a front end or another daemon. The daemon decides what to send; a link
//! frames the messages and never blocks. The bytes that wait to be sent are bounded, and a peer
//! that reads nothing is given up.

use farcall_gang_proto::Message;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::sockopt;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes that can wait to be sent before the daemon stops reading output of processes.
const FULL: usize = 1 << 20;
/// The most bytes that can wait. A peer that reads nothing is then given up.
const BROKEN: usize = 64 << 20;

/// The longest time without a sign of life that the system takes.
const LONGEST: Duration = Duration::from_secs(32_767);

/// A connected stream.
pub(crate) struct Link {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Link {
    /// Takes a stream. If its peer is silent, the system asks it for a sign of life, and after
    /// about `silence` the stream is broken.
    pub(crate) fn tcp(stream: TcpStream, silence: Duration) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        // Not TCP_USER_TIMEOUT: it would also give up a front end that is stopped and reads
        // nothing.
        let allowed = |time: Duration| time.clamp(Duration::from_secs(1), LONGEST);
        sockopt::set_tcp_keepidle(&stream, allowed(silence / 2))?;
        sockopt::set_tcp_keepintvl(&stream, allowed(silence / 8))?;
        sockopt::set_tcp_keepcnt(&stream, 4)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        Link::new(stream.into())
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Link> {
        Link::new(stream.into())
    }

    fn new(socket: OwnedFd) -> io::Result<Link> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Link {
            socket,
            input: Vec::new(),
            output: Vec::new(),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends as much as the socket accepts now; the rest waits.
    pub(crate) fn send(&mut self, message: &Message) {
        let was_empty = self.output.is_empty();
        message.encode(&mut self.output);
        if was_empty {
            // The next read reports a broken stream.
            let _ = self.flush();
        }
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.output, flags) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(rustix::io::Errno::AGAIN) if self.output.len() < BROKEN => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => {
                    let text = format!("it reads nothing, and {} MiB wait for it", BROKEN >> 20);
                    return Err(io::Error::other(text));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        !self.output.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.output.len() > FULL
    }

    /// Whether so many bytes wait that the peer is given up, unless it reads now.
    pub(crate) fn is_broken(&self) -> bool {
        self.output.len() >= BROKEN
    }

    /// Whether few enough bytes wait to accept more output.
    pub(crate) fn has_room(&self) -> bool {
        self.output.len() < FULL / 2
    }

    /// Reads the messages that have arrived. The end of the stream is an error.
    pub(crate) fn receive(&mut self) -> io::Result<Vec<Message>> {
        let mut buffer = [0; 64 << 10];
        let mut read = rustix::io::read(&self.socket, &mut buffer);
        if read == Err(rustix::io::Errno::CONNRESET) {
            // The peer has closed before it read everything; what it sent can still be read.
            read = rustix::io::read(&self.socket, &mut buffer);
        }
        match read {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (mut messages, mut taken) = (Vec::new(), 0);
        while let Some((message, bytes)) = Message::decode(&self.input[taken..])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
        {
            taken += bytes;
            messages.push(message);
        }
        self.input.drain(..taken);
        Ok(messages)
    }
}

/// Connects to a control socket.
pub(crate) fn connect(control: &str) -> io::Result<UnixStream> {
    match control.strip_prefix('@') {
        Some(name) => UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?),
        None => UnixStream::connect(control),
    }
}

/// A control socket, at which a daemon listens. Its path is removed when this is dropped, unless
/// something else has taken the path.
pub(crate) struct Control {
    pub(crate) listener: UnixListener,
    /// The path and its inode; none for an abstract name.
    path: Option<(PathBuf, u64)>,
}

impl Control {
    /// Listens on a control socket. The path that a dead daemon left behind is reused.
    pub(crate) fn listen(control: &str) -> io::Result<Control> {
        let (listener, path) = match control.strip_prefix('@') {
            Some(name) => {
                let name = UnixAddr::from_abstract_name(name)?;
                (UnixListener::bind_addr(&name)?, None)
            }
            None => {
                let (listener, inode) = listen_at(Path::new(control))?;
                (listener, Some((PathBuf::from(control), inode)))
            }
        };
        listener.set_nonblocking(true)?;
        Ok(Control { listener, path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.path
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens at a path. Returns its inode, too.
fn listen_at(path: &Path) -> io::Result<(UnixListener, u64)> {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        let what = "another file has this name, which is no socket: choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    // Users other than that of the daemon connect too; the daemon knows who asks.
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok((listener, fs::symlink_metadata(path)?.ino()))
}

fn is_dead(path: &Path) -> bool {
    let refused = io::ErrorKind::ConnectionRefused;
    UnixStream::connect(path).is_err_and(|error| error.kind() == refused)
}

/// The user and group at the other end of a control socket. The process may have no number here, as
/// one outside of a container has none in it; `rustix` takes that for an error.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let credentials = getsockopt(stream, PeerCredentials)?;
    Ok((credentials.uid(), credentials.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_for_a_sign_of_life() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        for (silence, idle) in [(30, 15), (2, 1), (86_400 * 365, 32_767)] {
            let stream = TcpStream::connect(address).expect("it listens");
            let link = Link::tcp(stream, Duration::from_secs(silence)).expect("a link");
            assert!(sockopt::socket_keepalive(link.fd()).expect("a socket"));
            let told = sockopt::tcp_keepidle(link.fd()).expect("a socket");
            assert_eq!(told, Duration::from_secs(idle));
        }
    }

    #[test]
    fn a_socket_of_a_dead_daemon_is_replaced_and_no_other_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gang.sock");
        let control = path.to_str().expect("plain");
        fs::write(&path, "letters").expect("room");
        let refused = Control::listen(control).err().expect("it is no socket");
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).expect("it is there"), b"letters");
        fs::remove_file(&path).expect("it is there");
        // A daemon that is killed leaves its socket.
        drop(UnixListener::bind(&path).expect("a socket"));
        let first = Control::listen(control).expect("nobody listens");
        let used = Control::listen(control).err().expect("the first listens");
        assert_eq!(used.kind(), io::ErrorKind::AddrInUse);
        fs::remove_file(&path).expect("it is there");
        let other = Control::listen(control).expect("the path is free");
        drop(first);
        assert!(path.exists(), "it is that of the other");
        drop(other);
        assert!(!path.exists());
    }
}
