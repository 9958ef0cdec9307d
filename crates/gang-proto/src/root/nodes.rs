//! Nodes join, fall behind, answer again, and are lost. This module decides what that means for the
//! gang jobs on them. `moving` and `judgement` do the same for gang jobs that are moved or judged.

use super::{NodeEntry, Root};
use crate::told::LostNode;
use crate::{Behind, Ended, FARCALL_FAILED, JobId, QueueTree};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The longest name of a node in bytes.
const LONGEST_NAME: usize = 128;

/// When there are more nodes, the number of a lost one goes to any other, so that names that never
/// come back do not use up the numbers.
const REMEMBERED: usize = 4096;

/// Checks the name of a node. Lists of nodes are separated by commas and blanks.
///
/// # Errors
/// Returns the reason for the operator.
pub fn check_name(name: &str) -> Result<(), String> {
    let separates = |letter: char| letter == ',' || letter.is_whitespace() || letter.is_control();
    let why = match name.len() {
        0 => "it is empty".to_string(),
        1..=LONGEST_NAME if name.contains(separates) => {
            "it contains a comma, a blank or a control character".to_string()
        }
        1..=LONGEST_NAME => return Ok(()),
        length => format!("it has {length} bytes, and it can have {LONGEST_NAME}"),
    };
    Err(format!("{name:?} cannot be the name of a node: {why}"))
}

impl Root {
    /// Adds a node, or takes one back that was lost, and returns its number. `user` is the one that
    /// its daemon runs as.
    pub fn handle_join(
        &mut self,
        name: &str,
        processors: Vec<u16>,
        engine: String,
        user: u32,
    ) -> u16 {
        let entry = NodeEntry {
            name: name.to_string(),
            slots: processors.len() as u16,
            engine,
            user,
            is_lost: false,
            is_behind: false,
        };
        let jobs = &self.jobs;
        let is_free = |number: u16| !jobs.values().any(|job| job.nodes.contains(&number));
        let is_full = self.nodes.len() >= REMEMBERED;
        let places = self.nodes.iter_mut().zip(0u16..);
        let mut gone = places.filter(|(node, number)| node.is_lost && is_free(*number));
        let number = match gone.find(|(node, _)| is_full || node.name == name) {
            Some((node, number)) => {
                *node = entry;
                number
            }
            None => {
                drop(gone);
                self.nodes.push(entry);
                (self.nodes.len() - 1) as u16
            }
        };
        let slots = processors.into_iter().map(|processor| (number, processor));
        self.slots.extend(slots);
        self.rebuild(None);
        number
    }

    /// Builds the tree for the current slots, without those of a node that was lost. Gang jobs that
    /// run keep their placement. One whose slots lie in no smaller partition of the new tree shares
    /// slices with the whole machine until it ends.
    fn rebuild(&mut self, lost: Option<u16>) {
        let is_left = |slot: &(u16, u16)| Some(slot.0) != lost;
        let left = self.slots.iter().copied().filter(is_left).collect();
        let old = core::mem::replace(&mut self.slots, left);
        // The place of each slot among those that are left.
        let places = old.iter().scan(0, |next, slot| {
            let place = *next;
            *next += usize::from(is_left(slot));
            Some(place)
        });
        let places: Vec<usize> = places.collect();
        let mut tree = QueueTree::new(self.slots.len());
        for (id, job) in &self.jobs {
            let known = self.tree.find(*id);
            let range = known.map_or(0..0, |(it, _)| it.first..it.first + it.slots);
            let is_own = |place: &usize| is_left(&old[*place]) && job.is_on(old[*place]);
            let own: Vec<usize> = range.filter(is_own).map(|place| places[place]).collect();
            match own.is_empty() {
                true => tree.enter(*id, self.slots.len()),
                false => tree.enter_over(*id, &own),
            };
            tree.set_runnable(*id, job.may_run());
        }
        self.tree = tree;
    }

    /// Handles the loss of a node, for a reason in words: its processes count as ended.
    pub fn handle_lost(&mut self, number: u16, why: &str) {
        let Some(node) = self.nodes.get_mut(usize::from(number)) else {
            return;
        };
        node.is_lost = true;
        let name = node.name.clone();
        for job in self.jobs.values_mut() {
            job.behind.remove(&number);
        }
        self.rebuild(Some(number));
        let hit = self.jobs.iter();
        let hit = hit.filter(|(_, job)| job.nodes.contains(&number));
        for id in hit.map(|(id, _)| *id).collect::<Vec<_>>() {
            if !self.lose_place(id, &name, why) {
                self.lose_processes(id, number, (&name, why));
            }
        }
        self.await_no_longer(number);
    }

    /// Ends the processes of a gang job on a node that was lost.
    fn lose_processes(&mut self, id: JobId, number: u16, (node, why): (&str, &str)) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if job.has_no_processes() {
            return self.finish(id);
        }
        let ranks = job.placement.nodes.iter().zip(0u16..);
        let ranks: Vec<u16> = ranks
            .filter_map(|(at, rank)| (*at == number).then_some(rank))
            .collect();
        for rank in ranks {
            let ended = Ended {
                status: FARCALL_FAILED,
                cause: Some(LostNode { rank, node, why }.to_string()),
                ..Ended::default()
            };
            self.end_process(id, rank, ended);
        }
    }

    /// Handles what has not kept up with a gang switch. Gang jobs on nodes that do not answer get
    /// no slice until [`Root::handle_back`]. A gang job that did not stop in time misses its next
    /// slice, and as many as the others lost.
    pub fn handle_behind(&mut self, behind: &Behind) {
        self.hold_back(&self.known(&behind.jobs));
        // A node that is lost meanwhile does not come back, and nothing is awaited from it.
        let mut late = behind.nodes.clone();
        late.retain(|number| {
            let node = self.nodes.get_mut(usize::from(*number));
            let node = node.filter(|node| !node.is_lost);
            node.is_some_and(|node| {
                node.is_behind = true;
                true
            })
        });
        for (id, job) in &mut self.jobs {
            let late = late.iter().filter(|node| job.nodes.contains(*node));
            job.behind.extend(late);
            self.tree.set_runnable(*id, job.may_run());
        }
    }

    /// Handles nodes that answer again.
    pub fn handle_back(&mut self, nodes: &[u16]) {
        for number in nodes {
            if let Some(node) = self.nodes.get_mut(usize::from(*number)) {
                node.is_behind = false;
            }
        }
        for (id, job) in &mut self.jobs {
            job.behind.retain(|node| !nodes.contains(node));
            self.tree.set_runnable(*id, job.may_run());
        }
        self.turns.want();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobSpec, Settings};

    #[test]
    fn jobs_keep_their_slots_when_nodes_come_and_go() {
        let mut root = Root::new(Settings::ample(), 0);
        let join = |root: &mut Root, name: &str| {
            root.handle_join(name, [0, 1].to_vec(), "127.0.0.1:1".to_string(), 0)
        };
        for name in ["a", "b", "c"] {
            join(&mut root, name);
        }
        for name in ["a", "a", "c", "c"] {
            let spec = JobSpec {
                processes: 1,
                command: Vec::from(["sleep".to_string()]),
                on: Some(Vec::from([name.to_string()])),
                ..JobSpec::default()
            };
            root.handle_run(1, spec).expect("it has room");
        }
        // Two share the first slot of their node, and both nodes compute.
        let runs_beside = |root: &mut Root| {
            for _ in 0..2 {
                assert_eq!(root.tree.next_slice().len(), 2);
            }
        };
        runs_beside(&mut root);
        join(&mut root, "d");
        runs_beside(&mut root);
        root.handle_lost(1, "it was silent");
        runs_beside(&mut root);
        assert_eq!(root.tree.slots(), 6);
        // The first slots of two nodes lie in the whole machine alone.
        let spec = JobSpec {
            processes: 4,
            command: Vec::from(["sleep".to_string()]),
            on: Some(Vec::from(["a".to_string(), "d".to_string()])),
            ..JobSpec::default()
        };
        root.handle_run(1, spec).expect("it has room");
        join(&mut root, "b");
        let slices: Vec<_> = (0..3).map(|_| root.tree.next_slice()).collect();
        assert!(slices.contains(&Vec::from([5])), "{slices:?}");
    }

    #[test]
    fn a_name_of_a_node_can_stand_in_a_list() {
        for name in ["a", "node-1.example.org", "knoten\u{e4}", &"n".repeat(128)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in [
            "",
            "a,b",
            "a b",
            "a\tb",
            "a\nb",
            "\u{1b}[31m",
            &"n".repeat(129),
        ] {
            let refused = check_name(name).expect_err("no name");
            assert!(!refused.contains(char::is_control), "{refused}");
        }
    }
}
