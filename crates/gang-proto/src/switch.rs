//! The protocol of a gang switch along the tree of daemons. It keeps this invariant: no daemon
//! begins a step before all daemons that take part have finished the previous one, or are behind.
//! A daemon takes part if it, or a daemon below it, has processes of the gang jobs that go or
//! come. One that does not answer in time is behind: the others no longer wait for it, and gang
//! jobs with processes there do not come in.

use crate::JobId;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// The number of rounds of a gang switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Seven messages: FREEZE, FROZEN, SAVE, SAVED, RESTORE, RESTORED, RUN. Contexts are copied out
    /// and in.
    Seven,
    /// Three messages: FREEZE, FROZEN, RUN. The context of each gang job is in its own memory, so
    /// nothing is copied.
    Two,
}

/// A step. All nodes finish it before any node begins the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Step {
    /// Stop the processes of the old gang jobs and bring their network to rest.
    #[n(0)]
    Freeze,
    /// Copy the contexts of the old gang jobs out.
    #[n(1)]
    Save,
    /// Copy the contexts of the new gang jobs in.
    #[n(2)]
    Restore,
    /// Let the processes of the new gang jobs run.
    #[n(3)]
    Run,
}

/// One gang switch: which gang jobs are switched out and in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Round {
    /// Number of the gang switch.
    #[n(0)]
    pub number: u64,
    /// The gang jobs to switch out.
    #[n(1)]
    pub out: Vec<JobId>,
    /// The gang jobs to switch in.
    #[n(2)]
    pub into: Vec<JobId>,
    /// Whether all nodes drain the network. Otherwise messages in the network become stale.
    #[n(3)]
    pub drains: bool,
    /// The nodes that have processes of these gang jobs.
    #[n(4)]
    pub nodes: Vec<u16>,
    /// Milliseconds within which the receiver of a step answers.
    #[n(5)]
    pub patience: u32,
}

/// The gang jobs to switch out and in, and the nodes of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The gang jobs to switch out.
    pub out: Vec<JobId>,
    /// The gang jobs to switch in.
    pub into: Vec<JobId>,
    /// The nodes of each gang job.
    pub nodes: BTreeMap<JobId, Vec<u16>>,
}

/// What has not kept up with a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Behind {
    /// Gang jobs whose processes did not stop in time.
    #[n(0)]
    pub jobs: Vec<JobId>,
    /// Nodes that did not answer in time.
    #[n(1)]
    pub nodes: Vec<u16>,
}

/// An action that a daemon must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the step to these children, with [`Switch::order`].
    Down(Step, Vec<u64>),
    /// Perform the step for the processes of this node, then call [`Switch::handle_done`].
    /// [`Step::Run`] needs no such call.
    Here(Step),
    /// Tell the parent that this node and all nodes below it have finished a step of the gang
    /// switch with this number, but for what is behind.
    Up(u64, Step, Behind),
    /// Tell the root daemon what is behind.
    Behind(Behind),
    /// Tell the root daemon that these nodes answer again.
    Back(Vec<u16>),
    /// At the root daemon: the gang switch is over.
    Finished,
}

/// Milliseconds that the root daemon waits for the answers to a step.
const PATIENCE: u32 = 500;
/// The same, if the network is drained, which takes up to a second.
const DRAIN_PATIENCE: u32 = 1_500;
/// Each level of the tree waits this much less than the one above it, but at least this long.
const LEVEL: u32 = 100;

/// The state of the gang switch at one daemon of the tree. Each call returns the actions to
/// perform, in order. If a step is awaited for longer than [`Switch::patience`], call
/// [`Switch::handle_timeout`].
#[derive(Debug)]
pub struct Switch {
    form: Form,
    drains: bool,
    is_root: bool,
    round: Round,
    /// At the root daemon: the nodes of each gang job of the gang switch.
    places: BTreeMap<JobId, Vec<u16>>,
    /// The child through which each node below is reached.
    below: BTreeMap<u16, u64>,
    /// The current step, if answers to it are awaited.
    step: Option<Step>,
    is_done_here: bool,
    /// Children that have not answered.
    awaited: Vec<u64>,
    /// Children that did not answer an earlier step in time, and have not answered since.
    late: BTreeSet<u64>,
    behind: Behind,
}

impl Switch {
    /// Creates the state of a daemon before its first gang switch. The root daemon's form and its
    /// choice whether networks are drained apply to all daemons.
    pub fn new(form: Form, drains: bool, is_root: bool) -> Switch {
        Switch {
            form,
            drains,
            is_root,
            round: Round::default(),
            places: BTreeMap::new(),
            below: BTreeMap::new(),
            step: None,
            is_done_here: false,
            awaited: Vec::new(),
            late: BTreeSet::new(),
            behind: Behind::default(),
        }
    }

    /// The current gang switch, or the last one.
    pub fn round(&self) -> &Round {
        &self.round
    }

    /// The gang switch as the children must hear of it: they answer sooner than this daemon.
    pub fn order(&self) -> Round {
        Round {
            patience: self.round.patience.saturating_sub(LEVEL).max(LEVEL),
            ..self.round.clone()
        }
    }

    /// The step to which answers are awaited.
    pub fn step(&self) -> Option<Step> {
        self.step
    }

    /// Milliseconds from the beginning of a step until [`Switch::handle_timeout`].
    pub fn patience(&self) -> u32 {
        self.round.patience
    }

    /// Adds a node that is reached through a child.
    pub fn handle_joined(&mut self, node: u16, child: u64) {
        self.below.insert(node, child);
    }

    /// Starts a gang switch at the root daemon. Call it only if no step is awaited.
    pub fn start(&mut self, turn: Turn) -> Vec<Action> {
        debug_assert!(self.is_root && self.step.is_none());
        let nodes: BTreeSet<u16> = turn.nodes.values().flatten().copied().collect();
        self.round = Round {
            number: self.round.number + 1,
            out: turn.out,
            into: turn.into,
            drains: self.drains,
            nodes: nodes.into_iter().collect(),
            patience: match self.drains {
                true => DRAIN_PATIENCE,
                false => PATIENCE,
            },
        };
        self.places = turn.nodes;
        self.begin(Step::Freeze)
    }

    /// Handles a step from the parent. A step of a past gang switch is ignored.
    pub fn handle_down(&mut self, round: Round, step: Step) -> Vec<Action> {
        if self.is_root || round.number < self.round.number {
            return Vec::new();
        }
        // The parent has gone on without an answer: this daemon was behind. It says that it is
        // there again.
        let mut actions = self.expire();
        self.round = round;
        actions.extend(self.begin(step));
        actions
    }

    /// The children that take part in the gang switch.
    fn children(&self) -> Vec<u64> {
        let nodes = self.round.nodes.iter();
        let children: BTreeSet<u64> = nodes
            .filter_map(|node| self.below.get(node).copied())
            .collect();
        children.into_iter().collect()
    }

    fn begin(&mut self, step: Step) -> Vec<Action> {
        let children = self.children();
        let awaited = children.iter().copied();
        let awaited: Vec<u64> = awaited.filter(|child| !self.late.contains(child)).collect();
        let mut actions = Vec::from([Action::Down(step, children), Action::Here(step)]);
        self.is_done_here = false;
        self.awaited.clear();
        self.behind = Behind::default();
        if step == Step::Run {
            self.step = None;
            if self.is_root {
                actions.push(Action::Finished);
            }
        } else {
            self.step = Some(step);
            self.awaited = awaited;
        }
        actions
    }

    /// Handles the end of a step on this node. `stuck` has the gang jobs that did not stop in time.
    pub fn handle_done(&mut self, step: Step, stuck: &[JobId]) -> Vec<Action> {
        if self.step == Some(step) {
            self.is_done_here = true;
            self.behind.jobs.extend_from_slice(stuck);
        }
        self.gather()
    }

    /// Handles the report of a child that it, and all daemons below it, have finished a step, but
    /// for what is behind.
    pub fn handle_up(
        &mut self,
        child: u64,
        number: u64,
        step: Step,
        behind: Behind,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.late.remove(&child) {
            let mut back = self.nodes_below(child);
            back.retain(|node| !behind.nodes.contains(node));
            actions.extend(self.handle_back(back));
        }
        if number == self.round.number && self.step == Some(step) {
            self.awaited.retain(|awaited| *awaited != child);
            self.behind.jobs.extend(behind.jobs);
            self.behind.nodes.extend(behind.nodes);
        }
        actions.extend(self.gather());
        actions
    }

    /// Handles nodes below that answer again.
    pub fn handle_back(&mut self, nodes: Vec<u16>) -> Vec<Action> {
        self.behind.nodes.retain(|node| !nodes.contains(node));
        Vec::from([Action::Back(nodes)])
    }

    /// Handles the loss of a child: nothing is awaited from it anymore.
    pub fn handle_lost(&mut self, child: u64) -> Vec<Action> {
        self.awaited.retain(|awaited| *awaited != child);
        self.late.remove(&child);
        self.below.retain(|_, link| *link != child);
        self.gather()
    }

    /// Handles the loss of a node that a child tells. Returns whether the node was reached through
    /// that child; one that has joined through another one meanwhile is not lost.
    pub fn handle_node_lost(&mut self, child: u64, node: u16) -> bool {
        let was_below = self.below.get(&node) == Some(&child);
        if was_below {
            self.below.remove(&node);
        }
        was_below
    }

    /// The child through which a node is reached.
    pub fn child(&self, node: u16) -> Option<u64> {
        self.below.get(&node).copied()
    }

    /// The nodes that are reached through a child.
    pub fn nodes_below(&self, child: u64) -> Vec<u16> {
        let nodes = self.below.iter();
        let nodes = nodes.filter(|(_, link)| **link == child);
        nodes.map(|(node, _)| *node).collect()
    }

    /// Goes on without the children that have not answered in time.
    pub fn handle_timeout(&mut self) -> Vec<Action> {
        self.give_up_awaited();
        self.gather()
    }

    fn give_up_awaited(&mut self) {
        for child in core::mem::take(&mut self.awaited) {
            self.late.insert(child);
            let nodes = self.nodes_below(child);
            self.behind.nodes.extend(nodes);
        }
    }

    /// Answers a step to which the parent no longer waits for an answer.
    fn expire(&mut self) -> Vec<Action> {
        self.give_up_awaited();
        self.is_done_here = true;
        self.gather()
    }

    fn gather(&mut self) -> Vec<Action> {
        let Some(step) = self.step else {
            return Vec::new();
        };
        if !self.is_done_here || !self.awaited.is_empty() {
            return Vec::new();
        }
        self.step = None;
        let behind = core::mem::take(&mut self.behind);
        if !self.is_root {
            return Vec::from([Action::Up(self.round.number, step, behind)]);
        }
        let places = &self.places;
        let is_behind = |node: &u16| {
            behind.nodes.contains(node)
                || self
                    .below
                    .get(node)
                    .is_some_and(|child| self.late.contains(child))
        };
        self.round.into.retain(|job| {
            let mut nodes = places.get(job).into_iter().flatten();
            !nodes.any(is_behind)
        });
        let mut actions = Vec::new();
        if behind != Behind::default() {
            actions.push(Action::Behind(behind));
        }
        let next = match (self.form, step) {
            (Form::Two, _) | (Form::Seven, Step::Restore | Step::Run) => Step::Run,
            (Form::Seven, Step::Freeze) => Step::Save,
            (Form::Seven, Step::Save) => Step::Restore,
        };
        actions.extend(self.begin(next));
        actions
    }
}
