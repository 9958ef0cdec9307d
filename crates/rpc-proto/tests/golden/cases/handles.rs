//! Golden cases of stored arrays: whole arrays, parts of them, and loans from server to server.
//! `names` has the cases of arrays with a name.

use super::calls::dgesv_values;
use super::{Answer, Case, Elements, Request, case};
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, CREDIT, Call, Failure, FailureKind, HANDLES, HandleId, HandlePage,
    HandleRecord, Hello, LOANS, Limits, PARTS, Pull, Put, ROWS, Receipt, Rows, SOURCES,
    SourceOptions, WRITES, Write,
};

pub(super) fn handles() -> Case {
    let about = "Puts the matrix of the call of dgesv at the server, calls dgesv with it, whose\n\
                 factors stay there, gets them, lists what there is, and drops it. Bit 9 of the\n\
                 features says that both sides have arrays that stay.";
    let id = HandleId(*b"0123456789abcdef");
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![3, 2],
        column_major: true,
    };
    let put = Put {
        form: form.clone(),
        data_bytes: 48,
        stays: true,
    };
    let record = HandleRecord {
        id,
        number: 7,
        form,
        stays: true,
        used: 1_700_000_000_000,
        on_disk: false,
        undefined: None,
    };
    let spoilt = HandleRecord {
        on_disk: true,
        undefined: Some("lapack/dgesv crashed".to_string()),
        ..record.clone()
    };
    let page = HandlePage {
        handles: vec![spoilt],
        next: Some(7),
    };
    let (call, _) = dgesv_values();
    let call = Request::Call {
        call: Call {
            data_bytes: 16,
            handles: vec![(0, id)],
            ..call
        },
        data: vec![Elements::Doubles(vec![4.0, 7.0])],
        result_bytes: 28,
        pause_after: None,
        cancels: false,
    };
    let matrix = vec![2.0, 1.0, 0.0, 1.0, 3.0, 0.0];
    let result = vec![
        Elements::Ints(vec![1, 2]),
        Elements::Doubles(vec![1.0, 2.0]),
        Elements::Ints(vec![0]),
    ];
    let factors = vec![Elements::Doubles(vec![2.0, 0.5, 0.0, 1.0, 2.5, 0.0])];
    let exchanges = vec![
        (
            Request::Put(put, vec![Elements::Doubles(matrix)]),
            Answer::Handle(record.clone()),
        ),
        (call, Answer::Result(result)),
        (Request::AskHandle(id), Answer::Handle(record.clone())),
        (Request::Get(id, 48), Answer::Delivered(factors)),
        (Request::ListHandles(6), Answer::Handles(page)),
        (Request::Drop(id), Answer::Handle(record)),
    ];
    case("handles", about, exchanges).offering(HANDLES)
}

pub(super) fn parts() -> Case {
    let about = "Puts an array of six doubles at the server, which grants room for it first\n\
                 because it fills more than a chunk, 32 bytes here; then fills a part of it,\n\
                 without a grant, and gets another. Bits 6, 7 and 9 of the features.";
    let id = HandleId(*b"0123456789abcdef");
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![6],
        column_major: false,
    };
    let put = Put {
        form: form.clone(),
        data_bytes: 48,
        stays: false,
    };
    let record = HandleRecord {
        id,
        number: 8,
        form,
        stays: false,
        used: 1_700_000_000_000,
        on_disk: false,
        undefined: None,
    };
    let part = |offset, bytes| ArrayPart { id, offset, bytes };
    let doubles = |values: &[f64]| vec![Elements::Doubles(values.to_vec())];
    let exchanges = vec![
        (
            Request::Put(put, doubles(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            Answer::Handle(record.clone()),
        ),
        (
            Request::PutPart(part(8, 40), doubles(&[7.0, 8.0, 9.0, 10.0, 11.0])),
            Answer::Handle(record),
        ),
        (
            Request::GetPart(part(0, 16)),
            Answer::Delivered(doubles(&[1.0, 7.0])),
        ),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = HANDLES | PARTS | CREDIT;
    Case {
        hello,
        limits: Limits {
            chunk_bytes: 32,
            grant_bytes: 32,
            ..Limits::default()
        },
        ..case("parts", about, exchanges)
    }
}

pub(super) fn loans() -> Case {
    let about = "Asks for a second name of an array, and has the server read another from a\n\
                 second server, which cannot be reached at first. Bit 13 of the features says\n\
                 that both sides have loans.";
    let (id, loan) = (
        HandleId(*b"0123456789abcdef"),
        HandleId(*b"fedcba9876543210"),
    );
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![3, 2],
        column_major: true,
    };
    let record = HandleRecord {
        id,
        number: 7,
        form: form.clone(),
        stays: false,
        used: 1_700_000_000_000,
        on_disk: false,
        undefined: None,
    };
    let lent = HandleRecord {
        id: loan,
        ..record.clone()
    };
    let pull = Pull {
        address: "farcalls://node2:3717".to_string(),
        loan,
        form,
        stays: false,
        source: None,
    };
    let text = "farcalls://node2:3717: connection refused";
    let unreachable = Failure::new(FailureKind::Unreachable, text);
    let exchanges = vec![
        (Request::Lend(id), Answer::Handle(lent)),
        (Request::Pull(pull.clone()), Answer::Failure(unreachable)),
        (Request::Pull(pull), Answer::Handle(record)),
    ];
    case("loans", about, exchanges).offering(HANDLES | LOANS)
}

pub(super) fn sources() -> Case {
    let about = "The client asks the server to read a matrix from an address outside of Farcall, \
                 and to store it. The type is that of the source. The server reads another address \
                 for nobody. Needs the feature bit 20, that both sides have sources.";
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![2, 3],
        column_major: true,
    };
    let record = HandleRecord {
        id: HandleId([0x5a; 16]),
        number: 8,
        form: form.clone(),
        stays: true,
        used: 1_700_000_000_000,
        on_disk: false,
        undefined: None,
    };
    let table = Pull {
        address: "https://data.example.org/weather/2024.csv".to_string(),
        loan: HandleId([0; 16]),
        form: ArrayForm {
            element: String::new(),
            shape: Vec::new(),
            column_major: true,
        },
        stays: false,
        source: Some(SourceOptions {
            columns: Some(vec!["rain".to_string(), "wind".to_string()]),
            sha256: Some("0f".repeat(32)),
            ..SourceOptions::default()
        }),
    };
    let raw = Pull {
        address: "http://127.0.0.1/secret".to_string(),
        source: Some(SourceOptions {
            format: Some("raw".to_string()),
            element: Some("float".to_string()),
            shape: Some(vec![3, 2]),
            column_major: Some(false),
            query: Some("select 1".to_string()),
            big_endian: Some(true),
            ..SourceOptions::default()
        }),
        ..table.clone()
    };
    let text = "the source `http://127.0.0.1/secret` is not allowed";
    let refused = Failure::new(FailureKind::NotAllowed, text);
    let exchanges = vec![
        (Request::Pull(table), Answer::Handle(record)),
        (Request::Pull(raw), Answer::Failure(refused)),
    ];
    case("sources", about, exchanges).offering(HANDLES | LOANS | SOURCES)
}

/// Parts of arrays at addresses outside of Farcall.
pub(super) fn parts_of_sources() -> Case {
    let about = "The client asks the server to read rows 1000 to 1999 of a file, and then all rows \
                 from 2000 on. Needs the feature bit 26, that the server reads parts.";
    let part = |begin: u64, end: Option<u64>| {
        Request::Pull(Pull {
            address: "folder:runs/7.npy".to_string(),
            loan: HandleId([0; 16]),
            form: ArrayForm {
                element: "double".to_string(),
                shape: Vec::new(),
                column_major: false,
            },
            stays: false,
            source: Some(SourceOptions {
                rows: Some(Rows { begin, end }),
                ..SourceOptions::default()
            }),
        })
    };
    let record = HandleRecord {
        id: HandleId([0x5a; 16]),
        form: ArrayForm {
            element: "double".to_string(),
            shape: vec![1000],
            column_major: false,
        },
        number: 8,
        stays: false,
        used: 1_700_000_000_000,
        on_disk: false,
        undefined: None,
    };
    let text = "the source `folder:runs/7.npy` has an array of shape (1500,), which does not have \
                the rows 2000 to 1500";
    let refused = Failure::new(FailureKind::BadArgument, text);
    let exchanges = vec![
        (part(1000, Some(2000)), Answer::Handle(record)),
        (part(2000, None), Answer::Failure(refused)),
    ];
    case("parts-of-sources", about, exchanges).offering(HANDLES | LOANS | SOURCES | ROWS)
}

/// Results at addresses outside of Farcall.
pub(super) fn writes() -> Case {
    let about = "The client asks the server to write an array to an address outside of Farcall. \
                 The answer says what lies there now. The server writes to another address for \
                 nobody. Needs the feature bit 22, that both sides write to addresses.";
    let table = Write {
        id: HandleId([0x5a; 16]),
        address: "s3://runs/2026/y.csv".to_string(),
        options: SourceOptions {
            columns: Some(vec!["rain".to_string()]),
            ..SourceOptions::default()
        },
    };
    let receipt = Receipt {
        address: table.address.clone(),
        bytes: 24,
        sha256: "0f".repeat(32),
        version: Some("\"etag\"".to_string()),
    };
    let file = Write {
        address: "file:///etc/passwd".to_string(),
        options: SourceOptions {
            format: Some("raw".to_string()),
            column_major: Some(true),
            ..SourceOptions::default()
        },
        ..table.clone()
    };
    let text = "the address `file:///etc/passwd` is not allowed";
    let refused = Failure::new(FailureKind::NotAllowed, text);
    let exchanges = vec![
        (Request::Write(table), Answer::Receipt(receipt)),
        (Request::Write(file), Answer::Failure(refused)),
    ];
    case("writes", about, exchanges).offering(HANDLES | LOANS | SOURCES | WRITES)
}
