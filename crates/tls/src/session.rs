//! One side of a TLS connection, between its user and a non-blocking socket. The user waits for the
//! socket. The bytes that wait to be written are bounded, and the session takes no more than that.

use crate::{Identity, Trust};
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConnection, Connection, InvalidMessage, ServerConnection};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use webpki::EndEntityCert;

/// Largest number of bytes that wait for space in the socket. The session accepts no more.
const UNSENT_BYTES: usize = 256 << 10;

/// One side of a TLS connection, between its user and a non-blocking socket.
///
/// Both [`Session::read`] and [`Session::write`] continue the handshake until it is complete. While
/// [`Session::wants_write`] is true, a thread that waits for the socket must also wait until it can
/// write.
#[derive(Debug)]
pub struct Session(Box<Connection>);

/// Whether the first bytes of a client can begin a greeting in TLS (RFC 8446, 5.1). Two bytes are
/// enough; no bytes can begin anything.
pub fn may_greet(first: &[u8]) -> bool {
    const RECORD: [u8; 2] = [0x16, 0x03];
    first.iter().zip(RECORD).all(|(byte, known)| *byte == known)
}

/// Whether a certificate with this name or address is of use: whether [`Session::client`] can ask
/// for it. `*` stands for the first part of a name that has two more.
pub fn is_server_name(name: &str) -> bool {
    let (name, is_pattern) = match name.strip_prefix("*.") {
        Some(rest) => (rest, true),
        None => (name, false),
    };
    match ServerName::try_from(name) {
        Ok(ServerName::IpAddress(_)) => !is_pattern,
        // A certificate with a dot at the end of a name is malformed.
        Ok(_) => !name.ends_with('.') && (!is_pattern || name.contains('.')),
        Err(_) => false,
    }
}

impl Session {
    /// The server's side.
    pub fn server(identity: &Identity) -> io::Result<Session> {
        let connection =
            ServerConnection::new(identity.server_config()).map_err(io::Error::other)?;
        Ok(Session::new(connection.into()))
    }

    /// The client's side. `host` is the name or address that the server's certificate must contain.
    pub fn client(trust: &Trust, host: &str) -> io::Result<Session> {
        let name = ServerName::try_from(host.to_string())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connection = ClientConnection::new(trust.0.clone(), name).map_err(io::Error::other)?;
        Ok(Session::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Session {
        connection.set_buffer_limit(Some(UNSENT_BYTES));
        Session(Box::new(connection))
    }

    /// Whether the handshake is complete, so that the other side is known.
    pub fn is_established(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Whether bytes wait for space in the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// The name in the certificate of the other side, which has proved that it owns the
    /// certificate. It is the first DNS name of the subject alternative names (RFC 5280, 4.2.1.6).
    pub fn peer_name(&self) -> Option<String> {
        let certificate = self.0.peer_certificates()?.first()?;
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let name = certificate.valid_dns_names().next()?;
        Some(name.to_string())
    }

    /// Bytes that both sides know, and nobody else: the `tls-exporter` binding of RFC 9266. `None`
    /// before the handshake is complete.
    pub fn binding(&self) -> Option<[u8; 32]> {
        let label = b"EXPORTER-Channel-Binding";
        let exported = match &*self.0 {
            Connection::Client(client) => client.export_keying_material([0; 32], label, Some(&[])),
            Connection::Server(server) => server.export_keying_material([0; 32], label, Some(&[])),
        };
        exported.ok()
    }

    /// Reads bytes of the other side. Fails with `WouldBlock` if there are none. Zero bytes mean
    /// that the other side has ended the connection.
    pub fn read(
        &mut self,
        socket: &mut (impl Read + Write),
        places: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        loop {
            match self.0.reader().read_vectored(places) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The connection ended without a TLS close message. This is safe, because the
                // protocol inside marks its own end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            let count = self.0.read_tls(socket)?;
            let processed = self.0.process_new_packets();
            // Send the next part of the handshake, or the reason why it failed.
            let written = self.flush(socket);
            processed.map_err(explain)?;
            match written {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
            if count == 0 && self.0.is_handshaking() {
                let text = "the other side ended the TLS handshake; check that it uses TLS";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
        }
    }

    /// Takes bytes to be written. Fails with `WouldBlock` if there is no space for any.
    pub fn write(&mut self, socket: &mut impl Write, sources: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut taken = self.0.writer().write_vectored(sources)?;
        let flushed = self.flush(socket);
        if taken == 0 {
            flushed?;
            taken = self.0.writer().write_vectored(sources)?;
            return match taken {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(taken),
            };
        }
        match flushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes the waiting bytes. Fails with `WouldBlock` if the socket has no space for all.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

/// Explains the most frequent cause of a TLS failure.
fn explain(error: rustls::Error) -> io::Error {
    let text = match &error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the other side does not speak TLS".to_string()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            format!(
                "TLS: {error}: its authority is not believed here; a client names the file with \
                 that authority's certificate in FARCALL_CA"
            )
        }
        other => format!("TLS: {other}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}
