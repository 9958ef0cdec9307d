//! Tests what a server leaves behind that is stopped before it serves. Its end after it has served
//! is tested with its operation.

use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us) Calls \"C\" usleep(us);
";

/// The processes of each control group that a server has made.
fn groups(server: &Child) -> Vec<String> {
    let name = format!("farcall-{}-*", server.id());
    let mut find = Command::new("find");
    let found = find.args(["/sys/fs/cgroup", "-name", &name]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let processes = |group| std::fs::read_to_string(format!("{group}/cgroup.procs"));
    let groups = found.lines();
    groups
        .map(|group| processes(group).unwrap_or_default())
        .collect()
}

/// Needs the right to make control groups.
#[test]
fn a_server_that_is_stopped_while_it_starts_leaves_no_group() {
    let folder = farcall_system::server::folder();
    std::fs::write(folder.path().join("system.idl"), IDL).unwrap();
    for round in 0..20 {
        let mut command = farcall_system::farcall();
        command.args(["serve", "system.idl", "--listen", "127.0.0.1:0"]);
        command.current_dir(folder.path()).stdout(Stdio::null());
        let mut server = command.spawn().unwrap();
        let begun = Instant::now();
        let has_worker = loop {
            let has_worker = groups(&server).iter().any(|group| !group.is_empty());
            if has_worker || begun.elapsed() > Duration::from_secs(5) {
                break has_worker;
            }
        };
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        assert!(server.wait().unwrap().success());
        if !has_worker {
            assert_eq!(round, 0, "no worker within five seconds");
            return eprintln!("SKIPPED: this test needs the right to make control groups");
        }
        assert_eq!(groups(&server), [""; 0]);
    }
}
