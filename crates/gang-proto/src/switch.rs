//! The switch protocol along the tree of daemons.

use crate::JobId;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// In how many rounds jobs are switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// FREEZE, FROZEN, SAVE, SAVED, RESTORE, RESTORED, RUN: contexts are copied out and in.
    Seven,
    /// FREEZE, FROZEN, RUN: contexts lie in each job's own memory, so that saving and restoring is
    /// to look at another.
    Two,
}

/// What all nodes do before any does the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Step {
    /// Stop the elements of the old jobs and bring their network to rest.
    #[n(0)]
    Freeze,
    /// Copy the old jobs' contexts out.
    #[n(1)]
    Save,
    /// Copy the new jobs' contexts in.
    #[n(2)]
    Restore,
    /// Let the elements of the new jobs run.
    #[n(3)]
    Run,
}

/// One switch: who goes, who comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Round {
    /// Number of the switch.
    #[n(0)]
    pub number: u64,
    /// The jobs that are switched out.
    #[n(1)]
    pub out: Vec<JobId>,
    /// The jobs that are switched in.
    #[n(2)]
    pub into: Vec<JobId>,
    /// Whether their networks are drained, on all nodes alike; else what is under way becomes
    /// stale.
    #[n(3)]
    pub drains: bool,
}

/// What a daemon is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell all children.
    Down(Step),
    /// Do it for the elements of this node, then call [`Switch::handle_done`]. For
    /// [`Step::Run`] nothing is awaited.
    Here(Step),
    /// Tell the parent that this node and all below it have done it.
    Up(Step),
    /// The root's: the switch is over.
    Finished,
}

/// A switch at one daemon of the tree. Each call returns what is to be done, in order.
#[derive(Debug)]
pub struct Switch {
    form: Form,
    drains: bool,
    is_root: bool,
    round: Round,
    /// The step under way, if one is awaited.
    step: Option<Step>,
    is_done_here: bool,
    /// Children that have not answered.
    awaited: Vec<u64>,
}

impl Switch {
    /// A daemon that has switched nothing yet. The root's form, and whether it drains networks,
    /// are those of all.
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

    /// The switch under way, or the last.
    pub fn round(&self) -> &Round {
        &self.round
    }

    /// The step that is awaited.
    pub fn step(&self) -> Option<Step> {
        self.step
    }

    /// Begins a switch, at the root. Call it while no step is awaited.
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

    /// The parent says what to do. A step of a switch that is past is ignored.
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

    /// This node has done the step.
    pub fn handle_done(&mut self, step: Step, children: &[u64]) -> Vec<Action> {
        self.is_done_here |= self.step == Some(step);
        self.gather(children)
    }

    /// A child, with all below it, has done the step of a switch.
    pub fn handle_up(&mut self, child: u64, number: u64, step: Step, all: &[u64]) -> Vec<Action> {
        if number == self.round.number && self.step == Some(step) {
            self.awaited.retain(|awaited| *awaited != child);
        }
        self.gather(all)
    }

    /// A child is gone: nothing is awaited from it any more.
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
