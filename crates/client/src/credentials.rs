//! What proves who a client is, and which servers it believes.

use farcall_tls::{FileError, Trust};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// What proves who a client is, and which servers it believes.
///
/// A token goes to a server over TLS, over a Unix socket, or within this host, never in clear text
/// over a network.
#[derive(Clone, Default)]
pub struct Credentials {
    token: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    /// Read when it is first needed, once for all connections.
    trust: Arc<OnceLock<Trust>>,
}

impl Credentials {
    /// What the environment names: the token `FARCALL_TOKEN`; the file `FARCALL_CA` with the
    /// certificates of the authorities to believe instead of this machine's; the certificate
    /// `FARCALL_CERT` to show, and its private key `FARCALL_KEY`.
    pub fn from_environment() -> Credentials {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let certificate = set("FARCALL_CERT").zip(set("FARCALL_KEY"));
        Credentials {
            token: set("FARCALL_TOKEN").and_then(|token| token.into_string().ok()),
            authorities: set("FARCALL_CA").map(PathBuf::from),
            certificate: certificate.map(|(certificate, key)| (certificate.into(), key.into())),
            trust: Arc::default(),
        }
    }

    /// The same with another token.
    pub fn with_token(self, token: impl Into<String>) -> Credentials {
        Credentials {
            token: Some(token.into()),
            ..self
        }
    }

    /// The same with the authorities whose certificates are in this file (PEM).
    pub fn with_authorities(self, file: impl Into<PathBuf>) -> Credentials {
        Credentials {
            authorities: Some(file.into()),
            trust: Arc::default(),
            ..self
        }
    }

    /// The same with a certificate to show and its private key (PEM).
    pub fn with_certificate(
        self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Credentials {
        Credentials {
            certificate: Some((certificate.into(), key.into())),
            trust: Arc::default(),
            ..self
        }
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) fn trust(&self) -> Result<Trust, FileError> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust.clone());
        }
        let certificate = self.certificate.as_ref();
        let certificate = certificate.map(|(file, key)| (file.as_path(), key.as_path()));
        let trust = Trust::load(self.authorities.as_deref(), certificate)?;
        Ok(self.trust.get_or_init(|| trust).clone())
    }
}

/// Without the token.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("authorities", &self.authorities)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
