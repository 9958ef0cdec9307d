//! The protocol of a gang switch along the tree of daemons. It keeps this invariant: no daemon
//! begins a step before all daemons have finished the previous one.

use crate::JobId;
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
}

/// An action that a daemon must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the step to all children.
    Down(Step),
    /// Perform the step for the processes of this node, then call [`Switch::handle_done`].
    /// [`Step::Run`] needs no such call.
    Here(Step),
    /// Tell the parent that this node and all nodes below it have finished the step.
    Up(Step),
    /// At the root daemon: the gang switch is over.
    Finished,
}

/// The state of the gang switch at one daemon of the tree. Each call returns the actions to
/// perform, in order.
#[derive(Debug)]
pub struct Switch {
    form: Form,
    drains: bool,
    is_root: bool,
    round: Round,
    /// The current step, if answers to it are awaited.
    step: Option<Step>,
    is_done_here: bool,
    /// Children that have not answered.
    awaited: Vec<u64>,
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
            step: None,
            is_done_here: false,
            awaited: Vec::new(),
        }
    }

    /// The current gang switch, or the last one.
    pub fn round(&self) -> &Round {
        &self.round
    }

    /// The step to which answers are awaited.
    pub fn step(&self) -> Option<Step> {
        self.step
    }

    /// Starts a gang switch at the root daemon. Call it only if no step is awaited.
    pub fn start(&mut self, out: Vec<JobId>, into: Vec<JobId>, children: &[u64]) -> Vec<Action> {
        debug_assert!(self.is_root && self.step.is_none());
        self.round = Round {
            number: self.round.number + 1,
            out,
            into,
            drains: self.drains,
        };
        self.begin(Step::Freeze, children)
    }

    /// Handles a step from the parent. A step of a past gang switch is ignored.
    pub fn handle_down(&mut self, round: Round, step: Step, children: &[u64]) -> Vec<Action> {
        if self.is_root || round.number < self.round.number {
            return Vec::new();
        }
        self.round = round;
        self.begin(step, children)
    }

    fn begin(&mut self, step: Step, children: &[u64]) -> Vec<Action> {
        let mut actions = Vec::from([Action::Down(step), Action::Here(step)]);
        self.is_done_here = false;
        self.awaited.clear();
        if step == Step::Run {
            self.step = None;
            if self.is_root {
                actions.push(Action::Finished);
            }
        } else {
            self.step = Some(step);
            self.awaited.extend_from_slice(children);
        }
        actions
    }

    /// Handles the end of a step on this node.
    pub fn handle_done(&mut self, step: Step, children: &[u64]) -> Vec<Action> {
        self.is_done_here |= self.step == Some(step);
        self.gather(children)
    }

    /// Handles the report of a child that it, and all daemons below it, have finished a step.
    pub fn handle_up(&mut self, child: u64, number: u64, step: Step, all: &[u64]) -> Vec<Action> {
        if number == self.round.number && self.step == Some(step) {
            self.awaited.retain(|awaited| *awaited != child);
        }
        self.gather(all)
    }

    /// Handles the loss of a child: nothing is awaited from it anymore.
    pub fn handle_lost(&mut self, child: u64, all: &[u64]) -> Vec<Action> {
        self.awaited.retain(|awaited| *awaited != child);
        self.gather(all)
    }

    fn gather(&mut self, children: &[u64]) -> Vec<Action> {
        let Some(step) = self.step else {
            return Vec::new();
        };
        if !self.is_done_here || !self.awaited.is_empty() {
            return Vec::new();
        }
        self.step = None;
        if !self.is_root {
            return Vec::from([Action::Up(step)]);
        }
        let next = match (self.form, step) {
            (Form::Two, _) | (Form::Seven, Step::Restore | Step::Run) => Step::Run,
            (Form::Seven, Step::Freeze) => Step::Save,
            (Form::Seven, Step::Save) => Step::Restore,
        };
        self.begin(next, children)
    }
}
