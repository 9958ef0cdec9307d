//! Message-flow simulation of interconnects: it predicts the time of a communication pattern on a
//! network.
//!
//! Messages are continuous flows that share links. The time to the next completion follows from
//! their rates (Yazaki and Ishihata, Development of a Message Flow Simulator for Evaluation of
//! Communication Algorithms, 2010). Sharing is exact max-min fairness by default. The paper's two
//! approximations are also available. The crate does no I/O, reads no clock, and takes every seed
//! for random numbers from its caller.
//!
//! ```
//! use farcall_flow::{Config, Pattern, Placement, Platform, Simulation, Workload};
//!
//! let platform = Platform::parse("fat-tree:ports=6,levels=3")?;
//! let pattern = Pattern::parse("all-to-all:simple-spread", platform.nodes() as u32, 1.0)?;
//! let workload = Workload::Pattern(pattern);
//! let config = Config { verify: true, ..Config::default() };
//! let mut simulation = Simulation::new(&platform, workload, Placement::regular(), config)?;
//! assert_eq!(simulation.run()?.makespan, 53.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod engine;
mod error;
mod goal;
mod loggops;
mod packet;
mod pattern;
mod perfetto;
mod placement;
pub mod platform;
mod routing;
mod script;
pub mod solver;

pub use engine::{
    Blocked, Completion, Computation, Config, Deadlock, Job, LinkLoad, LinkUser, MessageRecord,
    Mode, Record, RunError, Simulation, Sink, Summary, Workload, hottest_links,
};
pub use error::{SpecError, TextError};
pub use farcall_random::SplitMix64;
pub use goal::{ANY_RANK, ANY_TAG, Goal, Operation};
pub use loggops::LogGops;
pub use packet::{PacketConfig, PacketSimulation};
pub use pattern::{Kind, PATTERN_KINDS, Pattern, Round};
pub use perfetto::Trace;
pub use placement::Placement;
pub use platform::Platform;
pub use routing::{Failure, Routing};
pub use script::{Limits, Script, Step};
