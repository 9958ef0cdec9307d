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
        let is_dedicated = processes <= slots.len();
        let slot = |rank: usize| match is_dedicated {
            true => slots[rank],
            false => slots[rank * slots.len() / processes],
        };
        Placement {
            job,
            network: self.settings.epoch << 24 | job,
            nodes: (0..processes).map(|rank| slot(rank).0).collect(),
            processors: (0..processes).map(|rank| slot(rank).1).collect(),
            engines: self.nodes.iter().map(|node| node.engine.clone()).collect(),
            is_dedicated,
        }
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
    pub(super) fn place_over(
        &mut self,
        id: JobId,
        places: &[usize],
        processes: u16,
    ) -> (Partition, Placement) {
        let partition = self.tree.enter_over(id, places);
        let slots: Vec<(u16, u16)> = places.iter().map(|place| self.slots[*place]).collect();
        (partition, self.place(id, &slots, processes))
    }
}
