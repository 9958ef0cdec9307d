//! The two ends of a golden case: each drives a real connection and says what it would send. The
//! times are fixed, so the same case always gives the same bytes.

use crate::cases::{Answer, Case, Elements, Request, stream};
use farcall_rpc_proto::{
    CallId, Failure, Hello, Kind, ProtocolError, Times, Transmit, client, server,
};

const NATIVE: bool = cfg!(target_endian = "big");

/// Times at which things happen at the server, in nanoseconds.
const OFFERED: u64 = 1_000;
const RECEIVED: u64 = 3_000;
const EXEC: u64 = 5_000;
const COMPUTED: u64 = 9_000;
const SENT: u64 = 9_600;

/// What a function prints before it calls back.
const PRINTED: &[u8] = b"iterating\n";

/// The messages of the example in RFC 7677.
const CHALLENGE: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                         s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const PROOF: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SIGNATURE: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

/// The calling end.
pub(crate) struct Client<'c> {
    case: &'c Case,
    proto: client::Connection,
    connected: bool,
    next: usize,
    /// Request under way, and data frames of it that are out.
    open: Option<(CallId, usize)>,
    /// The data that came for it, and their byte order.
    received: Vec<u8>,
    orders: Vec<bool>,
    over: Option<ProtocolError>,
}

impl Client<'_> {
    pub(crate) fn new(case: &Case) -> Client<'_> {
        Client {
            case,
            proto: client::Connection::new(case.limits.clone(), &case.hello),
            connected: false,
            next: 0,
            open: None,
            received: Vec::new(),
            orders: Vec::new(),
            over: None,
        }
    }

    pub(crate) fn start(&mut self) -> Vec<u8> {
        self.output()
    }

    pub(crate) fn input(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        while !bytes.is_empty() && self.over.is_none() {
            if let Some(chunk) = self.proto.incoming() {
                assert!(!chunk.discard);
                let count = bytes.len().min(chunk.length as usize);
                self.orders.push(chunk.big_endian);
                self.received.extend_from_slice(&bytes[..count]);
                self.proto.handle_data(count as u64);
                bytes = &bytes[count..];
                continue;
            }
            match self.proto.handle_input(bytes) {
                Ok((taken, event)) => {
                    bytes = &bytes[taken..];
                    if let Some(event) = event {
                        self.on_event(event);
                    }
                }
                Err(error) => self.over = Some(error),
            }
        }
        match self.over {
            Some(_) => Vec::new(),
            None => self.output(),
        }
    }

    fn on_event(&mut self, event: client::Event) {
        use client::Event;
        if let Event::Connected(hello) = &event {
            assert_eq!((hello.version_min, hello.version_max), (1, 1));
            self.connected = true;
            return;
        }
        if let Event::Challenge(text) = &event {
            assert_eq!(text, CHALLENGE);
            return self.proto.prove(PROOF.to_string());
        }
        if let Event::Output(_, printed) = &event {
            return assert_eq!(printed, PRINTED);
        }
        if let Event::Callback(id, callback) = &event {
            let (_, Answer::CallsBack(expected, answer, _)) = &self.case.exchanges[self.next]
            else {
                panic!("called back by nobody");
            };
            assert_eq!(callback, expected);
            return self.proto.answer(*id, answer);
        }
        let (open, _) = self.open.take().expect("an answer to a request");
        let (request, answer) = &self.case.exchanges[self.next];
        self.next += 1;
        match (event, answer) {
            (
                Event::Answered(id, client::Answer::Done(times)),
                Answer::Result(expected)
                | Answer::Delivered(expected)
                | Answer::CallsBack(_, _, expected),
            ) => {
                assert_eq!(id, open);
                assert_eq!(times.exec, EXEC);
                let order = self.case.big_endian;
                assert!(self.orders.iter().all(|seen| *seen == order));
                assert_eq!(std::mem::take(&mut self.received), stream(expected, order));
            }
            (Event::Failed(id, failure), Answer::Failure(expected) | Answer::Stop(expected)) => {
                assert_eq!((id, &failure), (open, expected));
            }
            (Event::Failed(id, _), Answer::Nothing) => {
                assert_eq!(id, open);
                assert!(matches!(request, Request::Call { cancels: true, .. }));
            }
            (Event::Answered(id, told), answer) => {
                assert_eq!(id, open);
                check_told(told, answer);
            }
            (event, _) => panic!("unexpected {event:?}"),
        }
    }

    fn output(&mut self) -> Vec<u8> {
        if self.connected && self.open.is_none() {
            let requests = self.case.exchanges.get(self.next);
            self.open = requests.map(|(request, _)| (self.ask(request), 0));
        }
        let mut out = Vec::new();
        loop {
            if self.pauses() {
                return out;
            }
            match self.proto.poll_transmit(&mut out) {
                Transmit::Idle => return out,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let (_, sent) = self.open.as_mut().unwrap();
                    *sent += 1;
                    let (
                        Request::Call { data, .. }
                        | Request::Submit(_, data)
                        | Request::Put(_, data)
                        | Request::PutPart(_, data),
                        _,
                    ) = &self.case.exchanges[self.next]
                    else {
                        panic!("data of no call");
                    };
                    let data = stream(data, self.case.big_endian);
                    let part = &data[chunk.offset as usize..][..chunk.length as usize];
                    append_data(&mut out, part, self.case.big_endian);
                }
            }
        }
    }

    fn ask(&mut self, request: &Request) -> CallId {
        let id = match request {
            Request::List(from) => self.proto.list(*from),
            Request::Describe(name) => self.proto.describe(name),
            Request::Register(path, text) => self.proto.register(path, text),
            Request::Estimate(call) => self.proto.estimate(call),
            Request::AskCall(name) => self.proto.ask_call(*name),
            Request::New(class) => self.proto.create(class),
            Request::DeleteAndList(object) => {
                self.proto.delete(*object);
                self.proto.list(0)
            }
            Request::Status => self.proto.status(),
            Request::AskSnapshot(asked) => self.proto.ask_snapshot(asked),
            Request::Drain => self.proto.drain(),
            Request::Directory(kind, message) => self.proto.ask_directory(*kind, message),
            Request::ObserveAndFind(observed, find) => {
                self.proto.observe(observed);
                self.proto.ask_directory(Kind::Find, find)
            }
            Request::Submit(submission, _) => self.proto.submit(submission),
            Request::AskJob(job) => self.proto.ask_job(*job),
            Request::Fetch(job, result_bytes) => self.proto.fetch(*job, *result_bytes),
            Request::CancelJob(job, forget) => self.proto.cancel_job(*job, *forget),
            Request::ListJobs(after) => self.proto.list_jobs(*after),
            Request::Put(put, _) => self.proto.put(put),
            Request::PutPart(part, _) => self.proto.put_part(part),
            Request::GetPart(part) => self.proto.get_part(part),
            Request::Get(handle, bytes) => self.proto.get(*handle, *bytes),
            Request::AskHandle(handle) => self.proto.ask_handle(*handle),
            Request::Drop(handle) => self.proto.drop_handle(*handle),
            Request::Lend(handle) => self.proto.lend(*handle),
            Request::Pull(pull) => self.proto.pull(pull),
            Request::ListHandles(after) => self.proto.list_handles(*after),
            Request::Write(write) => self.proto.write(write),
            Request::Name(name) => self.proto.name(name),
            Request::AskName(name) => self.proto.ask_name(name),
            Request::ListNames(after) => self.proto.list_names(after.as_ref()),
            Request::Objects(asked) => self.proto.objects(*asked),
            Request::Reservations(asked) => self.proto.reservations(*asked),
            Request::Call {
                call, result_bytes, ..
            } => self.proto.call(call, *result_bytes),
        };
        id.unwrap()
    }

    /// Whether the client holds the rest of its data back, having given the call up if it does.
    fn pauses(&mut self) -> bool {
        let Some((id, sent)) = self.open else {
            return false;
        };
        match &self.case.exchanges[self.next].0 {
            Request::Call {
                pause_after: Some(count),
                cancels,
                ..
            } if *count == sent => {
                if *cancels {
                    self.proto.cancel(id);
                }
                !cancels
            }
            _ => false,
        }
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.next, self.case.exchanges.len());
        let stops = matches!(
            self.case.exchanges.last(),
            None | Some((_, Answer::Stop(_)))
        );
        match &self.over {
            Some(ProtocolError::Goodbye(_)) => assert!(stops),
            Some(error) => panic!("{error}"),
            None => assert!(!stops && self.proto.is_idle()),
        }
    }
}

/// An answer about the server itself.
fn check_told(told: client::Answer, answer: &Answer) {
    use client::Answer as Told;
    match (told, answer) {
        (Told::Listing(listing), Answer::Listing(expected)) => assert_eq!(&listing, expected),
        (Told::Interface(told), Answer::Interface(number, expected, library)) => {
            assert_eq!((told.function, &told.text), (*number, expected));
            assert_eq!(told.library, *library);
        }
        (Told::Created, Answer::Created) => {}
        (Told::StatusText(text), Answer::StatusText(expected)) => assert_eq!(text, *expected),
        (Told::Draining(calls), Answer::Draining(expected)) => assert_eq!(calls, *expected),
        (Told::Directory(kind, bytes), Answer::Directory(expected, message)) => {
            assert_eq!((kind, &bytes), (*expected, message));
        }
        (Told::Estimated(estimate), Answer::Estimate(expected)) => assert_eq!(&estimate, expected),
        (Told::CallStatus(status), Answer::CallStatus(expected)) => assert_eq!(&status, expected),
        (told, answer) => check_kept(told, answer),
    }
}

/// An answer about what the server keeps.
fn check_kept(told: client::Answer, answer: &Answer) {
    use client::Answer as Told;
    match (told, answer) {
        (Told::Submitted(job), Answer::Submitted(expected)) => assert_eq!(job, *expected),
        (Told::Job(job), Answer::Job(expected)) => assert_eq!(job, *expected),
        (Told::Jobs(page), Answer::Jobs(expected)) => assert_eq!(&page, expected),
        (Told::Handle(record), Answer::Handle(expected)) => assert_eq!(&record, expected),
        (Told::Named(record), Answer::Named(expected)) => assert_eq!(&record, expected),
        (Told::Names(page), Answer::Names(expected)) => assert_eq!(&page, expected),
        (Told::Handles(page), Answer::Handles(expected)) => assert_eq!(&page, expected),
        (Told::Receipt(receipt), Answer::Receipt(expected)) => assert_eq!(&receipt, expected),
        (Told::Objects(page), Answer::Objects(expected)) => assert_eq!(&page, expected),
        (Told::Reservations(page), Answer::Reservations(expected)) => assert_eq!(&page, expected),
        (told, _) => panic!("unexpected {told:?}"),
    }
}

/// A question about the server itself; returns its number.
fn asked_about_server(event: server::Event, request: &Request) -> CallId {
    use server::Event;
    match (event, request) {
        (Event::List(id, from), Request::List(expected)) if from == *expected => id,
        (Event::Describe(id, name), Request::Describe(expected)) if name == *expected => id,
        (Event::Register(id, path, text), Request::Register(expected, what))
            if (path.as_str(), text.as_str()) == (*expected, *what) =>
        {
            id
        }
        (Event::New(id, class), Request::New(expected)) if class == *expected => id,
        (Event::Estimate(id, call), Request::Estimate(expected)) if call == *expected => id,
        (Event::AskCall(id, name), Request::AskCall(expected)) if name == *expected => id,
        (Event::AskSnapshot(id, asked), Request::AskSnapshot(expected)) if asked == *expected => id,
        (Event::Status(id), Request::Status) | (Event::Drain(id), Request::Drain) => id,
        (Event::Directory(id, kind, bytes), Request::Directory(expected, message))
            if (kind, &bytes) == (*expected, message) =>
        {
            id
        }
        (event, request) => asked_about_kept(event, request),
    }
}

/// A question about what the server keeps; returns its number.
fn asked_about_kept(event: server::Event, request: &Request) -> CallId {
    use server::Event;
    match (event, request) {
        (Event::AskJob(id, job), Request::AskJob(expected)) if job == *expected => id,
        (Event::Fetch(id, job), Request::Fetch(expected, _)) if job == *expected => id,
        (Event::CancelJob(id, job, forget), Request::CancelJob(expected, also))
            if (job, forget) == (*expected, *also) =>
        {
            id
        }
        (Event::ListJobs(id, after), Request::ListJobs(expected)) if after == *expected => id,
        (Event::GetPart(id, part), Request::GetPart(expected)) if part == *expected => id,
        (Event::Get(id, handle), Request::Get(expected, _)) if handle == *expected => id,
        (Event::AskHandle(id, handle), Request::AskHandle(expected)) if handle == *expected => id,
        (Event::Drop(id, handle), Request::Drop(expected)) if handle == *expected => id,
        (Event::Lend(id, handle), Request::Lend(expected)) if handle == *expected => id,
        (Event::Pull(id, pull), Request::Pull(expected)) if pull == *expected => id,
        (Event::ListHandles(id, after), Request::ListHandles(expected)) if after == *expected => id,
        (Event::Write(id, write), Request::Write(expected)) if write == *expected => id,
        (Event::Name(id, name), Request::Name(expected)) if name == *expected => id,
        (Event::AskName(id, name), Request::AskName(expected)) if name == *expected => id,
        (Event::ListNames(id, after), Request::ListNames(expected)) if after == *expected => id,
        (Event::Objects(id, asked), Request::Objects(expected)) if asked == *expected => id,
        (Event::Reservations(id, asked), Request::Reservations(expected)) if asked == *expected => {
            id
        }
        (event, _) => panic!("unexpected {event:?}"),
    }
}

/// The serving end.
pub(crate) struct Server<'c> {
    case: &'c Case,
    proto: server::Connection,
    next: usize,
    received: Vec<u8>,
    /// The result under way.
    sending: &'c [Elements],
    over: bool,
}

impl<'c> Server<'c> {
    pub(crate) fn new(case: &'c Case) -> Server<'c> {
        let mut hello = Hello::new("golden server");
        hello.features = case.hello.features;
        Server {
            case,
            proto: server::Connection::new(case.limits.clone(), hello),
            next: 0,
            received: Vec::new(),
            sending: &[],
            over: false,
        }
    }

    pub(crate) fn input(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        while !bytes.is_empty() && !self.over {
            let event = if let Some(chunk) = self.proto.incoming() {
                let count = bytes.len().min(chunk.length as usize);
                if !chunk.discard {
                    assert_eq!(chunk.big_endian, self.case.big_endian);
                    self.received.extend_from_slice(&bytes[..count]);
                }
                bytes = &bytes[count..];
                self.proto.handle_data(count as u64, RECEIVED)
            } else {
                match self.proto.handle_input(bytes, OFFERED) {
                    Ok((taken, event)) => {
                        bytes = &bytes[taken..];
                        event
                    }
                    Err(error) => {
                        self.proto.goodbye(error.to_string());
                        self.over = true;
                        None
                    }
                }
            };
            if let Some(event) = event {
                self.on_event(event);
            }
        }
        self.output()
    }

    /// Handles the greeting of the client and its proof.
    fn greets(&mut self, event: &server::Event) -> bool {
        match event {
            server::Event::Connected(hello) => {
                assert_eq!(*hello, self.case.hello);
                self.proto.challenge(CHALLENGE.to_string());
            }
            server::Event::Proof(text) => {
                assert_eq!(text, PROOF);
                self.proto.welcome(Some(SIGNATURE.to_string()));
            }
            _ => return false,
        }
        true
    }

    fn on_event(&mut self, event: server::Event) {
        use server::Event;
        if self.greets(&event) {
            return;
        }
        let case = self.case;
        let (request, answer) = &case.exchanges[self.next];
        match (event, request) {
            (Event::Delete(object), Request::DeleteAndList(expected)) => {
                assert_eq!(object, *expected);
            }
            (Event::List(id, 0), Request::DeleteAndList(_)) => self.answer(id, answer),
            (Event::Directory(id, kind, bytes), Request::ObserveAndFind(observed, find)) => {
                match kind {
                    Kind::Observe => assert_eq!((id, &bytes), (0, observed)),
                    _ => {
                        assert_eq!((kind, &bytes), (Kind::Find, find));
                        self.answer(id, answer);
                    }
                }
            }
            (Event::Call(id, call), Request::Call { call: expected, .. }) => {
                assert_eq!(call, *expected);
                if matches!(answer, Answer::Failure(_)) || self.proto.accept(id, OFFERED) {
                    self.answer(id, answer);
                }
            }
            (Event::Submit(id, submission), Request::Submit(expected, _)) => {
                assert_eq!(submission, *expected);
                assert!(!self.proto.accept(id, OFFERED));
            }
            (Event::Put(id, put), Request::Put(expected, _)) => {
                assert_eq!(put, *expected);
                assert!(!self.proto.accept(id, OFFERED));
            }
            (Event::PutPart(id, part), Request::PutPart(expected, _)) => {
                assert_eq!(part, *expected);
                assert!(!self.proto.accept(id, OFFERED));
            }
            (
                Event::Ready(id),
                Request::Call { data, .. }
                | Request::Submit(_, data)
                | Request::Put(_, data)
                | Request::PutPart(_, data),
            ) => {
                let received = std::mem::take(&mut self.received);
                assert_eq!(received, stream(data, case.big_endian));
                self.answer(id, answer);
            }
            (Event::Answer(id, given), Request::Call { .. }) => {
                let Answer::CallsBack(_, expected, result) = answer else {
                    panic!("answers nobody");
                };
                assert_eq!(given, *expected);
                self.complete(id, result);
                self.next += 1;
            }
            (Event::Cancelled(_), Request::Call { cancels: true, .. }) => {
                self.received.clear();
                self.next += 1;
            }
            (event, request) => {
                let id = asked_about_server(event, request);
                self.answer(id, answer);
            }
        }
    }

    fn answer(&mut self, id: CallId, answer: &'c Answer) {
        match answer {
            Answer::Listing(listing) => self.proto.listing(id, listing),
            Answer::Interface(number, text, library) => {
                let (text, library) = (text.clone(), library.clone());
                self.proto.interface(id, *number, text, library);
            }
            Answer::Estimate(estimate) => self.proto.estimated(id, estimate),
            Answer::CallStatus(status) => self.proto.call_status(id, status),
            Answer::Created => self.proto.created(id),
            Answer::StatusText(text) => self.proto.status_text(id, text.to_string()),
            Answer::Draining(calls) => self.proto.draining(id, *calls),
            Answer::Directory(kind, message) => self.proto.directory(id, *kind, message),
            Answer::Result(data) => self.complete(id, data),
            Answer::Submitted(job) => {
                self.proto.submitted(id, *job);
            }
            Answer::Job(job) => self.proto.job(id, job),
            Answer::Jobs(page) => self.proto.jobs(id, page),
            Answer::Handle(record) => self.proto.handle(id, record),
            Answer::Handles(page) => self.proto.handles(id, page),
            Answer::Receipt(receipt) => self.proto.receipt(id, receipt),
            Answer::Named(record) => self.proto.named(id, record),
            Answer::Names(page) => self.proto.names(id, page),
            Answer::Objects(page) => self.proto.objects(id, page),
            Answer::Reservations(page) => self.proto.reservations(id, page),
            Answer::Delivered(data) => {
                self.sending = data;
                let bytes = stream(data, false).len() as u64;
                let times = Times {
                    exec: EXEC,
                    ..Times::default()
                };
                self.proto.deliver(id, bytes, times, COMPUTED);
            }
            Answer::CallsBack(callback, ..) => {
                self.proto.print(id, PRINTED.to_vec());
                return self.proto.call_back(id, callback);
            }
            Answer::Failure(failure) => self.proto.fail(id, failure),
            Answer::Stop(failure) => self.stop(id, failure),
            Answer::Nothing => return,
        }
        self.next += 1;
    }

    fn complete(&mut self, id: CallId, data: &'c [Elements]) {
        self.sending = data;
        let bytes = stream(data, false).len() as u64;
        self.proto.complete(id, bytes, (EXEC, None), COMPUTED);
    }

    fn stop(&mut self, id: CallId, failure: &Failure) {
        self.proto.fail(id, failure);
        self.proto.goodbye("the server is stopping");
        self.over = true;
    }

    fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            match self.proto.poll_transmit(&mut out, SENT) {
                Transmit::Idle => break,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let data = stream(self.sending, self.case.big_endian);
                    let part = &data[chunk.offset as usize..][..chunk.length as usize];
                    append_data(&mut out, part, self.case.big_endian);
                }
            }
        }
        out
    }

    pub(crate) fn check(&self) {
        assert_eq!(self.next, self.case.exchanges.len());
        assert_eq!(self.proto.open_calls(), 0);
    }
}

/// Appends array data behind their header, which says the byte order of this machine; a case in
/// the other order has the flag turned.
fn append_data(out: &mut Vec<u8>, data: &[u8], big_endian: bool) {
    if big_endian != NATIVE {
        let flags = out.len() - 11;
        out[flags] ^= 1;
    }
    out.extend_from_slice(data);
}
