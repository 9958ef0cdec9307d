//! The conversations of the golden files: what the client asks, and what the server answers. The
//! modules below have the cases, by subject. A case never changes, because peers of earlier
//! versions rely on it.

mod calls;
mod ends;
mod functions;
mod handles;
mod jobs;
mod names;
mod objects;
mod operation;
mod reservations;

use farcall_rpc_proto::{
    ArrayPart, AskSnapshot, Call, CallName, CallStatus, Callback, CallbackAnswer, DataName,
    DurableDescription, DurablePage, Estimate, Failure, HandleId, HandlePage, HandleRecord, Header,
    Hello, JobId, Kind, Limits, Listing, Name, NamePage, NameRecord, ObjectPage, ObjectRequest,
    Pull, Put, Receipt, ReservationPage, ReservationRequest, SubmitRequest, Write,
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

impl Case {
    /// The same, with features that both sides have.
    pub(crate) fn offering(mut self, features: u64) -> Case {
        self.hello.features = features;
        self
    }
}

/// What the client asks for; it waits for each answer before it asks on.
pub(crate) enum Request {
    List(u32),
    Describe(&'static str),
    /// Path and text of an interface file.
    Register(&'static str, &'static str),
    Estimate(Call),
    AskCall(CallName),
    New(&'static str),
    /// Deletes an object, which has no answer, and asks for functions.
    DeleteAndList(u64),
    Status,
    AskSnapshot(AskSnapshot),
    Drain,
    /// A message for a metaserver.
    Directory(Kind, Vec<u8>),
    /// Says what became of a call, which has no answer, and asks for a function.
    ObserveAndFind(Vec<u8>, Vec<u8>),
    Submit(SubmitRequest, Vec<Elements>),
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
    Write(Write),
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
    CallStatus(CallStatus),
    Created,
    StatusText(&'static str),
    Draining(u64),
    Directory(Kind, Vec<u8>),
    Result(Vec<Elements>),
    Submitted(JobId),
    Job(Box<DurableDescription>),
    Jobs(DurablePage),
    Handle(HandleRecord),
    Handles(HandlePage),
    Receipt(Receipt),
    Named(NameRecord),
    Names(NamePage),
    Objects(ObjectPage),
    Reservations(ReservationPage),
    /// The results of a durable call.
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

pub(crate) fn all() -> Vec<Case> {
    vec![
        calls::dgesv("dgesv-little-endian", false),
        calls::dgesv("dgesv-big-endian", true),
        functions::directory(),
        functions::estimate(),
        functions::call_status(),
        operation::snapshot(),
        jobs::jobs(),
        handles::handles(),
        handles::parts(),
        objects::kept_objects(),
        reservations::reservations(),
        reservations::bandwidth(),
        reservations::deadlines(),
        handles::loans(),
        handles::sources(),
        handles::parts_of_sources(),
        handles::writes(),
        names::names(),
        functions::register(),
        operation::operation(),
        crate::directory::directory(),
        crate::directory::data(),
        crate::directory::traced(),
        calls::traced(),
        calls::scalars(),
        calls::callback(),
        calls::file(),
        objects::object(),
        ends::cancel(),
        ends::refused(),
        ends::stopping(),
        ends::version(),
        ends::proof(),
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
