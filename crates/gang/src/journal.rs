//! The journal of the root daemon: a line for each gang job that begins or ends. A root daemon that
//! starts after another was killed reads there which gang jobs were lost. A daemon that ends in
//! order removes the file.

use crate::token::state_folder;
use farcall_gang_proto::{JobId, JobRow, JobSpec};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// The most gang jobs that are remembered as lost.
const REMEMBERED: usize = 1000;
/// Characters of a command in the journal.
const COMMAND: usize = 1000;

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Number of gang jobs that have begun and not ended.
    open: usize,
}

impl Journal {
    /// Opens the journal of the root daemon with this control socket. Returns it with the gang jobs
    /// that an earlier daemon lost.
    pub(crate) fn open(control: &str) -> io::Result<(Journal, Vec<JobRow>)> {
        let plain = |letter: char| match letter.is_ascii_alphanumeric() {
            true => letter,
            false => '-',
        };
        let name: String = control.chars().map(plain).collect();
        let path = state_folder()?.join(format!("gang-jobs{name}"));
        let mut options = File::options();
        options.read(true).append(true).create(true);
        let mut file = options.open(&path)?;
        // Another daemon may use the same name in another network namespace.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut lost = read(&text);
        while lost.len() > REMEMBERED {
            lost.pop_first();
        }
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        let mut journal = Journal {
            path,
            file,
            open: 0,
        };
        for row in lost.values() {
            // Their commands have the form of the journal already.
            journal.write(row, &row.command);
        }
        Ok((journal, lost.into_values().collect()))
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
        self.write(&row, &command.escape_debug().to_string());
    }

    /// Writes a line. A full disk must not stop gang jobs, so errors are ignored.
    fn write(&mut self, row: &JobRow, command: &str) {
        self.open += 1;
        let (id, user, count, nodes) = (row.id, row.user, row.processes, row.nodes.join(","));
        let line = format!("+{id}\t{user}\t{count}\t{nodes}\t{command}\n");
        let _ = self.file.write_all(line.as_bytes());
    }

    pub(crate) fn ended(&mut self, id: JobId) {
        self.open = self.open.saturating_sub(1);
        let _ = self.file.write_all(format!("-{id}\n").as_bytes());
        if self.open == 0 {
            let _ = self.file.set_len(0);
        }
    }

    /// Removes the journal, if no gang job is open, because the daemon ends.
    pub(crate) fn end(&self) {
        if self.open == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The gang jobs of a journal that began and did not end. A torn last line is ignored.
fn read(text: &str) -> BTreeMap<JobId, JobRow> {
    let mut open = BTreeMap::new();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        if let Some(row) = line.strip_prefix('+').and_then(row) {
            open.insert(row.id, row);
        } else if let Some(id) = line.strip_prefix('-').and_then(|id| id.parse().ok()) {
            open.remove(&id);
        }
    }
    open
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

    #[test]
    fn what_did_not_end_was_lost() {
        let text = "+1\t0\t2\ta,b\tsleep 5\n+2\t7\t1\ta\ttwo\\nlines\n-1\nnonsense\n+3\t0\t1";
        let lost = read(text);
        assert_eq!(lost.keys().collect::<Vec<_>>(), [&2]);
        let row = &lost[&2];
        assert_eq!((row.user, row.processes), (7, 1));
        assert_eq!(row.command, "two\\nlines");
        assert!(read("").is_empty());
    }
}
