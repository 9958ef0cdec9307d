//! Protects the state folder: one user owns it, and one server uses it at a time. It makes folders
//! and files that only their owner can read, and repairs permissions that are too open. It does not
//! know what the files contain. A folder of another user is refused. What root makes in the folder
//! of another user belongs to that user, whose server needs it.

use super::problem;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
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
    make_folder(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), "it is not a folder"),
        _ => error,
    })?;
    let known = fs::metadata(folder)?;
    let own = geteuid().as_raw();
    is_of(&known, own)?;
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
    tighten(folder, own, 2, is_own)
}

/// Whether the user of this server owns something.
fn is_of(known: &Metadata, own: u32) -> io::Result<()> {
    if known.uid() == own {
        return Ok(());
    }
    let text = format!(
        "it belongs to the user with number {}, and this server runs as {own}: change its owner \
         with `chown`, or run the server as that user",
        known.uid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
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

/// Takes the files of a folder whose names are wanted from other users. An error names the file.
fn tighten(folder: &Path, own: u32, depth: usize, is_wanted: fn(&OsStr) -> bool) -> io::Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| problem(folder, &error))?;
    for entry in entries {
        let entry = entry?;
        if !is_wanted(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        let named = |error| problem(&path, &error);
        let known = match entry.metadata() {
            Ok(known) => known,
            // It has disappeared meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(named(error)),
        };
        let mode = match (known.is_dir(), known.is_file()) {
            (true, _) => FOLDER_MODE,
            (_, true) => FILE_MODE,
            _ => continue,
        };
        // Root can use all files, and a server needs no lock of another user.
        if own != 0 && entry.file_name() != LOCK {
            is_of(&known, own).map_err(named)?;
        }
        if known.mode() & OTHERS != 0 {
            fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(named)?;
        }
        if known.is_dir() && depth > 0 {
            tighten(&path, own, depth - 1, |_| true)?;
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

/// Makes a folder in a state folder, for the same owner, if there is none.
pub(crate) fn inner_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Ok(()) => give_to_owner(&File::open(folder)?, folder),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes an empty file that only its owner, that of its folder, can read.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    make_file(path, OpenOptions::new().truncate(true))
}

/// Opens a file to read and write. If there is none, it belongs to the owner of its folder.
fn make_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let options = options.read(true).write(true).mode(FILE_MODE);
    // A link that somebody else has put there gets no other owner.
    match options.clone().create_new(true).open(path) {
        Ok(file) => give_to_owner(&file, path).map(|()| file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).open(path)
        }
        Err(error) => Err(error),
    }
}

/// Gives what root has made to the owner of its folder.
fn give_to_owner(made: &File, path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|_| geteuid().is_root());
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    let owner = fs::metadata(folder)?;
    match owner.uid() == made.metadata()?.uid() {
        true => Ok(()),
        false => fchown(made, Some(owner.uid()), Some(owner.gid())),
    }
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
    // Who can only read the folder, such as a backup, changes nothing in it.
    let file = make_file(&folder.join(LOCK), &mut OpenOptions::new()).ok();
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
    use std::os::unix::fs::chown;

    /// Needs root.
    #[test]
    fn what_root_makes_belongs_to_the_owner_of_the_folder() {
        const OTHER: u32 = 65_534;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        if !geteuid().is_root() || chown(folder.path(), Some(OTHER), Some(OTHER)).is_err() {
            eprintln!("SKIPPED: a folder of another user needs root");
            return;
        }
        fs::write(at("own"), "").unwrap();
        drop(lock(folder.path()).unwrap().unwrap());
        inner_folder(&at("arrays")).unwrap();
        private_file(&at("arrays/a")).unwrap();
        private_file(&at("own")).unwrap();
        let owner = |name: &str| fs::metadata(at(name)).unwrap().uid();
        assert_eq!([LOCK, "arrays", "arrays/a"].map(owner), [OTHER; 3]);
        assert_eq!(owner("own"), 0, "it was there");
    }

    #[test]
    fn a_file_is_no_state_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = prepare(&file).unwrap_err();
        assert_eq!(error.to_string(), "it is not a folder");
    }

    #[test]
    fn an_error_names_the_file_of_another_user() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), "").unwrap();
        let other = geteuid().as_raw() + 1;
        tighten(folder.path(), other, 2, is_own).unwrap();
        fs::create_dir(folder.path().join("arrays")).unwrap();
        let error = tighten(folder.path(), other, 2, is_own).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("arrays: it belongs to the user with number"),
            "{text}"
        );
    }

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
