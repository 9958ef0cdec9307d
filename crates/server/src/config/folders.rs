//! Checks the folders of a configuration that users read or functions write. The server's secrets
//! must not be in them, and they must not be in a secret folder. `Config::secrets` names these.

use super::Config;
use std::io;
use std::path::{Path, PathBuf};

impl Config {
    /// Checks that no folder with data, and none that functions write, shows a secret.
    ///
    /// # Errors
    /// The error names the setting and the secret.
    pub(crate) fn check_folders(&self) -> io::Result<()> {
        let data = self.data.folder.iter();
        let data = data.map(|folder| ("data.folder", "users", folder));
        let write = self.workers.write.iter().filter(|_| self.workers.sandbox);
        let write = write.map(|folder| ("workers.write", "functions", folder));
        let secrets = self.secrets();
        for (setting, who, folder) in data.chain(write) {
            let inside = true_path(folder);
            let is_shown = |path: &&PathBuf| path.starts_with(&inside) || inside.starts_with(path);
            if let Some(secret) = secrets.iter().find(is_shown) {
                let how = match inside.starts_with(secret) {
                    true => "lies in",
                    false => "has",
                };
                let text = format!(
                    "the folder {} ({setting} in the configuration) {how} {}, which is secret, and \
                     {who} could read it: move one of the two elsewhere",
                    folder.display(),
                    secret.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        }
        Ok(())
    }

    /// Paths that functions may `read` or `write`, and that do not exist.
    pub(crate) fn missing_folders(&self) -> Vec<(&'static str, &Path)> {
        let read = self.workers.read.iter().map(|path| ("read", path));
        let write = self.workers.write.iter().map(|path| ("write", path));
        let named = read.chain(write).filter(|_| self.workers.sandbox);
        named
            .filter(|(_, path)| matches!(path.try_exists(), Ok(false)))
            .map(|(what, path)| (what, path.as_path()))
            .collect()
    }
}

/// The path without links. A file that does not exist yet has its future name.
pub(super) fn true_path(path: &Path) -> PathBuf {
    let found = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    found.unwrap_or_else(|_| path.to_path_buf())
}
