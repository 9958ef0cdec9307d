//! Listening sockets.

use crate::user::User;
use farcall_tls::{Identity, Session};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A connection just accepted.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// Who it is, for the log.
    pub(crate) peer: String,
    pub(crate) user: User,
    /// The host it comes from; none on a Unix socket.
    pub(crate) host: Option<IpAddr>,
    /// Whether memory can be handed over on it.
    pub(crate) is_unix: bool,
    /// TLS, where the listener speaks it.
    pub(crate) session: Option<Session>,
    /// Whether the client is on this host.
    pub(crate) is_local: bool,
}

/// A socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener, Option<Identity>),
    Unix(UnixListener, PathBuf),
    /// For clients that came over TCP and are on this host, by its abstract name.
    Local(UnixListener, String),
}

impl Listener {
    pub(crate) fn tcp(address: SocketAddr, identity: Option<Identity>) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener, identity))
    }

    /// Listens on a path. A socket that a dead server left there is replaced.
    pub(crate) fn unix(path: &Path) -> io::Result<Listener> {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err() {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, path.to_path_buf()))
    }

    /// Listens on an abstract name that nobody else has.
    pub(crate) fn local() -> io::Result<Listener> {
        let mut random = [0u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("farcall-{:032x}", u128::from_ne_bytes(random));
        let listener = UnixListener::bind_addr(&SocketName::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Local(listener, name))
    }

    /// The abstract name, if it has one.
    pub(crate) fn local_name(&self) -> Option<&str> {
        match self {
            Listener::Local(_, name) => Some(name),
            Listener::Tcp(..) | Listener::Unix(..) => None,
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener, _) => listener.as_fd(),
            Listener::Unix(listener, _) | Listener::Local(listener, _) => listener.as_fd(),
        }
    }

    /// As clients write it, if they do.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Listener::Tcp(listener, identity) => {
                let scheme = match identity {
                    Some(_) => "farcalls",
                    None => "farcall",
                };
                Some(match listener.local_addr() {
                    Ok(address) => format!("{scheme}://{address}"),
                    Err(error) => format!("{scheme}://? ({error})"),
                })
            }
            Listener::Unix(_, path) => Some(format!("unix://{}", path.display())),
            Listener::Local(..) => None,
        }
    }

    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener, identity) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let is_local = stream.local_addr()?.ip() == peer.ip();
                if !is_local {
                    bound_unsent(&stream)?;
                }
                Ok(Accepted {
                    is_local,
                    socket: stream.into(),
                    peer: peer.to_string(),
                    user: User::anonymous(),
                    host: Some(peer.ip()),
                    is_unix: false,
                    session: identity.as_ref().map(Session::server).transpose()?,
                })
            }
            Listener::Unix(listener, _) | Listener::Local(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let user = User::of_peer(&stream)?;
                Ok(Accepted {
                    socket: stream.into(),
                    peer: format!("process of {user}"),
                    user,
                    host: None,
                    is_unix: true,
                    session: None,
                    is_local: true,
                })
            }
        }
    }
}

/// Keeps little unsent data in the system's hands, for nothing overtakes it there. Within a host it
/// would only cost speed: data pass to the other side at once.
fn bound_unsent(stream: &TcpStream) -> io::Result<()> {
    const UNSENT: libc::c_int = 128 << 10;
    let unsent = UNSENT;
    // SAFETY: the value is one of this frame, as long as said.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const unsent).cast(),
            size_of_val(&unsent) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}
