//! Begins gang jobs: checks what a front end asks for, and gives the gang job a number, memory and
//! a place. `slices` decides when it runs, and the nodes start its processes.

use super::looks::Looks;
use super::{Job, NodeEntry, Order, Root};
use crate::{Ended, JobId, JobSpec, Message, Placement};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};

/// The largest number of processes of a gang job.
const MAX_PROCESSES: u16 = 4096;
/// The most gang jobs at a time, so that users cannot fill the memory of the daemon.
const MAX_JOBS: usize = 4096;

impl Root {
    /// Starts a gang job for a front end.
    ///
    /// # Errors
    /// Returns the reason for the front end.
    pub fn handle_run(&mut self, front: u64, mut spec: JobSpec) -> Result<(), String> {
        let is_interactive = spec.interactive == Some(true);
        let has_no_processes = spec.command.is_empty();
        if has_no_processes && !is_interactive || !(1..=MAX_PROCESSES).contains(&spec.processes) {
            return Err(format!(
                "a gang job needs a program and 1 to {MAX_PROCESSES} processes"
            ));
        }
        spec.check_length()?;
        if self.slots.is_empty() {
            return Err("no node has joined".to_string());
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err(format!(
                "the daemon has {MAX_JOBS} gang jobs, and takes no more at a time; run this one \
                 when another has ended"
            ));
        }
        let places = spec.on.as_deref().map(|names| self.slots_on(names));
        let places = places.transpose()?;
        let bytes = spec.memory.saturating_mul(spec.processes.into());
        self.admission
            .enter(bytes)
            .map_err(|error| error.to_string())?;
        if has_foreign(&self.nodes, spec.owner.0) {
            spec.keep_public_environment();
        }
        self.last += 1;
        let id = self.last;
        // The front end of an interactive gang job is on the node of the root daemon, and so is
        // rank 0.
        let here = self.slots.iter().position(|(node, _)| *node == 0);
        let here = here.filter(|_| is_interactive);
        let placement = match &places {
            None => {
                let partition = self.tree.enter_at(id, spec.processes.into(), here);
                let slots = self.slots_of(partition, is_interactive);
                self.place(id, &slots, spec.processes)
            }
            Some(places) => self.place_over(id, places, spec.processes),
        };
        let prepare = Message::Prepare(spec.clone(), placement.clone());
        let job = self.new_job((id, front, bytes), spec, placement);
        self.tree.set_runnable(id, job.may_run());
        let shared = Root::shared_processors(&job.placement);
        self.jobs.insert(id, job);
        if !has_no_processes {
            self.orders.push_back(Order::Nodes(prepare));
            self.hold_prepared(id);
        }
        self.orders
            .push_back(Order::Front(front, Message::Started(id, shared)));
        self.turns.want();
        Ok(())
    }

    fn new_job(
        &self,
        (id, front, bytes): (JobId, u64, u64),
        spec: JobSpec,
        placement: Placement,
    ) -> Job {
        let nodes: BTreeSet<u16> = placement.nodes.iter().copied().collect();
        let is_behind = |node: &&u16| self.nodes[usize::from(**node)].is_behind;
        Job {
            behind: nodes.iter().filter(is_behind).copied().collect(),
            local: id,
            checkpoint: None,
            unfilled: match spec.restored {
                Some(true) => (0..spec.processes).collect(),
                _ => BTreeSet::new(),
            },
            filling: VecDeque::new(),
            has_work: !spec.command.is_empty(),
            spec,
            placement,
            nodes,
            sits_out: 0,
            fences: BTreeMap::new(),
            front,
            ended: BTreeSet::new(),
            outcome: Ended::default(),
            is_stopped: false,
            is_ending: false,
            is_killed: false,
            since: None,
            slices: 0,
            lost: (0, 0),
            bytes,
            inspection: None,
            last_judgement: None,
            looks: Looks::default(),
        }
    }
}

/// Whether one of these nodes has a daemon of another user, neither this one nor root. All nodes
/// receive what a gang job begins with.
pub(super) fn has_foreign(nodes: &[NodeEntry], user: u32) -> bool {
    let is_foreign = |node: &NodeEntry| ![0, user].contains(&node.user);
    nodes.iter().any(|node| !node.is_lost && is_foreign(node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use alloc::vec;

    #[test]
    fn a_daemon_has_a_bounded_number_of_jobs() {
        let mut root = Root::new(Settings::ample(), 0);
        root.handle_join("a", vec![0], String::new(), 0);
        let spec = || JobSpec {
            processes: 1,
            command: vec!["program".to_string()],
            ..JobSpec::default()
        };
        for _ in 0..MAX_JOBS {
            root.handle_run(1, spec()).expect("it is accepted");
        }
        let refused = root.handle_run(1, spec()).expect_err("there are enough");
        assert!(refused.contains("4096 gang jobs"), "{refused}");
        root.handle_process_ended(1, 0, Ended::default());
        root.handle_run(1, spec()).expect("one has ended");
    }
}
