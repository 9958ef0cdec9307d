//! The interface between the engine and the operations of the ranks. It is the same for queues and
//! for dependency graphs.

use super::dag::Dag;
use super::queues::Queues;
use super::report::Deadlock;
use super::{Completion, Workload};

/// An action that a driver asks the engine to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// Start a message now. The engine passes `token` back when the message is sent and when it has
    /// arrived.
    Send {
        rank: u32,
        to: u32,
        bytes: f64,
        token: u32,
    },
    /// Record that a cpu of a rank computes from now on.
    Compute { rank: u32, cpu: u8, seconds: f64 },
    /// Call back with `token` after `delay` seconds.
    Wake { delay: f64, token: u64 },
}

pub(crate) enum Driver {
    Queues(Queues),
    Dag(Box<Dag>),
}

impl Driver {
    /// A driver of `workload`. `completion` is the event that completes a send, if the caller
    /// chose one; `latency` is that of the platform.
    pub(crate) fn new(
        workload: Workload,
        window: u32,
        completion: Option<Completion>,
        latency: f64,
    ) -> Self {
        let window = window.max(1);
        let completion = completion.unwrap_or(workload.default_completion());
        match workload {
            Workload::Pattern(pattern) => {
                Self::Queues(Queues::of_pattern(pattern, window, completion))
            }
            Workload::Script(script) => Self::Queues(Queues::of_script(script, window, completion)),
            Workload::Goal(goal) => {
                Self::Dag(Box::new(Dag::new(goal, window, completion, latency)))
            }
        }
    }

    pub(crate) fn begin(&mut self, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.begin(out),
            Self::Dag(dag) => dag.begin(),
        }
    }

    /// The last byte of a message has left its sender.
    #[inline]
    pub(crate) fn left(&mut self, now: f64, rank: u32, token: u32, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.left(rank, out),
            Self::Dag(dag) => dag.left(now, token),
        }
    }

    /// The last byte of a message has arrived. [`Self::left`] was called before.
    #[inline]
    pub(crate) fn arrived(
        &mut self,
        now: f64,
        rank: u32,
        to: u32,
        token: u32,
        out: &mut Vec<Action>,
    ) {
        match self {
            Self::Queues(queues) => queues.arrived(rank, to, out),
            Self::Dag(dag) => dag.arrived(now, token),
        }
    }

    pub(crate) fn wake(&mut self, now: f64, token: u64, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.wake(token as u32, out),
            Self::Dag(dag) => dag.wake(now, token),
        }
    }

    /// The action at this place. If there is none yet, everything that happens at this time has
    /// been reported, and the driver decides what starts. The caller carries out all actions in
    /// turn.
    #[inline]
    pub(crate) fn next_action(
        &mut self,
        now: f64,
        at: usize,
        actions: &mut Vec<Action>,
    ) -> Option<Action> {
        if at == actions.len()
            && let Self::Dag(dag) = self
        {
            dag.settle(now, actions);
        }
        actions.get(at).copied()
    }

    pub(crate) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        match self {
            Self::Queues(queues) => queues.deadlock(time),
            Self::Dag(dag) => dag.deadlock(time),
        }
    }
}
