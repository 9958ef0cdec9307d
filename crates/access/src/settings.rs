//! What an operator sets.

use farcall_tls::{FileError, Identity};
use serde::Deserialize;
use std::path::PathBuf;

/// Who may come in.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// File of tokens and their users; see [`crate::TokenFile`].
    pub tokens: Option<PathBuf>,
    /// Whether clients may come over TCP that prove nothing. By default only where there are
    /// neither tokens nor certificates of clients. Processes of this host that come over a Unix
    /// socket are known by their user id.
    pub anonymous: Option<bool>,
    /// File to which a line of JSON is appended for each call: who called what, and how it ended.
    pub audit: Option<PathBuf>,
    /// Users who may register libraries, besides root and the server's own user: `uid:1000`, or the
    /// name of a token or certificate. A library runs as workers do once it is loaded, and as the
    /// server while it is.
    pub operators: Vec<String>,
}

/// TLS on the TCP addresses. All are PEM files.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate of the server or metaserver, followed by those it rests on.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities whose certificates tell the names of clients.
    pub clients: Option<PathBuf>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Names the file that cannot be used.
    pub fn identity(&self) -> Result<Identity, FileError> {
        Identity::load(&self.certificate, &self.key, self.clients.as_deref())
    }
}
