//! The conversations: what the client asks and what the server answers.

use farcall_idl::Scalar;
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, CALLBACKS, CREDIT, Call, Callback, CallbackAnswer, DataName, ESTIMATES,
    Edition, Estimate, FILES, Failure, FailureKind, FileRequest, FunctionSummary, HANDLES,
    HandleId, HandlePage, HandleRecord, Header, Hello, JOBS, JobDescription, JobId, JobPage,
    JobRecord, JobState, KEPT_OBJECTS, Kind, LOANS, Limits, Listing, NAMES, Name, NamePage,
    NameRecord, OBJECTS, OPERATION, OUTPUT, ObjectPage, ObjectRecord, ObjectRequest, PARTS, Pull,
    Put, REGISTER, RESERVATIONS, ReservationPage, ReservationRecord, ReservationRequest, Reserve,
    Submission,
};

/// One conversation.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What it shows, for the head of the file.
    pub(crate) about: &'static str,
    pub(crate) hello: Hello,
    pub(crate) limits: Limits,
    /// The byte order of both sides.
    pub(crate) big_endian: bool,
    pub(crate) exchanges: Vec<(Request, Answer)>,
}

/// What the client asks for; it waits for each answer before it asks on.
pub(crate) enum Request {
    List(u32),
    Describe(&'static str),
    /// Path and text of an interface file.
    Register(&'static str, &'static str),
    Estimate(Call),
    New(&'static str),
    /// Deletes an object, which has no answer, and asks for functions.
    DeleteAndList(u64),
    Status,
    Drain,
    /// A message for a metaserver.
    Directory(Kind, Vec<u8>),
    /// Says what became of a call, which has no answer, and asks for a function.
    ObserveAndFind(Vec<u8>, Vec<u8>),
    Submit(Submission, Vec<Elements>),
    AskJob(JobId),
    /// With the length of the results.
    Fetch(JobId, u64),
    CancelJob(JobId, bool),
    ListJobs(u64),
    Put(Put, Vec<Elements>),
    PutPart(ArrayPart, Vec<Elements>),
    GetPart(ArrayPart),
    /// With its length.
    Get(HandleId, u64),
    AskHandle(HandleId),
    Drop(HandleId),
    Lend(HandleId),
    Pull(Pull),
    ListHandles(u64),
    Name(Name),
    AskName(DataName),
    ListNames(Option<DataName>),
    Objects(ObjectRequest),
    Reservations(ReservationRequest),
    Call {
        call: Call,
        data: Vec<Elements>,
        result_bytes: u64,
        /// Data frames after which the client waits for the server.
        pause_after: Option<usize>,
        /// Whether it gives the call up then.
        cancels: bool,
    },
}

/// What the server answers.
#[derive(Clone)]
pub(crate) enum Answer {
    Listing(Listing),
    Interface(u64, String, Option<String>),
    Estimate(Estimate),
    Created,
    Standing(&'static str),
    Draining(u64),
    Directory(Kind, Vec<u8>),
    Result(Vec<Elements>),
    Submitted(JobId),
    Job(JobDescription),
    Jobs(JobPage),
    Handle(HandleRecord),
    Handles(HandlePage),
    Named(NameRecord),
    Names(NamePage),
    Objects(ObjectPage),
    Reservations(ReservationPage),
    /// The results of a submitted call.
    Delivered(Vec<Elements>),
    /// Calls the client back, and answers with the result when it has the answer.
    CallsBack(Callback, CallbackAnswer, Vec<Elements>),
    Failure(Failure),
    /// Fails the call, says goodbye and closes.
    Stop(Failure),
    /// Computes for ever.
    Nothing,
}

/// A run of array elements of one type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    Ints(Vec<i32>),
    Doubles(Vec<f64>),
}

impl Elements {
    pub(crate) fn bytes(&self, big_endian: bool) -> Vec<u8> {
        match (self, big_endian) {
            (Elements::Ints(all), true) => all.iter().flat_map(|v| v.to_be_bytes()).collect(),
            (Elements::Ints(all), false) => all.iter().flat_map(|v| v.to_le_bytes()).collect(),
            (Elements::Doubles(all), true) => all.iter().flat_map(|v| v.to_be_bytes()).collect(),
            (Elements::Doubles(all), false) => all.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }
}

/// The whole data stream in one byte order.
pub(crate) fn stream(data: &[Elements], big_endian: bool) -> Vec<u8> {
    data.iter().flat_map(|run| run.bytes(big_endian)).collect()
}

/// Name of a frame kind, as in the specification.
pub(crate) fn kind(number: u8) -> Option<(u8, String)> {
    let mut header = [0; 16];
    header[4] = number;
    let header = Header::decode(&header).ok()?;
    Some((number, format!("{:?}", header.kind)))
}

const FUNCTION: u64 = 0x1234_0000_0007;
const DGESV: &str = "Module lapack;\nDefine dgesv(IN int n, IN int nrhs, INOUT double a[n][lda:n], \
     IN int lda, OUT int ipiv[n], INOUT double b[nrhs][ldb:n], IN int ldb, OUT int *info)\n    \
     Calls \"FORTRAN\" dgesv(n, nrhs, a, lda, ipiv, b, ldb, info);\n";

pub(crate) fn all() -> Vec<Case> {
    vec![
        dgesv("dgesv-little-endian", false),
        dgesv("dgesv-big-endian", true),
        directory(),
        estimate(),
        jobs(),
        handles(),
        parts(),
        kept_objects(),
        reservations(),
        bandwidth(),
        loans(),
        names(),
        register(),
        operation(),
        crate::directory::directory(),
        crate::directory::data(),
        scalars(),
        callback(),
        file(),
        object(),
        cancel(),
        refused(),
        stopping(),
        version(),
    ]
}

pub(crate) fn case(
    name: &'static str,
    about: &'static str,
    exchanges: Vec<(Request, Answer)>,
) -> Case {
    Case {
        name,
        about,
        hello: Hello::new("golden client"),
        limits: Limits::default(),
        big_endian: false,
        exchanges,
    }
}

/// The interface query and a call of dgesv: 2 x1 + x2 = 4, x1 + 3 x2 = 7.
fn dgesv(name: &'static str, big_endian: bool) -> Case {
    let about = "Solves 2 x1 + x2 = 4, x1 + 3 x2 = 7 by dgesv with n = 2, nrhs = 1, lda = 3 and\n\
                 ldb = 2. The columns of `a` are 3 long, 2 of them travel. The result stream has\n\
                 the factors, the pivots, the solution 1, 2 and info.";
    let result = vec![
        Elements::Doubles(vec![2.0, 0.5, 1.0, 2.5]),
        Elements::Ints(vec![1, 2]),
        Elements::Doubles(vec![1.0, 2.0]),
        Elements::Ints(vec![0]),
    ];
    let describe = Request::Describe("dgesv");
    let exchanges = vec![
        (
            describe,
            Answer::Interface(FUNCTION, DGESV.to_string(), None),
        ),
        (dgesv_call(None, false), Answer::Result(result)),
    ];
    Case {
        big_endian,
        ..case(name, about, exchanges)
    }
}

fn dgesv_call(pause_after: Option<usize>, cancels: bool) -> Request {
    let int = |value| Some(Scalar::Int(value));
    Request::Call {
        call: Call {
            function: FUNCTION,
            scalars: vec![int(2), int(1), None, int(3), None, None, int(2), None],
            elements: vec![],
            data_bytes: 48,
            places: vec![],
            output: false,
            handles: vec![],
            object: None,
            reservation: None,
        },
        data: vec![
            Elements::Doubles(vec![2.0, 1.0, 1.0, 3.0]),
            Elements::Doubles(vec![4.0, 7.0]),
        ],
        result_bytes: 60,
        pause_after,
        cancels,
    }
}

fn directory() -> Case {
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

fn loans() -> Case {
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
    };
    let text = "farcalls://node2:3717: connection refused";
    let unreachable = Failure::new(FailureKind::Unreachable, text);
    let exchanges = vec![
        (Request::Lend(id), Answer::Handle(lent)),
        (Request::Pull(pull.clone()), Answer::Failure(unreachable)),
        (Request::Pull(pull), Answer::Handle(record)),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = HANDLES | LOANS;
    Case {
        hello,
        ..case("loans", about, exchanges)
    }
}

/// An array with a name, and a file that has one.
fn named() -> [NameRecord; 2] {
    let id = HandleId(*b"0123456789abcdef");
    let form = ArrayForm {
        element: "double".to_string(),
        shape: vec![3, 2],
        column_major: true,
    };
    let edition = Edition {
        written: 1_700_000_000_000,
        stamp: 0x1122_3344_5566_7788,
        version: 2,
    };
    let own = NameRecord {
        name: "runs/atoms@alice".parse().unwrap(),
        edition,
        shared: true,
        id: Some(id),
        form: form.clone(),
        own: true,
    };
    let file = NameRecord {
        name: "table.npy@folder".parse().unwrap(),
        edition: Edition {
            version: 1,
            ..edition
        },
        shared: true,
        id: None,
        form,
        own: false,
    };
    [own, file]
}

fn names() -> Case {
    let about = "Gives an array a name, asks for data by name and lists them; those of another\n\
                 user are not found. Bit 18 of the features says that both sides have names.";
    let [own, file] = named();
    let (id, edition) = (HandleId(*b"0123456789abcdef"), own.edition);
    let name = Name {
        id,
        name: "runs/atoms".to_string(),
        shared: true,
        after: 1,
        copy: None,
    };
    let copy = Name {
        after: 0,
        copy: Some(edition),
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
    let mut hello = Hello::new("golden client");
    hello.features = HANDLES | NAMES;
    Case {
        hello,
        ..case("names", about, exchanges)
    }
}

fn register() -> Case {
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
    let mut hello = Hello::new("golden client");
    hello.features = REGISTER;
    Case {
        hello,
        ..case("register", about, exchanges)
    }
}

fn estimate() -> Case {
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
    let Request::Call { call, .. } = dgesv_call(None, false) else {
        unreachable!("dgesv_call makes a call");
    };
    let exchanges = vec![
        (
            Request::Describe("dgesv"),
            Answer::Interface(FUNCTION, DGESV.to_string(), library),
        ),
        (Request::Estimate(call), Answer::Estimate(estimate)),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = ESTIMATES;
    Case {
        hello,
        ..case("estimate", about, exchanges)
    }
}

fn operation() -> Case {
    let about = "How the server stands, and its end: two calls are to end before. Bit 12 of the\n\
                 features says that both sides have these requests.";
    let status = r#"{"schema":1,"state":"serving","pes":8,"pes_used":3}"#;
    let exchanges = vec![
        (Request::Status, Answer::Standing(status)),
        (Request::Drain, Answer::Draining(2)),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = OPERATION;
    Case {
        hello,
        ..case("operation", about, exchanges)
    }
}

const JOB: JobId = JobId(*b"0123456789abcdef");

fn job_record() -> JobRecord {
    JobRecord {
        id: JOB,
        number: 7,
        function: "lapack/dgesv".to_string(),
        state: JobState::Done,
        submitted: 1_700_000_000_000,
        started: Some(1_700_000_000_010),
        ended: Some(1_700_000_000_020),
        expires: Some(1_700_003_600_020),
        bytes: 500,
        failure: None,
    }
}

fn jobs() -> Case {
    let about = "Submits the call of dgesv to be kept for an hour, asks about it, fetches what it\n\
                 has come to, lists the calls there are, and has it forgotten. Bit 8 of the\n\
                 features says that both sides have submitted calls.";
    let Request::Call { call, data, .. } = dgesv_call(None, false) else {
        unreachable!("dgesv_call makes a call");
    };
    let id = JOB;
    let record = job_record();
    let queued = JobRecord {
        state: JobState::Queued,
        started: None,
        ended: None,
        expires: None,
        ..record.clone()
    };
    let failed = JobRecord {
        id: JobId(*b"fedcba9876543210"),
        number: 8,
        state: JobState::Failed,
        failure: Some(Failure::new(FailureKind::OutcomeUnknown, "outcome unknown")),
        ..record.clone()
    };
    let (submitted, keep) = (call.clone(), Some(3600));
    let described = JobDescription {
        record: queued,
        call: Some((DGESV.to_string(), call.clone())),
    };
    let forgotten = JobDescription {
        record: record.clone(),
        call: None,
    };
    let page = JobPage {
        jobs: vec![record, failed],
        next: Some(8),
    };
    let result = vec![
        Elements::Doubles(vec![2.0, 0.5, 1.0, 2.5]),
        Elements::Ints(vec![1, 2]),
        Elements::Doubles(vec![1.0, 2.0]),
        Elements::Ints(vec![0]),
    ];
    let submission = Submission {
        call: submitted,
        keep,
    };
    let exchanges = vec![
        (Request::Submit(submission, data), Answer::Submitted(id)),
        (Request::AskJob(id), Answer::Job(described)),
        (Request::Fetch(id, 60), Answer::Delivered(result)),
        (Request::ListJobs(6), Answer::Jobs(page)),
        (Request::CancelJob(id, true), Answer::Job(forgotten)),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = JOBS;
    Case {
        hello,
        ..case("jobs", about, exchanges)
    }
}

fn handles() -> Case {
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
    let Request::Call { call, .. } = dgesv_call(None, false) else {
        unreachable!("dgesv_call makes a call");
    };
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
    let mut hello = Hello::new("golden client");
    hello.features = HANDLES;
    Case {
        hello,
        ..case("handles", about, exchanges)
    }
}

fn kept_objects() -> Case {
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
    let mut hello = Hello::new("golden client");
    hello.features = OBJECTS | KEPT_OBJECTS;
    Case {
        hello,
        ..case("kept-objects", about, exchanges)
    }
}

/// A call that names its reservation.
fn call_within(reservation: u64) -> Request {
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
            reservation: Some(reservation),
        },
        data: vec![],
        result_bytes: 0,
        pause_after: None,
        cancels: false,
    }
}

fn reservations() -> Case {
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
        (call_within(3), Answer::Result(vec![])),
        (asked(ReservationRequest::List(0)), one(begun)),
        (
            asked(ReservationRequest::Reserve(wanted)),
            Answer::Failure(refused),
        ),
        (asked(ReservationRequest::Reserve(soon)), one(later)),
        (asked(ReservationRequest::Release(3)), one(begun)),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = RESERVATIONS;
    Case {
        hello,
        ..case("reservations", about, exchanges)
    }
}

fn bandwidth() -> Case {
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
    let mut hello = Hello::new("golden client");
    hello.features = RESERVATIONS;
    Case {
        hello,
        ..case("bandwidth", about, exchanges)
    }
}

fn parts() -> Case {
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

fn scalars() -> Case {
    let about = "A call with every kind of scalar and the values of two array elements that sizes\n\
                 depend on, without a data stream either way.";
    let call = Call {
        function: FUNCTION + 1,
        scalars: vec![
            Some(Scalar::Int(-5)),
            Some(Scalar::Int(i64::MAX)),
            Some(Scalar::Float(0.5)),
            Some(Scalar::Complex { re: 1.0, im: -2.0 }),
            Some(Scalar::Text("N".to_string())),
            Some(Scalar::Text("naïve".to_string())),
            None,
        ],
        elements: vec![17, -1],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 0,
        pause_after: None,
        cancels: false,
    };
    case("scalars", about, vec![(request, Answer::Result(vec![]))])
}

fn callback() -> Case {
    let about = "A running function prints a line, tells its client of an iteration, and is told\n\
                 to stop, by monitor(IN int k, IN double residual, IN int n, IN double x[n],\n\
                 OUT int *stop).";
    let call = Call {
        function: FUNCTION + 2,
        scalars: vec![Some(Scalar::Int(100)), None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: false,
        handles: vec![],
        object: None,
        reservation: None,
    };
    let call = Call {
        output: true,
        object: None,
        reservation: None,
        ..call
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 4,
        pause_after: None,
        cancels: false,
    };
    let monitor = Callback {
        index: 0,
        scalars: vec![
            Some(Scalar::Int(1)),
            Some(Scalar::Float(0.25)),
            Some(Scalar::Int(2)),
            None,
            None,
        ],
        data: Elements::Doubles(vec![1.0, 2.0]).bytes(false),
        big_endian: false,
    };
    let stop = CallbackAnswer {
        data: Elements::Ints(vec![1]).bytes(false),
        big_endian: false,
    };
    let answer = Answer::CallsBack(monitor, stop, vec![Elements::Ints(vec![1])]);
    let mut hello = Hello::new("golden client");
    hello.features = CALLBACKS | OUTPUT;
    Case {
        hello,
        ..case("callback", about, vec![(request, answer)])
    }
}

fn file() -> Case {
    let about = "A function counts the bytes of a file of its client, count(IN filename text,\n\
                 OUT int *bytes): the server reads the file in one piece. It prints a line\n\
                 before.";
    let call = Call {
        function: FUNCTION + 3,
        scalars: vec![Some(Scalar::Text("words.txt".to_string())), None],
        elements: vec![],
        data_bytes: 0,
        places: vec![],
        output: true,
        handles: vec![],
        object: None,
        reservation: None,
    };
    let request = Request::Call {
        call,
        data: vec![],
        result_bytes: 4,
        pause_after: None,
        cancels: false,
    };
    let read = FileRequest::Read {
        offset: 0,
        length: 5,
    };
    let piece = CallbackAnswer {
        data: b"hello".to_vec(),
        big_endian: false,
    };
    let result = vec![Elements::Ints(vec![5])];
    let answer = Answer::CallsBack(read.into_callback(0), piece, result);
    let mut hello = Hello::new("golden client");
    hello.features = CALLBACKS | OUTPUT | FILES;
    Case {
        hello,
        ..case("file", about, vec![(request, answer)])
    }
}

fn object() -> Case {
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
    let mut hello = Hello::new("golden client");
    hello.features = OBJECTS;
    Case {
        hello,
        ..case("object", about, exchanges)
    }
}

fn small_chunks() -> Limits {
    Limits {
        chunk_bytes: 16,
        ..Limits::default()
    }
}

fn cancel() -> Case {
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

fn refused() -> Case {
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

fn stopping() -> Case {
    let about = "The server is told to stop while a call runs.";
    let text = "the server is stopping; the call did not complete";
    let failure = Failure::new(FailureKind::ServerStopping, text);
    let exchanges = vec![(dgesv_call(None, false), Answer::Stop(failure))];
    case("stopping", about, exchanges)
}

fn version() -> Case {
    let about = "A client that speaks versions 2 and 3 meets a server that speaks version 1.";
    let mut hello = Hello::new("golden client");
    (hello.version_min, hello.version_max) = (2, 3);
    Case {
        hello,
        ..case("version", about, vec![])
    }
}
