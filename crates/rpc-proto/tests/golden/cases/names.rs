//! The golden case of named data: an array gets a name, and a client asks for names and lists them.
//! A name of another user is not found.

use super::{Answer, Case, Request, case};
use farcall_rpc_proto::{
    ArrayForm, DataVersion, Failure, FailureKind, HANDLES, HandleId, NAMES, Name, NamePage,
    NameRecord,
};

pub(super) fn names() -> Case {
    let about = "Gives an array a name, asks for data by name and lists them; those of another\n\
                 user are not found. Bit 18 of the features says that both sides have names.";
    let [own, file] = named();
    let (id, version) = (HandleId(*b"0123456789abcdef"), own.version);
    let name = Name {
        id,
        name: "runs/atoms".to_string(),
        shared: true,
        after: 1,
        copy: None,
    };
    let copy = Name {
        after: 0,
        copy: Some(version),
        ..name.clone()
    };
    let absent = Failure::new(
        FailureKind::NotFound,
        "there is no data of the name `x@bob` here",
    );
    let page = NamePage {
        names: vec![own.clone(), file],
        next: None,
    };
    let exchanges = vec![
        (Request::Name(name), Answer::Named(own.clone())),
        (Request::Name(copy), Answer::Named(own.clone())),
        (
            Request::AskName("runs/atoms".parse().unwrap()),
            Answer::Named(own),
        ),
        (
            Request::AskName("x@bob".parse().unwrap()),
            Answer::Failure(absent),
        ),
        (
            Request::ListNames(Some("a@alice".parse().unwrap())),
            Answer::Names(page),
        ),
    ];
    case("names", about, exchanges).offering(HANDLES | NAMES)
}

/// An array with a name, and a file that has one.
fn named() -> [NameRecord; 2] {
    let id = HandleId(*b"0123456789abcdef");
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![3, 2],
        column_major: true,
    };
    let version = DataVersion {
        written: 1_700_000_000_000,
        stamp: 0x1122_3344_5566_7788,
        number: 2,
    };
    let own = NameRecord {
        name: "runs/atoms@alice".parse().unwrap(),
        version,
        shared: true,
        id: Some(id),
        form: form.clone(),
        own: true,
    };
    let file = NameRecord {
        name: "table.npy@folder".parse().unwrap(),
        version: DataVersion {
            number: 1,
            ..version
        },
        shared: true,
        id: None,
        form,
        own: false,
    };
    [own, file]
}
