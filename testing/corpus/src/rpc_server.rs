//! Any bytes from a client, cut anywhere, to a server: no panic, every call has one course
//! (offered, received whole, ready, answered), and memory is bounded.
//!
//! The first byte of the input chooses the cuts and whether output is removed at once. The other
//! bytes come from the client.

use farcall_rpc_proto::server::{Connection, Event};
use farcall_rpc_proto::{
    ArrayForm, CALLBACKS, CREDIT, CallId, Callback, CallbackAnswer, Chunk, DIRECTORY, DataName,
    DataVersion, DurableDescription, DurablePage, DurableRecord, DurableState, Estimate, Failure,
    FailureKind, HANDLES, HandleId, HandlePage, HandleRecord, Hello, JOBS, JobId, KEPT_OBJECTS,
    Kind, LOANS, Limits, Listing, NAMES, Name, NamePage, NameRecord, OBJECTS, OPERATION, OUTCOMES,
    OUTPUT, ObjectPage, ObjectRequest, PARTS, Pull, Put, RESERVATIONS, ReservationPage,
    ReservationRecord, ReservationRequest, SHARED_MEMORY, SubmitRequest, Times, Transmit,
};
use std::collections::BTreeMap;

const CONTROL_BYTES: usize = 4096;
const CALLS: usize = 8;
/// More bytes than the longest answer of the driver has.
const ANSWER_BYTES: usize = 3 * CONTROL_BYTES;

/// The state of a call that the driver has accepted.
struct Open {
    expected: u64,
    received: u64,
    ready: bool,
    /// It is a durable call or an array, and is answered with its record.
    kept: Option<SeenCall>,
    /// A callback waits for its answer.
    calls_back: bool,
    /// Result bytes so far; `None` before the call has completed.
    sent: Option<u64>,
}

#[derive(Clone, Copy)]
enum SeenCall {
    Job,
    Array,
}

struct Driver {
    proto: Connection,
    open: BTreeMap<CallId, Open>,
    /// Submissions that are not answered, and the requests for their outcomes.
    fetches: BTreeMap<CallId, CallId>,
    now: u64,
}

fn array(id: HandleId) -> HandleRecord {
    HandleRecord {
        id,
        number: 1,
        form: ArrayForm {
            element: "int".into(),
            shape: vec![1],
            column_major: false,
        },
        stays: false,
        used: 1,
        on_disk: false,
        undefined: None,
    }
}

fn record(id: JobId) -> DurableRecord {
    DurableRecord {
        id,
        number: 1,
        function: "f".into(),
        state: DurableState::Queued,
        submitted: 1,
        started: None,
        ended: None,
        expires: None,
        bytes: 1,
        failure: None,
    }
}

fn named(name: DataName, id: HandleId) -> NameRecord {
    NameRecord {
        name,
        version: DataVersion::default(),
        shared: false,
        id: Some(id),
        form: array(id).form,
        own: true,
    }
}

/// Bytes of the result of a call.
const RESULT_BYTES: u64 = 150;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else {
        return;
    };
    let limits = Limits {
        control_bytes: CONTROL_BYTES as u32,
        chunk_bytes: 64,
        grant_bytes: 128,
        calls: CALLS,
    };
    let mut hello = Hello::new("fuzz");
    hello.features = SHARED_MEMORY | CALLBACKS | OUTPUT | OPERATION | JOBS | HANDLES | OBJECTS;
    hello.features |= KEPT_OBJECTS | RESERVATIONS | OUTCOMES;
    hello.features |= DIRECTORY | LOANS | PARTS | CREDIT | NAMES;
    let mut driver = Driver {
        proto: Connection::new(limits, hello),
        open: BTreeMap::new(),
        fetches: BTreeMap::new(),
        now: 0,
    };
    let mut cut = usize::from(choice >> 1);
    while !rest.is_empty() {
        cut = (cut * 5 + 3) % 257;
        let most = if choice >> 1 == 0 {
            rest.len()
        } else {
            (cut + 1).min(rest.len())
        };
        match driver.input(&rest[..most]) {
            Some(taken) => rest = &rest[taken..],
            None => break,
        }
        if choice & 1 == 0 || driver.proto.is_congested() {
            driver.drain();
        }
    }
    driver.proto.goodbye("the end");
    driver.drain();
    let mut frames = Vec::new();
    assert_eq!(driver.proto.poll_transmit(&mut frames, 0), Transmit::Idle);
}

impl Driver {
    /// Handles input. Returns how many bytes were handled, or `None` once the connection is over.
    fn input(&mut self, bytes: &[u8]) -> Option<usize> {
        self.now += 7;
        if let Some(chunk) = self.proto.incoming() {
            let count = (bytes.len() as u64).min(chunk.length);
            self.data(chunk, count);
            let event = self.proto.handle_data(count, self.now);
            event.into_iter().for_each(|event| self.on_event(event));
            return Some(count as usize);
        }
        let congested = self.proto.is_congested();
        let (taken, event) = self.proto.handle_input(bytes, self.now).ok()?;
        assert!(taken <= bytes.len());
        let idle = event.is_none() && self.proto.incoming().is_none();
        assert!(taken == bytes.len() || !idle || self.proto.is_congested());
        assert!(!congested || taken == 0);
        event.into_iter().for_each(|event| self.on_event(event));
        assert!(self.proto.open_calls() <= CALLS);
        Some(taken)
    }

    fn data(&mut self, chunk: Chunk, count: u64) {
        assert!(chunk.length > 0);
        if chunk.discard {
            return assert!(!self.open.contains_key(&chunk.call));
        }
        let call = self
            .open
            .get_mut(&chunk.call)
            .expect("data of an open call");
        assert_eq!(chunk.offset, call.received);
        assert!(chunk.offset + chunk.length <= call.expected);
        call.received += count;
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected(hello) => match hello.proof {
                Some(first) if first.len() % 4 > 0 => self.proto.challenge(first),
                proof => self.proto.welcome(proof),
            },
            Event::Proof(proof) => self.proto.welcome(Some(proof)),
            Event::Unshare(_) | Event::Delete(_) => {}
            Event::Directory(_, Kind::Observe, _) => {}
            Event::List(id, from) => self.list(id, Some(from)),
            Event::Register(id, path, text) => match (path.len() + text.len()) % 2 {
                0 => self.list(id, None),
                _ => self.fail(id),
            },
            Event::Describe(id, name) => match name.len() % 2 {
                0 => self.proto.interface(id, 7, name, None),
                _ => self.fail(id),
            },
            Event::Estimate(id, call) => match call.function % 2 {
                0 => self.proto.estimated(id, &Estimate::default()),
                _ => self.fail(id),
            },
            Event::Status(id) => self.proto.status_text(id, "{}".into()),
            Event::Directory(id, _, message) => match message.len() % 2 {
                0 => self.proto.directory(id, Kind::Noted, &message),
                _ => self.fail(id),
            },
            Event::Drain(id) => match id % 2 {
                0 => self.proto.draining(id, 1),
                _ => self.fail(id),
            },
            Event::Share(id, bytes) => match bytes % 2 {
                0 => self.proto.shared(id, bytes),
                _ => self.fail(id),
            },
            Event::New(id, class) => match class.len() % 2 {
                0 => self.proto.created(id),
                _ => self.fail(id),
            },
            Event::Call(id, call) => self.offered(id, call.function, call.data_bytes, None),
            Event::Submit(id, submission) => self.submit(id, &submission),
            Event::Put(id, put) => self.put(id, &put),
            Event::PutPart(id, part) => {
                self.offered(id, part.offset, part.bytes, Some(SeenCall::Array));
            }
            Event::GetPart(id, part) => self.fetch(id, part.id.0[0]),
            Event::Get(id, handle) => self.fetch(id, handle.0[0]),
            Event::AskHandle(id, handle) => self.proto.handle(id, &array(handle)),
            Event::Drop(id, _) => self.fail(id),
            Event::Lend(id, handle) => self.proto.handle(id, &array(handle)),
            Event::Pull(id, pull) => self.pull(id, &pull),
            Event::Write(id, _) | Event::AskCall(id, _) | Event::AskSnapshot(id, _) => {
                self.fail(id)
            }
            Event::Objects(id, asked) => self.about_objects(id, asked),
            Event::Reservations(id, asked) => self.about_reservations(id, asked),
            Event::ListHandles(id, after) => self.list_handles(id, after),
            Event::Name(id, name) => self.name(id, &name),
            Event::AskName(id, name) => self.ask_name(id, name),
            Event::ListNames(id, after) => self.list_names(id, after),
            Event::AskJob(id, job) => self.tell(id, job),
            Event::CancelJob(id, job, forget) => self.cancel_job(id, job, forget),
            Event::Fetch(id, job) => self.fetch(id, job.0[0]),
            Event::ListJobs(id, after) => self.list_jobs(id, after),
            Event::Ready(id) => self.ready(id),
            Event::Answer(id, answer) => self.answered(id, &answer),
            Event::Cancelled(id) => self.cancelled(id),
        }
    }

    fn list(&mut self, id: CallId, next: Option<u32>) {
        let functions = vec![];
        self.proto.listing(id, &Listing { functions, next });
    }

    fn about_objects(&mut self, id: CallId, asked: ObjectRequest) {
        if let ObjectRequest::Drop(_) = asked {
            return self.fail(id);
        }
        let (objects, next) = (Vec::new(), None);
        self.proto.objects(id, &ObjectPage { objects, next });
    }

    fn about_reservations(&mut self, id: CallId, asked: ReservationRequest) {
        let reservations = match asked {
            ReservationRequest::Reserve(wanted) if wanted.pes == 0 => {
                let refused = Failure {
                    earliest: wanted.latest,
                    ..Failure::new(FailureKind::NotFree, "not before that")
                };
                return self.proto.fail(id, &refused);
            }
            ReservationRequest::Reserve(wanted) => vec![ReservationRecord {
                id: wanted.length,
                pes: wanted.pes,
                begins: wanted.start,
                ends: wanted.length,
                up: wanted.up,
                down: wanted.down,
            }],
            ReservationRequest::Attach(_) => Vec::new(),
            ReservationRequest::Release(_) | ReservationRequest::List(_) => return self.fail(id),
        };
        let next = None;
        self.proto
            .reservations(id, &ReservationPage { reservations, next });
    }

    /// The length is that of the stream, for any form.
    fn put(&mut self, id: CallId, put: &Put) {
        let _ = put.form.bytes();
        let rank = put.form.shape.len() as u64;
        self.offered(id, rank, put.data_bytes, Some(SeenCall::Array));
    }

    fn pull(&mut self, id: CallId, pull: &Pull) {
        match pull.stays {
            true => self.proto.handle(id, &array(pull.loan)),
            false => self.fail(id),
        }
    }

    fn list_handles(&mut self, id: CallId, after: u64) {
        let (handles, next) = (vec![array(HandleId([0; 16]))], Some(after));
        self.proto.handles(id, &HandlePage { handles, next });
    }

    fn name(&mut self, id: CallId, name: &Name) {
        match name.shared {
            true => self
                .proto
                .named(id, &named(DataName::plain(&name.name), name.id)),
            false => self.fail(id),
        }
    }

    fn ask_name(&mut self, id: CallId, name: DataName) {
        match name.check() {
            Ok(()) => {
                assert_eq!(name.to_string().parse(), Ok(name.clone()));
                self.proto.named(id, &named(name, HandleId([0; 16])));
            }
            Err(_) => self.fail(id),
        }
    }

    fn list_names(&mut self, id: CallId, next: Option<DataName>) {
        let names = vec![named(DataName::plain("a"), HandleId([0; 16]))];
        self.proto.names(id, &NamePage { names, next });
    }

    fn submit(&mut self, id: CallId, submission: &SubmitRequest) {
        if let Some(fetch) = submission.fetch {
            assert!(self.fetches.insert(id, fetch).is_none());
        }
        let call = &submission.call;
        self.offered(id, call.function, call.data_bytes, Some(SeenCall::Job));
    }

    /// A submission ends with the request for its outcome; the other one ends alone.
    fn cancelled(&mut self, id: CallId) {
        let untold = self.fetches.len();
        self.fetches.retain(|_, fetch| *fetch != id);
        let is_fetch = self.fetches.len() < untold;
        self.fetches.remove(&id);
        assert!(self.open.remove(&id).is_some() != is_fetch);
    }

    fn submitted(&mut self, id: CallId) {
        let fetch = self.proto.submitted(id, JobId([7; 16]));
        assert_eq!(fetch, self.fetches.remove(&id));
        if let Some(fetch) = fetch {
            self.fetch(fetch, fetch as u8);
        }
    }

    /// Answered at once, or never.
    fn cancel_job(&mut self, id: CallId, job: JobId, forget: bool) {
        match forget {
            true => self.tell(id, job),
            false => self.fail(id),
        }
    }

    fn list_jobs(&mut self, id: CallId, after: u64) {
        let (jobs, next) = (vec![record(JobId([0; 16]))], Some(after));
        self.proto.jobs(id, &DurablePage { jobs, next });
    }

    fn answered(&mut self, id: CallId, answer: &CallbackAnswer) {
        self.proto.print(id, answer.data.clone());
        assert!(answer.data.len() <= CONTROL_BYTES);
        let call = self.open.get_mut(&id).expect("an answer to an open call");
        assert!(std::mem::take(&mut call.calls_back));
        // Half of the calls continue.
        match answer.data.len() % 2 {
            0 => self.call_back(id),
            _ => self.fail(id),
        }
    }

    fn tell(&mut self, id: CallId, job: JobId) {
        let record = record(job);
        let call = None;
        self.proto.job(id, &DurableDescription { record, call });
    }

    fn fetch(&mut self, id: CallId, choice: u8) {
        match choice % 3 {
            0 => self.fail(id),
            1 => self.proto.deliver(id, 0, Times::default(), self.now),
            _ => {
                let open = Open {
                    expected: 0,
                    received: 0,
                    ready: true,
                    kept: None,
                    calls_back: false,
                    sent: Some(0),
                };
                assert!(self.open.insert(id, open).is_none());
                self.proto
                    .deliver(id, RESULT_BYTES, Times::default(), self.now);
            }
        }
    }

    fn offered(&mut self, id: CallId, choice: u64, data_bytes: u64, kept: Option<SeenCall>) {
        if choice % 3 == 1 {
            return self.fail(id);
        }
        let open = Open {
            expected: data_bytes,
            received: 0,
            ready: false,
            kept,
            calls_back: false,
            sent: None,
        };
        assert!(self.open.insert(id, open).is_none());
        let ready = self.proto.accept(id, self.now);
        assert_eq!(ready, data_bytes == 0);
        if ready {
            self.ready(id);
        } else if choice % 3 == 2 {
            self.fail(id);
        }
    }

    fn ready(&mut self, id: CallId) {
        let call = self.open.get_mut(&id).expect("a call that was accepted");
        assert!(!call.ready && call.received == call.expected);
        call.ready = true;
        if let Some(kept) = call.kept {
            self.open.remove(&id);
            return match kept {
                SeenCall::Job => self.submitted(id),
                SeenCall::Array => self.proto.handle(id, &array(HandleId([7; 16]))),
            };
        }
        match id % 4 {
            // The call continues, and asks for a callback.
            0 => self.call_back(id),
            1 => self.fail(id),
            2 => {
                self.open.remove(&id);
                self.proto.complete(id, 0, (1, None), self.now);
            }
            _ => {
                call.sent = Some(0);
                self.proto.complete(id, RESULT_BYTES, (1, None), self.now);
            }
        }
    }

    fn call_back(&mut self, id: CallId) {
        let call = self.open.get_mut(&id).expect("a call that runs");
        call.calls_back = self.proto.answers_callbacks();
        if call.calls_back {
            let callback = Callback {
                index: 0,
                scalars: vec![None],
                data: vec![7; 9],
                big_endian: false,
            };
            self.proto.call_back(id, &callback);
        }
    }

    fn fail(&mut self, id: CallId) {
        self.open.remove(&id);
        self.fetches.remove(&id);
        self.proto.fail(id, &Failure::new(FailureKind::Busy, "no"));
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        loop {
            match self.proto.poll_transmit(&mut out, self.now) {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let call = self
                        .open
                        .get_mut(&chunk.call)
                        .expect("data of an open call");
                    let sent = call.sent.as_mut().expect("data of a completed call");
                    assert_eq!(chunk.offset, *sent);
                    *sent += chunk.length;
                    if *sent == RESULT_BYTES {
                        self.open.remove(&chunk.call);
                    }
                }
            }
        }
        let data_headers = CALLS * 16 * (RESULT_BYTES as usize / 64 + 1);
        let ends = CALLS * 256;
        assert!(out.len() <= CONTROL_BYTES + ANSWER_BYTES + data_headers + ends);
        assert!(!self.proto.is_congested());
    }
}
