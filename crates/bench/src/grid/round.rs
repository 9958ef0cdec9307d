//! A round: the same calls under each policy, at the requested load. A round that turns out to have
//! had another load is repeated, whatever its figures are, so that nobody can choose among figures.

use super::calls::{self, Made, PROBES, Planned, Speed};
use super::world::World;
use super::{POLICIES, tell};
use crate::failure::Failure;
use crate::load::problem::Problem;
use indicatif::ProgressBar;
use std::path::PathBuf;

/// Accepted error of the load of a round, as a part of the requested load.
pub(super) const TOLERANCE: f64 = 0.1;
/// Number of rounds at another load after which the machine counts as too unsteady.
const PATIENCE: usize = 6;

/// The parameters that are the same in all rounds.
pub(super) struct Course<'a> {
    pub(super) world: &'a World,
    pub(super) interfaces: &'a [PathBuf],
    pub(super) plan: &'a [Planned],
    /// Load of the calls, as a part of the capacity of both servers.
    pub(super) load: f64,
    /// Accepted error of the load in a round.
    pub(super) tolerance: f64,
    /// Whether to print each call, and whether to print nothing at all.
    pub(super) each: bool,
    pub(super) quiet: bool,
    pub(super) bar: &'a ProgressBar,
}

/// The results of a round.
pub(super) struct Round {
    pub(super) window_s: f64,
    /// The calls under each of [`POLICIES`].
    pub(super) runs: Vec<Vec<Made>>,
    /// The speeds of the servers and their links during the round.
    pub(super) speeds: Vec<Speed>,
}

impl Course<'_> {
    /// Runs this number of rounds at the requested load. Before a round, the speed of the servers
    /// is known only from earlier measurements. If a round turns out to have had another load, it
    /// is repeated, whatever its figures are.
    pub(super) fn rounds(&self, rounds: usize) -> Result<Vec<Round>, Failure> {
        let grid = self.world.start(POLICIES[0], self.interfaces)?;
        let mut speeds = calls::speeds(self.world, &grid)?;
        drop(grid);
        let (mut made, mut off) = (Vec::new(), 0);
        while made.len() < rounds {
            let round = self.round(&speeds)?;
            speeds.clone_from(&round.speeds);
            let load = self.busy(&round.speeds) / round.window_s;
            let counts = (load / self.load - 1.0).abs() <= self.tolerance;
            if !self.quiet {
                round.tell_of_load(load, counts);
            }
            match counts {
                true => made.push(round),
                false if off == PATIENCE => return Err(self.unsteady()),
                false => {
                    off += 1;
                    self.bar
                        .inc_length((POLICIES.len() * self.plan.len()) as u64);
                }
            }
        }
        Ok(made)
    }

    fn round(&self, speeds: &[Speed]) -> Result<Round, Failure> {
        let window_s = self.busy(speeds) / self.load;
        let mut runs = Vec::new();
        for policy in POLICIES {
            let message = format!("{policy}, calls within {window_s:.0} s");
            self.bar.set_message(message);
            let grid = self.world.start(policy, self.interfaces)?;
            let made = calls::make(self.world, &grid, self.plan, window_s, self.bar)?;
            if !self.quiet {
                tell(policy, window_s, self.plan, &made, self.each);
            }
            runs.push(made);
        }
        let speeds = speeds.iter().enumerate();
        let speeds = speeds.map(|(server, speed)| speed.refined(server, self.plan, &runs));
        Ok(Round {
            window_s,
            speeds: speeds.collect(),
            runs,
        })
    }

    /// Seconds for which the calls keep all processors busy, or all links if that is longer.
    fn busy(&self, speeds: &[Speed]) -> f64 {
        let fastest = |kind: usize| {
            let speeds = speeds.iter().map(|speed| speed.operations[kind]);
            speeds.fold(0.0, f64::max)
        };
        let of = |one: &Planned| {
            let is_it = |probe: &Problem| probe.function() == one.problem.function();
            let kind = PROBES.iter().position(is_it);
            one.problem.operations() / fastest(kind.unwrap_or(0))
        };
        let computed_s = self.plan.iter().map(of).sum::<f64>() / self.world.processors();
        let bytes: f64 = self.plan.iter().map(|one| one.problem.ways()[0]).sum();
        let sent_s = bytes / speeds.iter().map(|speed| speed.up).sum::<f64>();
        computed_s.max(sent_s)
    }

    fn unsteady(&self) -> Failure {
        Failure::failed(format!(
            "{} rounds were not at a load of {} within {:.0} %: the machine's speed varies too \
             much; end what else runs on it, or ask for less with --load",
            PATIENCE + 1,
            self.load,
            self.tolerance * 100.0,
        ))
    }
}

impl Round {
    /// Prints the speed of the servers and their links, and the load of the round.
    fn tell_of_load(&self, load: f64, counts: bool) {
        for (server, Speed { operations, up }) in self.speeds.iter().enumerate() {
            let [linpack, ep] = operations.map(|rate| rate * 1e-6);
            println!(
                "server {server}: Linpack {linpack:.0} Mflop/s, EP {ep:.1} million operations/s, \
                 {:.2} MB/s to it",
                up * 1e-6
            );
        }
        let end = if counts {
            ""
        } else {
            ": this round is repeated"
        };
        println!("the load was {load:.2} of the capacity of both servers{end}");
    }
}
