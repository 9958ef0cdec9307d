//! The settings of an operator about access.

use farcall_tls::{FileError, Identity};
use serde::Deserialize;
use std::path::PathBuf;

/// Which clients are accepted, and who may register libraries.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// File of tokens and their users; see [`crate::TokenFile`].
    pub tokens: Option<PathBuf>,
    /// Whether clients without credentials are accepted over TCP. By default they are only if there
    /// are neither tokens nor certificates of clients. Processes of this host that connect over a
    /// Unix socket are identified by their user id.
    pub anonymous: Option<bool>,
    /// File to which the server appends one line of JSON for each call: the user, the function and
    /// the result.
    pub audit: Option<PathBuf>,
    /// Users who are allowed to register libraries, besides root and the server's own user:
    /// `uid:1000`, or the name of a token or certificate. A library runs with the rights of the
    /// server while it is loaded, and with the rights of a worker afterwards.
    pub operators: Vec<String>,
}

/// TLS for the TCP addresses. All files are in PEM format.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate of the server or metaserver, followed by the certificates of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Certificates of the authorities that certify the names of clients.
    pub clients: Option<PathBuf>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The error names the file that cannot be used.
    pub fn identity(&self) -> Result<Identity, FileError> {
        Identity::load(&self.certificate, &self.key, self.clients.as_deref())
    }
}
