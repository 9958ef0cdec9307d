//! The bodies of the fuzz targets, without a fuzzer, so that a test can replay their corpus. Each
//! module says which input it takes and what must hold. A body ends without a panic for any bytes.

use std::fs;
use std::path::Path;

pub mod channel_packet;
pub mod directory_message;
pub mod flow_chakra;
pub mod flow_goal;
pub mod flow_pattern;
pub mod flow_platform;
pub mod flow_schedule;
pub mod gang_checkpoint;
pub mod gang_message;
pub mod gang_pmi;
pub mod gateway_arguments;
pub mod idl_expr;
pub mod idl_parse;
pub mod npy_header;
pub mod plan_parse;
pub mod record_lines;
pub mod rpc_call;
pub mod rpc_callback;
pub mod rpc_client;
pub mod rpc_server;
pub mod rpc_submission;
pub mod scram_message;
pub mod source_answer;
pub mod state_log;
pub mod trunk_control;
pub mod trunk_frame;
pub mod trunk_packet;

/// The body of a fuzz target.
pub type Body = fn(&[u8]);

/// Every fuzz target: its name, which is also the name of its corpus, and its body.
pub const TARGETS: [(&str, Body); 27] = [
    ("channel_packet", channel_packet::run),
    ("directory_message", directory_message::run),
    ("flow_chakra", flow_chakra::run),
    ("flow_goal", flow_goal::run),
    ("flow_pattern", flow_pattern::run),
    ("flow_platform", flow_platform::run),
    ("flow_schedule", flow_schedule::run),
    ("gang_checkpoint", gang_checkpoint::run),
    ("gang_message", gang_message::run),
    ("gang_pmi", gang_pmi::run),
    ("gateway_arguments", gateway_arguments::run),
    ("idl_expr", idl_expr::run),
    ("idl_parse", idl_parse::run),
    ("npy_header", npy_header::run),
    ("plan_parse", plan_parse::run),
    ("record_lines", record_lines::run),
    ("rpc_call", rpc_call::run),
    ("rpc_callback", rpc_callback::run),
    ("rpc_client", rpc_client::run),
    ("rpc_server", rpc_server::run),
    ("rpc_submission", rpc_submission::run),
    ("scram_message", scram_message::run),
    ("source_answer", source_answer::run),
    ("state_log", state_log::run),
    ("trunk_control", trunk_control::run),
    ("trunk_frame", trunk_frame::run),
    ("trunk_packet", trunk_packet::run),
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
