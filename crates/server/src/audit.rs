//! Who called what, and how it ended: a line of JSON for each call, appended to a file.

use crate::user::User;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file of an audit.
pub(crate) struct Audit {
    path: PathBuf,
    file: BufWriter<File>,
    /// Whether lines wait to be written.
    waits: bool,
    /// Whether the last write failed, which is told once.
    fails: bool,
}

/// What one line says.
#[derive(Debug, Serialize)]
pub(crate) struct Entry<'e> {
    /// Seconds since 1970.
    time: f64,
    user: String,
    /// Address or process; none when the client has gone, or was not there any more.
    peer: Option<&'e str>,
    /// Qualified name of the function, or what else was wanted.
    what: &'e str,
    /// `done`, `given up`, `refused`, or the kind of its failure.
    outcome: &'e str,
    sent_bytes: u64,
    returned_bytes: u64,
    exec_s: f64,
}

impl<'e> Entry<'e> {
    pub(crate) fn new(
        user: &User,
        peer: Option<&'e str>,
        what: &'e str,
        outcome: &'e str,
    ) -> Entry<'e> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Entry {
            time: now.unwrap_or_default().as_secs_f64(),
            user: user.to_string(),
            peer,
            what,
            outcome,
            sent_bytes: 0,
            returned_bytes: 0,
            exec_s: 0.0,
        }
    }

    /// With what the call has moved and how long the library took.
    pub(crate) fn with(self, sent_bytes: u64, returned_bytes: u64, exec_nanos: u64) -> Entry<'e> {
        Entry {
            sent_bytes,
            returned_bytes,
            exec_s: exec_nanos as f64 * 1e-9,
            ..self
        }
    }
}

impl Audit {
    /// Appends to a file that only the server's user can read.
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

    /// Writes a line, at the latest when the server has nothing else to do.
    pub(crate) fn write(&mut self, entry: &Entry<'_>) {
        let written = serde_json::to_writer(&mut self.file, entry).map_err(io::Error::from);
        let written = written.and_then(|()| self.file.write_all(b"\n"));
        self.waits = true;
        self.tell(written);
    }

    /// Writes what waits.
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
