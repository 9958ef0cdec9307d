//! Large simulations wait for memory most of the time, and need 15 % less time with huge pages.
//! glibc decides about them when a program starts, so the command starts itself again.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Links from which the data of a simulation no longer fit into the caches.
const LARGE: usize = 100_000;

/// Starts this command again with huge pages if the network is large. Call it before anything is
/// read or written. Somebody who has set the tunables of glibc keeps them.
pub(super) fn use_for_large_network(links: usize) {
    if links < LARGE || env::var_os(TUNABLES).is_some() {
        return;
    }
    if let Ok(program) = env::current_exe() {
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1));
        // Without a second start, the simulation takes longer, and gives the same.
        let _error = command.env(TUNABLES, "glibc.malloc.hugetlb=1").exec();
    }
}
