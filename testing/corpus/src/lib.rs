//! The fuzz targets without a fuzzer: their bodies, their corpus, and a test that replays it.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/channel_packet.rs"]
mod channel_packet;
#[path = "../../../fuzz/src/directory_message.rs"]
mod directory_message;
#[path = "../../../fuzz/src/flow_goal.rs"]
mod flow_goal;
#[path = "../../../fuzz/src/flow_pattern.rs"]
mod flow_pattern;
#[path = "../../../fuzz/src/flow_platform.rs"]
mod flow_platform;
#[path = "../../../fuzz/src/gang_message.rs"]
mod gang_message;
#[path = "../../../fuzz/src/idl_expr.rs"]
mod idl_expr;
#[path = "../../../fuzz/src/idl_parse.rs"]
mod idl_parse;
#[path = "../../../fuzz/src/npy_header.rs"]
mod npy_header;
#[path = "../../../fuzz/src/plan_parse.rs"]
mod plan_parse;
#[path = "../../../fuzz/src/rpc_call.rs"]
mod rpc_call;
#[path = "../../../fuzz/src/rpc_callback.rs"]
mod rpc_callback;
#[path = "../../../fuzz/src/rpc_client.rs"]
mod rpc_client;
#[path = "../../../fuzz/src/rpc_server.rs"]
mod rpc_server;
#[path = "../../../fuzz/src/rpc_submission.rs"]
mod rpc_submission;
#[path = "../../../fuzz/src/trunk_control.rs"]
mod trunk_control;
#[path = "../../../fuzz/src/trunk_frame.rs"]
mod trunk_frame;

/// The body of a fuzz target.
pub type Body = fn(&[u8]);

/// Every fuzz target: its name, which is also that of its corpus, and its body.
pub const TARGETS: [(&str, Body); 17] = [
    ("channel_packet", channel_packet::run),
    ("directory_message", directory_message::run),
    ("flow_goal", flow_goal::run),
    ("flow_pattern", flow_pattern::run),
    ("flow_platform", flow_platform::run),
    ("gang_message", gang_message::run),
    ("idl_expr", idl_expr::run),
    ("idl_parse", idl_parse::run),
    ("npy_header", npy_header::run),
    ("plan_parse", plan_parse::run),
    ("rpc_call", rpc_call::run),
    ("rpc_callback", rpc_callback::run),
    ("rpc_client", rpc_client::run),
    ("rpc_server", rpc_server::run),
    ("rpc_submission", rpc_submission::run),
    ("trunk_control", trunk_control::run),
    ("trunk_frame", trunk_frame::run),
];

/// The inputs in the corpus of a target.
///
/// # Panics
/// If the corpus cannot be read.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let files = fs::read_dir(fuzz.join("corpus").join(target)).expect("the target has a corpus");
    let read = |file: std::io::Result<fs::DirEntry>| file.and_then(|file| fs::read(file.path()));
    files
        .map(|file| read(file).expect("a file of the corpus"))
        .collect()
}
