//! The interface between the engine and the operations of the ranks. It is the same for queues and
//! for dependency graphs.

use super::Workload;
use super::dag::Dag;
use super::queues::Queues;
use super::report::Deadlock;

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
    /// Call back with `token` after `delay` seconds.
    Wake { delay: f64, token: u32 },
}

pub(crate) enum Driver {
    Queues(Queues),
    Dag(Box<Dag>),
}

impl Driver {
    pub(crate) fn new(workload: Workload, window: u32) -> Self {
        let window = window.max(1);
        match workload {
            Workload::Pattern(pattern) => Self::Queues(Queues::of_pattern(pattern, window)),
            Workload::Script(script) => Self::Queues(Queues::of_script(script, window)),
            Workload::Goal(goal) => Self::Dag(Box::new(Dag::new(goal, window))),
        }
    }

    pub(crate) fn begin(&mut self, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.begin(out),
            Self::Dag(dag) => dag.begin(out),
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, rank: u32, token: u32, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.sent(rank, out),
            Self::Dag(dag) => dag.sent(token, out),
        }
    }

    #[inline]
    pub(crate) fn arrived(&mut self, rank: u32, to: u32, token: u32, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.arrived(rank, to, out),
            Self::Dag(dag) => dag.arrived(token, out),
        }
    }

    pub(crate) fn wake(&mut self, token: u32, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.wake(token, out),
            Self::Dag(dag) => dag.wake(token, out),
        }
    }

    pub(crate) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        match self {
            Self::Queues(queues) => queues.deadlock(time),
            Self::Dag(dag) => dag.deadlock(time),
        }
    }
}
