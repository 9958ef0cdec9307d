//! Judges the global state of a gang job from the reports of all nodes, which are made when the
//! gang job is at rest. `state` has the rules; this module asks for the reports and combines them.
//! With `detect_termination`, it ends a gang job only if the same state holds twice, with a slice
//! in between in which no message moved.

use super::{Inspection, Job, Order, Root, SIGKILL};
use crate::{Blocked, FARCALL_FAILED, Global, JobId, Message, Process, Report, Waits, judge};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A receive FIFO with less free space than this counts as full: the longest part of a message.
const PART: u32 = 8 << 10;

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
        let inspection = job.inspection.get_or_insert_with(Inspection::new);
        inspection.fronts.push(front);
        self.tree.set_runnable(id, false);
        self.turns.is_wanted = true;
        Ok(())
    }

    /// Judges the gang jobs with `detect_termination`.
    pub(super) fn watch(&mut self) {
        let mut any = false;
        for (id, job) in &mut self.jobs {
            let is_free = job.inspection.is_none() && job.unfilled.is_empty();
            if job.spec.detect_termination && !job.is_stopped && is_free {
                job.inspection = Some(Inspection::new());
                self.tree.set_runnable(*id, false);
                any = true;
            }
        }
        if any {
            self.turns.is_wanted = true;
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
        let processes = processes(job.spec.processes, &inspection.reports, receive);
        let state = judge(&processes);
        let (word, text) = describe(&state);
        for front in inspection.fronts {
            let told = Message::JobState(word.to_string(), text.clone());
            self.orders.push_back(Order::Front(front, told));
        }
        let is_over = !matches!(state, Global::Running | Global::Idle);
        // A state that holds twice, with a slice in between in which no message moved, holds
        // forever.
        let progress = inspection.reports.iter().map(|report| report.progress);
        let progress = progress.fold(0, u64::wrapping_add);
        let last = job.last_judgement.take();
        let holds = last.is_some_and(|(before, moved, slices)| {
            (&before, moved) == (&state, progress) && slices < job.slices
        });
        let now = (state, progress, job.slices);
        let state = &job.last_judgement.insert(now).0;
        if job.spec.detect_termination && is_over && holds && !job.is_ending {
            job.is_ending = true;
            if *state != Global::Terminated {
                job.outcome.status = FARCALL_FAILED;
                job.outcome.cause = Some(text);
            }
            let kill = Message::Deliver(job.local, SIGKILL);
            self.orders.push_back(Order::Nodes(kill));
        }
        self.look(id, processes, &inspection.reports);
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let may_run = job.may_run();
        self.tree.set_runnable(id, may_run);
        self.turns.is_wanted = true;
    }
}

impl Inspection {
    pub(super) fn new() -> Inspection {
        Inspection {
            fronts: Vec::new(),
            awaited: None,
            reports: Vec::new(),
        }
    }
}

/// Combines the reports of the nodes.
fn processes(count: u16, reports: &[Report], receive: u32) -> Vec<Process> {
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
            (false, None) => (0, Waits::No),
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
        let room = fill.filter(|(_, on, bytes)| *on == channel && bytes + PART <= receive);
        Process {
            waits,
            pending: pending.map(|(from, ..)| *from).collect(),
            room: room.map(|(rank, ..)| *rank).collect(),
        }
    };
    (0..count).map(process).collect()
}

/// The state as one word and a description for the user.
fn describe(state: &Global) -> (&'static str, String) {
    match state {
        Global::Running => ("running", "processes run".to_string()),
        Global::Idle => (
            "idle",
            "all processes wait, and messages are on their way".to_string(),
        ),
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
