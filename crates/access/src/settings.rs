//! The settings of an operator about access, and the files of TLS that they name. `Access` decides
//! about a client. The module also lists the keys that functions must not read: the whole folder of
//! the certificates, or each key beside them.

use farcall_tls::{FileError, Identity, IdentityFiles, Validity};
use serde::Deserialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of revoked certificates beside the certificate of a server.
const REVOKED: &str = "revoked.pem";
/// Most keys in one folder that are hidden from functions.
const MOST_KEYS: usize = 4096;

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
    /// The folder of the certificates, if it has nothing else. Functions cannot read it.
    #[serde(skip)]
    pub folder: Option<PathBuf>,
}

impl Tls {
    /// The files that `farcall access certificate` makes in a folder.
    pub fn in_folder(folder: &Path, clients: Option<PathBuf>) -> Tls {
        Tls {
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
            clients,
            revoked: None,
            folder: None,
        }
    }

    /// The files and folders that functions must not read: the whole folder of the certificates,
    /// or else the private key and every other key beside it, such as that of an authority.
    pub fn secrets(&self) -> Vec<PathBuf> {
        let apart = self.key.parent().map(authority_folder);
        let apart = apart.filter(|apart| apart.exists());
        if let Some(folder) = &self.folder {
            return [folder.clone()].into_iter().chain(apart).collect();
        }
        let beside = self
            .key
            .parent()
            .map(|folder| match folder.as_os_str().is_empty() {
                true => Path::new("."),
                false => folder,
            });
        let entries = beside.and_then(|folder| fs::read_dir(folder).ok());
        let paths = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let keys = paths.filter(|path| path.extension().is_some_and(|end| end == "key"));
        let keys = keys.take(MOST_KEYS).chain(apart);
        keys.chain([self.key.clone()]).collect()
    }

    /// Whether the key of an authority lies beside the server's own key, as `farcall access
    /// certificate` of earlier versions left it.
    pub fn authority_beside(&self) -> Option<PathBuf> {
        let path = self.key.with_file_name("authority.key");
        path.exists().then_some(path)
    }

    /// Reads the files. Logs a certificate that does not hold, or ends soon, and lists of revoked
    /// certificates that are of other authorities.
    ///
    /// # Errors
    /// The error names the file that cannot be used.
    pub fn identity(&self) -> Result<Identity, FileError> {
        let files = self.files();
        let identity = Identity::load(&files)?;
        self.warn(&files)?;
        Ok(identity)
    }

    /// Reads the files again for the connections that follow.
    ///
    /// # Errors
    /// The error names the file that cannot be used. The identity stays as it is.
    pub fn reload(&self, identity: &Identity) -> Result<(), FileError> {
        let files = self.files();
        identity.reload(&files)?;
        self.warn(&files)
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

    /// The permissions of the private key, if other users can read or change it.
    fn shared_key(&self) -> Option<u32> {
        let mode = fs::metadata(&self.key).ok()?.mode() & 0o777;
        (mode & 0o077 != 0).then_some(mode)
    }

    fn warn(&self, files: &IdentityFiles) -> Result<(), FileError> {
        const REMEDY: &str = "make another one with `farcall access certificate`, and send SIGHUP";
        if let Some(mode) = self.shared_key() {
            let key = self.key.display();
            tracing::warn!("{key}: other users can use this key (mode {mode:o}); chmod 600 it");
        }
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
        if let (Some(revoked), Some(clients), true) =
            (&files.revoked, &files.clients, files.has_foreign_list()?)
        {
            tracing::warn!(
                "{}: a list is of an authority that is not in {}, and revokes no certificate of \
                 those that are",
                revoked.display(),
                clients.display()
            );
        }
        Ok(())
    }
}

/// Whether a user can have this name: that of a token or certificate, or `uid:` and a number.
pub fn can_be_user(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_@*".contains(c);
    let of_host = ["uid:", "local:"]
        .iter()
        .find_map(|kind| name.strip_prefix(kind));
    match of_host {
        Some(number) => number.parse::<u32>().is_ok(),
        None => !name.is_empty() && name != "anonymous" && name.chars().all(is_plain),
    }
}

/// The folder of the key of the authority that signs the certificates of this folder. It is a
/// folder of its own, because a server needs no key of an authority.
pub fn authority_folder(certificates: &Path) -> PathBuf {
    let absolute = std::path::absolute(certificates);
    let mut folder = absolute
        .unwrap_or_else(|_| certificates.to_path_buf())
        .into_os_string();
    folder.push("-authority");
    PathBuf::from(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_that_others_can_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let tls = Tls::in_folder(folder.path(), None);
        assert_eq!(tls.shared_key(), None);
        fs::write(&tls.key, "").unwrap();
        for (mode, noticed) in [(0o600, None), (0o640, Some(0o640)), (0o644, Some(0o644))] {
            fs::set_permissions(&tls.key, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(tls.shared_key(), noticed);
        }
    }
}
