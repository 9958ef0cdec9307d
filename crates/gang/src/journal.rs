//! The journal of the root daemon: a line for each gang job that begins or ends, and the number of
//! the last one. A root daemon that starts after another was killed reads there which gang jobs
//! were lost, and uses none of their numbers again. A daemon that ends in order removes the file.

use crate::token::state_folder;
use farcall_gang_proto::{JobId, JobRow, JobSpec};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The most gang jobs that are remembered as lost.
const REMEMBERED: usize = 1000;
/// Characters of a command in the journal.
const COMMAND: usize = 1000;
/// Bytes of lines about past gang jobs after which the journal is written anew.
const PAST: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes in the file.
    length: u64,
    /// The lines of the gang jobs that have begun and not ended. Those without processes are not
    /// among them: nothing of them is lost.
    open: BTreeMap<JobId, String>,
    /// The largest number of a gang job so far.
    last: JobId,
}

impl Journal {
    /// Opens the journal of the root daemon with this control socket. Returns it with the gang jobs
    /// that an earlier daemon lost, and knows the last number of that daemon.
    pub(crate) fn open(control: &str) -> io::Result<(Journal, Vec<JobRow>)> {
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '-',
        };
        let name: String = control.chars().map(plain).collect();
        Journal::open_at(state_folder()?.join(format!("gang-jobs{name}")))
    }

    fn open_at(path: PathBuf) -> io::Result<(Journal, Vec<JobRow>)> {
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&path)?;
        // It may use the same name in another network namespace.
        let in_use = || io::Error::other(format!("another daemon uses {}", path.display()));
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|error| match error {
            Errno::AGAIN => in_use(),
            other => other.into(),
        })?;
        // Who writes a journal anew gives up the lock of the file before.
        let own = file.metadata()?.ino();
        if !fs::metadata(&path).is_ok_and(|found| found.ino() == own) {
            return Err(in_use());
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // The next line would become a part of one that a crash has cut.
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = end.map_or(0, |place| place as u64 + 1);
        file.set_len(whole)?;
        // A line can be cut within a letter.
        let (mut lost, last) = read(&String::from_utf8_lossy(&bytes));
        while lost.len() > REMEMBERED {
            lost.pop_first();
        }
        let mut journal = Journal::empty(path, file);
        (journal.length, journal.last) = (whole, last);
        // Their commands have the form of the journal already.
        let lines = lost
            .values()
            .map(|row| (row.id, begun_line(row, &row.command)));
        journal.open = lines.collect();
        // The file as it is says the same.
        let _ = journal.write_anew();
        Ok((journal, lost.into_values().collect()))
    }

    fn empty(path: PathBuf, file: File) -> Journal {
        Journal {
            path,
            file,
            length: 0,
            open: BTreeMap::new(),
            last: 0,
        }
    }

    /// The largest number of a gang job so far.
    pub(crate) fn last(&self) -> JobId {
        self.last
    }

    pub(crate) fn begun(&mut self, id: JobId, spec: &JobSpec, nodes: Vec<String>) {
        let command: String = spec.command.join(" ").chars().take(COMMAND).collect();
        let row = JobRow {
            id,
            nodes,
            processes: spec.processes,
            user: spec.owner.0,
            ..JobRow::default()
        };
        let line = begun_line(&row, &command.escape_debug().to_string());
        self.put(&line);
        self.open.insert(id, line);
        self.last = self.last.max(id);
    }

    /// Writes a line. A full disk must not stop gang jobs, so errors are ignored. What was written
    /// of such a line is taken back, because the next one would become a part of it.
    fn put(&mut self, line: &str) {
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => drop(self.file.set_len(self.length)),
        }
    }

    pub(crate) fn ended(&mut self, id: JobId) {
        if self.open.remove(&id).is_none() {
            return;
        }
        self.put(&format!("-{id}\n"));
        if self.open.is_empty() && self.file.set_len(0).is_ok() {
            self.length = 0;
            self.put(&last_line(self.last));
        }
        if self.length > PAST {
            let open: u64 = self.open.values().map(|line| line.len() as u64).sum();
            if self.length > PAST + 4 * open {
                // The file as it is says the same.
                let _ = self.write_anew();
            }
        }
    }

    /// Replaces the file by one without the past gang jobs.
    fn write_anew(&mut self) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let mut text = last_line(self.last);
        text.extend(self.open.values().map(String::as_str));
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        let mut file = options.open(&draft)?;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&draft, &self.path)?;
        self.file = file;
        self.length = text.len() as u64;
        Ok(())
    }

    /// Removes the journal, if no gang job is open, because the daemon ends.
    pub(crate) fn end(&self) {
        if self.open.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The line of a gang job that begins, given its command in one line.
fn begun_line(row: &JobRow, command: &str) -> String {
    let (id, user, count, nodes) = (row.id, row.user, row.processes, row.nodes.join(","));
    format!("+{id}\t{user}\t{count}\t{nodes}\t{command}\n")
}

/// The line with the number of the last gang job.
fn last_line(last: JobId) -> String {
    format!("={last}\n")
}

/// The gang jobs of a journal that began and did not end, and the largest number. A torn last line
/// is ignored.
fn read(text: &str) -> (BTreeMap<JobId, JobRow>, JobId) {
    let (mut open, mut last) = (BTreeMap::new(), 0);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        if let Some(row) = line.strip_prefix('+').and_then(row) {
            last = last.max(row.id);
            open.insert(row.id, row);
        } else if let Some(id) = line.strip_prefix('=').and_then(|id| id.parse().ok()) {
            last = last.max(id);
        } else if let Some(id) = line.strip_prefix('-').and_then(|id| id.parse().ok()) {
            open.remove(&id);
        }
    }
    (open, last)
}

fn row(line: &str) -> Option<JobRow> {
    let mut fields = line.splitn(5, '\t');
    let mut field = || fields.next();
    Some(JobRow {
        id: field()?.parse().ok()?,
        user: field()?.parse().ok()?,
        processes: field()?.parse().ok()?,
        nodes: field()?.split(',').map(str::to_string).collect(),
        command: field()?.to_string(),
        ..JobRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn what_did_not_end_was_lost() {
        let text = "+1\t0\t2\ta,b\tsleep 5\n+2\t7\t1\ta\ttwo\\nlines\n-1\nnonsense\n+3\t0\t1";
        let (lost, last) = read(text);
        assert_eq!(last, 2);
        assert_eq!(lost.keys().collect::<Vec<_>>(), [&2]);
        let row = &lost[&2];
        assert_eq!((row.user, row.processes), (7, 1));
        assert_eq!(row.command, "two\\nlines");
        assert!(read("").0.is_empty());
    }

    fn journal(folder: &Path) -> (PathBuf, Journal) {
        let path = folder.join("gang-jobs");
        let file = File::options().append(true).create(true).open(&path);
        (path.clone(), Journal::empty(path, file.expect("room")))
    }

    #[test]
    fn a_job_that_never_began_ends_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, mut journal) = journal(folder.path());
        let known = || read(&fs::read_to_string(&path).expect("it is there"));
        let open = || known().0.len();
        journal.begun(1, &JobSpec::default(), Vec::new());
        journal.ended(2);
        assert_eq!(open(), 1);
        journal.end();
        assert_eq!(open(), 1);
        journal.ended(1);
        assert_eq!(open(), 0);
        // The next daemon gives no gang job this number.
        assert_eq!(known().1, 1);
        journal.begun(7, &JobSpec::default(), Vec::new());
        journal.write_anew().expect("room");
        journal.ended(7);
        assert_eq!(known().1, 7);
    }

    /// The machine has crashed while a line was written, in the middle of a letter.
    #[test]
    fn a_line_that_was_cut_loses_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gang-jobs");
        let text = "=6\n+7\t0\t1\ta\tsolve\n+8\t0\t1\ta\t\u{e4}";
        fs::write(&path, &text.as_bytes()[..text.len() - 1]).expect("room");
        let open = || Journal::open_at(path.clone());
        let ids = |lost: &[JobRow]| lost.iter().map(|row| row.id).collect::<Vec<_>>();
        let (mut journal, lost) = open().expect("it is read");
        assert_eq!((ids(&lost), journal.last()), (vec![7], 7));
        assert_eq!(lost[0].command, "solve");
        let used = open().expect_err("it is in use").to_string();
        assert!(used.contains("another daemon uses"), "{used}");
        journal.begun(9, &JobSpec::default(), Vec::new());
        drop(journal);
        let (_, lost) = open().expect("it is read");
        assert_eq!(ids(&lost), [7, 9]);
        let mode = fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    /// A gang job that never ends does not keep the lines of all others.
    #[test]
    fn the_journal_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, mut journal) = journal(folder.path());
        let spec = JobSpec {
            command: vec!["x".repeat(COMMAND)],
            ..JobSpec::default()
        };
        journal.begun(1, &spec, vec!["a".to_string()]);
        for id in 2..5000 {
            journal.begun(id, &spec, vec!["a".to_string()]);
            journal.ended(id);
        }
        journal.begun(5000, &spec, vec!["b".to_string()]);
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.len() < 2 << 20, "{} bytes", text.len());
        assert_eq!(journal.length, text.len() as u64);
        assert_eq!(read(&text).1, 5000);
        assert_eq!(read(&text).0.into_keys().collect::<Vec<_>>(), [1, 5000]);
    }
}
