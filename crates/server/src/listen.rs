//! Listening sockets: TCP, TLS, Unix sockets, and the abstract socket for clients on this host.
//! `socket` handles an accepted connection. A listener takes over an address at which a server
//! listens only if it is told to.

use farcall_rpc_proto::User;
use farcall_tls::{Identity, Session};
use nix::net::if_::InterfaceFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown};
use std::os::unix::net::{SocketAddr as SocketName, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Most connections that wait to be accepted. The system may allow fewer.
const BACKLOG: i32 = 4096;

/// A connection just accepted.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    /// Name of the client in the log.
    pub(crate) peer: String,
    pub(crate) user: User,
    /// The client's host; `None` on a Unix socket.
    pub(crate) host: Option<IpAddr>,
    /// Both ends of a TCP connection within this host, the own one first.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// Whether memory can be passed on it.
    pub(crate) is_unix: bool,
    /// The TLS session, if the listener uses TLS.
    pub(crate) session: Option<Session>,
    /// Whether the client is on this host.
    pub(crate) is_local: bool,
}

/// A path and the socket that this server has made there. Another server may have replaced it.
pub(crate) struct SocketPath {
    path: PathBuf,
    inode: u64,
    /// Where the socket is until it takes the place of that of another server.
    beside: Option<PathBuf>,
}

impl SocketPath {
    /// Takes the place of the socket of another server. Whom its operator lets connect there can go
    /// on.
    fn take_over(&self) -> io::Result<()> {
        let Some(beside) = &self.beside else {
            return Ok(());
        };
        let user = rustix::process::geteuid().as_raw();
        let is_own = |found: &fs::Metadata| found.file_type().is_socket() && found.uid() == user;
        let found = fs::symlink_metadata(&self.path).ok();
        if let Some(before) = found.filter(is_own)
            // With another group, its permissions would be for others.
            && chown(beside, None, Some(before.gid())).is_ok()
        {
            fs::set_permissions(beside, before.permissions())?;
        }
        fs::rename(beside, &self.path)
    }
}

/// Where the socket is made that takes the place of the one at a path.
pub(crate) fn fresh_name(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.new", std::process::id()))
}

/// Removes the socket of a dead server.
fn remove_dead(path: &Path) -> io::Result<()> {
    let is_socket = |found: fs::Metadata| found.file_type().is_socket();
    // Other errors come from a socket that is alive: one of another user, or of another kind.
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let is_dead = fs::symlink_metadata(path).is_ok_and(is_socket)
        && UnixStream::connect(path).is_err_and(is_refused);
    match is_dead {
        true => fs::remove_file(path),
        false => Ok(()),
    }
}

fn place(path: &Path) -> io::Result<SocketPath> {
    Ok(SocketPath {
        path: path.to_path_buf(),
        inode: fs::symlink_metadata(path)?.ino(),
        beside: None,
    })
}

/// A socket for an address. With `only_ipv6`, the wildcard of IPv6 is not that of IPv4 as well.
fn tcp_socket(address: SocketAddr, only_ipv6: bool) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if only_ipv6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

/// A socket whose port the user's next server can share, so that it can listen before this one
/// ends. Nobody can connect before [`Listener::open`].
fn shareable(address: SocketAddr, only_ipv6: bool) -> io::Result<TcpListener> {
    let socket = tcp_socket(address, only_ipv6)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket.into())
}

/// Fails if anybody listens on an address: this socket does not share its port.
fn check_free(address: SocketAddr, only_ipv6: bool) -> io::Result<()> {
    let socket = tcp_socket(address, only_ipv6)?;
    bind(&socket, &address)?;
    Ok(listen(&socket, 1)?)
}

/// A socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener, Option<Identity>),
    Unix(UnixListener, SocketPath),
    /// For clients on this host that connected over TCP, by an abstract name.
    Local(UnixListener, String),
}

impl Listener {
    /// Takes an address. With `beside`, another server of this user may listen there too. `all` are
    /// the addresses of the server: the wildcard of IPv6 stands for IPv4 too, unless an address of
    /// IPv4 has the same port.
    pub(crate) fn tcp(
        address: SocketAddr,
        all: &[SocketAddr],
        identity: Option<Identity>,
        beside: bool,
    ) -> io::Result<Listener> {
        let has_port = |other: &SocketAddr| other.is_ipv4() && other.port() == address.port();
        let only_ipv6 = address.is_ipv6() && address.port() != 0 && all.iter().any(has_port);
        if !beside && address.port() != 0 {
            check_free(address, only_ipv6)?;
        }
        Ok(Listener::Tcp(shareable(address, only_ipv6)?, identity))
    }

    /// Lets clients connect. With `beside`, another server of this user may listen on the address,
    /// and clients that have connected before stay with it.
    pub(crate) fn open(&self, beside: bool) -> io::Result<()> {
        let listener = match self {
            Listener::Tcp(listener, _) => listener,
            Listener::Unix(_, place) => return place.take_over(),
            Listener::Local(..) => return Ok(()),
        };
        if !beside {
            // Another server may have taken the address while this one was starting.
            let address = listener.local_addr()?;
            check_free(
                address,
                address.is_ipv6() && sockopt::ipv6_v6only(listener)?,
            )?;
        }
        Ok(listen(listener, BACKLOG)?)
    }

    /// Listens on a path. Replaces the socket of a dead server. With `beside`, replaces that of a
    /// running one, which keeps its place until [`Listener::open`].
    pub(crate) fn unix(path: &Path, beside: bool) -> io::Result<Listener> {
        let found = fs::symlink_metadata(path).map(|meta| meta.file_type());
        if found.is_ok_and(|kind| !kind.is_socket()) {
            let what = "another file has this name, which is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        if beside {
            let fresh = fresh_name(path);
            // In another container, a server with the same number may have died as it started.
            remove_dead(&fresh)?;
            let listener = UnixListener::bind(&fresh)?;
            listener.set_nonblocking(true)?;
            let made = SocketPath {
                path: path.to_path_buf(),
                beside: Some(fresh.clone()),
                ..place(&fresh)?
            };
            return Ok(Listener::Unix(listener, made));
        }
        remove_dead(path)?;
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(listener, place(path)?))
    }

    /// Listens on a new abstract name.
    pub(crate) fn local() -> io::Result<Listener> {
        let mut random = [0u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("farcall-{:032x}", u128::from_ne_bytes(random));
        let listener = UnixListener::bind_addr(&SocketName::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Local(listener, name))
    }

    /// Its certificate, if it uses TLS.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Listener::Tcp(_, identity) => identity.as_ref(),
            Listener::Unix(..) | Listener::Local(..) => None,
        }
    }

    /// The abstract name, if it has one.
    pub(crate) fn local_name(&self) -> Option<&str> {
        match self {
            Listener::Local(_, name) => Some(name),
            Listener::Tcp(..) | Listener::Unix(..) => None,
        }
    }

    /// The addresses at which clients on other hosts can reach it.
    pub(crate) fn ways(&self, tls: bool) -> Vec<SocketAddr> {
        let Listener::Tcp(listener, identity) = self else {
            return Vec::new();
        };
        let Ok(address) = listener.local_addr() else {
            return Vec::new();
        };
        if identity.is_some() != tls || address.ip().is_loopback() {
            return Vec::new();
        }
        if !address.ip().is_unspecified() {
            return vec![address];
        }
        let own = interface_addresses().into_iter();
        let same = own.filter(|ip| ip.is_ipv4() == address.is_ipv4());
        same.map(|ip| SocketAddr::new(ip, address.port())).collect()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener, _) => listener.as_fd(),
            Listener::Unix(listener, _) | Listener::Local(listener, _) => listener.as_fd(),
        }
    }

    /// The address as clients write it.
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
            Listener::Unix(_, place) => Some(format!("unix://{}", place.path.display())),
            Listener::Local(..) => None,
        }
    }

    /// Accepts the next connection, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Tcp(listener, identity) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let own = stream.local_addr()?;
                let is_local = own.ip() == peer.ip();
                bound_queue(&stream, is_local)?;
                Ok(Accepted {
                    is_local,
                    socket: stream.into(),
                    peer: peer.to_string(),
                    user: User::anonymous(),
                    host: Some(peer.ip()),
                    ends: is_local.then_some((own, peer)),
                    is_unix: false,
                    session: identity.as_ref().map(Session::server).transpose()?,
                })
            }
            Listener::Unix(listener, _) | Listener::Local(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let user = farcall_access::user_of_peer(&stream)?;
                Ok(Accepted {
                    socket: stream.into(),
                    peer: format!("process of {user}"),
                    user,
                    host: None,
                    ends: None,
                    is_unix: true,
                    session: None,
                    is_local: true,
                })
            }
        }
    }
}

/// Addresses of this host's interfaces that other hosts may reach.
fn interface_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let up = interfaces.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let addresses = up.filter_map(|one| {
        let address = one.address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::from(four.ip()));
        four.or_else(|| Some(IpAddr::from(address.as_sockaddr_in6()?.ip())))
    });
    let is_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    };
    addresses.filter(|ip| !is_local(ip)).collect()
}

/// Bounds the bytes in the system's buffers, which nothing can overtake. On a network these are
/// unsent bytes. Within a host, bytes pass to the other side at once and wait there to be read.
fn bound_queue(stream: &TcpStream, is_within_host: bool) -> io::Result<()> {
    let (option, bytes) = match is_within_host {
        true => (libc::TCP_WINDOW_CLAMP, 1 << 20),
        false => (libc::TCP_NOTSENT_LOWAT, 64 << 10),
    };
    set_option(stream.as_fd(), libc::IPPROTO_TCP, option, bytes)
}

/// Bounds the bytes that the client may send before they are read. Without a bound, the system
/// chooses one.
pub(crate) fn bound_ahead(socket: BorrowedFd<'_>, bytes: Option<u32>) -> io::Result<()> {
    match bytes {
        Some(bytes) => Ok(sockopt::set_socket_recv_buffer_size(
            socket,
            bytes as usize,
        )?),
        None => set_option(socket, libc::SOL_SOCKET, libc::SO_BUF_LOCK, 0),
    }
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    bytes: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value lives in this stack frame and has the given size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    match set {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Listener::Unix(_, place) = self else {
            return;
        };
        for path in place.beside.iter().chain([&place.path]) {
            if fs::symlink_metadata(path).is_ok_and(|meta| meta.ino() == place.inode) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn both_wildcards_can_have_one_port() {
        if TcpListener::bind("[::1]:0").is_err() {
            return eprintln!("skipped: this machine has no IPv6");
        }
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let first = Listener::tcp(any, &[any], None, false).unwrap();
        let Listener::Tcp(socket, _) = &first else {
            panic!("no TCP listener");
        };
        let port = socket.local_addr().unwrap().port();
        let all: [SocketAddr; 2] =
            ["0.0.0.0", "[::]"].map(|ip| format!("{ip}:{port}").parse().unwrap());
        let second = Listener::tcp(all[1], &all, None, false).unwrap();
        first.open(false).unwrap();
        second.open(false).unwrap();
        let taken = Listener::tcp(all[1], &all[1..], None, false);
        assert_eq!(taken.err().unwrap().kind(), io::ErrorKind::AddrInUse);
    }

    /// As when one of its libraries cannot be loaded: clients still find the server before.
    #[test]
    fn a_takeover_that_fails_leaves_the_socket_of_the_server_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let inode = || place(&path).unwrap().inode;
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let before = Listener::unix(&path, false).unwrap();
        let first = inode();
        drop(Listener::unix(&path, true).unwrap());
        assert_eq!((inode(), files()), (first, 1));
        // One that was killed meanwhile has left its socket.
        drop(UnixListener::bind(fresh_name(&path)).unwrap());
        let next = Listener::unix(&path, true).unwrap();
        assert_eq!(inode(), first);
        next.open(true).unwrap();
        assert_ne!(inode(), first);
        drop(before);
        assert!(UnixStream::connect(&path).is_ok());
        drop(next);
        assert_eq!(files(), 0);
    }

    #[test]
    fn who_could_connect_to_the_server_before_can_connect_to_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _before = Listener::unix(&path, false).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o646)).unwrap();
        let next = Listener::unix(&path, true).unwrap();
        next.open(true).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o646);
    }

    #[test]
    fn only_the_socket_of_a_dead_server_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _other = UnixDatagram::bind(&path).unwrap();
        let inode = place(&path).unwrap().inode;
        let refused = Listener::unix(&path, false).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(place(&path).unwrap().inode, inode);
        let path = folder.path().join("dead");
        drop(UnixListener::bind(&path).unwrap());
        drop(Listener::unix(&path, false).unwrap());
        assert!(!path.exists());
    }
}
