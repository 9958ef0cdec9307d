//! The rule by which all processes of a gang job come to rest between two steps, so that its state
//! can be taken. Messages between them need not have arrived, because the saved channels hold them.
//! So the processes may rest at different steps.
//!
//! Each process that is asked rests at the end of its step. A process can wait within its step for
//! a message, or for space, of one that rests; then that one does another step. No process does
//! more steps than others wait for. Let the steps of the same number belong together: what a
//! process receives in its step `k` was sent in a step `k` or earlier. Then nobody goes beyond the
//! highest step that some process was in when the first was asked, and all come to rest there at
//! the latest. Programs of another form usually come to rest too, but this is not certain, so the
//! caller bounds the time.

use crate::{Process, Waits};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Where a process stands among the steps of its program. A process writes the number into the
/// memory that it shares with its daemon, and daemons send it to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[repr(u32)]
pub enum Phase {
    /// It has not registered its state.
    #[default]
    #[n(0)]
    Unregistered = 0,
    /// It does a step.
    #[n(1)]
    InStep = 1,
    /// It rests between two steps, because it was asked to.
    #[n(2)]
    Resting = 2,
    /// It rests and has written its state.
    #[n(3)]
    Saved = 3,
    /// It rests and could not write its state.
    #[n(4)]
    Failed = 4,
    /// It has done all its steps, or has ended.
    #[n(5)]
    Finished = 5,
}

impl Phase {
    /// The phase with a number that a process has written. An unknown number counts as a process
    /// that has not registered its state.
    pub fn of(number: u32) -> Phase {
        match number {
            1 => Phase::InStep,
            2 => Phase::Resting,
            3 => Phase::Saved,
            4 => Phase::Failed,
            5 => Phase::Finished,
            _ => Phase::Unregistered,
        }
    }
}

/// One process, when the gang job is not running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it stands.
    pub phase: Phase,
    /// Number of steps that it has done.
    pub steps: u64,
    /// What it waits for.
    pub process: Process,
}

/// What to do next for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait: a process still runs, or what it waits for is on its way.
    Wait,
    /// These ranks must do another step, because others wait for them.
    Step(Vec<u16>),
    /// All rest: let them write their states.
    Save,
    /// All have written their states: take what their channels hold.
    Collect,
    /// This rank has done all its steps, so that no state can be taken any more.
    Finished(u16),
    /// This rank could not write its state.
    Failed(u16),
    /// This rank has not registered its state.
    Unregistered(u16),
}

/// Decides what to do next. The processes are in the order of their ranks.
pub fn next(standings: &[Standing]) -> Next {
    let with = |phase: Phase| {
        let mut ranks = (0u16..).zip(standings);
        ranks
            .find(|(_, one)| one.phase == phase)
            .map(|(rank, _)| rank)
    };
    if let Some(rank) = with(Phase::Finished) {
        return Next::Finished(rank);
    }
    if let Some(rank) = with(Phase::Failed) {
        return Next::Failed(rank);
    }
    if let Some(rank) = with(Phase::Unregistered) {
        return Next::Unregistered(rank);
    }
    if standings.iter().all(|one| one.phase == Phase::Saved) {
        return Next::Collect;
    }
    if with(Phase::InStep).is_some() {
        let awaited = awaited(standings);
        return match awaited.is_empty() {
            true => Next::Wait,
            false => Next::Step(awaited.into_iter().collect()),
        };
    }
    // Some write their states now, if not all rest.
    match standings.iter().all(|one| one.phase == Phase::Resting) {
        true => Next::Save,
        false => Next::Wait,
    }
}

/// The ranks that rest and that others wait for.
fn awaited(standings: &[Standing]) -> BTreeSet<u16> {
    let rests = |rank: &u16| {
        let one = standings.get(usize::from(*rank));
        one.is_some_and(|one| one.phase == Phase::Resting)
    };
    let in_step = || standings.iter().filter(|one| one.phase == Phase::InStep);
    let runs = |one: &Standing| one.process.waits == Waits::No;
    let mut awaited = BTreeSet::new();
    for Standing { process, .. } in in_step() {
        let message = |from: &u16| !process.pending.contains(from);
        let room = |at: &u16| !process.room.contains(at);
        match process.waits {
            Waits::From(from) => awaited.extend(Some(from).filter(message)),
            Waits::RoomAt(at) => awaited.extend(Some(at).filter(room)),
            Waits::Both(from, at) => {
                awaited.extend(Some(from).filter(message));
                awaited.extend(Some(at).filter(room));
            }
            Waits::Any if process.pending.is_empty() && !in_step().any(runs) => {
                // Any may be the sender: those that are the most behind.
                let resting = || (0u16..).zip(standings).filter(|(rank, _)| rests(rank));
                let least = resting().map(|(_, one)| one.steps).min();
                let behind = resting().filter(|(_, one)| Some(one.steps) == least);
                awaited.extend(behind.map(|(rank, _)| rank));
            }
            Waits::Any | Waits::No | Waits::Ended => {}
        }
    }
    awaited.retain(rests);
    awaited
}

/// Why the processes do not come to rest, for the user.
pub fn describe(standings: &[Standing]) -> String {
    let ranks = (0u16..).zip(standings);
    let mut busy = ranks.filter(|(_, one)| one.phase == Phase::InStep);
    let Some((rank, one)) = busy.next() else {
        return String::from("its processes do not write their states");
    };
    let does = match one.process.waits {
        Waits::No | Waits::Ended => String::from("has not ended it"),
        Waits::Any => String::from("waits for a message from any rank"),
        Waits::From(from) => format!("waits for a message from rank {from}"),
        Waits::RoomAt(at) => format!("waits for space in the full channel of rank {at}"),
        Waits::Both(from, at) => {
            format!("waits for a message from rank {from} and for space at rank {at}")
        }
    };
    let more = match busy.count() {
        0 => String::new(),
        more => format!(" ({more} other ranks are within a step too)"),
    };
    format!("rank {rank} is in step {} and {does}{more}", one.steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn standing(phase: Phase, steps: u64, waits: Waits) -> Standing {
        Standing {
            phase,
            steps,
            process: Process {
                waits,
                pending: Vec::new(),
                room: Vec::new(),
            },
        }
    }

    #[test]
    fn a_phase_has_the_same_number_in_memory_and_in_messages() {
        for number in 0..=5 {
            let mut bytes = Vec::new();
            minicbor::encode(Phase::of(number), &mut bytes).unwrap();
            assert_eq!((bytes[1], Phase::of(number) as u32), (number as u8, number));
        }
        assert_eq!(Phase::of(6), Phase::Unregistered);
    }

    #[test]
    fn one_that_rests_does_a_step_for_one_that_waits_for_it() {
        let mut all = vec![
            standing(Phase::Resting, 4, Waits::No),
            standing(Phase::InStep, 4, Waits::From(0)),
            standing(Phase::Resting, 5, Waits::No),
        ];
        assert_eq!(next(&all), Next::Step(vec![0]));
        // The message is on its way.
        all[1].process.pending = vec![0];
        assert_eq!(next(&all), Next::Wait);
        all[1].process.pending.clear();
        // Nobody can help one that waits for one in a step.
        all[0].phase = Phase::InStep;
        assert_eq!(next(&all), Next::Wait);
        all[1].process.waits = Waits::Both(0, 2);
        assert_eq!(next(&all), Next::Step(vec![2]));
        all[1].process.room = vec![2];
        assert_eq!(next(&all), Next::Wait);
    }

    #[test]
    fn those_behind_step_for_one_that_waits_for_anybody() {
        let mut all = vec![
            standing(Phase::Resting, 4, Waits::No),
            standing(Phase::InStep, 4, Waits::Any),
            standing(Phase::Resting, 3, Waits::No),
            standing(Phase::Resting, 3, Waits::No),
        ];
        assert_eq!(next(&all), Next::Step(vec![2, 3]));
        all[0].phase = Phase::InStep;
        assert_eq!(next(&all), Next::Wait, "one that runs may be the sender");
    }

    #[test]
    fn the_state_is_taken_when_all_rest() {
        let mut all = vec![standing(Phase::Resting, 1, Waits::No); 3];
        assert_eq!(next(&all), Next::Save);
        all[1].phase = Phase::Saved;
        assert_eq!(next(&all), Next::Wait);
        all.iter_mut().for_each(|one| one.phase = Phase::Saved);
        assert_eq!(next(&all), Next::Collect);
        all[2].phase = Phase::Failed;
        assert_eq!(next(&all), Next::Failed(2));
        all[1].phase = Phase::Finished;
        assert_eq!(next(&all), Next::Finished(1));
        let all = [standing(Phase::Unregistered, 0, Waits::No)];
        assert_eq!(next(&all), Next::Unregistered(0));
    }
}
