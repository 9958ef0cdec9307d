//! Listening sockets.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
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

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// As clients write it.
    pub(crate) fn address(&self) -> String {
        match self {
            Listener::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("farcall://{address}"),
                Err(error) => format!("farcall://? ({error})"),
            },
            Listener::Unix(_, path) => format!("unix://{}", path.display()),
        }
    }

    /// The next connection and who it is, if one waits.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok((stream.into(), peer.to_string()))
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((stream.into(), "local process".to_string()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}
