//! Rebuilds the ledger and the records of durable calls from the merged frames of both logs.
//! `log::merge` decides which frames count; this module decides what they mean. A call is reported
//! as damaged only if no later frame states its newest state. If the newest state of a call is
//! damaged and the call had not ended, the call fails, because it might do harm to run it twice.

use super::{CallPayload, Known, Ledger, Spot, Status, spot};
use crate::lifecycle::Change;
use crate::log::{HEAD_BYTES, Head, Kind, Merged, Place, Verdict};
use crate::map::Map;
use crate::record::{Entry, Outcome, Record, Texts};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use std::collections::BTreeMap;

/// What is damaged in both logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The newest state of this call. Its record says so from now on.
    State(JobId),
    /// The record of this call.
    Call(JobId),
    /// A frame of which nothing is known.
    Unknown(u64),
}

/// What the logs of a folder say.
#[derive(Debug)]
pub struct Rebuilt {
    /// The ledger. If the logs are not `is_sound`, the offsets of its frames are sequence numbers,
    /// and the logs must be written anew.
    pub ledger: Ledger,
    /// The calls in the order of their submission.
    pub records: Vec<Record>,
    /// What is damaged in both logs.
    pub damages: Vec<Damage>,
    /// Changes to record: calls that are damaged, and calls that ran when the server ended.
    pub changes: Vec<Entry>,
    /// Whether both logs have the same bytes, and nothing is damaged.
    pub is_sound: bool,
}

/// Reads the frames of merged logs. `read` gives the bytes of a frame with its head, from the log
/// that has it.
///
/// # Errors
/// The first error of `read`.
pub fn rebuild<E>(
    folder: u64,
    merged: &Merged,
    mut read: impl FnMut(&Place) -> Result<Vec<u8>, E>,
) -> Result<Rebuilt, E> {
    let mut fold = Fold {
        is_sound: merged.missing.is_empty()
            && merged.verdicts.iter().all(|v| *v == Verdict::Whole)
            && merged.frames.iter().all(|place| spot(place).is_some()),
        ..Fold::default()
    };
    let missing: BTreeMap<u64, Option<Head>> = merged
        .missing
        .iter()
        .map(|one| (one.seq, one.head))
        .collect();
    let mut missing = missing.into_iter().peekable();
    for place in &merged.frames {
        while let Some((seq, head)) = missing.next_if(|(seq, _)| *seq < place.head.seq) {
            fold.lacks(seq, head);
        }
        let bytes = match place.head.length {
            0 => Vec::new(),
            _ => read(place)?,
        };
        fold.add(place, bytes.get(HEAD_BYTES..).unwrap_or_default());
    }
    for (seq, head) in missing {
        fold.lacks(seq, head);
    }
    Ok(fold.end(folder, merged))
}

#[derive(Default)]
struct Fold {
    is_sound: bool,
    calls: Map<JobId, Known>,
    records: Map<JobId, Record>,
    texts: Texts,
    /// Damage of calls; `true` if nothing is left of the record.
    damaged: BTreeMap<JobId, bool>,
    unknown: Vec<u64>,
    last_number: u64,
    length: u64,
}

impl Fold {
    fn lacks(&mut self, seq: u64, head: Option<Head>) {
        match head {
            Some(head) if head.kind == Kind::Status => {
                self.damaged.entry(head.id).or_insert(false);
            }
            Some(head) if head.kind == Kind::Call => {
                self.damaged.insert(head.id, true);
            }
            _ => self.unknown.push(seq),
        }
    }

    fn add(&mut self, place: &Place, payload: &[u8]) {
        let (id, seq) = (place.head.id, place.head.seq);
        let here = spot(place).filter(|_| self.is_sound).unwrap_or(Spot {
            at: seq,
            bytes: place.head.bytes(),
        });
        self.length = here.at + here.bytes;
        match place.head.kind {
            Kind::Snapshot => self.last_number = self.last_number.max(place.head.last_number()),
            Kind::Call => match minicbor::decode::<CallPayload>(payload) {
                Ok(CallPayload { record, .. }) => self.add_call(id, record, here),
                Err(_) => {
                    self.damaged.insert(id, true);
                }
            },
            Kind::Status => match minicbor::decode::<Status>(payload) {
                Ok(status) => self.add_status(id, status, here),
                Err(_) => {
                    self.damaged.entry(id).or_insert(false);
                }
            },
            Kind::Forget => {
                self.calls.remove(&id);
                self.records.remove(&id);
                self.damaged.remove(&id);
            }
            Kind::Clock | Kind::Arguments | Kind::Result => {}
        }
    }

    fn add_call(&mut self, id: JobId, mut record: Record, here: Spot) {
        self.texts.share(&mut record);
        self.last_number = self.last_number.max(record.number);
        self.damaged.remove(&id);
        let known = Known {
            number: record.number,
            state: record.state,
            started: record.started,
            call: here,
            status: None,
        };
        self.calls.insert(id, known);
        self.records.insert(id, record);
    }

    /// A state says everything that changed before it, so damage before it does no harm.
    fn add_status(&mut self, id: JobId, status: Status, here: Spot) {
        let (Some(known), Some(record)) = (self.calls.get_mut(&id), self.records.get_mut(&id))
        else {
            return;
        };
        self.damaged.remove(&id);
        (known.state, known.started) = (status.state, status.started);
        known.status = Some(here);
        status.apply(record);
    }

    fn end(self, folder: u64, merged: &Merged) -> Rebuilt {
        let mut ledger = Ledger::new(folder);
        ledger.needed = self.calls.values().map(Known::bytes).sum();
        ledger.calls = self.calls;
        ledger.last_number = self.last_number;
        ledger.next = merged.last + 1;
        if let Some(beyond) = merged.missing.last() {
            ledger.next = ledger.next.max(beyond.seq + 1);
        }
        ledger.length = if self.is_sound { self.length } else { 0 };
        let mut records: Vec<Record> = self.records.into_values().collect();
        records.sort_by_key(|record| record.number);
        let unknown = self.unknown.into_iter().map(Damage::Unknown);
        let damages: Vec<Damage> = self
            .damaged
            .into_iter()
            .map(|(id, is_lost)| match is_lost {
                true => Damage::Call(id),
                false => Damage::State(id),
            })
            .chain(unknown)
            .collect();
        let changes = changes(&records, &damages);
        Rebuilt {
            ledger,
            records,
            damages,
            changes,
            is_sound: self.is_sound,
        }
    }
}

fn changes(records: &[Record], damages: &[Damage]) -> Vec<Entry> {
    let of = |record: &Record| {
        let is_damaged = damages.contains(&Damage::State(record.id));
        if is_damaged && !record.state.is_over() {
            return Some(damaged(record));
        }
        Entry::restart(record)
    };
    records.iter().filter_map(of).collect()
}

fn damaged(record: &Record) -> Entry {
    let text = format!(
        "the newest record of this call is damaged in both logs of the state folder, so its \
         outcome is not known; it was {} before; submit the call again if running it twice does \
         no harm",
        DurableState::name(record.state)
    );
    Entry::Change {
        id: record.id,
        change: Change::Fail,
        outcome: Outcome {
            failure: Some(Failure::new(FailureKind::StorageFault, text)),
            ..Outcome::default()
        },
    }
}
