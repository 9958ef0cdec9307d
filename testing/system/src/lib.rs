//! Tools for tests of real processes: servers, metaservers and gangs, and a peer that sends
//! handmade bytes.
//!
//! Every process is a [`Daemon`]: it listens at a free port, prints the address on its first line,
//! and ends with the test. [`ServerProcess`] serves interfaces in a folder of its own. [`cluster`]
//! has a metaserver and servers, [`gang`] the daemons of gang jobs, [`trunk`] trunks between
//! network namespaces, [`program`] the programs of this tree. Tests wait with [`wait_until`], which
//! has a time limit. A failure here panics, as in a test.

pub mod cluster;
pub mod gang;
pub mod peer;
pub mod program;
pub mod server;
pub mod trunk;

pub use farcall_lab::Daemon;
pub use program::{built_library, daemon, farcall, farcall_path};
pub use server::ServerProcess;

use std::fmt::Display;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

/// The time limit of every wait.
pub const BOUND: Duration = Duration::from_secs(60);

/// Stops a daemon as an operator does. Returns whether it exited with success.
pub fn stop(daemon: &mut Daemon) -> bool {
    let status = daemon.stop(BOUND).expect("a child");
    status.expect("it ends").success()
}

/// Addresses at which nothing listens, for programs that cannot say which port they have found.
/// They are on a host of the loopback that this process alone uses, so that nobody else takes them
/// before the program does.
pub fn free_addresses<const N: usize>() -> [String; N] {
    let [_, first, second, third] = std::process::id().to_be_bytes();
    // Process identifiers have 22 bits. Most programs use the hosts below.
    let host = Ipv4Addr::new(127, 64 | first, second, third);
    // All at once, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind((host, 0)).expect("a port"));
    listeners.map(|free| free.local_addr().expect("bound").to_string())
}

/// Waits for a condition.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_until_ok(what, || match holds() {
        true => Ok(()),
        false => Err(""),
    });
}

/// Waits for a condition. If it does not come, the failure shows what was found instead.
pub fn wait_until_ok<E: Display>(what: &str, mut look: impl FnMut() -> Result<(), E>) {
    let end = Instant::now() + BOUND;
    while let Err(found) = look() {
        assert!(Instant::now() < end, "not within {BOUND:?}: {what} {found}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
