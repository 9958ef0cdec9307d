//! The audit log: one line of JSON for each call and each refusal, appended to a file. The server
//! decides what is recorded. If the file cannot be written, the server continues, and the log says
//! so once.

use farcall_server_proto as proto;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// An open audit log.
pub(crate) struct Audit {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether lines wait to be written.
    waits: bool,
    /// Whether the last write failed. A failure is logged once.
    fails: bool,
}

/// One line of the log.
#[derive(Debug, Serialize)]
struct Entry<'e> {
    /// Seconds since 1970.
    time: f64,
    user: String,
    /// Address or process; `None` after the client has disconnected.
    peer: Option<&'e str>,
    /// Qualified name of the function, or another request.
    what: &'e str,
    /// `done`, `given up`, `refused`, or the kind of the failure.
    outcome: &'e str,
    sent_bytes: u64,
    returned_bytes: u64,
    exec_s: f64,
}

impl<'e> Entry<'e> {
    fn new(told: &'e proto::Audit) -> Entry<'e> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let ([sent_bytes, returned_bytes], exec_nanos) = told.call.unwrap_or_default();
        Entry {
            time: now.unwrap_or_default().as_secs_f64(),
            user: told.user.to_string(),
            peer: told.peer.as_deref(),
            what: &told.what,
            outcome: &told.outcome,
            sent_bytes,
            returned_bytes,
            exec_s: exec_nanos as f64 * 1e-9,
        }
    }
}

impl Audit {
    /// Opens the log for appending. Only the server's user can read it.
    pub(crate) fn open(path: &Path) -> io::Result<Audit> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path)?;
        Ok(Audit {
            path: path.to_path_buf(),
            file: BufWriter::new(file),
            waits: false,
            fails: false,
        })
    }

    /// Opens the file anew, after something else has moved it away. The error is for the log.
    pub(crate) fn reopen(&mut self) -> Result<(), String> {
        self.flush();
        let opened = Audit::open(&self.path).map_err(|error| {
            let path = self.path.display();
            format!(
                "{path}: the audit log was not opened anew: {error}; its lines go to the file \
                 that was open before"
            )
        });
        *self = opened?;
        Ok(())
    }

    /// Adds a line. It is written when the server has nothing else to do, at the latest.
    pub(crate) fn write(&mut self, told: &proto::Audit) {
        let entry = Entry::new(told);
        // In one piece: a line of which the disk takes a part only would spoil the next one.
        let line = serde_json::to_vec(&entry).map_err(io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)
        });
        self.waits = true;
        // What the buffer takes is not on the disk yet.
        if written.is_err() {
            self.tell(written);
        }
    }

    /// Writes the lines that wait.
    pub(crate) fn flush(&mut self) {
        if std::mem::take(&mut self.waits) {
            let written = self.file.flush();
            self.tell(written);
        }
    }

    fn tell(&mut self, written: io::Result<()>) {
        if let Err(error) = &written
            && !self.fails
        {
            let path = self.path.display();
            tracing::error!("{path}: calls are not recorded: {error}");
        }
        self.fails = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_rpc_proto::User;

    #[test]
    fn a_full_disk_is_told_once_and_spoils_no_line() {
        let mut audit = Audit::open(Path::new("/dev/full")).unwrap();
        let told = proto::Audit {
            user: User::named("anne"),
            peer: Some("10.0.0.9:41562".into()),
            what: "lapack/dgesv".into(),
            outcome: "done".into(),
            call: Some(([1, 2], 3)),
        };
        audit.write(&told);
        audit.flush();
        for _ in 0..200 {
            assert!(audit.fails, "it was told");
            audit.write(&told);
            assert!(audit.fails, "the line is not on the disk yet");
            audit.flush();
        }
        let kept = str::from_utf8(audit.file.buffer()).unwrap();
        assert!(kept.ends_with('\n'));
        for line in kept.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["user"], "anne");
        }
    }
}
