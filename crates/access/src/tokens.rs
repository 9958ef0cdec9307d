//! A file of tokens. It has the name of the user and the SHA-256 of each token, but never the token
//! itself.
//!
//! ```text
//! # name  SHA-256 of the token
//! alice   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! ```
//!
//! A token is 256 random bits, so nobody can find it from its hash.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest file of tokens in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Largest length of a user's name, in bytes.
const NAME_BYTES: usize = 64;

pub(crate) type Hash = [u8; 32];

/// A file of tokens. It is read again when it changes.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    stamp: Stamp,
    users: HashMap<Hash, String>,
}

/// Metadata of a file that changes when its content changes.
type Stamp = (u64, u64, i64, i64);

/// The reason why a file of tokens cannot be used. The text names the file.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file does not exist.
    #[error(
        "{0}: No such file or directory; `farcall access token add {0} NAME` creates it",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Other users can write the file, so they could add a token for themselves.
    #[error("{}: others can write this file; chmod go-w it", .0.display())]
    Writable(PathBuf),
    /// A line is not a name and a hash.
    #[error("{}:{line}: expected NAME and the SHA-256 of a token in 64 hexadecimal digits; \
             `farcall access token add` writes such lines", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line.
        line: usize,
    },
    /// The name is not allowed for a user.
    #[error(
        "`{0}` cannot be the name of a user: up to 64 letters, digits and . _ - @ are, except \
         `anonymous`"
    )]
    Name(String),
    /// The user has no token.
    #[error("{}: `{name}` has no token", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
}

impl TokenFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, other users can write it, or a line is wrong.
    pub fn open(path: impl Into<PathBuf>) -> Result<TokenFile, TokenError> {
        let path = path.into();
        let (stamp, text) = read(&path)?;
        let users = parse(&path, &text)?;
        Ok(TokenFile { path, stamp, users })
    }

    /// Creates a new token for a user and returns it. The file holds only its hash, so this is the
    /// only time that the token is visible. Creates the file if it does not exist.
    pub fn add(path: &Path, name: &str) -> Result<String, TokenError> {
        check_name(name)?;
        let failed = |source| TokenError::Io {
            path: path.to_path_buf(),
            source,
        };
        let mut random = [0u8; 32];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| failed(error.into()))?;
        let token = hex::encode(random);
        let line = format!("{name} {}\n", hex::encode(hash(&token)));
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600);
        let write = options
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        write.map_err(failed)?;
        Ok(token)
    }

    /// Withdraws all tokens of a user and returns their number.
    pub fn remove(path: &Path, name: &str) -> Result<usize, TokenError> {
        let (_, text) = read(path)?;
        parse(path, &text)?;
        let is_other = |line: &&str| line.split_whitespace().next() != Some(name);
        let mut kept: String = text.lines().filter(is_other).collect::<Vec<_>>().join("\n");
        kept.push('\n');
        let removed = text.lines().count() - text.lines().filter(is_other).count();
        if removed == 0 {
            return Err(TokenError::Unknown {
                path: path.to_path_buf(),
                name: name.to_string(),
            });
        }
        replace(path, &kept).map_err(|source| TokenError::Io {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(removed)
    }

    /// The users, sorted by name, one entry for each token.
    pub fn users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self.users.values().map(String::as_str).collect();
        users.sort_unstable();
        users
    }

    /// The user of a token. Reads the file again if it has changed.
    ///
    /// # Errors
    /// The file can no longer be used.
    pub fn user(&mut self, token: &str) -> Result<Option<&str>, TokenError> {
        if stamp(&self.path)? != self.stamp {
            *self = TokenFile::open(std::mem::take(&mut self.path))?;
        }
        Ok(self.users.get(&hash(token)).map(String::as_str))
    }
}

fn unreadable(path: &Path, source: io::Error) -> TokenError {
    let path = path.to_path_buf();
    match source.kind() {
        io::ErrorKind::NotFound => TokenError::Missing { path },
        _ => TokenError::Io { path, source },
    }
}

fn stamp(path: &Path) -> Result<Stamp, TokenError> {
    let metadata = fs::metadata(path).map_err(|source| unreadable(path, source))?;
    Ok(stamp_of(&metadata))
}

fn stamp_of(metadata: &fs::Metadata) -> Stamp {
    let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
    (metadata.ino(), metadata.len(), seconds, nanos)
}

fn read(path: &Path) -> Result<(Stamp, String), TokenError> {
    let failed = |source| unreadable(path, source);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o022 != 0 {
        return Err(TokenError::Writable(path.to_path_buf()));
    }
    let mut text = String::new();
    file.take(MOST_BYTES)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok((stamp_of(&metadata), text))
}

fn parse(path: &Path, text: &str) -> Result<HashMap<Hash, String>, TokenError> {
    let mut users = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let (name, hash, rest) = (words.next(), words.next().and_then(unhex), words.next());
        match (name, hash, rest) {
            (Some(name), Some(hash), None) if check_name(name).is_ok() => {
                users.insert(hash, name.to_string());
            }
            _ => {
                return Err(TokenError::Line {
                    path: path.to_path_buf(),
                    line: index + 1,
                });
            }
        }
    }
    Ok(users)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    let plain = !name.is_empty() && name.len() <= NAME_BYTES && name.chars().all(is_plain);
    match plain && name != "anonymous" {
        true => Ok(()),
        false => Err(TokenError::Name(name.to_string())),
    }
}

pub(crate) fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    hex::decode_to_slice(text, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_come_and_go_while_the_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let first = TokenFile::add(&path, "alice").unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        assert_eq!(file.user(&first).unwrap(), Some("alice"));
        let second = TokenFile::add(&path, "bob@lab").unwrap();
        assert_eq!(file.user(&second).unwrap(), Some("bob@lab"));
        assert_eq!(file.users(), ["alice", "bob@lab"]);
        assert_eq!(TokenFile::remove(&path, "alice").unwrap(), 1);
        assert_eq!(file.user(&first).unwrap(), None);
        assert_eq!(file.user(&second).unwrap(), Some("bob@lab"));
        assert!(TokenFile::remove(&path, "alice").is_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&second), "only its hash is kept");
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        TokenFile::add(&path, "alice").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let error = TokenFile::open(&path).unwrap_err();
        assert!(matches!(error, TokenError::Writable(_)));
    }

    #[test]
    fn the_error_of_a_malformed_line_names_it() {
        let zeros = "0".repeat(64);
        for bad in [
            "alice",
            "alice 00",
            "a:b \u{e9}",
            "uid:0 0",
            "alice xyz what",
        ] {
            let text = format!("# comment\n\nbob {zeros} # good\n{bad}\n");
            let error = parse(Path::new("tokens"), &text).unwrap_err();
            assert!(error.to_string().starts_with("tokens:4:"), "{error}");
        }
        let users = parse(Path::new("tokens"), &format!("bob {zeros}")).unwrap();
        assert_eq!(users[&[0; 32]], "bob");
        for name in ["", "anonymous", "uid:0", "a b", &"n".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
