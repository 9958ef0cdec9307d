//! The interface between the engine and the operations of the ranks. It is the same for queues and
//! for dependency graphs.

use super::dag::Dag;
use super::jobs::Jobs;
use super::queues::Queues;
use super::report::Deadlock;
use super::{Completion, Workload};
use crate::placement::Placement;
use crate::platform::Platform;

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
    /// Call back with `token` after `delay` seconds, and the latency of the platform between two
    /// ranks if there are any.
    Wake {
        delay: f64,
        between: Option<(u32, u32)>,
        token: u64,
    },
}

/// Latency of the platform between two ranks in seconds; 0 without them.
pub(crate) fn latency(
    platform: &Platform,
    placement: &Placement,
    between: Option<(u32, u32)>,
) -> f64 {
    between.map_or(0.0, |(rank, to)| {
        platform.latency_of(placement.node(rank), placement.node(to), 0)
    })
}

/// How hosts send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    /// Sends of one rank, or of one interface of a trace, that may be under way.
    pub(crate) window: u32,
    /// The event that completes a send, if the caller chose one.
    pub(crate) completion: Option<Completion>,
    /// Seconds of a host before each send, in patterns and pattern files.
    pub(crate) overhead: f64,
    /// Latency of the platform.
    pub(crate) latency: f64,
}

pub(crate) enum Driver {
    Queues(Queues),
    Dag(Box<Dag>),
    Jobs(Jobs),
}

impl Driver {
    /// A driver of `workload`.
    pub(crate) fn new(workload: Workload, sending: Sending) -> Self {
        let default = workload.default_completion();
        let chosen = Sending {
            window: sending.window.max(1),
            completion: Some(sending.completion.unwrap_or(default)),
            ..sending
        };
        match workload {
            Workload::Pattern(pattern) => Self::Queues(Queues::of_pattern(pattern, chosen)),
            Workload::Script(script) => Self::Queues(Queues::of_script(script, chosen)),
            Workload::Goal(goal) => Self::Dag(Box::new(Dag::new(goal, chosen))),
            Workload::Jobs(jobs) => Self::Jobs(Jobs::new(jobs, sending)),
        }
    }

    pub(crate) fn begin(&mut self, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.begin(out),
            Self::Dag(dag) => dag.begin(),
            Self::Jobs(jobs) => jobs.begin(out),
        }
    }

    /// The last byte of a message has left its sender.
    #[inline]
    pub(crate) fn left(&mut self, now: f64, rank: u32, token: u32, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.left(rank, out),
            Self::Dag(dag) => dag.left(now, token),
            Self::Jobs(jobs) => jobs.left(now, rank, token, out),
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
            Self::Jobs(jobs) => jobs.arrived(now, rank, to, token, out),
        }
    }

    /// Seconds that a message of a rank travels besides the latency of the platform.
    #[inline]
    pub(crate) fn latency(&self, rank: u32) -> f64 {
        match self {
            Self::Queues(_) => 0.0,
            Self::Dag(dag) => dag.message_latency(),
            Self::Jobs(jobs) => jobs.latency(rank),
        }
    }

    pub(crate) fn wake(&mut self, now: f64, token: u64, out: &mut Vec<Action>) {
        match self {
            Self::Queues(queues) => queues.wake(token as u32, out),
            Self::Dag(dag) => dag.wake(now, token),
            Self::Jobs(jobs) => jobs.wake(now, token, out),
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
        if at == actions.len() {
            match self {
                Self::Queues(_) => {}
                Self::Dag(dag) => dag.settle(now, actions),
                Self::Jobs(jobs) => jobs.settle(now, actions),
            }
        }
        actions.get(at).copied()
    }

    /// When each job ended, if there are several jobs.
    pub(crate) fn job_ends(&self) -> Vec<f64> {
        match self {
            Self::Queues(_) | Self::Dag(_) => Vec::new(),
            Self::Jobs(jobs) => jobs.ends(),
        }
    }

    pub(crate) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        match self {
            Self::Queues(queues) => queues.deadlock(time),
            Self::Dag(dag) => dag.deadlock(time),
            Self::Jobs(jobs) => jobs.deadlock(time),
        }
    }
}
