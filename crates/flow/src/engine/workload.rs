//! What the ranks do: a pattern, the queues of a file, or a trace. The engine runs it by a driver;
//! what depends on the kind of workload and not on its progress is decided here.

use super::{Completion, RunError};
use crate::goal::Goal;
use crate::pattern::Pattern;
use crate::placement::Placement;
use crate::platform::Platform;
use crate::script::Script;

/// The operations of all ranks.
#[derive(Debug, Clone)]
pub enum Workload {
    /// A pattern in closed form.
    Pattern(Pattern),
    /// The queues of a pattern file.
    Script(Script),
    /// The operations of a GOAL trace.
    Goal(Goal),
    /// Several programs at once, at most [`Placement::MOST_JOBS`](crate::Placement::MOST_JOBS).
    Jobs(Vec<Job>),
}

/// A program among others. Its ranks follow those of the job before it.
#[derive(Debug, Clone)]
pub struct Job {
    /// What it does; not several jobs again.
    pub workload: Workload,
    /// Seconds from the start of the simulation to that of the job.
    pub start: f64,
}

impl Workload {
    /// Number of ranks, or the largest number if several jobs have more.
    pub fn ranks(&self) -> u32 {
        match self {
            Self::Pattern(p) => p.ranks(),
            Self::Script(s) => s.ranks(),
            Self::Goal(g) => g.ranks(),
            Self::Jobs(jobs) => {
                let ranks = jobs.iter().map(|job| job.workload.ranks());
                ranks.fold(0, u32::saturating_add)
            }
        }
    }

    /// The event that completes a send unless the configuration names one: the arrival in patterns,
    /// as in the paper, and in traces, whose sends are eager, the departure.
    pub fn default_completion(&self) -> Completion {
        match self {
            Self::Pattern(_) | Self::Script(_) | Self::Jobs(_) => Completion::Destination,
            Self::Goal(_) => Completion::Source,
        }
    }

    /// Fails if the workload has more ranks than the platform, or the placement, has nodes.
    pub(crate) fn check_places(
        &self,
        platform: &Platform,
        placement: &Placement,
    ) -> Result<(), RunError> {
        let ranks = self.ranks() as usize;
        let places = placement
            .ranks()
            .unwrap_or(platform.nodes())
            .min(platform.nodes());
        if ranks > places {
            Err(RunError::TooManyRanks { ranks, places })
        } else {
            Ok(())
        }
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        match self {
            Self::Pattern(p) => p.messages(),
            Self::Script(s) => s.messages(),
            Self::Goal(g) => g.messages(),
            Self::Jobs(jobs) => jobs.iter().map(|job| job.workload.messages()).sum(),
        }
    }
}
