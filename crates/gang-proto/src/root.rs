//! The decisions of the root daemon: gang jobs, their placement and slices, and the messages to
//! their front ends. The caller performs all I/O.
//!
//! This file has the state. Each module handles the events of one subject:
//!
//! | subject | modules |
//! |---|---|
//! | the life of a gang job | `submission`, `placement`, `fronts`, `ending`, `past` |
//! | when it runs | `slices`, `interactive` |
//! | the nodes, and the numbers by which they know gang jobs | `nodes`, `numbers` |
//! | what its processes wait for | `judgement`, `looks` |
//! | its state, taken and moved | `checkpoint`, `pieces`, `moving` |
//! | MPI | `mpi` |
//! | what users and metrics hear | `rows` |

mod checkpoint;
mod ending;
mod fronts;
mod interactive;
mod judgement;
mod looks;
mod moving;
mod mpi;
mod nodes;
mod numbers;
mod past;
mod pieces;
mod placement;
mod rows;
mod slices;
mod submission;

use crate::{
    Admission, Ended, Global, JobId, JobRow, JobSpec, Message, Nanos, Pairs, Placement, QueueTree,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use checkpoint::Checkpoint;
use interactive::Account;
use judgement::Inspection;
use looks::Looks;
pub use nodes::check_name;
pub use rows::Counts;
use slices::Turns;

/// The signal that ends a gang job. Daemons exchange the numbers of Linux.
const SIGKILL: i32 = 9;

/// The settings of the root daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of memory for all gang jobs together.
    pub memory: u64,
    /// A number that distinguishes the gang jobs of this daemon from those of any other run.
    pub epoch: u64,
    /// Length of a slice in nanoseconds.
    pub slice: Nanos,
    /// Interval in nanoseconds at which gang jobs with `detect_termination` are judged.
    pub watch: Nanos,
    /// Whether a gang job is switched out and in even if it is alone.
    pub switch_alone: bool,
    /// Bytes of a receive FIFO if the gang job does not specify them.
    pub receive: u32,
    /// Percent of the processor time that a user's interactive gang jobs can have before others.
    /// Those of all users together can have twice as much.
    pub share: u64,
}

#[cfg(test)]
impl Settings {
    /// Settings that refuse no job, for tests.
    fn ample() -> Settings {
        Settings {
            memory: u64::MAX,
            epoch: 1,
            slice: 1,
            watch: 1,
            switch_alone: false,
            receive: 1 << 16,
            share: 25,
        }
    }
}

/// A node that has joined.
#[derive(Clone, Debug)]
struct NodeEntry {
    name: String,
    slots: u16,
    engine: String,
    /// The user that its daemon runs as.
    user: u32,
    is_lost: bool,
    /// Whether it does not answer now.
    is_behind: bool,
}

#[derive(Debug)]
struct Job {
    spec: JobSpec,
    /// Its number at the nodes: another one after each move, so that nothing that comes late from
    /// its former processes counts.
    local: JobId,
    /// Taking its state, or moving it.
    checkpoint: Option<Checkpoint>,
    /// Ranks whose processes have not begun, because their states have not arrived.
    unfilled: BTreeSet<u16>,
    /// Bytes of each piece of a state that is on its way to a node.
    filling: VecDeque<usize>,
    placement: Placement,
    /// Its nodes.
    nodes: BTreeSet<u16>,
    /// Those of its nodes that do not answer now.
    behind: BTreeSet<u16>,
    /// Number of slices that it must miss, because it did not stop in time.
    sits_out: usize,
    /// What its processes have put before a barrier of MPI, by the nodes that have reached it.
    fences: BTreeMap<u16, Pairs>,
    /// The front end that started it.
    front: u64,
    ended: BTreeSet<u16>,
    outcome: Ended,
    is_stopped: bool,
    is_ending: bool,
    /// Whether its processes were killed, although not all have ended.
    is_killed: bool,
    /// Whether its front end has work for it; true unless it is interactive.
    has_work: bool,
    /// Since when it runs, if it is interactive and runs.
    since: Option<Nanos>,
    slices: u64,
    /// Total nanoseconds of the gang switches that switched it out, and their number.
    lost: (u64, u64),
    bytes: u64,
    inspection: Option<Inspection>,
    /// The result of the last judgement for `Root::watch`, and the gang job's progress and slices
    /// at that time.
    last_judgement: Option<(Global, u64, u64)>,
    looks: Looks,
}

impl Job {
    /// Whether the gang job may run. It rests as long as it is being judged, one of its nodes does
    /// not answer, or it pays for a gang switch that had to wait for it.
    fn may_run(&self) -> bool {
        let is_free = self.behind.is_empty() && self.sits_out == 0 && self.unfilled.is_empty();
        !self.is_stopped && self.has_work && self.inspection.is_none() && is_free
    }

    /// Whether a process of it is placed on this slot.
    fn is_on(&self, (node, processor): (u16, u16)) -> bool {
        let Placement {
            nodes, processors, ..
        } = &self.placement;
        let mut slots = nodes.iter().zip(processors);
        slots.any(|slot| slot == (&node, &processor))
    }

    /// Whether its processes end now, so that it must not begin again elsewhere.
    fn ends(&self) -> bool {
        self.is_ending || self.is_killed
    }

    fn is_interactive(&self) -> bool {
        self.spec.interactive == Some(true)
    }

    /// Whether it only keeps its processors free of others.
    fn has_no_processes(&self) -> bool {
        self.spec.command.is_empty()
    }
}

/// A message that the root wants to send.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Send to all nodes.
    Nodes(Message),
    /// Send to one node.
    Node(u16, Message),
    /// Send to a front end.
    Front(u64, Message),
}

/// The state of the root daemon: gang jobs, their placement and slices, and the messages to their
/// front ends.
///
/// Each event is a `handle_*` method. After each event, take all orders ([`Root::poll_order`]).
/// Then ask for the gang switch that may be due ([`Root::poll_switch`]), pass it to
/// [`crate::Switch::start`], and report its end ([`Root::handle_switched`]). Call
/// [`Root::handle_timeout`] at [`Root::next_deadline`]. The caller chooses the numbers of front
/// ends; the root assigns the numbers of nodes.
#[derive(Debug)]
pub struct Root {
    settings: Settings,
    nodes: Vec<NodeEntry>,
    jobs: BTreeMap<JobId, Job>,
    /// The gang jobs that have another number at the nodes, by that number.
    moved: BTreeMap<JobId, JobId>,
    tree: QueueTree,
    admission: Admission,
    /// Node and processor of each slot.
    slots: Vec<(u16, u16)>,
    running: Vec<JobId>,
    /// The front ends that do not read, so that the output of their gang jobs waits.
    held: BTreeSet<u64>,
    /// Gang jobs that urgent ones have taken the place of.
    displaced: Vec<JobId>,
    /// What interactive gang jobs had before others: those of each user, and all.
    accounts: BTreeMap<u32, Account>,
    account: Account,
    /// Gang jobs that were lost with an earlier daemon, until their users have taken note.
    lost: BTreeMap<JobId, JobRow>,
    /// Gang jobs that ended in their slice since the last gang switch; no gang switch stops them.
    ended: Vec<JobId>,
    last: JobId,
    /// Number of gang jobs that ended with status 0, and of all others that ended.
    past: (u64, u64),
    orders: VecDeque<Order>,
    turns: Turns,
    /// When gang jobs with `detect_termination` are judged next.
    watch_at: Nanos,
    /// The time of the last call that has said it.
    now: Nanos,
}

impl Root {
    /// Creates a root without nodes and gang jobs.
    pub fn new(settings: Settings, now: Nanos) -> Root {
        Root {
            nodes: Vec::new(),
            jobs: BTreeMap::new(),
            moved: BTreeMap::new(),
            tree: QueueTree::new(1),
            admission: Admission::new(settings.memory),
            slots: Vec::new(),
            running: Vec::new(),
            held: BTreeSet::new(),
            displaced: Vec::new(),
            accounts: BTreeMap::new(),
            account: Account::default(),
            lost: BTreeMap::new(),
            ended: Vec::new(),
            last: 0,
            past: (0, 0),
            orders: VecDeque::new(),
            turns: Turns::default(),
            watch_at: now.saturating_add(settings.watch),
            now,
            settings,
        }
    }

    /// Returns the next order, in sequence.
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Does all work that is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = now;
        self.look_when_due();
        if now >= self.watch_at {
            self.watch_at = now.saturating_add(self.settings.watch);
            self.watch();
        }
    }

    /// The time of the next work. Call [`Root::handle_timeout`] and [`Root::poll_switch`] then.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let end = self.slice_end().map(|end| end.min(self.watch_at));
        match (end, self.next_look()) {
            (Some(end), Some(look)) => Some(end.min(look)),
            (end, look) => end.or(look),
        }
    }

    /// Whether there are no gang jobs.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
}
