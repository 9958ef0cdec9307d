//! The byte stream to a server.

use crate::Address;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connected stream socket.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    /// Connects, trying every address of the host for at most `timeout` each.
    pub(crate) fn connect(address: &Address, timeout: Duration) -> io::Result<Socket> {
        match address {
            Address::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for candidate in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&candidate, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Socket::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            #[cfg(unix)]
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
            #[cfg(not(unix))]
            Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Bounds every read and write from now on.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
            #[cfg(unix)]
            Socket::Unix(stream) => {
                stream.set_read_timeout(timeout)?;
                stream.set_write_timeout(timeout)
            }
        }
    }

    /// Whether an idle connection is of no more use: the server closed it, or spoke unasked.
    pub(crate) fn is_stale(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::fd::AsRawFd;
            let fd = match self {
                Socket::Tcp(stream) => stream.as_raw_fd(),
                Socket::Unix(stream) => stream.as_raw_fd(),
            };
            let mut byte = 0u8;
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            // SAFETY: the buffer is one byte of this frame, the descriptor is open.
            let count = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, flags) };
            count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
        }
        #[cfg(not(unix))]
        false
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read_vectored(buffers),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.read_vectored(buffers),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write_vectored(buffers),
            #[cfg(unix)]
            Socket::Unix(stream) => stream.write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
