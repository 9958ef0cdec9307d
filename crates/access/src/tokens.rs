//! A file of tokens. It has the name of the user, the name of each token and its verifier (RFC
//! 5803), but never the token itself.
//!
//! ```text
//! # name  name of the token                 verifier
//! alice   0123456789abcdef0123456789abcdef  SCRAM-SHA-256$4096:c2FsdA==$...:...
//! ```
//!
//! A token is 256 random bits, so nobody can find it from its verifier, and nobody can use the
//! verifier instead of it. Files of earlier versions have the SHA-256 of a token, from which the
//! server makes a verifier.

use farcall_scram::{Secret, Verifier};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// Largest file of tokens in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Largest length of a user's name, in bytes.
const NAME_BYTES: usize = 64;

/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// What the file has of a token.
#[derive(Clone, Debug)]
enum Kept {
    Verifier(Verifier),
    /// The secret, from a file of an earlier version.
    Secret(Secret),
}

impl Kept {
    /// The verifier, which takes a millisecond to make.
    fn verifier(&self) -> io::Result<Verifier> {
        match self {
            Kept::Verifier(verifier) => Ok(verifier.clone()),
            Kept::Secret(secret) => Ok(Verifier::new(&secret.secret, &random::<SALT_BYTES>()?)),
        }
    }
}

#[derive(Debug)]
struct Entry {
    user: String,
    kept: Kept,
}

/// A file of tokens. It is read again when it changes.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    stamp: Stamp,
    /// By the names of tokens.
    entries: HashMap<String, Entry>,
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
    /// A line is not two names and a verifier.
    #[error("{}:{line}: expected the name of a user, the name of a token and its verifier; \
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
        let entries = parse(&path, &text)?;
        let old = entries.values();
        let old = old.filter(|entry| matches!(entry.kept, Kept::Secret(_)));
        match old.count() {
            0 => {}
            count => tracing::warn!(
                "{0}: {count} tokens are from an earlier version, and who reads the file can use \
                 them; `farcall access token upgrade {0}` replaces them by verifiers, and the \
                 tokens stay as they are",
                path.display()
            ),
        }
        Ok(TokenFile {
            path,
            stamp,
            entries,
        })
    }

    /// Creates a new token for a user and returns it. The file holds only its verifier, so this is
    /// the only time that the token is visible. Creates the file if it does not exist.
    pub fn add(path: &Path, name: &str) -> Result<String, TokenError> {
        check_name(name)?;
        let lock = lock(path, true)?;
        // A line at the end of another file would damage it, and the token would be of no use.
        let (_, known) = read(path)?;
        parse(path, &known)?;
        let is_open = !known.is_empty() && !known.ends_with('\n');
        let failed = |source| TokenError::Io {
            path: path.to_path_buf(),
            source,
        };
        let token = hex::encode(random::<32>().map_err(failed)?);
        let secret = Secret::of_token(&token);
        let salt = random::<SALT_BYTES>().map_err(failed)?;
        let mut line = line(name, &secret.name, &Verifier::new(&secret.secret, &salt));
        if is_open {
            line.insert(0, '\n');
        }
        check_length(known.len() + line.len()).map_err(failed)?;
        append(lock, &line).map_err(failed)?;
        Ok(token)
    }

    /// Withdraws all tokens of a user and returns their number.
    pub fn remove(path: &Path, name: &str) -> Result<usize, TokenError> {
        let _lock = lock(path, false)?;
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

    /// Replaces what an earlier version has written by verifiers. The tokens stay as they are.
    /// Returns how many lines have changed.
    pub fn upgrade(path: &Path) -> Result<usize, TokenError> {
        let failed = |source| TokenError::Io {
            path: path.to_path_buf(),
            source,
        };
        let _lock = lock(path, false)?;
        let (_, text) = read(path)?;
        let (mut kept, mut count) = (String::new(), 0);
        for (number, old) in text.lines().enumerate() {
            match parse_line(path, number, old)? {
                Some((
                    name,
                    Entry {
                        user,
                        kept: entry @ Kept::Secret(_),
                    },
                )) => {
                    kept += &line(&user, &name, &entry.verifier().map_err(failed)?);
                    count += 1;
                }
                _ => {
                    kept += old;
                    kept.push('\n');
                }
            }
        }
        if count > 0 {
            replace(path, &kept).map_err(failed)?;
        }
        Ok(count)
    }

    /// The users, sorted by name, one entry for each token.
    pub fn users(&self) -> Vec<&str> {
        let mut users: Vec<&str> = self
            .entries
            .values()
            .map(|entry| entry.user.as_str())
            .collect();
        users.sort_unstable();
        users
    }

    /// Reads the file again, also if only its permissions may have changed.
    ///
    /// # Errors
    /// The file can no longer be used, and no token is found until it can.
    pub fn reread(&mut self) -> Result<(), TokenError> {
        // If it cannot be read now, it is read again at the next question.
        self.stamp = Stamp::default();
        *self = TokenFile::open(self.path.clone())?;
        Ok(())
    }

    /// The user and the verifier of a token with this name. Reads the file again if it has changed.
    ///
    /// # Errors
    /// The file can no longer be used.
    pub fn find(&mut self, name: &str) -> Result<Option<(String, Verifier)>, TokenError> {
        if stamp(&self.path)? != self.stamp {
            // If it cannot be read now, it is read again at the next question.
            *self = TokenFile::open(self.path.clone())?;
        }
        let Some(entry) = self.entries.get_mut(name) else {
            return Ok(None);
        };
        let verifier = entry.kept.verifier();
        let verifier = verifier.map_err(|source| TokenError::Io {
            path: self.path.clone(),
            source,
        })?;
        entry.kept = Kept::Verifier(verifier.clone());
        Ok(Some((entry.user.clone(), verifier)))
    }
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut random = [0u8; N];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(random)
}

fn line(user: &str, name: &str, verifier: &Verifier) -> String {
    format!("{user} {name} {verifier}\n")
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
    file.take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    // What is beyond would be lost with the next change.
    check_length(text.len()).map_err(failed)?;
    Ok((stamp_of(&metadata), text))
}

/// Locks a file of tokens until the result is dropped, so that no other command changes it. Makes
/// the file if it `may_be_new`.
fn lock(path: &Path, may_be_new: bool) -> Result<File, TokenError> {
    let failed = |source: io::Error| match (may_be_new, source.kind()) {
        (true, io::ErrorKind::NotFound) => TokenError::Io {
            path: path.to_path_buf(),
            source: io::Error::new(source.kind(), "its folder does not exist; make it first"),
        },
        _ => unreadable(path, source),
    };
    let mut options = OpenOptions::new();
    let options = options
        .read(true)
        .append(true)
        .create(may_be_new)
        .mode(0o600);
    loop {
        let file = options.open(path).map_err(failed)?;
        match flock(&file, FlockOperation::LockExclusive) {
            // Some file systems have no locks.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => {}
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(failed(errno.into())),
        }
        // The command before may have put another file in its place.
        let known = file.metadata().map_err(failed)?;
        let present = fs::metadata(path);
        if present.is_ok_and(|one| (one.dev(), one.ino()) == (known.dev(), known.ino())) {
            return Ok(file);
        }
    }
}

fn check_length(bytes: usize) -> io::Result<()> {
    match bytes as u64 <= MOST_BYTES {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("a file of tokens has at most {} MiB", MOST_BYTES >> 20),
        )),
    }
}

fn parse(path: &Path, text: &str) -> Result<HashMap<String, Entry>, TokenError> {
    let lines = text.lines().enumerate();
    let entries = lines.filter_map(|(index, line)| parse_line(path, index, line).transpose());
    entries.collect()
}

/// The name of the token in a line, with its entry.
fn parse_line(
    path: &Path,
    index: usize,
    line: &str,
) -> Result<Option<(String, Entry)>, TokenError> {
    let line = line.split('#').next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let found = match words[..] {
        [] => return Ok(None),
        [user, digest] => unhex(digest).map(|digest| {
            let secret = Secret::of_digest(&digest);
            (user, secret.name.clone(), Kept::Secret(secret))
        }),
        [user, name, verifier] => {
            let verifier = verifier.parse().ok().map(Kept::Verifier);
            verifier.map(|verifier| (user, name.to_string(), verifier))
        }
        _ => None,
    };
    match found {
        Some((user, name, kept)) if check_name(user).is_ok() => {
            let user = user.to_string();
            Ok(Some((name, Entry { user, kept })))
        }
        _ => Err(TokenError::Line {
            path: path.to_path_buf(),
            line: index + 1,
        }),
    }
}

/// Appends a line. Nothing remains of a line that the disk has no room for: a part of one would
/// make the whole file useless.
fn append(mut file: File, line: &str) -> io::Result<()> {
    let before = file.metadata()?.len();
    let written = file.write_all(line.as_bytes());
    let kept = written.and_then(|()| file.sync_all());
    if kept.is_err() {
        // The first error is the one to tell.
        let _ = file.set_len(before);
    }
    kept
}

/// Replaces a file, with the same owner and the same permissions: the server that reads it may run
/// as another user.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // The file itself, and not a link to it.
    let path = fs::canonicalize(path)?;
    let known = fs::metadata(&path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One that an interrupted command has left may have another owner.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&beside)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (known.uid(), known.gid()) {
        fchown(&file, Some(known.uid()), Some(known.gid()))?;
    }
    file.set_permissions(known.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, &path)?;
    // A withdrawn token must not come back after a loss of power.
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), TokenError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    let plain = !name.is_empty() && name.len() <= NAME_BYTES && name.chars().all(is_plain);
    match plain && name != "anonymous" {
        true => Ok(()),
        false => Err(TokenError::Name(name.to_string())),
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_scram::Secret;
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::PermissionsExt;

    /// The user of a token.
    fn user(file: &mut TokenFile, token: &str) -> Option<String> {
        let name = Secret::of_token(token).name;
        file.find(&name).unwrap().map(|(user, _)| user)
    }

    #[test]
    fn tokens_of_an_earlier_version_become_verifiers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let digest = hex::encode(Sha256::digest(b"old token"));
        let text = format!("# users\nalice {digest} # hers\n\nbob {}\n", "0".repeat(64));
        fs::write(&path, text).unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        assert_eq!(user(&mut file, "old token").as_deref(), Some("alice"));
        assert_eq!(TokenFile::upgrade(&path).unwrap(), 2);
        assert_eq!(TokenFile::upgrade(&path).unwrap(), 0);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# users\nalice ") && !text.contains(&digest),
            "{text}"
        );
        let mut file = TokenFile::open(&path).unwrap();
        assert_eq!(user(&mut file, "old token").as_deref(), Some("alice"));
        assert_eq!(file.users(), ["alice", "bob"]);
    }

    #[test]
    fn a_token_is_added_to_a_file_of_tokens_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        for other in [&b"a text\n"[..], b"\xff\xfe", b"SQLite format 3\0"] {
            fs::write(&path, other).unwrap();
            TokenFile::add(&path, "alice").unwrap_err();
            assert_eq!(fs::read(&path).unwrap(), other);
        }
        let lost = TokenFile::add(&folder.path().join("none/tokens"), "alice").unwrap_err();
        assert!(
            lost.to_string()
                .ends_with("its folder does not exist; make it first")
        );
        // An editor may leave the last line without its end.
        fs::remove_file(&path).unwrap();
        TokenFile::add(&path, "alice").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.trim_end()).unwrap();
        TokenFile::add(&path, "bob").unwrap();
        assert_eq!(TokenFile::open(&path).unwrap().users(), ["alice", "bob"]);
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        TokenFile::add(&path, "alice").unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        while (text.len() as u64) < MOST_BYTES {
            let rest = MOST_BYTES as usize - text.len();
            text += &format!("#{}\n", "x".repeat(rest.min(1 << 20) - 2));
        }
        fs::write(&path, &text).unwrap();
        // It is full, so the next line has no room.
        let error = TokenFile::add(&path, "bob").unwrap_err().to_string();
        assert!(error.contains("at most 16 MiB"), "{error}");
        assert_eq!(TokenFile::open(&path).unwrap().users(), ["alice"]);
        // The last line begins where reading ends.
        text += "bob\n";
        fs::write(&path, &text).unwrap();
        let error = TokenFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("at most 16 MiB"), "{error}");
        TokenFile::remove(&path, "alice").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn tokens_come_and_go_while_the_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let first = TokenFile::add(&path, "alice").unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        assert_eq!(user(&mut file, &first).as_deref(), Some("alice"));
        let second = TokenFile::add(&path, "bob@lab").unwrap();
        assert_eq!(user(&mut file, &second).as_deref(), Some("bob@lab"));
        assert_eq!(file.users(), ["alice", "bob@lab"]);
        assert_eq!(TokenFile::remove(&path, "alice").unwrap(), 1);
        assert_eq!(user(&mut file, &first), None);
        assert_eq!(user(&mut file, &second).as_deref(), Some("bob@lab"));
        assert!(TokenFile::remove(&path, "alice").is_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&second), "only its verifier is kept");
    }

    #[test]
    fn changes_that_come_together_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let of_all = |change: &(dyn Fn(String) + Sync)| {
            std::thread::scope(|scope| {
                for number in 0..20 {
                    scope.spawn(move || change(format!("user{number}")));
                }
            });
        };
        of_all(&|name| drop(TokenFile::add(&path, &name).unwrap()));
        assert_eq!(TokenFile::open(&path).unwrap().users().len(), 20);
        TokenFile::add(&path, "alice").unwrap();
        of_all(&|name| assert_eq!(TokenFile::remove(&path, &name).unwrap(), 1));
        assert_eq!(TokenFile::open(&path).unwrap().users(), ["alice"]);
    }

    #[test]
    fn a_file_that_was_unusable_for_a_while_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let token = TokenFile::add(&path, "alice").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        let name = Secret::of_token(&token).name;
        fs::write(&path, format!("{text}half a line")).unwrap();
        for _ in 0..2 {
            let error = file.find(&name).unwrap_err().to_string();
            assert!(error.contains("tokens:2: expected"), "{error}");
        }
        fs::write(&path, &text).unwrap();
        assert_eq!(user(&mut file, &token).as_deref(), Some("alice"));
    }

    #[test]
    fn permissions_are_checked_when_the_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let token = TokenFile::add(&path, "alice").unwrap();
        let mut file = TokenFile::open(&path).unwrap();
        file.reread().unwrap();
        let permit = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        permit(0o666);
        let error = file.reread().unwrap_err();
        assert!(matches!(error, TokenError::Writable(_)), "{error}");
        file.find(&Secret::of_token(&token).name).unwrap_err();
        permit(0o600);
        assert_eq!(user(&mut file, &token).as_deref(), Some("alice"));
    }

    #[test]
    fn a_file_keeps_its_owner_its_permissions_and_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["tokens", "link"].map(|name| folder.path().join(name));
        for name in ["alice", "bob"] {
            TokenFile::add(&path, name).unwrap();
        }
        std::os::unix::fs::symlink("tokens", &link).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        }
        let owner = |metadata: fs::Metadata| (metadata.uid(), metadata.gid(), metadata.mode());
        let before = owner(fs::metadata(&path).unwrap());
        assert_eq!(TokenFile::remove(&link, "bob").unwrap(), 1);
        assert_eq!(owner(fs::metadata(&path).unwrap()), before);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(TokenFile::open(&link).unwrap().users(), ["alice"]);
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
        // A name that only the server gives must not come from the file.
        let taken = ["uid:0", "anonymous"].map(|name| format!("{name} {zeros}"));
        let bad = ["alice", "alice 00", "a:b \u{e9}", "alice xyz what"];
        for bad in bad.into_iter().chain(taken.iter().map(String::as_str)) {
            let text = format!("# comment\n\nbob {zeros} # good\n{bad}\n");
            let error = parse(Path::new("tokens"), &text).unwrap_err();
            assert!(error.to_string().starts_with("tokens:4:"), "{error}");
        }
        let users = parse(Path::new("tokens"), &format!("bob {zeros}")).unwrap();
        assert_eq!(users.values().next().unwrap().user, "bob");
        for name in ["", "anonymous", "uid:0", "a b", &"n".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
