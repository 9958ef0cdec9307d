//! Tests both sides of a TLS connection over a non-blocking socket pair. A peer with a wrong,
//! revoked or expired certificate is refused, and the error says why.

use farcall_tls::{
    FileError, Identity, IdentityFiles, Session, Trust, Validity, is_server_name, may_greet,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Certificates of one authority in a separate folder.
struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        Authority::named("authority.test")
    }

    fn named(name: &str) -> Authority {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { folder, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue_with(name, |_| {})
    }

    fn issue_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_string()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = [".pem", ".key"].map(|end| self.path(&format!("{name}{end}")));
        std::fs::write(&paths[0], certificate.pem()).unwrap();
        std::fs::write(&paths[1], key.serialize_pem()).unwrap();
        let [certificate, key] = paths;
        (certificate, key)
    }

    fn identity(&self, clients: Option<&Path>) -> Identity {
        let (certificate, key) = self.issue("server.test");
        load(&certificate, &key, clients).unwrap()
    }

    /// A list with one revoked certificate.
    fn revoke(&self, serial: u64) -> PathBuf {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2126, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        std::fs::write(self.path("revoked.pem"), list.pem().unwrap()).unwrap();
        self.path("revoked.pem")
    }
}

fn files(certificate: &Path, key: &Path, clients: Option<&Path>) -> IdentityFiles {
    IdentityFiles {
        certificate: certificate.into(),
        key: key.into(),
        clients: clients.map(PathBuf::from),
        revoked: None,
    }
}

fn load(certificate: &Path, key: &Path, clients: Option<&Path>) -> Result<Identity, FileError> {
    Identity::load(&files(certificate, key, clients))
}

struct Side {
    session: Session,
    socket: UnixStream,
    received: Vec<u8>,
    error: Option<String>,
}

impl Side {
    /// Reads the available bytes. Returns whether there were any.
    fn read(&mut self) -> bool {
        let (mut first, mut second) = ([0; 100], vec![0; 10_000]);
        let mut places = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        match self.session.read(&mut self.socket, &mut places) {
            Ok(count) => {
                self.received
                    .extend([first.as_slice(), &second].concat().drain(..count));
                count > 0
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                self.error = Some(error.to_string());
                false
            }
        }
    }
}

fn pair(identity: &Identity, trust: &Trust, host: &str) -> (Side, Side) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let side = |session: Session, socket: UnixStream| {
        socket.set_nonblocking(true).unwrap();
        Side {
            session,
            socket,
            received: Vec::new(),
            error: None,
        }
    };
    let server = side(Session::server(identity).unwrap(), ours);
    let mut client = side(Session::client(trust, host).unwrap(), theirs);
    client.session.flush(&mut client.socket).unwrap();
    (server, client)
}

/// Runs both sides for as many rounds as a handshake needs at most.
fn settle(server: &mut Side, client: &mut Side) {
    for _ in 0..4 {
        for side in [&mut *server, &mut *client] {
            while side.error.is_none() && side.read() {}
        }
    }
}

#[test]
fn bytes_arrive_in_pieces_of_any_size() {
    let authority = Authority::new();
    let trust = Trust::load(Some(&authority.path("ca.pem")), None).unwrap();
    let (mut server, mut client) = pair(&authority.identity(None), &trust, "server.test");
    settle(&mut server, &mut client);
    assert!(server.session.is_established() && client.session.is_established());
    assert_eq!(
        server.session.peer_name(),
        None,
        "the client showed nothing"
    );

    let sent: Vec<u8> = (0..3_000_000u32).map(|i| i.wrapping_mul(i) as u8).collect();
    let mut left = sent.as_slice();
    while server.received.len() < sent.len() {
        let (head, tail) = left.split_at(left.len().min(777));
        match client.session.write(
            &mut client.socket,
            &[IoSlice::new(head), IoSlice::new(tail)],
        ) {
            Ok(count) => left = &left[count..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        while server.read() {}
        if client.session.wants_write() {
            let _ = client.session.flush(&mut client.socket);
        }
    }
    assert!(left.is_empty() && server.received == sent);
}

#[test]
fn a_certificate_gives_the_clients_name() {
    let authority = Authority::new();
    let roots = authority.path("ca.pem");
    let (certificate, key) = authority.issue("alice");
    let trust = Trust::load(Some(&roots), Some((&certificate, &key))).unwrap();
    let identity = authority.identity(Some(&roots));
    let (mut server, mut client) = pair(&identity, &trust, "server.test");
    settle(&mut server, &mut client);
    assert_eq!(server.session.peer_name().as_deref(), Some("alice"));
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let roots = ours.path("ca.pem");
    let (certificate, key) = theirs.issue("alice");
    let trust = Trust::load(Some(&roots), Some((&certificate, &key))).unwrap();
    let (mut server, mut client) = pair(&ours.identity(Some(&roots)), &trust, "server.test");
    settle(&mut server, &mut client);
    assert!(server.error.unwrap().contains("invalid peer certificate"));
    assert!(client.error.is_some());
}

#[test]
fn a_server_of_another_name_or_authority_is_not_trusted() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for (trusted, host, reason) in [
        (&ours, "other.test", "not valid for name"),
        (&theirs, "server.test", "BadSignature"),
        (&theirs, "server.test", "in FARCALL_CA"),
    ] {
        let trust = Trust::load(Some(&trusted.path("ca.pem")), None).unwrap();
        let (mut server, mut client) = pair(&ours.identity(None), &trust, host);
        settle(&mut server, &mut client);
        let error = client.error.unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_name_is_one_of_a_server_if_a_client_can_ask_for_it() {
    let authority = Authority::new();
    let trust = Trust::load(Some(&authority.path("ca.pem")), None).unwrap();
    for (name, host) in [
        ("localhost", "LOCALHOST"),
        ("NODE_7.lab.example", "node_7.lab.example"),
        ("*.lab.example", "node7.lab.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("10.0.0.7", "10.0.0.7"),
        ("::1", "0:0::1"),
    ] {
        assert!(is_server_name(name), "{name}");
        let (certificate, key) = authority.issue(name);
        let identity = load(&certificate, &key, None).unwrap();
        let (mut server, mut client) = pair(&identity, &trust, host);
        settle(&mut server, &mut client);
        assert_eq!(client.error, None, "{name}");
        assert!(client.session.is_established(), "{name}");
    }
    for name in [
        "",
        "*",
        "*.lab",
        "*.10.0.0.7",
        "[::1]",
        "localhost:3717",
        "node7.",
        "1.2.3",
    ] {
        assert!(!is_server_name(name), "{name}");
    }
}

#[test]
fn the_error_of_a_peer_without_tls_says_so() {
    let authority = Authority::new();
    let trust = Trust::load(Some(&authority.path("ca.pem")), None).unwrap();
    let (mut server, mut client) = pair(&authority.identity(None), &trust, "server.test");
    server.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    client.read();
    assert!(client.error.unwrap().contains("does not speak TLS"));
}

#[test]
fn errors_name_the_file_that_cannot_be_used() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server.test");
    let missing = authority.path("missing.pem");
    let error = load(&missing, &key, None).unwrap_err();
    assert!(error.to_string().contains("missing.pem"));
    assert!(error.remedy().contains("makes certificates"));
    let closed = FileError::Read {
        path: key.clone(),
        source: rustls::pki_types::pem::Error::Io(ErrorKind::PermissionDenied.into()),
    };
    assert!(closed.remedy().contains("let the user"));
    let error = load(&key, &key, None).unwrap_err();
    assert!(error.to_string().contains("no certificate"));
    let error = load(&certificate, &certificate, None).unwrap_err();
    assert!(error.to_string().ends_with(
        "server.test.pem: the file has no private key; expected PEM with BEGIN PRIVATE KEY"
    ));
    let (_, other) = authority.issue("other.test");
    let error = load(&certificate, &other, None).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("other.test.key: it is not the key of"),
        "{text}"
    );
}

#[test]
fn a_revoked_certificate_is_refused_after_the_files_are_read_again() {
    let authority = Authority::new();
    let roots = authority.path("ca.pem");
    let of = |name: &str, serial: u64| {
        authority.issue_with(name, |params| {
            params.serial_number = Some(SerialNumber::from(serial));
        })
    };
    let (certificate, key) = authority.issue("server.test");
    let mut files = files(&certificate, &key, Some(&roots));
    let identity = Identity::load(&files).unwrap();
    let clients = [of("alice", 7), of("bob", 8)];
    let names = |identity: &Identity| {
        clients.each_ref().map(|(certificate, key)| {
            let trust = Trust::load(Some(&roots), Some((certificate, key))).unwrap();
            let (mut server, mut client) = pair(identity, &trust, "server.test");
            settle(&mut server, &mut client);
            match server.error {
                Some(error) => error,
                None => server.session.peer_name().unwrap(),
            }
        })
    };
    assert_eq!(names(&identity), ["alice", "bob"]);
    files.revoked = Some(authority.revoke(7));
    identity.reload(&files).unwrap();
    let [alice, bob] = names(&identity);
    assert!(alice.contains("Revoked"), "{alice}");
    assert_eq!(bob, "bob");
    // A file without a list changes nothing: an empty one, a list in DER, or a certificate.
    let der = b"0\x82\x01\x02 a list in DER".to_vec();
    for contents in [Vec::new(), der, std::fs::read(&roots).unwrap()] {
        std::fs::write(authority.path("revoked.pem"), contents).unwrap();
        let error = identity.reload(&files).unwrap_err().to_string();
        assert!(
            error.contains("revoked.pem: the file has no list"),
            "{error}"
        );
        assert!(Identity::load(&files).is_err());
        let [alice, bob] = names(&identity);
        assert!(alice.contains("Revoked"), "{alice}");
        assert_eq!(bob, "bob");
    }
}

#[test]
fn the_error_of_a_malformed_list_names_its_file() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server.test");
    let mut files = files(&certificate, &key, Some(&authority.path("ca.pem")));
    let list = authority.path("revoked.pem");
    let contents = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    std::fs::write(&list, contents).unwrap();
    files.revoked = Some(list);
    let error = Identity::load(&files).unwrap_err().to_string();
    assert!(error.contains("revoked.pem: "), "{error}");
}

#[test]
fn a_list_of_another_authority_is_noticed() {
    let (ours, other) = (Authority::new(), Authority::named("other.test"));
    let (certificate, key) = ours.issue("server.test");
    let mut files = files(&certificate, &key, Some(&ours.path("ca.pem")));
    assert!(!files.has_foreign_list().unwrap());
    files.revoked = Some(ours.revoke(7));
    assert!(!files.has_foreign_list().unwrap());
    files.revoked = Some(other.revoke(7));
    assert!(files.has_foreign_list().unwrap());
}

#[test]
fn a_certificate_that_has_ended_or_ends_soon_is_noticed() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue_with("server.test", |params| {
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 12, 31);
    });
    let files = files(&certificate, &key, None);
    let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400);
    // Days since 1970 of 1 January 2026.
    const YEAR: u64 = 20_454;
    for (days, expected) in [
        (YEAR - 2, Validity::NotYet),
        (YEAR + 100, Validity::Valid),
        (YEAR + 355, Validity::EndsSoon),
        (YEAR + 366, Validity::Expired),
    ] {
        assert_eq!(files.validity(day(days)).unwrap(), expected, "day {days}");
    }
}

#[test]
fn a_client_without_tls_is_known_by_its_first_bytes() {
    for (first, greets) in [
        (&[0x16, 0x03, 0x01][..], true),
        (&[0x16], true),
        (b"", true),
        (&[0x16, 0x04], false),
        (b"FARC", false),
    ] {
        assert_eq!(may_greet(first), greets, "{first:?}");
    }
}
