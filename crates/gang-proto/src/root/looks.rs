//! What a look at a gang job says of its processes that poll: those of MPI over channels. Two looks
//! with a slice in between tell who has polled all the time and found nothing. A look alone does
//! not, because such a process never sleeps.

use super::{Job, Root};
use crate::{JobId, JobSpec, Nanos, Poller, Pollers, Report, Wanted};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A process that has looked for messages so often between two looks polls all the time. One that
/// computes and looks now and then does not.
const POLLS: u64 = 1_000;
/// Processes of which it is said what they wait for, and things of each of them.
const SHOWN: usize = 16;
const SHOWN_OF_EACH: usize = 3;

/// A tag with this bit belongs to an operation of MPI itself, mostly a collective one: with Open
/// MPI it is negative, and with MPICH and Intel MPI it is in the context of those operations.
const INTERNAL: u32 = 1 << 31;

/// What the processes had said when the gang job was last at rest.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The slices that the gang job had had.
    slices: u64,
    /// The version and the polls of each process.
    polls: BTreeMap<u16, (u32, u64)>,
    /// Those that have polled all the time since the look before.
    pollers: Pollers,
}

/// What was seen of the processes of a gang job that poll, and who wants to know.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// What they have said at the last look.
    pub(super) last: Option<Look>,
    /// The front ends that wait for a second look.
    pub(super) again: Option<Again>,
    /// The progress of the gang job when its front end was told of a suspected deadlock. Without
    /// progress it is the same deadlock, even if a process had so little processor time in a slice
    /// that it did not look like one that polls.
    pub(super) told_at: Option<u64>,
}

/// Front ends that wait for a second look.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) fronts: Vec<u64>,
    /// When it is due, and the slices before it.
    at: Nanos,
    slices: u64,
}

impl Job {
    /// The processes that poll all the time, after this look. Without a slice since the last look
    /// they are the same.
    pub(super) fn pollers(&mut self, reports: &[Report]) -> Pollers {
        let said = reports.iter().filter_map(|report| report.polling.as_ref());
        let size = self.spec.processes;
        let said = said
            .flatten()
            .filter(|one| one.version != 0 && one.rank < size);
        let last = self.looks.last.as_ref();
        if last.is_none_or(|look| look.slices < self.slices) {
            let before = self.looks.last.take().unwrap_or_default();
            let mut look = Look {
                slices: self.slices,
                ..Look::default()
            };
            for one in said {
                look.polls.insert(one.rank, (one.version, one.polls));
                let is_same = |(version, polls): &(u32, u64)| {
                    *version == one.version && one.polls.wrapping_sub(*polls) >= POLLS
                };
                let is_poller = before.polls.get(&one.rank).is_some_and(is_same);
                let poller = poller(&one.wanted, one.has_others, size);
                if is_poller && poller != Poller::default() {
                    look.pollers.insert(one.rank, poller);
                }
            }
            self.looks.last = Some(look);
        }
        let last = self.looks.last.as_ref();
        last.map(|look| look.pollers.clone()).unwrap_or_default()
    }

    /// Whether only a second look can tell the state: a process says that it looks for something.
    pub(super) fn needs_second_look(&self, reports: &[Report]) -> bool {
        let said = reports.iter().filter_map(|report| report.polling.as_ref());
        let looks = said
            .flatten()
            .any(|one| !one.wanted.is_empty() || one.has_others);
        looks && !self.gets_no_slice()
    }

    /// Whether the second look for its front ends is due.
    pub(super) fn is_due_again(&self, now: Nanos) -> bool {
        let is_due =
            |again: &Again| now >= again.at && (again.slices < self.slices || self.gets_no_slice());
        self.looks.again.as_ref().is_some_and(is_due)
    }

    /// Whether a slice between two looks may never come: its user has stopped it, it ends, or it is
    /// interactive and has no work.
    fn gets_no_slice(&self) -> bool {
        self.is_stopped || self.is_ending || !self.has_work
    }

    /// The front ends that ask for its state.
    pub(super) fn take_asking(&mut self) -> Vec<u64> {
        let now = self.inspection.take();
        let now = now.into_iter().flat_map(|it| [it.fronts, it.again]);
        let later = self.looks.again.take().map(|again| again.fronts);
        now.chain(later).flatten().collect()
    }
}

fn poller(wanted: &[Wanted], has_others: bool, size: u16) -> Poller {
    let exists = |wanted: &&Wanted| wanted.rank().is_none_or(|rank| rank < size);
    let sound: Vec<Wanted> = wanted.iter().filter(exists).copied().collect();
    Poller {
        has_others: has_others || sound.len() < wanted.len(),
        wanted: sound,
    }
}

impl Root {
    /// Lets front ends wait for a second look at a gang job, at least one slice later.
    pub(super) fn look_again(&mut self, id: JobId, fronts: Vec<u64>) {
        let at = self.now.saturating_add(self.settings.watch);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let slices = job.slices;
        let again = job.looks.again.get_or_insert_with(|| Again {
            fronts: Vec::new(),
            at,
            slices,
        });
        again.fronts.extend(fronts);
    }
}

/// Why the state of a gang job of MPI that runs cannot be known, if that is so.
pub(super) fn unseen(spec: &JobSpec, reports: &[Report]) -> Option<&'static str> {
    let uses_mpi = reports.iter().any(|report| report.uses_mpi == Some(true));
    let said = reports.iter().filter_map(|report| report.polling.as_ref());
    let has_said = said.flatten().any(|one| one.version != 0);
    match spec.fabric {
        _ if !uses_mpi || has_said => None,
        Some(true) => Some(
            "cannot be seen: the MPI of this job has not begun to send over channels, or it uses \
             its own transport because it has no libfabric",
        ),
        _ => Some(
            "cannot be seen: MPI uses its own transport. Run the job with `--network farcall` to \
             see what its processes wait for",
        ),
    }
}

/// What these processes wait for, in words.
pub(super) fn waits(ranks: &[u16], pollers: &Pollers) -> String {
    let shown = ranks.iter().take(SHOWN).filter_map(|rank| {
        let poller = pollers.get(rank)?;
        Some(format!("rank {rank} waits for {}", things(poller)))
    });
    let mut shown: Vec<String> = shown.collect();
    if ranks.len() > SHOWN {
        shown.push(format!("and {} more", ranks.len() - SHOWN));
    }
    shown.join(", ")
}

fn things(poller: &Poller) -> String {
    let some = poller.wanted.iter().take(SHOWN_OF_EACH).map(thing);
    let mut some: Vec<String> = some.collect();
    let is_cut = poller.wanted.len() > SHOWN_OF_EACH;
    if is_cut || poller.wanted.is_empty() {
        some.push("something else".to_string());
    }
    some.join(" or ")
}

fn thing(wanted: &Wanted) -> String {
    match wanted {
        Wanted::Message(Some(source), tag) => {
            format!("a message from rank {source}{}", in_brackets(*tag))
        }
        Wanted::Message(None, tag) => format!("a message from any rank{}", in_brackets(*tag)),
        Wanted::Receive(target, tag) => {
            format!("rank {target} to receive a message{}", in_brackets(*tag))
        }
    }
}

fn in_brackets(tag: Option<u32>) -> String {
    match tag {
        None => String::new(),
        Some(tag) if tag & INTERNAL != 0 => " (in an operation of MPI)".to_string(),
        Some(tag) => format!(" (tag {tag})"),
    }
}
