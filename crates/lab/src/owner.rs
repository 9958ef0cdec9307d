//! The names of namespaces, control groups and folders, which say the process that made them: its
//! number and the time at which it started. Another process may have the number later. So what a
//! killed process has left behind is known and can be removed.

use crate::PREFIX;
use std::fmt;
use std::io;
use std::path::Path;

/// The process that has made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    process: u32,
    /// In ticks of the kernel since the machine started. Labs of earlier versions do not say it.
    started: Option<u64>,
}

impl Owner {
    /// This process.
    pub(crate) fn own() -> Owner {
        let process = std::process::id();
        Owner {
            process,
            started: started(process),
        }
    }

    /// The owner in a name.
    pub(crate) fn of(name: &str) -> Option<Owner> {
        let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
        let process = parts.next()?.parse().ok()?;
        let number = parts.next()?;
        let started = number.split_once('.').map(|(_, started)| started);
        Some(Owner {
            process,
            started: started.map(str::parse).transpose().ok()?,
        })
    }

    /// A name for something of this owner with a number.
    pub(crate) fn name(self, number: u32) -> String {
        let Owner { process, started } = self;
        match started {
            Some(started) => format!("{PREFIX}-{process}-{number}.{started}"),
            None => format!("{PREFIX}-{process}-{number}"),
        }
    }

    /// Whether the process has ended.
    pub(crate) fn is_gone(self) -> bool {
        match (started(self.process), self.started) {
            (None, _) => true,
            (Some(now), Some(then)) => now != then,
            (Some(_), None) => false,
        }
    }
}

/// When a process started; none if there is no such process.
fn started(process: impl fmt::Display) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program is in brackets, and may contain any letters.
    let (_, fields) = text.rsplit_once(") ")?;
    fields.split(' ').nth(19)?.parse().ok()
}

/// A name for a folder of this process beside others.
pub fn folder_name() -> String {
    Owner::own().name(0)
}

/// Removes the folders that killed processes of this user have left at this place.
///
/// # Errors
/// The place cannot be read.
pub fn remove_folders(place: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(place)? {
        let entry = entry?;
        let owner = entry.file_name().to_str().and_then(Owner::of);
        // Others can make folders with any name here.
        let is_own = |found: std::fs::Metadata| found.is_dir() && found.uid() == user;
        if owner.is_some_and(Owner::is_gone) && entry.metadata().is_ok_and(is_own) {
            // Another lab may do the same at this moment.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_owner() {
        let own = Owner::own();
        assert!(own.started.is_some() && !own.is_gone());
        let host = format!("{}-h10", own.name(3));
        assert_eq!(Owner::of(&host), Some(own));
        let earlier = Owner::of("farcall-lab-15323-0-h10").expect("an earlier version");
        assert_eq!((earlier.process, earlier.started), (15323, None));
        for other in ["farcall-lab", "farcall-lab-x-0", "farcall-labs-1-0", "eth0"] {
            assert_eq!(Owner::of(other), None, "{other}");
        }
    }

    /// The number of a killed process is that of another one now.
    #[test]
    fn what_a_killed_process_left_is_removed() {
        let place = tempfile::tempdir().expect("a folder");
        let own = Owner::own();
        let gone = Owner {
            started: own.started.map(|ticks| ticks - 1),
            ..own
        };
        assert!(gone.is_gone());
        for name in [&own.name(0), &gone.name(0), "farcall-lab-other"] {
            std::fs::create_dir(place.path().join(name)).expect("room");
        }
        remove_folders(place.path()).expect("it can be read");
        let is_there = |name: &str| place.path().join(name).exists();
        assert!(is_there(&own.name(0)) && is_there("farcall-lab-other"));
        assert!(!is_there(&gone.name(0)));
    }
}
