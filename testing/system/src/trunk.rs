//! Trunks between network namespaces, for tests. They need root and `/dev/net/tun`. Without these,
//! [`lab`] prints SKIPPED with the reason, and the test ends.

use crate::{farcall_path, wait_until};
use farcall_lab::{Flow, FlowKind, Lab, LabError, Shape, TOPOLOGIES, TrunkProcess};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// A lab of one of the paper's topologies, or `None` with a printed reason.
pub fn lab(topology: usize, shape: Option<Shape>) -> Option<Lab> {
    if !Path::new("/dev/net/tun").exists() {
        println!("SKIPPED: /dev/net/tun is missing");
        return None;
    }
    match Lab::build(TOPOLOGIES[topology].links, shape) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotRoot | LabError::NoProgram(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A file with a key, which is removed when this is dropped. No other user can read it.
pub fn key_file() -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "0123456789abcdef0123456789abcdef").expect("room");
    file
}

/// Starts a trunk on each host of a lab.
pub fn trunks(lab: &Lab, options: &[&str]) -> Vec<TrunkProcess> {
    let started = lab.start_trunks(Path::new(farcall_path()), options);
    started.expect("the trunks start")
}

/// What `farcall trunk status` says on a host.
pub fn status(lab: &Lab, host: usize) -> serde_json::Value {
    let text = lab.output(host, farcall_path(), &["trunk", "status", "--json"]);
    serde_json::from_str(&text.expect("it answers")).expect("JSON")
}

/// A flow over the trunk to host 0 that has carried some bytes.
pub fn flow(lab: &Lab, from: usize) -> Flow {
    let now = Instant::now();
    let kind = FlowKind::Tcp(lab.trunk_address(0));
    let flow = Flow::start(lab, (from, 0), kind, now, now).expect("it starts");
    wait_until("data", || flow.bytes(Duration::ZERO, flow.now()) > 1 << 20);
    flow
}
