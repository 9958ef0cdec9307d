//! The journal: the records of durable calls, in a database that survives the end of the server at
//! any moment.
//!
//! One thread applies all changes in order, many in one transaction, and confirms each after it is
//! on the disk. The recorded state decides: a change that does not apply to it (`lifecycle`) has no
//! effect, and the answer says so.

use super::{Reply, unix_ms};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use farcall_server_proto::lifecycle::{Change, next};
use farcall_server_proto::{Changed, JournalEntry as Entry, Outcome, Record, Stored};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use rustix::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most changes of one transaction.
const BATCH: usize = 1024;
/// Pause before a failed write is tried again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Version of the tables.
const VERSION: i64 = 1;
/// Most characters of a recorded failure.
const FAILURE_CHARS: usize = 2000;

const TABLES: &str = "
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    user TEXT NOT NULL,
    function TEXT NOT NULL,
    interface TEXT NOT NULL,
    call BLOB NOT NULL,
    repeatable INTEGER NOT NULL,
    big_endian INTEGER NOT NULL,
    state INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    keep_s INTEGER NOT NULL,
    argument_bytes INTEGER NOT NULL,
    argument_sum INTEGER NOT NULL,
    result_bytes INTEGER NOT NULL,
    result_sum INTEGER NOT NULL,
    exec_ns INTEGER,
    failure_kind INTEGER,
    failure TEXT
) STRICT;
";

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The database reports an error.
    #[error("{source}{}", hint(.source))]
    Database {
        /// The database's error.
        #[from]
        source: rusqlite::Error,
    },
    /// A newer server wrote it.
    #[error("a newer farcall wrote it (table version {0}); use that version")]
    Newer(i64),
    /// A row is invalid.
    #[error("it is damaged: {0}; move the folder away to start without it")]
    Damaged(String),
}

impl JournalError {
    /// Whether another server uses it.
    pub(super) fn is_taken(&self) -> bool {
        use rusqlite::ErrorCode;
        let JournalError::Database { source } = self else {
            return false;
        };
        matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
        )
    }
}

fn hint(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "; another server uses the folder: give each server its own (--state DIR)"
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "; move the folder away to start without it"
        }
        _ => "",
    }
}

/// Opens the journal and reads all records, each moved to the state that holds after a restart.
pub(super) fn open(path: &Path) -> Result<(Connection, Vec<Record>), JournalError> {
    let mut database = Connection::open(path)?;
    // A server that uses it does so for as long as it runs.
    database.busy_timeout(Duration::ZERO)?;
    // The first access takes the lock for as long as the server runs.
    database.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => {
            transaction.execute_batch(TABLES)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        VERSION => {}
        other => return Err(JournalError::Newer(other)),
    }
    restart(&transaction)?;
    let records = read_all(&transaction)?;
    transaction.commit()?;
    Ok((database, records))
}

/// Applies the restart: calls that were running will run again, or have failed.
fn restart(transaction: &Transaction<'_>) -> Result<(), JournalError> {
    for record in read_all(transaction)? {
        if let Some((change, outcome)) = record.restart() {
            apply(transaction, record.id, change, outcome)?;
        }
    }
    Ok(())
}

fn read_all(transaction: &Transaction<'_>) -> Result<Vec<Record>, JournalError> {
    let mut statement = transaction.prepare("SELECT * FROM jobs ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(read(row)?);
    }
    Ok(records)
}

/// Reads a row. An impossible value is an error.
fn read(row: &Row<'_>) -> Result<Record, JournalError> {
    let id: Vec<u8> = row.get("id")?;
    let id = id
        .try_into()
        .map_err(|_| damaged("an id of another length"))?;
    let number = |name: &str| -> Result<u64, JournalError> {
        u64::try_from(row.get::<_, i64>(name)?).map_err(|_| damaged(name))
    };
    let optional = |name: &str| -> Result<Option<u64>, JournalError> {
        let value = row.get::<_, Option<i64>>(name)?.map(u64::try_from);
        value.transpose().map_err(|_| damaged(name))
    };
    let stored = |bytes: &str, sum: &str| -> Result<Stored, JournalError> {
        Ok(Stored {
            bytes: number(bytes)?,
            sum: u32::try_from(number(sum)?).map_err(|_| damaged(sum))?,
        })
    };
    let state = u8::try_from(number("state")?)
        .ok()
        .and_then(DurableState::from_repr);
    let state = state.ok_or_else(|| damaged("a state that is not known"))?;
    let failure = match (
        optional("failure_kind")?,
        row.get::<_, Option<String>>("failure")?,
    ) {
        (Some(kind), Some(text)) => {
            let kind = u32::try_from(kind).unwrap_or(u32::MAX);
            Some(Failure::new(FailureKind::from_number(kind), text))
        }
        _ => None,
    };
    Ok(Record {
        number: number("number")?,
        id: JobId(id),
        user: row.get("user")?,
        function: row.get("function")?,
        interface: row.get("interface")?,
        call: row.get("call")?,
        repeatable: row.get("repeatable")?,
        big_endian: row.get("big_endian")?,
        state,
        submitted: number("submitted")?,
        started: optional("started")?,
        ended: optional("ended")?,
        keep: number("keep_s")?,
        arguments: stored("argument_bytes", "argument_sum")?,
        result: stored("result_bytes", "result_sum")?,
        exec: optional("exec_ns")?,
        failure,
    })
}

fn damaged(what: &str) -> JournalError {
    JournalError::Damaged(what.to_string())
}

fn insert(transaction: &Transaction<'_>, record: &Record) -> rusqlite::Result<u64> {
    transaction
        .prepare_cached(
            "INSERT INTO jobs (id, user, function, interface, call, repeatable, big_endian,
                state, submitted, keep_s, argument_bytes, argument_sum, result_bytes, result_sum)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            record.id.0,
            record.user,
            record.function,
            record.interface,
            record.call,
            record.repeatable,
            record.big_endian,
            record.state as i64,
            record.submitted as i64,
            record.keep as i64,
            record.arguments.bytes as i64,
            record.arguments.sum,
            record.result.bytes as i64,
            record.result.sum,
        ])?;
    Ok(transaction.last_insert_rowid() as u64)
}

/// Applies a change if the recorded state allows it. Returns `None` if the call is unknown.
fn apply(
    transaction: &Transaction<'_>,
    id: JobId,
    change: Change,
    mut outcome: Outcome,
) -> Result<Option<Changed>, JournalError> {
    let known: Option<i64> = transaction
        .prepare_cached("SELECT state FROM jobs WHERE id = ?")?
        .query_row([id.0], |row| row.get(0))
        .optional()?;
    let Some(known) = known else { return Ok(None) };
    let from = u8::try_from(known).ok().and_then(DurableState::from_repr);
    let from = from.ok_or_else(|| damaged("a state that is not known"))?;
    let at = unix_ms();
    let Some(to) = next(from, change) else {
        return Ok(Some(Changed {
            change,
            state: from,
            at,
            applied: false,
            outcome: Outcome::default(),
        }));
    };
    if let Some(failure) = &mut outcome.failure {
        failure.message = failure.message.chars().take(FAILURE_CHARS).collect();
    }
    let time = Some(at as i64);
    transaction
        .prepare_cached(
            "UPDATE jobs SET state = ?2, started = coalesce(?3, started), ended = ?4,
                result_bytes = coalesce(?5, result_bytes), result_sum = coalesce(?6, result_sum),
                exec_ns = ?7, failure_kind = ?8, failure = ?9
             WHERE id = ?1",
        )?
        .execute(params![
            id.0,
            to as i64,
            time.filter(|_| to == DurableState::Running),
            time.filter(|_| to.is_over()),
            outcome.result.map(|result| result.bytes as i64),
            outcome.result.map(|result| result.sum),
            outcome.exec.map(|exec| exec as i64),
            outcome.failure.as_ref().map(|failure| failure.kind as u8),
            outcome.failure.as_ref().map(|failure| &failure.message),
        ])?;
    Ok(Some(Changed {
        change,
        state: to,
        at,
        applied: true,
        outcome,
    }))
}

fn forget(transaction: &Transaction<'_>, id: JobId) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached("DELETE FROM jobs WHERE id = ?")?;
    statement.execute([id.0]).map(drop)
}

/// The journal's thread.
pub(super) struct Journal {
    entries: Option<Sender<Entry>>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    pub(super) fn start(
        database: Connection,
        replies: &Sender<Reply>,
        doorbell: &Arc<OwnedFd>,
    ) -> std::io::Result<Journal> {
        let (entries, queue) = channel();
        let (replies, doorbell) = (replies.clone(), doorbell.clone());
        let mut recorder = Recorder {
            database,
            queue,
            replies,
            doorbell,
        };
        let thread = std::thread::Builder::new()
            .name("farcall-journal".into())
            .spawn(move || recorder.run())?;
        Ok(Journal {
            entries: Some(entries),
            thread: Some(thread),
        })
    }

    pub(super) fn record(&self, entry: Entry) {
        if let Some(entries) = &self.entries {
            // The thread lives as long as this does.
            let _ = entries.send(entry);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.entries = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Recorder {
    database: Connection,
    queue: Receiver<Entry>,
    replies: Sender<Reply>,
    doorbell: Arc<OwnedFd>,
}

impl Recorder {
    fn run(&mut self) {
        let mut batch = Vec::new();
        // Entries that the disk refused wait for a while; new ones do not.
        while let Some(entry) = self.next(batch.is_empty()) {
            batch.extend(entry);
            batch.extend(self.queue.try_iter().take(BATCH));
            match self.write(&batch) {
                Ok(replies) => {
                    batch.clear();
                    self.answer(replies);
                }
                Err(error) => self.refuse(&mut batch, &error),
            }
        }
    }

    /// The next entry. `Some(None)` after a while if others wait; `None` when the server ends.
    fn next(&self, waits: bool) -> Option<Option<Entry>> {
        if waits {
            return self.queue.recv().ok().map(Some);
        }
        match self.queue.recv_timeout(PATIENCE) {
            Ok(entry) => Some(Some(entry)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn write(&mut self, batch: &[Entry]) -> Result<Vec<Reply>, JournalError> {
        let transaction = self.database.transaction()?;
        let mut replies = Vec::with_capacity(batch.len());
        for entry in batch {
            replies.push(match entry {
                Entry::Insert(record) => Reply::Inserted {
                    id: record.id,
                    number: Ok(insert(&transaction, record)?),
                },
                Entry::Change {
                    id,
                    change,
                    outcome,
                } => Reply::Changed {
                    id: *id,
                    changed: apply(&transaction, *id, *change, outcome.clone())?,
                },
                Entry::Forget(id) => {
                    forget(&transaction, *id)?;
                    Reply::Forgotten { id: *id }
                }
            });
        }
        transaction.commit()?;
        Ok(replies)
    }

    /// Handles a batch that the disk refused: new calls fail, and the rest is tried again.
    fn refuse(&mut self, batch: &mut Vec<Entry>, error: &JournalError) {
        tracing::error!("the journal of durable calls cannot be written: {error}");
        let mut replies = Vec::new();
        batch.retain(|entry| {
            let Entry::Insert(record) = entry else {
                return true;
            };
            let text = format!("the server cannot record the call: {error}");
            replies.push(Reply::Inserted {
                id: record.id,
                number: Err(Failure::new(FailureKind::StorageFault, text)),
            });
            false
        });
        self.answer(replies);
    }

    fn answer(&self, replies: Vec<Reply>) {
        for reply in replies {
            // When the server ends, nobody listens any more.
            let _ = self.replies.send(reply);
        }
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
