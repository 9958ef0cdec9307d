//! The secret of the daemons of one user on this machine, for when `FARCALL_TOKEN` gives none. It
//! is random, and lies in a file that only the user can read. So another user cannot join a daemon
//! on the loopback, nor submit jobs over it.

use nix::unistd::{Uid, User};
use rustix::fs::{Mode, OFlags, open};
use rustix::rand::{GetRandomFlags, getrandom};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder in which Farcall keeps state of this user: `$XDG_STATE_HOME/farcall`, or
/// `~/.local/state/farcall`.
pub(crate) fn state_folder() -> io::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let listed = || Some(User::from_uid(Uid::effective()).ok()??.dir);
    let state = match variable("XDG_STATE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let home = variable("HOME").map(PathBuf::from).or_else(listed);
            let none = || io::Error::other("this user has no home folder");
            home.ok_or_else(none)?.join(".local/state")
        }
    };
    let folder = state.join("farcall");
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// The file of the secret, which is created if it is not there.
pub(crate) fn of_user() -> io::Result<(PathBuf, String)> {
    let path = state_folder()?.join("gang-token");
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(&path)?;
            let token = read(&path)?;
            Ok((path, token))
        }
        token => token.map(|token| (path, token)),
    }
}

fn create(path: &Path) -> io::Result<()> {
    let mut random = [0; 24];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let hex = hex::encode(random);
    // The file gets its name only when it is complete, because several daemons may start at once.
    let draft = path.with_extension(&hex[..16]);
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&draft)
        .and_then(|mut file| writeln!(file, "{}", &hex[16..]))
        .and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written,
    }
}

/// Reads the secret, if nobody else can have read or written it.
fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::empty())?);
    let facts = file.metadata()?;
    if facts.uid() != Uid::effective().as_raw() || facts.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "others can read or change this file: remove it, and a new one is created",
        ));
    }
    let mut token = String::new();
    file.read_to_string(&mut token)?;
    match token.trim() {
        "" => Err(io::Error::other(
            "the file is empty: remove it, and a new one is created",
        )),
        token => Ok(token.to_string()),
    }
}
