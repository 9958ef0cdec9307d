//! What users and metrics hear of the gang jobs and nodes. The list of gang jobs is bounded, so
//! that it fits into a message.

use super::{Job, Root};
use crate::{JobId, JobRow};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The most bytes of one command in the list of gang jobs.
const LONGEST_COMMAND: usize = 16 << 10;
/// The most bytes of all commands in the list.
const LIST: usize = 2 << 20;
/// The most bytes of all names of nodes in the list.
const NAMES: usize = 1 << 20;

/// The bytes of a name of a node in a message, with its length.
fn bytes_of(name: &str) -> usize {
    name.len() + 2
}

/// Cuts a list of nodes to this number of bytes.
fn cut(nodes: &mut Vec<String>, room: usize) {
    let mut bytes = 0;
    let fits = nodes.iter().take_while(|name| {
        bytes += bytes_of(name);
        bytes <= room
    });
    let fits = fits.count();
    if fits < nodes.len() {
        nodes.truncate(fits);
        nodes.push("...".to_string());
    }
}

/// Cuts a command to this number of bytes.
fn shorten(command: &mut String, room: usize) {
    if command.len() > room {
        command.truncate(command.floor_char_boundary(room - 3));
        command.push_str("...");
    }
}

/// Counts for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gang jobs in their slice.
    pub running: usize,
    /// Gang jobs that wait for their slice.
    pub waiting: usize,
    /// Gang jobs that their users have stopped.
    pub stopped: usize,
    /// Gang jobs that ended with status 0.
    pub succeeded: u64,
    /// Gang jobs that ended in another way.
    pub failed: u64,
    /// Number of slices of the current gang jobs so far.
    pub slices: u64,
    /// Nodes that have joined and are not lost.
    pub nodes: usize,
    /// Number of processes that can run at the same time.
    pub slots: usize,
}

impl Root {
    /// The gang jobs of a user, or all gang jobs for the user root.
    pub fn rows(&self, user: u32) -> Vec<JobRow> {
        let row = |(id, job): (&JobId, &Job)| {
            let state = match (job.is_stopped, self.running.contains(id)) {
                (true, _) => "stopped",
                (false, false) if !job.has_work => "resting",
                (false, true) => "running",
                (false, false) => "waiting",
            };
            let name = |node: &u16| self.nodes[usize::from(*node)].name.clone();
            JobRow {
                id: *id,
                state: state.to_string(),
                nodes: job.nodes.iter().map(name).collect(),
                processes: job.spec.processes,
                slices: job.slices,
                lost_us_per_switch: match job.lost {
                    (_, 0) => 0.0,
                    (nanos, count) => nanos as f64 / count as f64 / 1e3,
                },
                user: job.spec.owner.0,
                command: job.spec.command.join(" "),
            }
        };
        let lost = self.lost.values().cloned();
        let rows = lost.chain(self.jobs.iter().map(row));
        let mut rows: Vec<JobRow> = rows.filter(|row| user == 0 || user == row.user).collect();
        let room = (LIST / rows.len().max(1)).clamp(32, LONGEST_COMMAND);
        rows.iter_mut()
            .for_each(|row| shorten(&mut row.command, room));
        let names = rows.iter().flat_map(|row| &row.nodes);
        if names.map(|name| bytes_of(name)).sum::<usize>() > NAMES {
            let room = NAMES / rows.len();
            rows.iter_mut().for_each(|row| cut(&mut row.nodes, room));
        }
        rows
    }

    /// Counts for metrics.
    pub fn counts(&self) -> Counts {
        let stopped = self.jobs.values().filter(|job| job.is_stopped).count();
        let running = self.running.len();
        Counts {
            running,
            waiting: self.jobs.len().saturating_sub(stopped + running),
            stopped,
            succeeded: self.past.0,
            failed: self.past.1,
            slices: self.jobs.values().map(|job| job.slices).sum(),
            nodes: self.nodes().count(),
            slots: self.slots.len(),
        }
    }

    /// The gang jobs that ended in their slice since the last call, for the trace.
    pub fn take_ended(&mut self) -> Vec<JobId> {
        core::mem::take(&mut self.ended)
    }

    /// The names of the nodes of each of these gang jobs, for the trace; `-` for one that has
    /// ended.
    pub fn nodes_of(&self, jobs: &[JobId]) -> Vec<String> {
        let names = |id: &JobId| {
            let id = &self.known_one(*id).unwrap_or(*id);
            let nodes = self.jobs.get(id).into_iter().flat_map(|job| &job.nodes);
            let names = nodes.map(|node| &self.nodes[usize::from(*node)].name);
            // A name in the trace must not contain the characters that separate names, gang jobs
            // and columns.
            let names = names.map(|name| name.replace([' ', ',', '+', '\n'], "_"));
            let names: Vec<String> = names.collect();
            match names.is_empty() {
                true => "-".to_string(),
                false => names.join("+"),
            }
        };
        jobs.iter().map(names).collect()
    }

    /// Names and numbers of slots of the nodes, for the metrics and `ps`.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, u16)> {
        let alive = self.nodes.iter().filter(|node| !node.is_lost);
        alive.map(|node| (node.name.as_str(), node.slots))
    }
}
