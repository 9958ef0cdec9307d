//! The settings of an operator about access.

use farcall_tls::{FileError, Identity, IdentityFiles, Validity};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::SystemTime;

/// The file of revoked certificates beside the certificate of a server.
const REVOKED: &str = "revoked.pem";

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
    /// Lists of revoked certificates of these authorities. By default the file `revoked.pem` beside
    /// the certificate, if there is one.
    #[serde(default)]
    pub revoked: Option<PathBuf>,
}

impl Tls {
    /// Reads the files, and logs a certificate that does not hold, or ends soon.
    ///
    /// # Errors
    /// The error names the file that cannot be used.
    pub fn identity(&self) -> Result<Identity, FileError> {
        let files = self.files();
        let identity = Identity::load(&files)?;
        self.warn_of_end(&files)?;
        Ok(identity)
    }

    /// Reads the files again for the connections that follow.
    ///
    /// # Errors
    /// The error names the file that cannot be used. The identity stays as it is.
    pub fn reload(&self, identity: &Identity) -> Result<(), FileError> {
        let files = self.files();
        identity.reload(&files)?;
        self.warn_of_end(&files)
    }

    fn files(&self) -> IdentityFiles {
        let beside = || {
            let path = self.certificate.with_file_name(REVOKED);
            path.exists().then_some(path)
        };
        IdentityFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            clients: self.clients.clone(),
            revoked: self.revoked.clone().or_else(beside),
        }
    }

    fn warn_of_end(&self, files: &IdentityFiles) -> Result<(), FileError> {
        const REMEDY: &str = "make another one with `farcall access certificate`, and send SIGHUP";
        let path = self.certificate.display();
        match files.validity(SystemTime::now())? {
            Validity::Valid => {}
            Validity::EndsSoon => {
                tracing::warn!("{path}: the certificate ends within two weeks; {REMEDY}");
            }
            Validity::Expired => tracing::error!(
                "{path}: the certificate has expired, so that clients refuse this server; {REMEDY}"
            ),
            Validity::NotYet => tracing::error!(
                "{path}: the certificate does not hold yet, so that clients refuse this server; \
                 check the clock of this machine"
            ),
        }
        Ok(())
    }
}
