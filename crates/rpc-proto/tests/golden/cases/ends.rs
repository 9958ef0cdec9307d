//! Golden cases of calls and connections that end early: a cancelled call, a refused call, a server
//! that stops, and versions that do not match. Proof of a token is here as well, because it can end
//! a connection.

use super::calls::dgesv_call;
use super::{Answer, Case, Request, case};
use farcall_rpc_proto::{Failure, FailureKind, Hello, Limits, Listing};

pub(super) fn cancel() -> Case {
    let about = "The client gives a call up when one of three data frames is out. Then it asks\n\
                 for something else on the same connection.";
    let listing = Listing {
        functions: vec![],
        next: None,
    };
    let exchanges = vec![
        (dgesv_call(Some(1), true), Answer::Nothing),
        (Request::List(0), Answer::Listing(listing)),
    ];
    Case {
        limits: small_chunks(),
        ..case("cancel", about, exchanges)
    }
}

pub(super) fn refused() -> Case {
    let about = "The server refuses a call while its data are on their way. The client has sent\n\
                 one of three data frames, withdraws the rest, and goes on.";
    let text = "the call needs 192 bytes and the server allows 100";
    let failure = Failure::new(FailureKind::TooLarge, text);
    let listing = Listing {
        functions: vec![],
        next: None,
    };
    let exchanges = vec![
        (dgesv_call(Some(1), false), Answer::Failure(failure)),
        (Request::List(0), Answer::Listing(listing)),
    ];
    Case {
        limits: small_chunks(),
        ..case("refused", about, exchanges)
    }
}

pub(super) fn stopping() -> Case {
    let about = "The server is told to stop while a call runs.";
    let text = "the server is stopping; the call did not complete";
    let failure = Failure::new(FailureKind::ServerStopping, text);
    let exchanges = vec![(dgesv_call(None, false), Answer::Stop(failure))];
    case("stopping", about, exchanges)
}

pub(super) fn proof() -> Case {
    let about =
        "A client proves that it knows a token: the example of RFC 7677 between the greetings.";
    let listing = Listing {
        functions: vec![],
        next: None,
    };
    let exchanges = vec![(Request::List(0), Answer::Listing(listing))];
    let mut hello = Hello::new("golden client");
    hello.proof = Some("n,,n=user,r=rOprNGfwEbeRWgbNEkqO".to_string());
    Case {
        hello,
        ..case("proof", about, exchanges)
    }
}

pub(super) fn version() -> Case {
    let about = "A client that speaks versions 2 and 3 meets a server that speaks version 1.";
    let mut hello = Hello::new("golden client");
    (hello.version_min, hello.version_max) = (2, 3);
    Case {
        hello,
        ..case("version", about, vec![])
    }
}

fn small_chunks() -> Limits {
    Limits {
        chunk_bytes: 16,
        ..Limits::default()
    }
}
