//! Simulates clients, servers and the network between them in virtual time. The first Ninf paper
//! announces such a simulator (section 7).
//!
//! The simulator places each call and sends its arguments. The call waits for processor elements
//! and computes, and the simulator sends its results back. Placement, queues and the learned data
//! about functions and links are the code of `farcall-schedule`, which the server and the
//! metaserver also run. The max-min solver of `farcall-flow` shares the links. The crate reads no
//! clock, does no I/O, and its only random numbers come from the seed of a scenario.
//!
//! ```
//! use farcall_gridsim::{Scenario, simulate};
//! use farcall_schedule::placement::Policy;
//!
//! let scenario = Scenario::random(1, 4);
//! let soonest = simulate(&scenario, Policy::Completion);
//! let in_turn = simulate(&scenario, Policy::RoundRobin);
//! assert!(soonest.makespan_s() < in_turn.makespan_s());
//! ```

#![forbid(unsafe_code)]

mod load;
mod network;
mod scenario;
mod search;
mod simulation;
mod view;

pub use load::{Crowd, Figures, Host, Load, Rates, Repeated, Spread, simulate_load};
pub use scenario::{Arrival, Function, Known, Machine, Pace, Port, Scenario, Site};
pub use search::best_assignment;
pub use simulation::{Outcome, Record, simulate};
