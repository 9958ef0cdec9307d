//! Reads certificates and keys from files.

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// The certificate of a server, and the authorities whose client certificates it trusts.
#[derive(Clone, Debug)]
pub struct Identity(pub(crate) Arc<ServerConfig>);

impl Identity {
    /// Reads the server's certificate, followed by the certificates of its issuers, and its private
    /// key. `clients` names the certificates of authorities. With it, a client can present a
    /// certificate of one of them; any other certificate is refused.
    pub fn load(
        certificate: &Path,
        key: &Path,
        clients: Option<&Path>,
    ) -> Result<Identity, FileError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])
            .expect("the provider has TLS 1.3");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| unusable(path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder
            .with_single_cert(chain(certificate)?, private_key(key)?)
            .map_err(|error| unusable(key, error))?;
        Ok(Identity(Arc::new(config)))
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
                .map_err(|error| unusable(key, error))?,
        };
        Ok(Trust(Arc::new(config)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let read = |source| FileError::Read {
        path: path.to_path_buf(),
        source,
    };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(read)?
        .collect::<Result<_, _>>()
        .map_err(read)?;
    match certificates.is_empty() {
        true => Err(FileError::NoCertificate(path.to_path_buf())),
        false => Ok(certificates),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| FileError::Read {
        path: path.to_path_buf(),
        source,
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

fn unusable(path: &Path, error: impl ToString) -> FileError {
    FileError::Unusable {
        path: path.to_path_buf(),
        reason: error.to_string(),
    }
}
