//! The golden case of an operator's requests: status and drain. It fixes the frames; `server-proto`
//! tests what a server does.

use super::{Answer, Case, Request, case};
use farcall_rpc_proto::OPERATION;

pub(super) fn operation() -> Case {
    let about = "How the server stands, and its end: two calls are to end before. Bit 12 of the\n\
                 features says that both sides have these requests.";
    let status = r#"{"schema":1,"state":"serving","pes":8,"pes_used":3}"#;
    let exchanges = vec![
        (Request::Status, Answer::StatusText(status)),
        (Request::Drain, Answer::Draining(2)),
    ];
    case("operation", about, exchanges).offering(OPERATION)
}
