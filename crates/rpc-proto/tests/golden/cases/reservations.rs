//! Golden cases of reservations: processor elements, and bandwidth. They include a call that names
//! its reservation.

use super::calls::FUNCTION;
use super::{Answer, Case, Request, case};
use farcall_rpc_proto::{
    Call, DEADLINES, Failure, FailureKind, RESERVATIONS, ReservationPage, ReservationRecord,
    ReservationRequest, Reserve,
};

pub(super) fn reservations() -> Case {
    let about = "Two processor elements are reserved, a call names them, they are listed and\n\
                 given up; more than are free are refused, or reserved for when they\n\
                 are. Bit 19 of the features.";
    let wanted = Reserve {
        pes: 2,
        start: 1500,
        length: 60_000,
        up: 0,
        down: 0,
        latest: None,
    };
    let soon = Reserve {
        latest: Some(u64::MAX),
        ..wanted
    };
    let record = ReservationRecord {
        id: 3,
        pes: 2,
        begins: 1500,
        ends: 61_500,
        up: 0,
        down: 0,
    };
    let one = |record| {
        Answer::Reservations(ReservationPage {
            reservations: vec![record],
            next: None,
        })
    };
    let begun = ReservationRecord {
        begins: 0,
        ends: 40_000,
        ..record
    };
    let text = "2 processor elements are free for 60 s in 40 s at the earliest";
    let refused = Failure {
        earliest: Some(40_000),
        ..Failure::new(FailureKind::NotFree, text)
    };
    let later = ReservationRecord {
        id: 4,
        begins: 40_000,
        ends: 100_000,
        ..record
    };
    let asked = Request::Reservations;
    let exchanges = vec![
        (asked(ReservationRequest::Reserve(wanted)), one(record)),
        (call_with(Some(3), None), Answer::Result(vec![])),
        (asked(ReservationRequest::List(0)), one(begun)),
        (
            asked(ReservationRequest::Reserve(wanted)),
            Answer::Failure(refused),
        ),
        (asked(ReservationRequest::Reserve(soon)), one(later)),
        (asked(ReservationRequest::Release(3)), one(begun)),
    ];
    case("reservations", about, exchanges).offering(RESERVATIONS)
}

pub(super) fn bandwidth() -> Case {
    let about = "Bandwidth is reserved, and the connection has it; of another user's reservation\n\
                 it has none. Bit 19 of the features.";
    let wanted = Reserve {
        pes: 0,
        start: 0,
        length: 60_000,
        up: 5_000_000,
        down: 10_000_000,
        latest: None,
    };
    let record = ReservationRecord {
        id: 4,
        pes: 0,
        begins: 0,
        ends: 60_000,
        up: wanted.up,
        down: wanted.down,
    };
    let page = || {
        Answer::Reservations(ReservationPage {
            reservations: vec![record],
            next: None,
        })
    };
    let refused = Failure::new(FailureKind::NotFound, "there is no reservation 5");
    let asked = Request::Reservations;
    let exchanges = vec![
        (asked(ReservationRequest::Reserve(wanted)), page()),
        (asked(ReservationRequest::Attach(4)), page()),
        (
            asked(ReservationRequest::Attach(5)),
            Answer::Failure(refused),
        ),
    ];
    case("bandwidth", about, exchanges).offering(RESERVATIONS)
}

pub(super) fn deadlines() -> Case {
    let about = "A call must end within 2.5 s, and the server promises that. The next one cannot \
                 end within 0.3 s, and is told what can be promised.";
    let text = "test/null: an end within 0.3 s cannot be promised; an end within 1.9 s can";
    let refused = Failure {
        earliest: Some(1900),
        ..Failure::new(FailureKind::NotFree, text)
    };
    let exchanges = vec![
        (call_with(None, Some(2500)), Answer::Result(vec![])),
        (call_with(None, Some(300)), Answer::Failure(refused)),
    ];
    case("deadlines", about, exchanges).offering(DEADLINES)
}

/// A call that names its reservation or its deadline.
fn call_with(reservation: Option<u64>, before: Option<u64>) -> Request {
    Request::Call {
        call: Call {
            function: FUNCTION,
            scalars: vec![],
            elements: vec![],
            data_bytes: 0,
            places: vec![],
            output: false,
            handles: vec![],
            object: None,
            reservation,
            before,
            trace: None,
        },
        data: vec![],
        result_bytes: 0,
        pause_after: None,
        cancels: false,
    }
}
