//! Who is at the other end of a TCP connection within this host.
//!
//! The system knows the owner of each socket (sock_diag(7)). That does not prove who speaks: a
//! forwarder that runs as one user passes on the bytes of others. So the owner keeps anonymous
//! users of one host apart, and gives no rights.

use farcall_rpc_proto::User;
use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};
use std::net::{IpAddr, SocketAddr};

/// Asks about one socket.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
/// Bytes of the header of a message.
const HEADER: usize = 16;
/// Bytes of a question with its header.
const QUESTION: usize = HEADER + 56;
/// Where an answer has the user, after its header.
const UID: usize = 64;

/// The user who has opened the other end of a TCP connection within this host, as `local:N`. `None`
/// if the system does not tell.
pub(crate) fn owner(own: SocketAddr, peer: SocketAddr) -> Option<User> {
    let question = question(canonical(own), canonical(peer));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol).ok()?;
    write(&socket, &question).ok()?;
    let mut answer = [0; 512];
    // The system answers before the write returns.
    let count = read(&socket, &mut answer).ok()?;
    let kind = u16::from_ne_bytes(*answer[..count].get(4..)?.first_chunk()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let uid = answer[..count].get(HEADER + UID..)?.first_chunk()?;
    let uid = u32::from_ne_bytes(*uid);
    Some(User::named(&format!("local:{uid}")))
}

/// The address without the form of IPv6 that stands for IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The question about the socket of the peer, seen from the peer.
fn question(own: SocketAddr, peer: SocketAddr) -> [u8; QUESTION] {
    let mut question = [0; QUESTION];
    let mut put = |at: usize, bytes: &[u8]| question[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(QUESTION as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    let family = match peer {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    put(HEADER, &[family.as_raw() as u8, IPPROTO_TCP]);
    // Sockets in every state, and with every cookie.
    put(HEADER + 4, &[0xff; 4]);
    put(HEADER + 48, &[0xff; 8]);
    put(HEADER + 8, &peer.port().to_be_bytes());
    put(HEADER + 10, &own.port().to_be_bytes());
    for (at, ip) in [(HEADER + 12, peer.ip()), (HEADER + 28, own.ip())] {
        match ip {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_system_tells_who_has_opened_a_connection() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(client.local_addr().unwrap(), peer);
            let user = owner(server.local_addr().unwrap(), peer);
            let own = format!("local:{}", rustix::process::getuid().as_raw());
            assert_eq!(user, Some(User::named(&own)), "{address}");
        }
        let nobody = "127.0.0.1:1".parse().unwrap();
        assert_eq!(owner(nobody, nobody), None);
    }
}
