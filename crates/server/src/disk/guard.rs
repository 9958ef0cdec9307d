//! Protects the state folder: one user owns it, and one server uses it at a time. It makes folders
//! and files that only their owner can read, and repairs permissions that are too open. It does not
//! know what the files contain. A folder of another user is refused.

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permissions of the folder, and those that other users must not have.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const OTHERS: u32 = 0o077;
/// A file that a server locks, beside the folder itself.
const LOCK: &str = "lock";

/// How the names begin of what servers make in a state folder, now and in earlier versions.
const OWN: [&str; 11] = [
    ".learned",
    "arrays",
    "calls.",
    "identity",
    "jobs",
    LOCK,
    "learned",
    "meta-",
    "migrated",
    "quarantine",
    "record",
];

/// Makes the state folder, or takes it from other users' eyes. Files that no server has made stay
/// as they are.
///
/// # Errors
/// It cannot be made, it belongs to another user, or others can read it and it has other files.
pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    let known = fs::metadata(folder)?;
    let own = rustix::process::geteuid().as_raw();
    if known.uid() != own {
        let text = format!(
            "it belongs to the user with number {}, and this server runs as {own}: change its \
             owner with `chown`, or run the server as that user",
            known.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if known.mode() & OTHERS != 0 {
        if let Some(name) = foreign(folder)? {
            let text = format!(
                "other users can read it (mode {:o}), and it has files that no server has made, \
                 such as `{}`: name a folder that has nothing else, or close it with `chmod 700`",
                known.mode() & 0o7777,
                name.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))?;
        tracing::warn!(
            "{}: other users could read the folder (mode {:o}); its mode is now 700",
            folder.display(),
            known.mode() & 0o777
        );
    }
    tighten(folder, 2, is_own)
}

/// Whether a server has made what has this name in a state folder.
fn is_own(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    OWN.iter().any(|own| name.starts_with(own))
}

/// A name in a folder of something that no server has made.
fn foreign(folder: &Path) -> io::Result<Option<OsString>> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        // A disk of its own has this folder.
        if !is_own(&name) && name != "lost+found" {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Takes the files of a folder whose names are wanted from other users.
fn tighten(folder: &Path, depth: usize, is_wanted: fn(&OsStr) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !is_wanted(&entry.file_name()) {
            continue;
        }
        let known = match entry.metadata() {
            Ok(known) => known,
            // It has disappeared meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let mode = match (known.is_dir(), known.is_file()) {
            (true, _) => FOLDER_MODE,
            (_, true) => FILE_MODE,
            _ => continue,
        };
        if known.mode() & OTHERS != 0 {
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        }
        if known.is_dir() && depth > 0 {
            tighten(&entry.path(), depth - 1, |_| true)?;
        }
    }
    Ok(())
}

/// Makes a folder that only its owner can read, if there is none.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
}

/// Makes an empty file that only its owner can read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)
}

/// Makes the names in a folder last.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A folder that no other process uses while this lives.
pub(crate) struct Lock {
    _folder: File,
    _file: Option<File>,
}

/// Locks the folder; `None` if another process has it.
pub(crate) fn lock(folder: &Path) -> io::Result<Option<Lock>> {
    let opened = File::open(folder)?;
    match try_lock(&opened) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // Over NFS, the lock of a folder holds for this host alone. That of a file holds for all hosts.
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).mode(FILE_MODE);
    // Who can only read the folder, such as a backup, changes nothing in it.
    let file = options.open(folder.join(LOCK)).ok();
    match file.as_ref().map(try_lock) {
        Some(Err(Errno::WOULDBLOCK)) => Ok(None),
        // The file system may have no locks of files.
        _ => Ok(Some(Lock {
            _folder: opened,
            _file: file,
        })),
    }
}

fn try_lock(file: &File) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_server_has_made_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
        let [script, log] = ["run.sh", "calls.a.log"].map(|name| folder.path().join(name));
        for path in [&script, &log] {
            fs::write(path, "").unwrap();
            set(path, 0o755).unwrap();
        }
        set(folder.path(), 0o755).unwrap();
        let error = prepare(folder.path()).unwrap_err().to_string();
        assert!(error.contains("`run.sh`"), "{error}");
        assert_eq!([folder.path(), &script, &log].map(mode), [0o755; 3]);
        set(folder.path(), 0o700).unwrap();
        prepare(folder.path()).unwrap();
        assert_eq!([mode(&script), mode(&log)], [0o755, 0o600]);
        fs::remove_file(script).unwrap();
        set(folder.path(), 0o755).unwrap();
        prepare(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }

    #[test]
    fn a_folder_that_another_host_uses_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let ours = lock(folder.path()).unwrap();
        assert!(ours.is_some() && lock(folder.path()).unwrap().is_none());
        drop(ours);
        // The lock of the folder itself does not reach this host.
        let theirs = File::open(folder.path().join(LOCK)).unwrap();
        try_lock(&theirs).unwrap();
        assert!(lock(folder.path()).unwrap().is_none());
        drop(theirs);
        assert!(lock(folder.path()).unwrap().is_some());
    }
}
