//! Credentials: how a client proves who it is, and which servers it trusts.
//!
//! This module holds tokens, certificates and authorities, and reads their files once. It does not
//! speak TLS; `farcall-tls` does.

use farcall_rpc_proto::HandleId;
use farcall_tls::{FileError, Trust};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The files of the environment that hold secrets: the private key of the client's certificate.
pub fn secret_files() -> impl Iterator<Item = PathBuf> {
    certificate_of_environment().map(|(_, key)| key).into_iter()
}

fn certificate_of_environment() -> Option<(PathBuf, PathBuf)> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    certificate_and_key(named("FARCALL_CERT"), named("FARCALL_KEY"))
}

/// The files of a certificate and of its private key. If only one is named, it must have both.
fn certificate_and_key(
    certificate: Option<OsString>,
    key: Option<OsString>,
) -> Option<(PathBuf, PathBuf)> {
    let both = certificate.clone().or(key.clone())?;
    let file = |named: Option<OsString>| PathBuf::from(named.unwrap_or_else(|| both.clone()));
    Some((file(certificate), file(key)))
}

/// How a client proves who it is, and which servers it trusts.
///
/// The client proves that it knows its token, over TLS, over a Unix socket, or within this host. It
/// never sends the token.
#[derive(Clone, Default)]
pub struct Credentials {
    token: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    /// The name of a lent array, instead of a token or a certificate.
    loan: Option<HandleId>,
    /// Whether a metaserver has named the server, so that it may have no tokens.
    is_named: bool,
    /// Whether a server must prove that it knows the token, however it is known otherwise.
    is_strict: bool,
    /// Whether no server may take this process for its own user of a host.
    is_stranger: bool,
    /// Read at the first use, once for all connections.
    trust: Arc<OnceLock<Trust>>,
}

impl Credentials {
    /// The credentials of the environment. `FARCALL_TOKEN` is the token. `FARCALL_CA` names a file
    /// with the certificates of trusted authorities, which replace those of this machine.
    /// `FARCALL_CERT` and `FARCALL_KEY` name the client's certificate and its private key. If only
    /// one of them is set, this file must have both.
    pub fn from_environment() -> Credentials {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Credentials {
            token: set("FARCALL_TOKEN").and_then(|token| token.into_string().ok()),
            authorities: set("FARCALL_CA").map(PathBuf::from),
            certificate: certificate_of_environment(),
            loan: None,
            is_named: false,
            is_strict: false,
            is_stranger: false,
            trust: Arc::default(),
        }
    }

    /// Credentials of somebody without a token or a certificate. Servers are trusted as the
    /// environment says.
    pub fn anonymous() -> Credentials {
        Credentials {
            token: None,
            certificate: None,
            ..Credentials::from_environment()
        }
    }

    /// Credentials of the user with this token, for a process that connects for others. No
    /// connection is made in which the server takes this process for another user: it must ask for
    /// the proof of the token. Servers are trusted as the environment says.
    pub fn of_token(token: impl Into<String>) -> Credentials {
        Credentials {
            is_strict: true,
            ..Credentials::anonymous().with_token(token)
        }
    }

    /// Credentials of somebody else without a token, for a process that connects for others. No
    /// connection is made in which the server takes this process for its own user: none by ssh and
    /// none over a Unix socket. Servers are trusted as the environment says.
    pub fn of_stranger() -> Credentials {
        Credentials {
            is_stranger: true,
            ..Credentials::anonymous()
        }
    }

    /// Credentials that can read one lent array. They contain neither the token nor the certificate
    /// of this process, so any server may see them. Servers are trusted as these credentials say.
    pub fn for_loan(self, loan: HandleId) -> Credentials {
        Credentials {
            token: None,
            authorities: self.authorities,
            certificate: None,
            loan: Some(loan),
            is_named: false,
            is_strict: false,
            is_stranger: false,
            trust: Arc::default(),
        }
    }

    /// These credentials with another token.
    pub fn with_token(self, token: impl Into<String>) -> Credentials {
        Credentials {
            token: Some(token.into()),
            ..self
        }
    }

    /// These credentials with the trusted authorities of a file of certificates (PEM).
    pub fn with_authorities(self, file: impl Into<PathBuf>) -> Credentials {
        Credentials {
            authorities: Some(file.into()),
            trust: Arc::default(),
            ..self
        }
    }

    /// These credentials with a client certificate and its private key (PEM files).
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

    /// These credentials for a server that a metaserver has named. It may have no tokens.
    pub(crate) fn for_named_server(self) -> Credentials {
        Credentials {
            is_named: true,
            ..self
        }
    }

    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    pub(crate) fn is_stranger(&self) -> bool {
        self.is_stranger
    }

    pub(crate) fn loan(&self) -> Option<HandleId> {
        self.loan
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

/// Leaves the token out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("authorities", &self.authorities)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_without_a_key_is_not_left_out() {
        let files = |certificate: Option<&str>, key: Option<&str>| {
            certificate_and_key(certificate.map(OsString::from), key.map(OsString::from))
        };
        let found = |first: &str, second: &str| Some((PathBuf::from(first), PathBuf::from(second)));
        assert_eq!(files(Some("a.pem"), Some("a.key")), found("a.pem", "a.key"));
        assert_eq!(files(Some("a.pem"), None), found("a.pem", "a.pem"));
        assert_eq!(files(None, Some("a.key")), found("a.key", "a.key"));
        assert_eq!(files(None, None), None);
    }
}
