//! Merges the frames of two logs into one sequence, even if both are damaged. It decides which
//! frames are needed, which ones neither log has, and how sound each log is. It does not look at
//! what a frame says; `ledger` does. A log that lacks only frames of the last write, which was
//! never confirmed, is torn and not damaged: the server was killed.
//!
//! A write has many frames, and a disk that loses power may have any part of it. The next write
//! begins after this one is confirmed. So if neither log has a frame that no later write confirms,
//! the frames behind it are not confirmed either, and count no more than it.

use super::{Found, Head, Kind};
use crate::flaw::{Flaw, has};
use std::collections::BTreeMap;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its head.
    pub head: Head,
    /// Its offset in each log; `None` if the log does not have it.
    pub at: [Option<u64>; 2],
}

/// How sound a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has every frame.
    Whole,
    /// It lacks only what was never confirmed: the server was killed.
    Torn,
    /// It is damaged in this way.
    Damaged(String),
}

/// A frame that neither log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Its place in the sequence.
    pub seq: u64,
    /// Its head, if that can be read.
    pub head: Option<Head>,
}

/// Both logs as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The frames that are needed, in their order. The first one is a snapshot.
    pub frames: Vec<Place>,
    /// Frames that are needed and that neither log has.
    pub missing: Vec<Missing>,
    /// How sound the logs are.
    pub verdicts: [Verdict; 2],
    /// The last frame of the sequence, needed or not.
    pub last: u64,
    /// The longest time that a frame says the server has served.
    pub served: u64,
}

/// Merges the frames of two logs of this folder.
pub fn merge(folder: u64, logs: [&[Found]; 2]) -> Merged {
    let mut known: BTreeMap<u64, Place> = BTreeMap::new();
    let mut broken: BTreeMap<u64, Head> = BTreeMap::new();
    for (log, found) in logs.iter().enumerate() {
        if log == 1 && has(Flaw::ReadsOneLog) {
            continue;
        }
        for found in *found {
            let Found::Frame(head, at, is_whole) = *found else {
                continue;
            };
            if head.folder != folder {
                continue;
            }
            if !is_whole {
                broken.insert(head.seq, head);
                continue;
            }
            let new = Place {
                head,
                at: [None, None],
            };
            let place = known.entry(head.seq).or_insert(new);
            if place.head == head && place.at[log].is_none() {
                place.at[log] = Some(at);
            }
        }
    }
    let heads = known.values().map(|place| &place.head);
    let acked = heads.clone().map(|head| head.acked).max().unwrap_or(0);
    let served = heads.map(|head| head.served).max().unwrap_or(0);
    let confirmed = confirmed(&known, acked);
    drop_torn(&mut known, confirmed);
    let last = known.keys().next_back().copied().unwrap_or(0);
    let (frames, absent) = needed(&known, last.max(acked));
    let missing = absent.into_iter().map(|seq| Missing {
        seq,
        head: broken.get(&seq).copied(),
    });
    let known = Known {
        folder,
        frames: &frames,
        acked,
        confirmed,
    };
    let verdicts = [0, 1].map(|log| known.verdict(log, logs[log]));
    Merged {
        missing: missing.collect(),
        verdicts,
        last,
        served,
        frames,
    }
}

/// The last frame that was certainly confirmed. A snapshot is: a log that was written anew gets its
/// name when it is whole.
fn confirmed(known: &BTreeMap<u64, Place>, acked: u64) -> u64 {
    let heads = known.values().map(|place| &place.head);
    let snapshots = heads.filter(|head| head.kind == Kind::Snapshot);
    let whole = snapshots.map(|head| head.seq.saturating_add(head.count()));
    match whole.max() {
        Some(whole) => whole.max(acked),
        // Without a snapshot, nothing can be said.
        None => u64::MAX,
    }
}

/// Drops the frames of the last write that lie behind one that neither log has.
fn drop_torn(known: &mut BTreeMap<u64, Place>, confirmed: u64) {
    let mut torn = confirmed.saturating_add(1);
    while known.contains_key(&torn)
        && let Some(next) = torn.checked_add(1)
    {
        torn = next;
    }
    known.split_off(&torn);
}

/// The frames from the best snapshot on, and the numbers of those that are absent.
fn needed(known: &BTreeMap<u64, Place>, last: u64) -> (Vec<Place>, Vec<u64>) {
    let snapshots = known.values().rev();
    let snapshots = snapshots.filter(|place| place.head.kind == Kind::Snapshot);
    let mut best: Option<(Vec<Place>, Vec<u64>)> = None;
    // The ranges of newer snapshots repeat what the frames before them say.
    let mut repeats: Vec<(u64, u64)> = Vec::new();
    for snapshot in snapshots {
        let first = snapshot.head.seq;
        let is_needed = |seq: &u64| !repeats.iter().any(|(from, to)| (from..=to).contains(&seq));
        let frames: Vec<Place> = known
            .range(first..)
            .filter(|(seq, _)| is_needed(seq))
            .map(|(_, place)| *place)
            .collect();
        let absent = gaps(&frames, last).filter(is_needed).take(MOST_GAPS);
        let absent: Vec<u64> = absent.collect();
        let is_better = best
            .as_ref()
            .is_none_or(|(_, known)| absent.len() < known.len());
        if is_better {
            best = Some((frames, absent));
        }
        if best.as_ref().is_some_and(|(_, absent)| absent.is_empty()) {
            break;
        }
        repeats.push((first, first.saturating_add(snapshot.head.count())));
    }
    best.unwrap_or_else(|| (Vec::new(), (1..=last).take(MOST_GAPS).collect()))
}

/// Most absent frames that are named.
const MOST_GAPS: usize = 100_000;

/// The numbers between those of the frames, up to the last one.
fn gaps(frames: &[Place], last: u64) -> impl Iterator<Item = u64> {
    let seqs = frames.iter().map(|place| place.head.seq);
    let ends = seqs.clone().skip(1).chain([last.saturating_add(1)]);
    let pairs: Vec<(u64, u64)> = seqs.zip(ends).collect();
    pairs
        .into_iter()
        .flat_map(|(seq, next)| seq.saturating_add(1)..next)
}

/// What is known when the logs are judged.
struct Known<'f> {
    folder: u64,
    /// The frames that are needed.
    frames: &'f [Place],
    acked: u64,
    confirmed: u64,
}

impl Known<'_> {
    fn verdict(&self, log: usize, found: &[Found]) -> Verdict {
        let ours = |found: &Found| match found {
            Found::Frame(head, _, true) if head.folder == self.folder => Some(head.seq),
            _ => None,
        };
        let foreign = found.iter().any(
            |found| matches!(found, Found::Frame(head, _, true) if head.folder != self.folder),
        );
        if foreign {
            return Verdict::Damaged("it has records of another state folder".to_string());
        }
        if !found.iter().any(|found| ours(found).is_some()) && !self.frames.is_empty() {
            return Verdict::Damaged("it has no records".to_string());
        }
        let frames = self.frames.iter();
        let lacks = frames.filter(|place| place.at[log].is_none());
        let confirmed = lacks
            .clone()
            .filter(|place| place.head.seq <= self.acked)
            .count();
        if confirmed > 0 {
            return Verdict::Damaged(format!(
                "it lacks records that the other log has: {confirmed}"
            ));
        }
        // What lies behind belongs to a write that was not confirmed.
        let is_confirmed = |found: &Found| ours(found).is_some_and(|seq| seq <= self.confirmed);
        let end = found.iter().rposition(is_confirmed).unwrap_or(0);
        let damage = found[..end]
            .iter()
            .find(|found| matches!(found, Found::Damaged(..)));
        if let Some(Found::Damaged(from, to)) = damage {
            return Verdict::Damaged(format!("bytes {from} to {to} are damaged"));
        }
        let is_whole = !found.is_empty() && found.iter().all(|found| ours(found).is_some());
        match is_whole && lacks.count() == 0 {
            true => Verdict::Whole,
            false => Verdict::Torn,
        }
    }
}
