//! Clients, servers and the network between them in virtual time: the simulator that the first Ninf
//! paper announces (section 7).
//!
//! A call is placed, its arguments are sent, it waits for processor elements, computes, and its
//! results are sent back. Placement, queues and what is learned of functions and links are the code
//! of `farcall-schedule` that the server and the metaserver run; links are shared by the max-min
//! solver of `farcall-flow`. No clock, no I/O, and no random number but those of a scenario's seed.
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

mod network;
mod scenario;
mod search;
mod simulation;
mod view;

pub use scenario::{Arrival, Function, Machine, Port, Scenario, Site};
pub use search::best_assignment;
pub use simulation::{Outcome, Record, simulate, simulate_assigned};
