//! The golden case of an operator's requests: status and drain. It fixes the frames; `server-proto`
//! tests what a server does.

use super::{Answer, Case, Request, case};
use farcall_rpc_proto::{AskSnapshot, OPERATION, SNAPSHOTS};

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

pub(super) fn snapshot() -> Case {
    let about = "A page that watches a server: the 50 calls after the first 100 whose function or\n\
                 user contains a word. Bit 24 of the features says that both sides have this\n\
                 question.";
    let asked = AskSnapshot {
        from: 100,
        most: 50,
        search: "dgesv".to_string(),
    };
    let snapshot = r#"{"schema":1,"kind":"server","calls":{"total":100,"rows":[]}}"#;
    let exchanges = vec![(Request::AskSnapshot(asked), Answer::StatusText(snapshot))];
    case("snapshot", about, exchanges).offering(OPERATION | SNAPSHOTS)
}
