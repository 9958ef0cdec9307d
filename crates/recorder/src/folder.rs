//! The folder of a record: the names of its files, their bound, and what a crash has left.
//!
//! Names are `calls-MILLISECONDS.jsonl.zst`, in the order of their time, and end in `.part` as long
//! as somebody writes them. Who writes a file has it locked.

use crate::reader::{Lines, ReadError};
use crate::writer::Writer;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const WHOLE: &str = ".jsonl.zst";
const PART: &str = ".part";
/// No recorder has made a file of this time, in milliseconds since 1970.
const LAST: u64 = 1 << 53;
/// A file that a recorder has begun to mend.
const MENDED: &str = ".mended";

/// The time in the name of a file of a record.
fn time_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_prefix("calls-")?;
    let name = name.strip_suffix(PART).unwrap_or(name);
    name.strip_suffix(WHOLE)?.parse().ok()
}

fn is_part(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "part")
}

/// The files of a record in a folder, the oldest first.
///
/// # Errors
/// The folder cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(time) = time_of(&path) {
            found.push((time, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Makes the folder. Only its owner can read it.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => io::Error::new(error.kind(), "it is not a folder"),
        _ => error,
    })
}

fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Begins a file at this time, in milliseconds since 1970, or later: its name comes after those of
/// all others, also if the clock was wrong before or is now. So the oldest file is the first one.
pub(crate) fn begin(folder: &Path, unix_ms: u64) -> io::Result<(PathBuf, File)> {
    let newest = files(folder)?.last().and_then(|path| time_of(path));
    let newest = newest.filter(|newest| *newest < LAST);
    let first = newest.map_or(unix_ms, |newest| unix_ms.max(newest + 1));
    for time in first..first.saturating_add(1000) {
        let name = format!("calls-{time:013}{WHOLE}");
        if folder.join(&name).exists() {
            continue;
        }
        let path = folder.join(name + PART);
        match create(&path) {
            Ok(file) => {
                flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                return Ok((path, file));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Gives a file that is whole its name.
pub(crate) fn end(part: &Path) -> io::Result<()> {
    fs::rename(part, part.with_extension(""))
}

/// Removes the oldest files until all of them have at most this many bytes.
pub(crate) fn bound(folder: &Path, most: u64) -> io::Result<()> {
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
    let all = files(folder)?;
    let mut bytes: u64 = all.iter().map(size).sum();
    for path in all.iter().filter(|path| !is_part(path)) {
        if bytes <= most {
            break;
        }
        bytes -= size(path);
        remove(path)?;
    }
    Ok(())
}

/// Removes a file, which somebody else may have removed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes whole files of those that nobody writes any more.
pub(crate) fn mend(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if time_of(&path).is_none() || !is_part(&path) {
            continue;
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            // Its server has just ended it.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && path.exists() {
            mend_file(&path)?;
        }
    }
    Ok(())
}

/// A file with lines that this version does not know, as later ones write them, stays as it is. So
/// does one that the system does not let us read now.
fn mend_file(part: &Path) -> io::Result<()> {
    let whole = part.with_extension("");
    let mended = part.with_extension(&MENDED[1..]);
    remove(&mended)?;
    let Ok(lines) = Lines::open(part) else {
        return Ok(());
    };
    let mut writer = Writer::new(create(&mended)?)?;
    let mut any = false;
    for told in lines {
        match told {
            Ok(told) => writer.write_text(&told.text)?,
            Err(ReadError::Line { .. }) => return remove(&mended),
            // Whatever follows the first damage cannot be read.
            Err(_) => break,
        }
        any = true;
    }
    writer.finish()?;
    match any {
        true => fs::rename(&mended, whole)?,
        false => fs::remove_file(&mended)?,
    }
    fs::remove_file(part)
}
