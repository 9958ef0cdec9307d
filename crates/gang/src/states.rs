//! The saved states of a gang job on this node: those that were taken, and those with which its
//! processes begin. `node` takes and receives them; this module only keeps them.

use crate::start::Order;
use farcall_gang_proto::Lengths;
use std::collections::BTreeMap;

/// The saved states of a gang job on this node.
#[derive(Default)]
pub(crate) struct States {
    /// What the channels of each rank held when its state was taken.
    pub(crate) collected: BTreeMap<u16, Vec<u8>>,
    /// What has arrived of the states with which the ranks begin.
    pub(crate) arriving: BTreeMap<u16, Arriving>,
    /// The processes to start when all has arrived.
    pub(crate) waiting: Option<Order>,
}

/// What has arrived of the state of a rank.
#[derive(Default)]
pub(crate) struct Arriving {
    pub(crate) network: Vec<u8>,
    pub(crate) lengths: Lengths,
    pub(crate) offset: u64,
}
