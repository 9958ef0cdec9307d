//! Files of results, which replace older ones only when they are whole. A full disk or an interrupt
//! leaves the older file as it was. What cannot be replaced, such as a device, is written in place.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// How the names of new files begin before they replace others.
const PREFIX: &str = ".farcall-";

/// Writes a file; `fill` writes what is in it.
pub(crate) fn file(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut draft = Draft::create(path)?;
    fill(draft.out())?;
    draft.finish()
}

/// Lets a file that was written outlast a loss of power. What is no file, such as a device, has
/// nothing to keep.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Ok(());
    }
    OpenOptions::new().append(true).open(path)?.sync_all()?;
    // Its name is in its folder, which not everybody can read and not every file system can sync.
    if let Ok(place) = fs::canonicalize(path) {
        let _ = File::open(folder_of(&place)).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

/// A file that is written until `finish`. One that is given up before leaves the older file.
pub(crate) enum Draft {
    /// It will replace the file at this place. It has no name before, and is gone if the command is
    /// killed: it can have gigabytes.
    Nameless(File, PathBuf),
    /// The same with a name, where the file system has no files without one.
    Beside(NamedTempFile, PathBuf),
    InPlace(File),
}

impl Draft {
    pub(crate) fn create(path: &Path) -> io::Result<Draft> {
        match draft(path)? {
            Some(draft) => Ok(draft),
            None => Ok(Draft::InPlace(File::create(path)?)),
        }
    }

    fn out(&mut self) -> &mut File {
        match self {
            Draft::Nameless(file, _) | Draft::InPlace(file) => file,
            Draft::Beside(draft, _) => draft.as_file_mut(),
        }
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        check_closing(self.out())?;
        match self {
            Draft::Nameless(file, place) => {
                let mut named = tempfile::Builder::new();
                let named = named.prefix(PREFIX);
                let named = named.make_in(folder_of(&place), |name| give_name(&file, name))?;
                named.persist(place).map_err(|error| error.error)?;
            }
            Draft::Beside(draft, place) => {
                draft.persist(place).map_err(|error| error.error)?;
            }
            Draft::InPlace(_) => {}
        }
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out().flush()
    }
}

/// A new file that will replace another one; none if that file has to be written in place.
fn draft(path: &Path) -> io::Result<Option<Draft>> {
    // A name such as /dev/stdout can lead to a regular file that somebody has open.
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return Ok(None);
    }
    let (place, old) = match fs::metadata(path) {
        Ok(old) => {
            let own = rustix::process::geteuid().as_raw();
            // The others who have it would see nothing of a new one.
            if !old.is_file() || old.uid() != own || old.nlink() != 1 {
                return Ok(None);
            }
            // A file that may not be written must not be replaced either.
            OpenOptions::new().write(true).open(path)?;
            (fs::canonicalize(path)?, Some(old))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            (path.to_path_buf(), None)
        }
        Err(_) => return Ok(None),
    };
    let Some(mut draft) = beside(place, old.is_none()) else {
        return Ok(None);
    };
    if let Some(old) = old {
        let made = draft.out().metadata()?;
        // With another group, those who may read the file would be others. And what is on another
        // file system than its folder, such as the one file that a container is given, stays there.
        if (made.gid(), made.dev()) != (old.gid(), old.dev()) {
            return Ok(None);
        }
        draft.out().set_permissions(old.permissions())?;
    }
    Ok(Some(draft))
}

/// A new file in the folder of this place; none if there can be none. The mask of the process holds
/// for the permissions of one that is new at its place, as for every new file.
fn beside(place: PathBuf, is_new: bool) -> Option<Draft> {
    let folder = folder_of(&place);
    if let Some(file) = nameless(folder, is_new) {
        return Some(Draft::Nameless(file, place));
    }
    let mut new = tempfile::Builder::new();
    new.prefix(PREFIX);
    if is_new {
        new.permissions(Permissions::from_mode(0o666));
    }
    let draft = new.tempfile_in(folder).ok()?;
    Some(Draft::Beside(draft, place))
}

/// A file without a name; none if the file system has no such files, or if it could not get a name.
fn nameless(folder: &Path, is_new: bool) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = match is_new {
        true => Mode::from_raw_mode(0o666),
        false => Mode::from_raw_mode(0o600),
    };
    let file = File::from(open(folder, flags, mode).ok()?);
    fs::metadata(by_number(&file)).is_ok().then_some(file)
}

/// Has the file system say whether it could write all of a file. One over a network writes later,
/// and tells of a full disk or a quota only who closes the file, which `File` does not ask. Each
/// descriptor that is closed asks.
fn check_closing(file: &File) -> io::Result<()> {
    let copy = file.try_clone()?.into_raw_fd();
    // SAFETY: nothing else knows this descriptor.
    match unsafe { libc::close(copy) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn give_name(file: &File, name: &Path) -> io::Result<()> {
    let link = AtFlags::SYMLINK_FOLLOW;
    Ok(linkat(CWD, by_number(file), CWD, name, link)?)
}

/// A name of an open file, by way of its number.
fn by_number(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn folder_of(place: &Path) -> &Path {
    let folder = place.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_when_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        file(&path, |out| out.write_all(b"first")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let full = file(&path, |out| {
            out.write_all(b"sec")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        });
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        file(&path, |out| out.write_all(b"second")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_synced_where_it_is_and_a_device_has_nothing_to_sync() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        assert_eq!(sync(&path).unwrap_err().kind(), ErrorKind::NotFound);
        file(&path, |out| out.write_all(b"first")).unwrap();
        sync(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        sync(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn a_draft_that_is_given_up_leaves_the_older_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("messages.csv");
        fs::write(&path, "older").unwrap();
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"new").unwrap();
        if matches!(draft, Draft::Nameless(..)) {
            let names = fs::read_dir(folder.path()).unwrap().count();
            assert_eq!(names, 1, "a command that is killed would leave it");
        }
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"older");
        let mut draft = Draft::create(&path).unwrap();
        draft.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"older");
        draft.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_keeps_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "older").unwrap();
        let other = fs::metadata(&path).unwrap().gid() + 1;
        if std::os::unix::fs::chown(&path, None, Some(other)).is_err() {
            println!("SKIPPED: only root can give a file to any group");
            return;
        }
        file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().gid(), other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_and_devices_are_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let [path, soft, hard] = ["x", "soft", "hard"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("x", &soft).unwrap();
        file(&soft, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        file(&soft, |out| out.write_all(b"newer")).unwrap();
        assert!(soft.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        fs::hard_link(&path, &hard).unwrap();
        file(&path, |out| out.write_all(b"newest")).unwrap();
        assert_eq!(fs::read(&hard).unwrap(), b"newest");
        file(Path::new("/dev/null"), |out| out.write_all(b"gone")).unwrap();
    }
}
