//! What tests of real processes need: servers, metaservers and gangs of their own, and a peer whose
//! bytes are made by hand.
//!
//! Every process is a [`Daemon`]: it listens at a free port, its first line says where, and it ends
//! with the test. [`ServerProcess`] is one that serves interfaces, with a folder of its own;
//! [`cluster`] has a metaserver and servers, [`gang`] the daemons of parallel jobs, [`program`] the
//! programs of this tree. Tests wait with [`wait_until`], which has a time limit. All of it panics
//! where it fails, as a test does.

pub mod cluster;
pub mod gang;
pub mod peer;
pub mod program;
pub mod server;

pub use farcall_lab::Daemon;
pub use program::{daemon, farcall, farcall_path};
pub use server::ServerProcess;

use std::time::{Duration, Instant};

/// Bound of every wait.
pub const BOUND: Duration = Duration::from_secs(60);

/// Ends a daemon as an operator does; whether it was content.
pub fn stop(daemon: &mut Daemon) -> bool {
    let status = daemon.stop(BOUND).expect("a child");
    status.expect("it ends").success()
}

/// Waits for a condition.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < end, "not within {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
