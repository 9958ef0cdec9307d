//! Golden cases about functions: lists, interfaces, registration and estimates. They contain a
//! refusal of each request that a server can refuse.

use super::calls::{DGESV, FUNCTION, dgesv_values};
use super::{Answer, Case, Request, case};
use farcall_rpc_proto::{
    CALL_STATUS, CallName, CallPhase, CallStatus, ESTIMATES, Estimate, Expected, Failure,
    FailureKind, FunctionSummary, Hello, JobId, Listing, REGISTER,
};

pub(super) fn directory() -> Case {
    let about = "A client with a token asks what there is, in two pages, and for a function that\n\
                 is not there.";
    let summary = |name: &str, title: &str| FunctionSummary {
        name: name.to_string(),
        title: title.to_string(),
    };
    let first = Listing {
        functions: vec![
            summary("blas/ddot", "Inner product"),
            summary("fft/plan", ""),
        ],
        next: Some(2),
    };
    let second = Listing {
        functions: vec![summary("lapack/dgesv", "Solve A X = B")],
        next: None,
    };
    let text = "there is no function `dgesw`; did you mean `dgesv`?";
    let unknown = Failure::new(FailureKind::UnknownFunction, text);
    let exchanges = vec![
        (Request::List(0), Answer::Listing(first)),
        (Request::List(2), Answer::Listing(second)),
        (Request::Describe("dgesw"), Answer::Failure(unknown)),
    ];
    let mut hello = Hello::new("golden client");
    hello.token = Some("secret".to_string());
    Case {
        hello,
        ..case("directory", about, exchanges)
    }
}

pub(super) fn register() -> Case {
    let about = "An interface file registered with a running server, and one that may not be.\n\
                 Bit 16 of the features says that both sides have this request.";
    let functions = vec![FunctionSummary {
        name: "blas/ddot".to_string(),
        title: String::new(),
    }];
    let added = Listing {
        functions,
        next: None,
    };
    let refused = Failure::new(FailureKind::NotAllowed, "bob may not register libraries");
    let text = "Module blas;";
    let exchanges = vec![
        (
            Request::Register("/srv/blas.idl", text),
            Answer::Listing(added),
        ),
        (
            Request::Register("/srv/blas.idl", text),
            Answer::Failure(refused),
        ),
    ];
    case("register", about, exchanges).offering(REGISTER)
}

pub(super) fn estimate() -> Case {
    let about = "Which library is behind dgesv, and what a call of it would take: 5 us in the\n\
                 library, give or take a factor of 1.5, 1 us for a worker, 100 MB/s up, down not\n\
                 known. Bit 4 of the features says that both sides have these questions.";
    let library = Some("libopenblas.so.0: OpenBLAS 0.3.21, kernel Haswell".to_string());
    let estimate = Estimate {
        exec: Some(5_000),
        factor: Some(1.5),
        wait: 1_000,
        up: Some(100_000_000),
        down: None,
        pes: Some(16),
    };
    let (call, _) = dgesv_values();
    let exchanges = vec![
        (
            Request::Describe("dgesv"),
            Answer::Interface(FUNCTION, DGESV.to_string(), library),
        ),
        (Request::Estimate(call), Answer::Estimate(estimate)),
    ];
    case("estimate", about, exchanges).offering(ESTIMATES)
}

pub(super) fn call_status() -> Case {
    let about = "How a durable call fares: it waits for its turn, and will start in 20 s,\n\
                 probably not before 5 s and not after 70 s, and end a second later. Request\n\
                 7 of this connection has ended. Bit 21 of the features says that both sides\n\
                 have this question.";
    let job = JobId(*b"durable call 001");
    let expected = |seconds: [u64; 3]| {
        let [low, likely, high] = seconds.map(|seconds| seconds * 1_000_000_000);
        Some(Expected { low, likely, high })
    };
    let waits = CallStatus {
        phase: CallPhase::Waiting,
        reason: "waits for 2 processor elements; 3 of your calls are before it".to_string(),
        starts: expected([5, 20, 70]),
        ends: expected([6, 21, 71]),
    };
    let over = CallStatus {
        phase: CallPhase::Over,
        reason: "has ended".to_string(),
        starts: None,
        ends: None,
    };
    let exchanges = vec![
        (
            Request::AskCall(CallName::Durable(job)),
            Answer::CallStatus(waits),
        ),
        (
            Request::AskCall(CallName::Open(7)),
            Answer::CallStatus(over),
        ),
    ];
    case("call-status", about, exchanges).offering(CALL_STATUS)
}
