//! The quarantine of a state folder: damaged logs, and files that no record needs. They remain for
//! the retention time, counted while a server serves, and `farcall state check --restore` can bring
//! calls back from them.

use super::guard::{inner_folder, private_file, sync_folder};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "quarantine";

/// The folder. The name of each file begins with the time at which it came, in seconds that servers
/// had served.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    path: PathBuf,
}

impl Quarantine {
    /// The quarantine of a state folder.
    pub(crate) fn of(state: &Path) -> Quarantine {
        Quarantine {
            path: state.join(NAME),
        }
    }

    /// Moves a file here.
    pub(crate) fn take(&self, file: &Path, served: u64) -> io::Result<()> {
        let to = self.place(file, served)?;
        move_file(file, &to)?;
        sync_folder(&self.path)
    }

    /// Keeps a copy of a file that is about to be replaced.
    pub(crate) fn copy(&self, file: &Path, served: u64) -> io::Result<()> {
        let to = self.place(file, served)?;
        fs::hard_link(file, &to).or_else(|_| copy_file(file, &to))?;
        sync_folder(&self.path)
    }

    fn place(&self, file: &Path, served: u64) -> io::Result<PathBuf> {
        inner_folder(&self.path)?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let names = (0..).map(|number| format!("{}-{number}-{name}", served / 1000));
        let mut places = names.map(|name| self.path.join(name));
        let free = places.find(|place| !place.exists());
        free.ok_or_else(|| io::Error::other("the quarantine has no free name"))
    }

    /// The files: when they came, their names before, and where they are now.
    pub(crate) fn files(&self) -> Vec<(u64, String, PathBuf)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let mut parts = name.splitn(3, '-');
                let since = parts.next()?.parse().ok()?;
                let before = parts.nth(1)?.to_string();
                Some((since, before, entry.path()))
            })
            .collect();
        files.sort();
        files
    }

    /// Removes files whose retention is over. Returns how many there were.
    pub(crate) fn expire(&self, served: u64, keep_s: u64) -> usize {
        let is_old = |since: u64| since.saturating_add(keep_s) < served / 1000;
        let files = self.files().into_iter();
        let old = files.filter(|(since, ..)| is_old(*since));
        old.filter(|(.., path)| fs::remove_file(path).is_ok())
            .count()
    }
}

/// Moves a file, also to another disk: folders of a state folder may be links.
pub(crate) fn move_file(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => carry(from, to),
        moved => moved,
    }
}

/// Moves a file by a copy. If that fails, the file is where it was.
fn carry(from: &Path, to: &Path) -> io::Result<()> {
    let carried = copy_file(from, to).and_then(|()| fs::remove_file(from));
    carried.inspect_err(|_| {
        let _ = fs::remove_file(to);
    })
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, mut copy) = (File::open(from)?, private_file(to)?);
    io::copy(&mut source, &mut copy)?;
    copy.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_to_another_disk_as_a_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&from, "result").unwrap();
        carry(&from, &folder.path().join("missing/to")).unwrap_err();
        assert!(from.exists());
        carry(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"result");
        assert!(!from.exists());
    }
}
