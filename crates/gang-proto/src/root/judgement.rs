//! Judges the global state of a gang job from the reports of all nodes, which are made when the
//! gang job is at rest. `state` has the rules; this module asks for the reports and combines them.
//! With `detect_termination`, it ends a gang job only if the same state holds twice, with a slice
//! in between in which no message moved. A deadlock that is only suspected ends no gang job: its
//! front end learns of it.

use super::looks::{unseen, waits};
use super::{Job, Order, Root, SIGKILL};
use crate::{
    Blocked, FARCALL_FAILED, Global, JobId, JobSpec, Message, Pollers, Process, Report, Waits,
    judge, suspect, told,
};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Stands for no rank, in output that is of no process.
const NOBODY: u16 = u16::MAX;

/// The longest part of a message, unless a quarter of the FIFO is less. A receive FIFO with less
/// free space than a part counts as full.
const PART: u32 = 8 << 10;

/// A judgement that was requested.
#[derive(Debug)]
pub(super) struct Inspection {
    /// Front ends that wait for it; none if the daemon itself requested it.
    pub(super) fronts: Vec<u64>,
    /// Those for which it is the second look.
    pub(super) again: Vec<u64>,
    pub(super) awaited: Option<BTreeSet<u16>>,
    /// Whether the nodes were asked before the checkpoint in progress was wanted, so that they may
    /// tell of the end of the one before.
    pub(super) is_old: bool,
    pub(super) reports: Vec<Report>,
}

impl Root {
    /// Judges a gang job as soon as it is at rest. The gang job misses its next slice for this.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_inspect(&mut self, id: JobId, front: u64, user: u32) -> Result<(), String> {
        let job = self.owned(id, user)?;
        if job.spec.is_tree {
            return Err(format!(
                "gang job {id} runs with `--tree`: the daemon cannot see what its processes wait \
                 for"
            ));
        }
        if !job.unfilled.is_empty() {
            return Err(format!(
                "gang job {id} has not begun yet: its state is on its way"
            ));
        }
        // Each answer can be long, and the daemon keeps all that are not read.
        if job.is_asked_by(front) {
            return Err(format!(
                "this connection has asked for the state of gang job {id} already: wait for the \
                 answer"
            ));
        }
        let inspection = job.inspection.get_or_insert_with(Inspection::new);
        inspection.fronts.push(front);
        self.reconsider(id);
        Ok(())
    }

    /// Judges the gang jobs with `detect_termination`, and those that need a second look.
    pub(super) fn watch(&mut self) {
        let now = self.now;
        let mut any = false;
        for (id, job) in &mut self.jobs {
            let is_free = job.inspection.is_none() && job.unfilled.is_empty();
            let is_watched = job.spec.detect_termination && !job.is_stopped;
            let is_due = job.is_due_again(now);
            if is_free && (is_watched || is_due) {
                let inspection = job.inspection.insert(Inspection::new());
                if is_due {
                    inspection.again = job
                        .looks
                        .again
                        .take()
                        .map_or(Vec::new(), |again| again.fronts);
                }
                self.tree.set_runnable(*id, false);
                any = true;
            }
        }
        if any {
            self.turns.want();
        }
    }

    /// Asks the nodes for reports about the gang jobs that are now at rest.
    pub(super) fn begin_inspections(&mut self) {
        for (id, job) in &mut self.jobs {
            let Some(inspection) = &mut job.inspection else {
                continue;
            };
            if inspection.awaited.is_none() && !self.running.contains(id) {
                let nodes = job.placement.nodes.iter().copied();
                let is_there = |node: &u16| !self.nodes[usize::from(*node)].is_lost;
                inspection.awaited = Some(nodes.filter(is_there).collect());
                self.orders
                    .push_back(Order::Nodes(Message::Inspect(job.local)));
            }
        }
    }

    /// Handles a node's report about a gang job at rest.
    pub fn handle_inspected(&mut self, local: JobId, node: u16, report: Report) {
        let Some(id) = self.known_one(local) else {
            return;
        };
        let job = self.jobs.get_mut(&id);
        if let Some(inspection) = job.and_then(|job| job.inspection.as_mut()) {
            inspection.reports.push(report);
            if let Some(awaited) = &mut inspection.awaited {
                awaited.remove(&node);
            }
            self.conclude(id);
        }
    }

    /// Stops waiting for the reports of a lost node.
    pub(super) fn await_no_longer(&mut self, node: u16) {
        let awaited_by = |(id, job): (&JobId, &mut Job)| {
            let awaited = job.inspection.as_mut()?.awaited.as_mut()?;
            awaited.remove(&node).then_some(*id)
        };
        let jobs: Vec<JobId> = self.jobs.iter_mut().filter_map(awaited_by).collect();
        jobs.into_iter().for_each(|id| self.conclude(id));
    }

    /// Judges a gang job after all nodes have reported.
    fn conclude(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let is_whole = |it: &mut Inspection| it.awaited.as_ref().is_some_and(BTreeSet::is_empty);
        let Some(inspection) = job.inspection.take_if(is_whole) else {
            return;
        };
        let receive = match job.spec.receive.0 {
            0 => self.settings.receive,
            bytes => bytes,
        };
        let processes = processes(&job.spec, &inspection.reports, receive);
        let pollers = job.pollers(&inspection.reports);
        let state = match judge(&processes) {
            Global::Running => of_pollers(&processes, &pollers),
            certain => certain,
        };
        let (word, text) = describe(&state, &pollers);
        let told = match unseen(&job.spec, &inspection.reports) {
            Some(why) if state == Global::Running => ("unknown", why),
            _ => (word, &text[..]),
        };
        let told = Message::JobState(told.0.to_string(), told.1.to_string());
        let mut later = Vec::new();
        let (mut fronts, again) = (inspection.fronts, inspection.again);
        if !is_over(&state) && job.needs_second_look(&inspection.reports) {
            later.append(&mut fronts);
        }
        for front in fronts.into_iter().chain(again) {
            self.orders.push_back(Order::Front(front, told.clone()));
        }
        let order = job.follow(id, state, progress(&inspection.reports), text);
        self.orders.extend(order);
        if !later.is_empty() {
            self.look_again(id, later);
        }
        if !inspection.is_old {
            self.look(id, processes, &inspection.reports);
        }
        self.reconsider(id);
    }
}

impl Inspection {
    pub(super) fn new() -> Inspection {
        Inspection {
            fronts: Vec::new(),
            again: Vec::new(),
            awaited: None,
            is_old: false,
            reports: Vec::new(),
        }
    }
}

impl Job {
    /// What follows from a state, if the daemon watches the gang job.
    fn follow(&mut self, id: JobId, state: Global, progress: u64, text: String) -> Option<Order> {
        // A state that holds twice, with a slice in between in which no message moved, holds
        // forever.
        let holds = self
            .last_judgement
            .as_ref()
            .is_some_and(|last| (&last.0, last.1) == (&state, progress) && last.2 < self.slices);
        let is_suspected = matches!(state, Global::Suspected(_));
        let is_terminated = state == Global::Terminated;
        let is_over = is_over(&state);
        self.last_judgement = Some((state, progress, self.slices));
        if !self.spec.detect_termination || !holds || self.is_ending {
            return None;
        }
        if is_suspected && self.looks.told_at != Some(progress) {
            self.looks.told_at = Some(progress);
            let line = told::line(id, &format!("suspected {text}\n"));
            let told = Message::Output(id, NOBODY, 2, line.into_bytes());
            return Some(Order::Front(self.front, told));
        }
        if !is_over {
            return None;
        }
        self.is_ending = true;
        if !is_terminated {
            self.outcome.status = FARCALL_FAILED;
            self.outcome.cause = Some(text);
        }
        Some(Order::Nodes(Message::Deliver(self.local, SIGKILL)))
    }

    /// Whether a front end waits for the state.
    fn is_asked_by(&self, front: u64) -> bool {
        let now = self.inspection.iter();
        let now = now.flat_map(|it| it.fronts.iter().chain(&it.again));
        let later = self.looks.again.iter().flat_map(|again| &again.fronts);
        now.chain(later).any(|other| *other == front)
    }

    /// Forgets a front end that has asked for the state.
    pub(super) fn forget_asking(&mut self, front: u64) {
        if let Some(inspection) = &mut self.inspection {
            inspection.fronts.retain(|other| *other != front);
            inspection.again.retain(|other| *other != front);
        }
        if let Some(again) = &mut self.looks.again {
            again.fronts.retain(|other| *other != front);
        }
    }
}

/// Changes when a message moves, or when a process looks for something else.
fn progress(reports: &[Report]) -> u64 {
    let polling = reports.iter().filter_map(|report| report.polling.as_ref());
    let versions = polling.flatten().map(|one| u64::from(one.version));
    let messages = reports.iter().map(|report| report.progress);
    messages.chain(versions).fold(0, u64::wrapping_add)
}

/// Whether nothing can ever happen again, for certain.
fn is_over(state: &Global) -> bool {
    matches!(
        state,
        Global::Terminated | Global::Deadlocked(_) | Global::Stalled(_)
    )
}

/// The state of a gang job of which a process seems to run.
fn of_pollers(processes: &[Process], pollers: &Pollers) -> Global {
    let suspected = suspect(processes, pollers);
    if !suspected.is_empty() {
        return Global::Suspected(suspected);
    }
    let computes = |(process, rank): (&Process, u16)| {
        process.waits == Waits::No && !pollers.contains_key(&rank)
    };
    match processes.iter().zip(0..).any(computes) {
        true => Global::Running,
        false => Global::Idle,
    }
}

/// Combines the reports of the nodes.
fn processes(spec: &JobSpec, reports: &[Report], receive: u32) -> Vec<Process> {
    let part = PART.min(receive / 4);
    let ended: BTreeSet<u16> = reports
        .iter()
        .flat_map(|report| &report.ended)
        .copied()
        .collect();
    let process = |rank: u16| {
        let waits = reports.iter().flat_map(|report| &report.waits);
        let found = waits.clone().find(|(other, ..)| *other == rank);
        let (channel, waits) = match (ended.contains(&rank), found) {
            (true, _) => (0, Waits::Ended),
            // What is on its way to a process of MPI is on the channel after those of the program.
            (false, None) => (spec.channels.max(1), Waits::No),
            (false, Some((_, channel, kind, one, other))) => {
                let waits = match kind {
                    1 => Waits::Any,
                    2 => Waits::From(*one),
                    3 => Waits::RoomAt(*one),
                    4 => Waits::Both(*one, *other),
                    _ => Waits::No,
                };
                (*channel, waits)
            }
        };
        let queued = reports.iter().flat_map(|report| &report.queued);
        let pending = queued.filter(|(_, to, on, _)| (*to, *on) == (rank, channel));
        let fill = reports.iter().flat_map(|report| &report.fill);
        let room = fill.filter(|(_, on, bytes)| *on == channel && bytes + part <= receive);
        Process {
            waits,
            pending: pending.map(|(from, ..)| *from).collect(),
            room: room.map(|(rank, ..)| *rank).collect(),
        }
    };
    (0..spec.processes).map(process).collect()
}

/// The state as one word and a description for the user.
fn describe(state: &Global, pollers: &Pollers) -> (&'static str, String) {
    let all: Vec<u16> = pollers.keys().copied().collect();
    let with_waits = |text: &str| match all.is_empty() {
        true => text.to_string(),
        false => format!("{text}; {}", waits(&all, pollers)),
    };
    match state {
        Global::Running => ("running", with_waits("processes run")),
        Global::Idle => (
            "idle",
            with_waits("all processes wait, and messages are on their way"),
        ),
        Global::Suspected(ranks) => ("suspected", format!("deadlock: {}", waits(ranks, pollers))),
        Global::Terminated => (
            "terminated",
            "all processes have ended, or wait for any message and there is none".to_string(),
        ),
        Global::Deadlocked(circle) => ("deadlocked", format!("deadlock: {}", path(circle))),
        Global::Stalled(circle) => ("stalled", format!("flow-control stall: {}", path(circle))),
    }
}

fn path(circle: &[Blocked]) -> String {
    let step = |blocked: &Blocked| {
        let Blocked {
            rank,
            on,
            wants_room,
        } = blocked;
        match wants_room {
            true => format!("rank {rank} waits for space in the full channel of rank {on}"),
            false => format!("rank {rank} waits for a message from rank {on}"),
        }
    };
    let steps: Vec<String> = circle.iter().map(step).collect();
    steps.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_fifo_that_is_empty_has_room() {
        let spec = JobSpec {
            processes: 2,
            channels: 1,
            ..JobSpec::default()
        };
        let judged = |bytes| {
            let report = Report {
                // Rank 0 waits for space at rank 1, which waits for a message from it.
                waits: Vec::from([(0, 0, 3, 1, 0), (1, 0, 2, 0, 0)]),
                fill: Vec::from([(0, 0, 0), (1, 0, bytes)]),
                ..Report::default()
            };
            judge(&processes(&spec, &[report], 4096))
        };
        assert_eq!(judged(0), Global::Idle);
        assert_eq!(judged(3072), Global::Idle);
        assert!(matches!(judged(3073), Global::Stalled(_)));
    }
}
