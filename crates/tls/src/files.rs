//! Reads certificates and keys from files. `session` uses them. If files cannot be read again, the
//! present identity stays in use. Each error names its file.

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert, KeyUsage};

/// The reason why files cannot be used. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file cannot be read, or is not PEM.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        source: pem::Error,
    },
    /// A file contains no certificate.
    #[error("{}: the file has no certificate; expected PEM with BEGIN CERTIFICATE", .0.display())]
    NoCertificate(PathBuf),
    /// A file contains no private key.
    #[error("{}: the file has no private key; expected PEM with BEGIN PRIVATE KEY", .0.display())]
    NoKey(PathBuf),
    /// A file contains no list of revoked certificates.
    #[error(
        "{}: the file has no list of revoked certificates; expected PEM with BEGIN X509 CRL \
         (`openssl crl -inform DER` makes it of a list in DER)", .0.display()
    )]
    NoList(PathBuf),
    /// The contents of a file cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// This machine has no certificates of authorities, and the settings name none.
    #[error(
        "this machine has no list of certificate authorities: name a file with the certificate \
         of the authority that issued the server's one (FARCALL_CA)"
    )]
    NoAuthorities,
}

impl FileError {
    /// What the operator of a server can do about its own files.
    pub fn remedy(&self) -> &'static str {
        match self {
            FileError::Read {
                source: pem::Error::Io(error),
                ..
            } if error.kind() == io::ErrorKind::PermissionDenied => {
                "let the user of this process read the file"
            }
            _ => "`farcall access certificate` makes certificates and keys",
        }
    }
}

/// The certificate of a server, and the authorities whose client certificates it trusts. Copies
/// share one state, which [`Identity::reload`] replaces.
#[derive(Clone, Debug)]
pub struct Identity(Arc<RwLock<Arc<ServerConfig>>>);

/// The files of an [`Identity`], in PEM format.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// The server's certificate, followed by the certificates of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of authorities. With them, a client can present a certificate of one of them;
    /// any other certificate is refused.
    pub clients: Option<PathBuf>,
    /// Lists of revoked certificates (RFC 5280) of these authorities. A client that presents a
    /// certificate on one of them is refused.
    pub revoked: Option<PathBuf>,
}

/// Whether a certificate holds at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It holds.
    Valid,
    /// It holds, and ends within two weeks.
    EndsSoon,
    /// It has ended.
    Expired,
    /// It does not hold yet.
    NotYet,
}

impl Identity {
    /// Reads the files.
    pub fn load(files: &IdentityFiles) -> Result<Identity, FileError> {
        Ok(Identity(Arc::new(RwLock::new(Arc::new(files.read()?)))))
    }

    /// Reads files for the connections that follow. After an error, the identity stays as it is.
    pub fn reload(&self, files: &IdentityFiles) -> Result<(), FileError> {
        let fresh = Arc::new(files.read()?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The settings of a new connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        let current = self.0.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl IdentityFiles {
    /// Whether the server's certificate holds at a time.
    pub fn validity(&self, now: SystemTime) -> Result<Validity, FileError> {
        const SOON: Duration = Duration::from_secs(14 * 86_400);
        let chain = chain(&self.certificate)?;
        let certificate = EndEntityCert::try_from(&chain[0]);
        let certificate = certificate.map_err(|error| unusable(&self.certificate, error))?;
        // Without authorities, the check always fails. It looks at the time first.
        let check = |time: SystemTime| {
            let time = time.duration_since(SystemTime::UNIX_EPOCH);
            let time = UnixTime::since_unix_epoch(time.unwrap_or_default());
            let usage = KeyUsage::server_auth();
            let all = provider().signature_verification_algorithms.all;
            let checked = certificate.verify_for_usage(all, &[], &[], time, usage, None, None);
            checked.err()
        };
        Ok(match (check(now), check(now + SOON)) {
            (Some(webpki::Error::CertExpired { .. }), _) => Validity::Expired,
            (Some(webpki::Error::CertNotValidYet { .. }), _) => Validity::NotYet,
            (_, Some(webpki::Error::CertExpired { .. })) => Validity::EndsSoon,
            _ => Validity::Valid,
        })
    }

    /// Whether a list of revoked certificates is of none of the authorities. It has an effect only
    /// if a client presents the certificate of the authority that made the list.
    pub fn has_foreign_list(&self) -> Result<bool, FileError> {
        let (Some(clients), Some(revoked)) = (&self.clients, &self.revoked) else {
            return Ok(false);
        };
        let roots = authorities(clients)?.roots;
        let is_foreign = |list: &CertificateRevocationListDer<'_>| {
            let read = BorrowedCertRevocationList::from_der(list);
            read.map(CertRevocationList::from).is_ok_and(|list| {
                let mut subjects = roots.iter().map(|root| root.subject.as_ref());
                subjects.all(|subject| subject != list.issuer())
            })
        };
        Ok(revocations(revoked)?.iter().any(is_foreign))
    }

    fn read(&self) -> Result<ServerConfig, FileError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3");
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .allow_unauthenticated();
                if let Some(path) = &self.revoked {
                    // A list speaks of one authority only.
                    verifier = verifier
                        .with_crls(revocations(path)?)
                        .only_check_end_entity_revocation()
                        .allow_unknown_revocation_status();
                }
                let verifier = verifier.build().map_err(|error| {
                    let is_list = matches!(error, VerifierBuilderError::InvalidCrl(_));
                    let list = self.revoked.as_deref().filter(|_| is_list);
                    unusable(list.unwrap_or(path), error)
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        builder
            .with_single_cert(chain(&self.certificate)?, private_key(&self.key)?)
            .map_err(|error| unusable_key(&self.key, &self.certificate, error))
    }
}

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug)]
pub struct Trust(pub(crate) Arc<ClientConfig>);

impl Trust {
    /// Trusts the authorities in a file, or those of this machine if no file is named. If a server
    /// asks for a certificate, the client presents its own one.
    pub fn load(
        authorities_file: Option<&Path>,
        certificate: Option<(&Path, &Path)>,
    ) -> Result<Trust, FileError> {
        let roots = match authorities_file {
            Some(path) => authorities(path)?,
            None => authorities_of_machine()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(chain(certificate)?, private_key(key)?)
                .map_err(|error| unusable_key(key, certificate, error))?,
        };
        Ok(Trust(Arc::new(config)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// All items of one kind in a file.
fn items<T: PemObject>(path: &Path) -> Result<Vec<T>, FileError> {
    let read = |source| FileError::Read {
        path: path.to_path_buf(),
        source,
    };
    let items = T::pem_file_iter(path).map_err(read)?;
    items.collect::<Result<_, _>>().map_err(read)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let certificates: Vec<CertificateDer<'static>> = items(path)?;
    match certificates.is_empty() {
        true => Err(FileError::NoCertificate(path.to_path_buf())),
        false => Ok(certificates),
    }
}

/// Lists of revoked certificates. Without any, those that are revoked would be accepted.
fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    let lists: Vec<CertificateRevocationListDer<'static>> = items(path)?;
    match lists.is_empty() {
        true => Err(FileError::NoList(path.to_path_buf())),
        false => Ok(lists),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| match source {
        pem::Error::NoItemsFound => FileError::NoKey(path.to_path_buf()),
        source => FileError::Read {
            path: path.to_path_buf(),
            source,
        },
    })
}

fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

fn authorities_of_machine() -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(FileError::NoAuthorities),
        false => Ok(roots),
    }
}

/// The serial number of the first certificate in a file.
pub fn serial_number(path: &Path) -> Result<Vec<u8>, FileError> {
    let chain = chain(path)?;
    let certificate = EndEntityCert::try_from(&chain[0]).map_err(|error| unusable(path, error))?;
    Ok(certificate.serial().to_vec())
}

fn unusable_key(key: &Path, certificate: &Path, error: rustls::Error) -> FileError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            let certificate = certificate.display();
            unusable(
                key,
                format!("it is not the key of the certificate in {certificate}"),
            )
        }
        error => unusable(key, error),
    }
}

fn unusable(path: &Path, error: impl ToString) -> FileError {
    FileError::Unusable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    }
}
