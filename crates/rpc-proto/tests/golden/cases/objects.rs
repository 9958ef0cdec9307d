//! Golden cases of objects. One object ends when the client deletes it; the other is persistent,
//! and one in the list is lost.

use super::calls::FUNCTION;
use super::{Answer, Case, Elements, Request, case};
use farcall_idl::Scalar;
use farcall_rpc_proto::{
    Call, Failure, FailureKind, HandleId, KEPT_OBJECTS, Listing, OBJECTS, ObjectPage, ObjectRecord,
    ObjectRequest,
};

pub(super) fn object() -> Case {
    let about = "A client makes an object of a class, calls a method of it, add(IN int n,\n\
                 OUT int *value), and gives the object up.";
    let call = Call {
        function: FUNCTION + 4,
        scalars: vec![Some(Scalar::Int(3)), None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: Some(1),
        reservation: None,
        trace: None,
        before: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 4,
        pause_after: None,
        cancels: false,
    };
    let listing = Listing {
        functions: vec![],
        next: None,
    };
    let exchanges = vec![
        (Request::New("counters/Counter"), Answer::Created),
        (request, Answer::Result(vec![Elements::Ints(vec![3])])),
        (Request::DeleteAndList(1), Answer::Listing(listing)),
    ];
    case("object", about, exchanges).offering(OBJECTS)
}

pub(super) fn kept_objects() -> Case {
    let about = "An object that stays when its connection ends is kept, attached, listed with one\n\
                 that is lost, and dropped. Bits 5 and 10 of the features.";
    let id = HandleId(*b"0123456789abcdef");
    let record = ObjectRecord {
        id,
        number: 7,
        class: "counters/Counter".to_string(),
        used: 1_800_000_000_000,
        lost: None,
    };
    let lost = ObjectRecord {
        id: HandleId(*b"fedcba9876543210"),
        number: 8,
        lost: Some("its process crashed".to_string()),
        ..record.clone()
    };
    let one = || {
        Answer::Objects(ObjectPage {
            objects: vec![record.clone()],
            next: None,
        })
    };
    let page = ObjectPage {
        objects: vec![record.clone(), lost],
        next: Some(8),
    };
    let unknown = Failure::new(FailureKind::NotFound, "there is no such object");
    let exchanges = vec![
        (Request::New("Counter"), Answer::Created),
        (Request::Objects(ObjectRequest::Keep(1)), one()),
        (Request::Objects(ObjectRequest::Attach(id)), one()),
        (
            Request::Objects(ObjectRequest::List(6)),
            Answer::Objects(page),
        ),
        (Request::Objects(ObjectRequest::Drop(id)), one()),
        (
            Request::Objects(ObjectRequest::Drop(id)),
            Answer::Failure(unknown),
        ),
    ];
    case("kept-objects", about, exchanges).offering(OBJECTS | KEPT_OBJECTS)
}
