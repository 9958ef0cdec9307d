//! The journal of Farcall 0.1, in an SQLite database: how its calls get into the logs.
//!
//! The database and the files of its calls are kept under other names.

use super::DiskError;
use super::files::Folder;
use super::guard::sync_folder;
use super::logs::Book;
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use farcall_server_proto::ledger::Moment;
use farcall_server_proto::{Content, MOST_SHORT, Record, Stored};
use rusqlite::{Connection, Row};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The database, and the folder with the arrays of its calls.
const DATABASE: &str = "jobs.sqlite";
const ARRAYS: &str = "jobs";
/// What their names begin with after their calls are in the logs.
const KEPT: &str = "migrated";
/// Version of the tables.
const VERSION: i64 = 1;
/// Bytes after which the calls so far are written.
const WRITTEN_AT_ONCE: usize = 4 << 20;

/// Whether the folder has a database whose calls are not in the logs.
pub(crate) fn is_there(folder: &Path) -> bool {
    folder.join(DATABASE).exists()
}

/// Brings the calls of the database into the logs. Returns the calls that were new.
///
/// # Errors
/// The database is damaged or used by another server, or the disk cannot be written. Then nothing
/// is lost, and the next start tries it again.
pub(super) fn migrate(
    folder: &Path,
    book: &mut Book,
    files: &Folder,
    now: Moment,
) -> Result<Vec<Record>, DiskError> {
    let records = read_database(&folder.join(DATABASE))?;
    let count = records.len();
    let arrays = folder.join(ARRAYS);
    let mut added = Vec::new();
    for mut record in records {
        record.kept_from = record.ended.map(|_| now.served);
        if !book.ledger.has(record.id) {
            let [arguments, result] = [Content::Arguments, Content::Result].map(|content| {
                let stored = record.stored(content).bytes;
                let is_short = (1..=MOST_SHORT).contains(&stored) && record.needs(content);
                let file = Folder::named(&arrays, record.id, content);
                is_short.then(|| fs::read(file).ok()).flatten()
            });
            record = book.ledger.adopt(record, arguments, result, now);
            added.push(record.clone());
        }
        if book.ledger.batch().len() > WRITTEN_AT_ONCE {
            book.write_batch()?;
        }
        for content in [Content::Arguments, Content::Result] {
            if record.needs(content) && record.stored(content).bytes > MOST_SHORT {
                files.adopt(&arrays, content, &record, book.ledger.folder())?;
            }
        }
    }
    book.write_batch()?;
    for suffix in ["-wal", "-shm", ""] {
        let from = folder.join(format!("{DATABASE}{suffix}"));
        if from.exists() {
            fs::rename(from, folder.join(format!("{KEPT}.{DATABASE}{suffix}")))?;
        }
    }
    if arrays.exists() {
        let _ = fs::rename(&arrays, folder.join(format!("{KEPT}.{ARRAYS}")));
    }
    sync_folder(folder)?;
    tracing::info!(
        "{count} durable calls of an earlier version are now in the logs; {KEPT}.{DATABASE} and \
         {KEPT}.{ARRAYS} in {} have the old copy, and can be deleted",
        folder.display()
    );
    Ok(added)
}

fn read_database(path: &Path) -> Result<Vec<Record>, DiskError> {
    let database = Connection::open(path)?;
    // A server that uses it does so for as long as it runs.
    database.busy_timeout(Duration::ZERO)?;
    database.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let sound: String = database.pragma_query_value(None, "integrity_check", |row| row.get(0))?;
    if sound != "ok" {
        return Err(damaged(&sound));
    }
    match database.pragma_query_value(None, "user_version", |row| row.get(0))? {
        0 => Ok(Vec::new()),
        VERSION => read_all(&database),
        other => Err(DiskError::Newer(other)),
    }
}

fn read_all(database: &Connection) -> Result<Vec<Record>, DiskError> {
    let mut statement = database.prepare("SELECT * FROM jobs ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(read(row)?);
    }
    Ok(records)
}

/// Reads a row. An impossible value is an error.
fn read(row: &Row<'_>) -> Result<Record, DiskError> {
    let id: Vec<u8> = row.get("id")?;
    let id = id
        .try_into()
        .map_err(|_| damaged("an id of another length"))?;
    let number = |name: &str| -> Result<u64, DiskError> {
        u64::try_from(row.get::<_, i64>(name)?).map_err(|_| damaged(name))
    };
    let optional = |name: &str| -> Result<Option<u64>, DiskError> {
        let value = row.get::<_, Option<i64>>(name)?.map(u64::try_from);
        value.transpose().map_err(|_| damaged(name))
    };
    let stored = |bytes: &str, sum: &str| -> Result<Stored, DiskError> {
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
        user: row.get::<_, String>("user")?.into(),
        function: row.get::<_, String>("function")?.into(),
        interface: row.get::<_, String>("interface")?.into(),
        call: row.get("call")?,
        repeatable: row.get("repeatable")?,
        big_endian: row.get("big_endian")?,
        state,
        submitted: number("submitted")?,
        started: optional("started")?,
        ended: optional("ended")?,
        kept_from: None,
        keep: number("keep_s")?,
        arguments: stored("argument_bytes", "argument_sum")?,
        result: stored("result_bytes", "result_sum")?,
        exec: optional("exec_ns")?,
        failure,
        made: None,
    })
}

fn damaged(what: &str) -> DiskError {
    DiskError::Damaged(what.to_string())
}

#[cfg(test)]
mod tests;
