//! The corpus of the fuzz targets, through the same bodies.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/rpc_call.rs"]
mod rpc_call;
#[path = "../../../fuzz/src/rpc_client.rs"]
mod rpc_client;
#[path = "../../../fuzz/src/rpc_server.rs"]
mod rpc_server;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{target} has no corpus");
}

#[test]
fn rpc_server_takes_its_corpus() {
    replay("rpc_server", rpc_server::run);
}

#[test]
fn rpc_client_takes_its_corpus() {
    replay("rpc_client", rpc_client::run);
}

#[test]
fn rpc_call_takes_its_corpus() {
    replay("rpc_call", rpc_call::run);
}
