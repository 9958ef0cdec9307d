//! Judges the state of a gang job from its context, which is recorded when the gang job is at rest.
//! It only looks at what each process waits for and which messages are on their way. A deadlock is
//! reported with its circle of processes, and never if one of them can still continue.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What one process waits for on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing: it runs, or sleeps for a reason of its own.
    No,
    /// A message from any rank.
    Any,
    /// A message from this rank.
    From(u16),
    /// Space in the FIFO of this rank.
    RoomAt(u16),
    /// A message from the first rank, and space in the FIFO of the second.
    Both(u16, u16),
    /// Nothing: it has ended.
    Ended,
}

/// One process, with the messages that are queued for it on the channel on which it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What it waits for.
    pub waits: Waits,
    /// Ranks whose messages are in its receive FIFO, or in a send FIFO on their way to it.
    pub pending: Vec<u16>,
    /// Ranks that have space for the message it wants to send.
    pub room: Vec<u16>,
}

/// Why a process can never continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The rank of the process.
    pub rank: u16,
    /// The rank that it waits for.
    pub on: u16,
    /// True if it waits for space at that rank, false if it waits for a message from there.
    pub wants_room: bool,
}

/// The state of a gang job as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Global {
    /// Some process runs.
    Running,
    /// All processes wait, and some of them can continue.
    Idle,
    /// All processes have ended or wait for a message from any rank, and there is none. Nothing can
    /// ever happen again.
    Terminated,
    /// These processes wait for each other in a circle, or the last one waits for one that has
    /// ended.
    Deadlocked(Vec<Blocked>),
    /// A deadlock in which at least one process waits for a full receive FIFO.
    Stalled(Vec<Blocked>),
    /// These processes poll, and can never continue unless they do something else than it seems.
    Suspected(Vec<u16>),
}

/// Judges a gang job by its processes, in the order of their ranks. Those that poll count as
/// running.
pub fn judge(processes: &[Process]) -> Global {
    let live = live(processes, &|_, _| true);
    let is_dead = |rank: usize| !live.contains(&rank);
    if let Some(circle) = circle(processes, &is_dead) {
        let stalled = circle.iter().any(|blocked| blocked.wants_room);
        return match stalled {
            true => Global::Stalled(circle),
            false => Global::Deadlocked(circle),
        };
    }
    if processes.iter().any(|process| process.waits == Waits::No) {
        return Global::Running;
    }
    match live.is_empty() {
        true => Global::Terminated,
        false => Global::Idle,
    }
}

/// The processes that might continue: those that can now, and those that wait for such processes.
/// `runs` says of one that waits for nothing whether it might, if these others might.
pub(crate) fn live(
    processes: &[Process],
    runs: &dyn Fn(usize, &BTreeSet<usize>) -> bool,
) -> BTreeSet<usize> {
    let mut live = BTreeSet::new();
    loop {
        let before = live.len();
        for (rank, process) in processes.iter().enumerate() {
            let lives = |other: &u16| live.contains(&usize::from(*other));
            let comes = |source: u16| process.pending.contains(&source) || lives(&source);
            let fits = |target: u16| process.room.contains(&target) || lives(&target);
            let goes_on = match process.waits {
                Waits::No => runs(rank, &live),
                Waits::Ended => false,
                Waits::Any => {
                    !process.pending.is_empty() || live.iter().any(|other| *other != rank)
                }
                Waits::From(source) => comes(source),
                Waits::RoomAt(target) => fits(target),
                Waits::Both(source, target) => comes(source) && fits(target),
            };
            if goes_on {
                live.insert(rank);
            }
        }
        if live.len() == before {
            return live;
        }
    }
}

/// Follows the blocked processes from one to the next until one repeats or has ended.
fn circle(processes: &[Process], is_dead: &dyn Fn(usize) -> bool) -> Option<Vec<Blocked>> {
    let on = |rank: usize| -> Option<Blocked> {
        let process = &processes[rank];
        let blocked = |on: u16, wants_room| Blocked {
            rank: rank as u16,
            on,
            wants_room,
        };
        let message = |source: u16| {
            let comes = process.pending.contains(&source) || !is_dead(source.into());
            (!comes).then(|| blocked(source, false))
        };
        let room = |target: u16| {
            let fits = process.room.contains(&target) || !is_dead(target.into());
            (!fits).then(|| blocked(target, true))
        };
        match process.waits {
            Waits::No | Waits::Any | Waits::Ended => None,
            Waits::From(source) => message(source),
            Waits::RoomAt(target) => room(target),
            Waits::Both(source, target) => message(source).or_else(|| room(target)),
        }
    };
    let starts = (0..processes.len()).filter(|rank| is_dead(*rank));
    let mut best = None;
    for start in starts {
        let mut path: Vec<Blocked> = Vec::new();
        let mut rank = start;
        while let Some(blocked) = on(rank) {
            if let Some(place) = path.iter().position(|seen| usize::from(seen.rank) == rank) {
                return Some(path.split_off(place));
            }
            path.push(blocked);
            rank = blocked.on.into();
            if rank >= processes.len() {
                break;
            }
        }
        if !path.is_empty() && best.is_none() {
            best = Some(path);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(waits: Waits) -> Process {
        Process {
            waits,
            pending: Vec::new(),
            room: Vec::new(),
        }
    }

    fn pending(waits: Waits, from: &[u16]) -> Process {
        Process {
            pending: from.to_vec(),
            ..process(waits)
        }
    }

    fn ranks(circle: &[Blocked]) -> Vec<(u16, u16)> {
        circle
            .iter()
            .map(|blocked| (blocked.rank, blocked.on))
            .collect()
    }

    #[test]
    fn a_token_ring_without_a_token_is_a_deadlock_with_its_cycle() {
        let ring = [2, 0, 1].map(|source| process(Waits::From(source)));
        let Global::Deadlocked(circle) = judge(&ring) else {
            panic!("{:?}", judge(&ring));
        };
        assert_eq!(ranks(&circle), [(0, 2), (2, 1), (1, 0)]);
    }

    #[test]
    fn a_token_in_transit_is_not_a_deadlock() {
        let mut ring = [2, 0, 1].map(|source| process(Waits::From(source)));
        ring[1] = pending(Waits::From(0), &[0]);
        assert_eq!(judge(&ring), Global::Idle);
        ring[1] = process(Waits::No);
        assert_eq!(judge(&ring), Global::Running);
    }

    #[test]
    fn a_deadlock_among_some_is_seen_while_others_run() {
        let job = [
            process(Waits::From(1)),
            process(Waits::From(0)),
            process(Waits::No),
        ];
        assert!(matches!(judge(&job), Global::Deadlocked(_)));
    }

    #[test]
    fn waiting_for_one_that_has_ended_is_a_deadlock() {
        let job = [process(Waits::Ended), process(Waits::From(0))];
        let Global::Deadlocked(circle) = judge(&job) else {
            panic!("{:?}", judge(&job));
        };
        assert_eq!(ranks(&circle), [(1, 0)]);
    }

    #[test]
    fn two_full_receivers_are_a_stall() {
        let job = [process(Waits::RoomAt(1)), process(Waits::RoomAt(0))];
        let Global::Stalled(circle) = judge(&job) else {
            panic!("{:?}", judge(&job));
        };
        assert_eq!(ranks(&circle), [(0, 1), (1, 0)]);
        let free = Process {
            room: [1].into(),
            ..process(Waits::RoomAt(1))
        };
        assert_eq!(judge(&[free, process(Waits::RoomAt(0))]), Global::Idle);
    }

    #[test]
    fn a_job_has_terminated_if_all_wait_for_any_message_and_there_is_none() {
        let mut job = [
            process(Waits::Any),
            process(Waits::Any),
            process(Waits::Ended),
        ];
        assert_eq!(judge(&job), Global::Terminated);
        job[0] = pending(Waits::Any, &[1]);
        assert_eq!(judge(&job), Global::Idle);
    }
}
