//! Writes lines into a folder on a thread of its own. The caller never waits: if the disk is slower
//! than the lines, lines are lost. If the folder cannot be written, the log says so once, and the
//! recorder tries again after a while.

use crate::folder;
use crate::writer::Writer;
use farcall_record::{Header, Line, SCHEMA};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that can wait for the thread.
const WAITING: usize = 16_384;
/// How long a line waits until it can be read.
const FLUSH: Duration = Duration::from_secs(1);
/// How long lines gather before they are written.
const PAUSE: Duration = Duration::from_millis(20);
/// Time until the next try after a failure.
const AGAIN: Duration = Duration::from_secs(60);
/// Bytes of one file at most.
const MOST_FILE: u64 = 8_000_000;

/// What a recorder writes, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes of all files together.
    pub bytes: u64,
    /// The address of the server, which each line states.
    pub server: String,
    /// The number of the server, in hexadecimal digits, which lines about it state. Empty for a
    /// metaserver.
    pub id: String,
    /// The program that writes, and its version.
    pub program: String,
}

/// Records lines. When it is dropped, everything is written and the file is whole.
#[derive(Debug)]
pub struct Recorder {
    lines: Option<SyncSender<Line>>,
    thread: Option<JoinHandle<()>>,
    /// Lines that were lost because the thread did not keep up.
    lost: u64,
}

impl Recorder {
    /// Starts the thread. The folder need not exist.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(settings: Settings) -> io::Result<Recorder> {
        let (lines, from) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("recorder".to_owned());
        let thread = thread.spawn(move || Thread::new(settings).run(&from))?;
        Ok(Recorder {
            lines: Some(lines),
            thread: Some(thread),
            lost: 0,
        })
    }

    /// Records a line.
    pub fn record(&mut self, line: Line) {
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line));
        if let Some(Err(TrySendError::Full(_))) = sent {
            if self.lost == 0 {
                tracing::warn!("the record of calls lacks lines: its disk is too slow");
            }
            self.lost += 1;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            // It has logged its failure.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Thread {
    settings: Settings,
    file: Option<Open>,
    /// When to try again after a failure.
    again: Option<Instant>,
    fails: bool,
}

/// The file that is written at the moment.
struct Open {
    path: PathBuf,
    writer: Writer,
    /// When the first line came that cannot be read yet.
    waits_since: Option<Instant>,
}

impl Thread {
    fn new(settings: Settings) -> Thread {
        Thread {
            settings,
            file: None,
            again: None,
            fails: false,
        }
    }

    fn run(mut self, lines: &Receiver<Line>) {
        let prepared = self.prepare();
        self.tell(prepared);
        loop {
            let waits = self.file.as_ref().and_then(|file| file.waits_since);
            let next = match waits {
                None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) => lines.recv_timeout(FLUSH.saturating_sub(since.elapsed())),
            };
            let done = match next {
                Ok(line) => {
                    let written = self.write_all(line, lines);
                    // Lines gather meanwhile, so that few of them wake this thread.
                    thread::sleep(PAUSE);
                    written
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.tell(done);
        }
        let ended = self.end();
        self.tell(ended);
    }

    /// Makes the folder, and mends what a crash has left.
    fn prepare(&self) -> io::Result<()> {
        folder::make(&self.settings.folder)?;
        folder::mend(&self.settings.folder)?;
        folder::bound(&self.settings.folder, self.settings.bytes)
    }

    /// Writes a line, and those that have gathered.
    fn write_all(&mut self, line: Line, lines: &Receiver<Line>) -> io::Result<()> {
        self.write(line)?;
        lines.try_iter().try_for_each(|line| self.write(line))
    }

    fn write(&mut self, mut line: Line) -> io::Result<()> {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return Ok(());
        }
        line.set_server(&self.settings.server, &self.settings.id);
        let largest = MOST_FILE.min(self.settings.bytes / 8);
        if self.fails && self.file.is_none() {
            // Each failure has left a file, and a disk can be full for days. A file that cannot be
            // mended yet does not stop the record.
            let _ = folder::mend(&self.settings.folder);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.settings, largest)?),
        };
        file.writer.write(&line)?;
        let since = *file.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= FLUSH {
            self.flush()?;
        }
        match self
            .file
            .as_ref()
            .is_some_and(|file| file.writer.bytes() >= largest)
        {
            true => self.end(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.waits_since = None;
        file.writer.flush()
    }

    /// Ends the file.
    fn end(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        file.writer.finish()?;
        folder::end(&file.path)
    }

    /// Logs the first failure, and the end of failures.
    fn tell(&mut self, done: io::Result<()>) {
        let folder = self.settings.folder.display();
        match done {
            Ok(()) if self.file.is_some() && self.fails => {
                tracing::info!("{folder}: calls are recorded again");
                (self.fails, self.again) = (false, None);
            }
            Ok(()) => {}
            Err(error) => {
                if !self.fails {
                    let who = match self.settings.id.is_empty() {
                        true => "metaserver",
                        false => "server",
                    };
                    tracing::error!(
                        "{folder}: calls are not recorded: {error}; the {who} goes on without \
                         its record, and tries again every minute"
                    );
                }
                self.fails = true;
                self.again = Some(Instant::now() + AGAIN);
                self.file = None;
            }
        }
    }
}

/// Begins a file, after room was made for it.
fn open(settings: &Settings, largest: u64) -> io::Result<Open> {
    let folder: &Path = &settings.folder;
    folder::make(folder)?;
    folder::bound(folder, settings.bytes.saturating_sub(largest))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let (path, file) = folder::begin(folder, now.as_millis() as u64)?;
    let mut writer = Writer::new(file)?;
    writer.write(&Line::Record(Header {
        schema: SCHEMA,
        time: now.as_millis() as f64 / 1000.0,
        program: settings.program.clone(),
        server: settings.server.clone(),
    }))?;
    Ok(Open {
        path,
        writer,
        waits_since: None,
    })
}

#[cfg(test)]
mod tests;
