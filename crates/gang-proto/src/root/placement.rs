//! Gives slots to the processes of a gang job: those of a partition of the tree, or those of the
//! nodes that the user names. Gang jobs that begin and those that are moved are placed alike.

use super::Root;
use crate::{JobId, Partition, Placement};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Root {
    /// The slots of a partition, those of the root daemon's node first if `here` is true.
    pub(super) fn slots_of(&self, partition: Partition, here: bool) -> Vec<(u16, u16)> {
        let mut slots = self.slots[partition.first..][..partition.slots].to_vec();
        if here {
            slots.sort_by_key(|(node, _)| *node != 0);
        }
        slots
    }

    /// Assigns slots to the ranks, in order and as evenly as possible.
    pub(super) fn place(&self, job: JobId, slots: &[(u16, u16)], processes: u16) -> Placement {
        let processes = usize::from(processes);
        let slot = |rank: usize| match processes <= slots.len() {
            true => slots[rank],
            false => slots[rank * slots.len() / processes],
        };
        // A node can have more slots than processors.
        let used: BTreeSet<(u16, u16)> = (0..processes).map(slot).collect();
        let is_dedicated = used.len() == processes;
        Placement {
            job,
            network: self.settings.epoch << 24 | job,
            nodes: (0..processes).map(|rank| slot(rank).0).collect(),
            processors: (0..processes).map(|rank| slot(rank).1).collect(),
            engines: self.nodes.iter().map(|node| node.engine.clone()).collect(),
            is_dedicated,
        }
    }

    /// How many processors the processes share, if not each has its own.
    pub(super) fn shared_processors(placement: &Placement) -> Option<u16> {
        let pairs = placement.nodes.iter().zip(&placement.processors);
        let used: BTreeSet<(&u16, &u16)> = pairs.collect();
        (!placement.is_dedicated).then_some(used.len() as u16)
    }

    /// The slots, by their places, of the nodes with these names.
    pub(super) fn slots_on(&self, names: &[String]) -> Result<Vec<usize>, String> {
        let mut nodes = BTreeSet::new();
        for name in names {
            let mut all = (0u16..).zip(&self.nodes);
            let found = all.find(|(_, node)| !node.is_lost && node.name == *name);
            let (number, _) = found.ok_or_else(|| {
                let names: Vec<&str> = self.nodes().map(|(name, _)| name).collect();
                format!(
                    "no node `{name}` has joined; there are {}",
                    names.join(", ")
                )
            })?;
            nodes.insert(number);
        }
        let slots = self.slots.iter().enumerate();
        let chosen = slots.filter(|(_, (node, _))| nodes.contains(node));
        let places: Vec<usize> = chosen.map(|(place, _)| place).collect();
        match places.is_empty() {
            true => Err("state at least one node for the gang job".to_string()),
            false => Ok(places),
        }
    }

    /// Places the processes of a gang job on these slots.
    pub(super) fn place_over(&mut self, id: JobId, places: &[usize], processes: u16) -> Placement {
        self.tree.enter_over(id, places);
        let slots: Vec<(u16, u16)> = places.iter().map(|place| self.slots[*place]).collect();
        self.place(id, &slots, processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobSpec, Message, Order, Settings};
    use alloc::vec;

    /// The processors that the processes of a job share, on a node with four slots of two
    /// processors.
    fn shared(processes: u16) -> Option<u16> {
        let mut root = Root::new(Settings::ample(), 0);
        root.handle_join("a", vec![0, 1, 0, 1], "127.0.0.1:1".to_string(), 0);
        let spec = JobSpec {
            processes,
            command: vec!["program".to_string()],
            ..JobSpec::default()
        };
        assert_eq!(root.handle_run(1, spec), Ok(()));
        let mut told = None;
        while let Some(order) = root.poll_order() {
            if let Order::Front(_, Message::Started(_, shared)) = order {
                told = Some(shared);
            }
        }
        told.expect("it has started")
    }

    #[test]
    fn processes_share_processors_where_a_node_has_more_slots_than_those() {
        assert_eq!(
            [1, 2, 3, 4, 8].map(shared),
            [None, None, Some(2), Some(2), Some(2)]
        );
    }
}
