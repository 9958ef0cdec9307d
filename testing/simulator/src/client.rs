//! A client: the real client's end of a connection, a number of requests that it still wants to
//! make, and what it remembers. Each subject has a file.

mod arrays;
mod callbacks;
mod calls;
mod libraries;
mod names;
mod objects;
mod pairs;
mod parts;
mod reservations;
mod segments;
mod sources;
mod statuses;
mod submitted;
mod trespass;

pub(crate) use libraries::OPERATOR;

use crate::checker::Checker;
use crate::interfaces::{BOTH, NAMES, user_name};
use crate::machine::Memory;
use crate::options::Options;
use farcall_random::SplitMix64;
use farcall_rpc_proto as proto;
use farcall_rpc_proto::client::{Answer, Connection, Event};
use farcall_rpc_proto::{
    CallId, Failure, FailureKind, Hello, JobId, Limits, ProtocolError, Transmit,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::Read;

/// Requests of one client at a time.
const MOST_OPEN: usize = 6;

/// The parts of the world that a client sees when it acts.
pub(crate) struct Scene<'a> {
    pub(crate) random: &'a mut SplitMix64,
    pub(crate) checker: &'a mut Checker,
    pub(crate) options: &'a Options,
    /// Virtual nanoseconds.
    pub(crate) now: u64,
}

/// What a request is for.
#[derive(Clone, Debug)]
enum Purpose {
    Describe(usize),
    Call(calls::Made),
    Submitted(submitted::Asked),
    Array(arrays::Asked),
    Object(objects::Asked),
    Name(names::Asked),
    Source(sources::Asked),
    Reservation(reservations::Asked),
    Share,
    Library(libraries::Asked),
    /// How a call fares.
    Status,
    /// A request that must fail, because it names another user's id.
    Trespass,
}

/// A request that is open.
#[derive(Clone, Debug)]
struct Open {
    purpose: Purpose,
    /// When it was made.
    since: u64,
    /// What is still to be sent of its data.
    sends: VecDeque<u8>,
    received: Vec<u8>,
}

/// One client. It has a user of its own, or shares one with another.
pub(crate) struct Client {
    pub(crate) user: u8,
    /// The host of the server that it calls.
    pub(crate) host: usize,
    number: u64,
    made: u64,
    /// Requests that it still wants to begin.
    pub(crate) wishes: u32,
    /// None while it has no connection.
    connection: Option<Connection>,
    /// The life of a server that it is connected to.
    life: u64,
    /// Memory can be shared over the connection.
    is_local: bool,
    greeted: bool,
    /// The server has said that the connection ends.
    pub(crate) has_goodbye: bool,
    /// It wants to close the connection.
    pub(crate) leaves: bool,
    /// Whether it calls with two stored arrays, and with two of which one is stored.
    has_pairs: bool,
    has_mixtures: bool,
    /// Numbers of the functions at the server that it is connected to.
    functions: BTreeMap<usize, u64>,
    open: BTreeMap<CallId, Open>,
    kept: BTreeMap<JobId, submitted::StoredCall>,
    arrays: Vec<arrays::Array>,
    filling: Vec<parts::Filling>,
    objects: Vec<objects::Object>,
    /// Its reservations, by their numbers.
    reservations: Vec<u64>,
    segments: Vec<segments::Segment>,
    /// Memory that it still sees after it was returned to the server.
    former: Vec<Memory>,
    answers: Vec<callbacks::Answer>,
    /// Numbers of functions of libraries that were registered.
    extra: Vec<u64>,
    /// Requests and answers in words, if the history is recorded.
    notes: Option<Vec<String>>,
}

impl Client {
    pub(crate) fn new(number: u32, options: &Options) -> Client {
        Client {
            // Two clients to a user.
            user: 1 + (number / 2) as u8,
            host: 0,
            number: number.into(),
            made: 0,
            wishes: options.wishes,
            connection: None,
            life: 0,
            is_local: false,
            greeted: false,
            has_goodbye: false,
            leaves: false,
            has_pairs: options.subjects.pairs,
            has_mixtures: options.subjects.mixtures,
            functions: BTreeMap::new(),
            open: BTreeMap::new(),
            kept: BTreeMap::new(),
            arrays: Vec::new(),
            filling: Vec::new(),
            objects: Vec::new(),
            reservations: Vec::new(),
            segments: Vec::new(),
            former: Vec::new(),
            answers: Vec::new(),
            extra: Vec::new(),
            notes: options.traces.then(Vec::new),
        }
    }

    /// Requests and answers in words since the last time.
    pub(crate) fn notes(&mut self) -> Vec<String> {
        self.notes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether all its requests have ended.
    pub(crate) fn is_content(&self) -> bool {
        let is_known = |kept: &submitted::StoredCall| kept.asks > 1;
        self.wishes == 0 && self.open.is_empty() && self.kept.values().all(is_known)
    }

    /// What it still waits for, in words.
    pub(crate) fn lacks(&self) -> String {
        let open = self.open.values();
        let open: Vec<_> = open.map(|open| open.purpose.in_words()).collect();
        let kept = self.kept.values().filter(|kept| kept.asks < 2);
        let kept: Vec<String> = kept.map(|kept| kept.tag.to_string()).collect();
        format!("{} wishes, {open:?}, durable calls {kept:?}", self.wishes)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// It has a connection to that life of a server, and greets.
    pub(crate) fn connect(&mut self, life: u64, is_local: bool, now: u64) {
        let mut hello = Hello::new("simulated client");
        hello.proof = Some(user_name(self.user));
        hello.features |= proto::HANDLES | proto::JOBS | proto::CREDIT | proto::PARTS;
        hello.features |= proto::OBJECTS | proto::KEPT_OBJECTS | proto::NAMES | proto::CALLBACKS;
        hello.features |= proto::RESERVATIONS | proto::REGISTER | proto::LOANS | proto::SOURCES;
        hello.features |= proto::CALL_STATUS | proto::WRITES | proto::OUTCOMES;
        hello.features |= proto::OPERATION | proto::SNAPSHOTS;
        if is_local {
            hello.features |= proto::SHARED_MEMORY;
        }
        let mut connection = Connection::new(Limits::default(), &hello);
        (self.life, self.is_local) = (life, is_local);
        (self.greeted, self.has_goodbye, self.leaves) = (false, false, false);
        for (index, name) in NAMES.iter().enumerate() {
            if index == BOTH && !self.has_both() {
                continue;
            }
            if let Ok(id) = connection.describe(name) {
                self.open
                    .insert(id, Open::new(Purpose::Describe(index), now));
            }
        }
        self.connection = Some(connection);
    }

    /// Its connection is lost: the outcome of open requests is unknown.
    pub(crate) fn lost(&mut self, checker: &mut Checker) {
        self.connection = None;
        for open in std::mem::take(&mut self.open).into_values() {
            self.forget_request(&open.purpose, checker);
        }
        for object in self.objects.drain(..) {
            checker.objects.left(object.index);
        }
        self.former
            .extend(self.segments.drain(..).map(|segment| segment.memory));
        self.arrays.clear();
        self.filling.clear();
        self.functions.clear();
        self.reservations.clear();
        self.answers.clear();
        self.extra.clear();
    }

    /// A request ends, and its outcome is unknown.
    fn forget_request(&mut self, purpose: &Purpose, checker: &mut Checker) {
        match purpose {
            Purpose::Call(made) => self.given_up(made, checker),
            Purpose::Object(asked) => self.object_unknown(*asked, checker),
            _ => {}
        }
    }

    /// Begins a request, if there is one that it wants and can make now.
    pub(crate) fn act(&mut self, scene: &mut Scene<'_>) {
        self.answer_due(scene);
        self.look_at_memory(scene);
        let known = NAMES.len() - usize::from(!self.has_both());
        let is_ready = self.greeted && self.functions.len() == known;
        if !is_ready || self.open.len() >= MOST_OPEN {
            return;
        }
        if (self.wishes == 0 || scene.random.chance(0.3)) && self.fetch_next(scene) {
            return;
        }
        if self.wishes == 0 {
            return;
        }
        self.wishes -= 1;
        if self.has_pairs && scene.random.chance(0.3) {
            return self.act_on_pairs(scene);
        }
        if self.has_mixtures && scene.random.chance(0.3) {
            return self.call_with_mixture(scene);
        }
        if scene.options.subjects.parts && scene.random.chance(0.3) {
            return self.act_on_parts(scene);
        }
        if scene.options.subjects.statuses && scene.random.chance(0.1) {
            return self.ask_status(scene);
        }
        if scene.random.chance(0.4) {
            return self.act_on_subject(scene);
        }
        match scene.random.below(20) {
            0..=8 => self.call(scene),
            9..=13 => self.submit(scene),
            14 => self.cancel(scene),
            15 if scene.options.subjects.retentions && scene.random.chance(0.5) => self.list(scene),
            15 => self.cancel_kept(scene),
            16..=17 => self.put(scene),
            18 => self.get(scene),
            _ => self.drop_handle(scene),
        }
    }

    fn has_both(&self) -> bool {
        self.has_pairs || self.has_mixtures
    }

    /// Makes a request of a subject that this history has.
    fn act_on_subject(&mut self, scene: &mut Scene<'_>) {
        let subjects = scene.options.subjects;
        if subjects.sources && scene.random.chance(0.2) {
            return self.pull(scene);
        }
        match scene.random.below(6) {
            0 | 1 if subjects.objects => self.act_on_objects(scene),
            2 if subjects.names => self.act_on_names(scene),
            3 if subjects.reservations || subjects.lanes => self.act_on_reservations(scene),
            4 if subjects.segments && self.is_local => self.act_on_segments(scene),
            5 if subjects.libraries && scene.random.chance(0.3) => self.register(scene),
            5 if subjects.trespasses => self.trespass(scene),
            _ => self.call(scene),
        }
    }

    /// How many bytes an array has.
    pub(crate) fn size(random: &mut SplitMix64) -> u64 {
        match random.below(16) {
            0 => 1,
            1..=11 => 1 + random.below(200),
            12..=14 => 1 + random.below(20_000),
            _ => 1 + random.below(700_000),
        }
    }

    /// Remembers a request, if it could be made.
    fn asked(
        &mut self,
        made: Result<CallId, ProtocolError>,
        purpose: Purpose,
        sends: Vec<u8>,
        now: u64,
    ) {
        if let Ok(id) = made {
            if let Some(notes) = &mut self.notes {
                notes.push(format!("request {id}: {}", purpose.in_words()));
            }
            let open = Open {
                sends: sends.into(),
                ..Open::new(purpose, now)
            };
            self.open.insert(id, open);
        }
    }

    /// What it wants to send now.
    pub(crate) fn output(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(connection) = &mut self.connection else {
            return out;
        };
        loop {
            match connection.poll_transmit(&mut out) {
                Transmit::Idle => return out,
                Transmit::Frames => {}
                Transmit::Data(chunk) => {
                    let length = chunk.length as usize;
                    match self.open.get_mut(&chunk.call) {
                        Some(open) => {
                            let mut bytes = Read::take(&mut open.sends, length as u64);
                            bytes.read_to_end(&mut out).expect("memory can be read");
                        }
                        // The call was cancelled while a part of its data was on its way.
                        None => out.resize(out.len() + length, self.user << 4),
                    }
                }
            }
        }
    }

    /// Handles bytes from the server, and memory that came beside them. Returns whether the
    /// connection can continue.
    pub(crate) fn input(
        &mut self,
        mut bytes: &[u8],
        memories: &mut VecDeque<Memory>,
        scene: &mut Scene<'_>,
    ) -> bool {
        while !bytes.is_empty() {
            let Some(connection) = &mut self.connection else {
                return false;
            };
            if let Some(chunk) = connection.incoming() {
                let count = bytes.len().min(chunk.length as usize);
                let (taken, rest) = bytes.split_at(count);
                if let Some(open) = self.open.get_mut(&chunk.call) {
                    open.received.extend_from_slice(taken);
                }
                connection.handle_data(count as u64);
                bytes = rest;
                continue;
            }
            match connection.handle_input(bytes) {
                Ok((taken, event)) => {
                    bytes = &bytes[taken..];
                    match event {
                        Some(Event::Answered(request, Answer::Shared(_))) => {
                            self.is_shared(request, memories.pop_front(), scene);
                        }
                        Some(event) => self.on_event(event, scene),
                        None => {}
                    }
                }
                Err(ProtocolError::Goodbye(_)) => {
                    self.has_goodbye = true;
                    return false;
                }
                Err(error) => {
                    let text = format!("the server breaks the protocol: {error}");
                    scene.checker.fail(text);
                    return false;
                }
            }
        }
        true
    }

    fn on_event(&mut self, event: Event, scene: &mut Scene<'_>) {
        match event {
            Event::Connected(_) => self.greeted = true,
            Event::Challenge(name) => {
                if let Some(connection) = &mut self.connection {
                    connection.prove(name);
                }
            }
            Event::Callback(call, callback) => self.called_back(call, callback, scene),
            Event::Answered(request, answer) => self.answered(request, answer, scene),
            Event::Failed(request, failure) => self.failed(request, &failure, scene),
            _ => {}
        }
    }

    fn answered(&mut self, request: CallId, answer: Answer, scene: &mut Scene<'_>) {
        match answer {
            Answer::Created => return self.created(request, scene),
            Answer::Done(_) => return self.done(request, scene),
            Answer::Estimated(_) | Answer::Draining(_) => return,
            Answer::Directory(..) | Answer::Shared(_) => return,
            Answer::Handles(_) => return,
            _ => {}
        }
        let Some((purpose, since)) = self.closed(request, scene) else {
            return;
        };
        match (answer, purpose) {
            (Answer::Interface(told), Purpose::Describe(index)) => {
                self.functions.insert(index, told.function);
            }
            (Answer::Interface(told), Purpose::Library(_)) => self.extra.push(told.function),
            (Answer::Submitted(id), Purpose::Submitted(asked)) => {
                self.is_kept(asked, since, id, scene)
            }
            (Answer::Job(told), Purpose::Submitted(asked)) => self.cancelled(asked, &told, scene),
            (Answer::Jobs(page), Purpose::Submitted(_)) => self.listed(since, &page, scene),
            (Answer::Handle(record), Purpose::Source(asked)) => {
                self.has_source(&asked, since, &record, scene);
            }
            (Answer::Receipt(receipt), Purpose::Source(asked)) => {
                self.has_receipt(&asked, &receipt, scene);
            }
            (Answer::Handle(record), purpose) => self.has_handle(purpose, since, &record, scene),
            (Answer::Objects(page), Purpose::Object(asked)) => {
                self.told_of_objects(asked, (request, since), &page, scene);
            }
            (Answer::Named(record), Purpose::Name(asked)) => {
                self.told_of_name(asked, since, &record, scene);
            }
            (Answer::Names(page), Purpose::Name(_)) => {
                let reader = (self.life, self.user);
                let names = &mut scene.checker.names;
                let told = names.listed(reader, &page, (since, scene.now));
                told.unwrap_or_else(|text| scene.checker.fail(text));
            }
            (Answer::Reservations(page), Purpose::Reservation(asked)) => {
                self.told_of_reservations(asked, since, &page, scene);
            }
            (Answer::Listing(_), Purpose::Library(asked)) => self.registered(asked, scene),
            (Answer::CallStatus(status), Purpose::Status) => self.told_status(&status, scene),
            (Answer::StatusText(text), Purpose::Status) => self.told_snapshot(&text, scene),
            _ => {}
        }
    }

    /// A request has its answer: what it was for, and when it was made.
    fn closed(&mut self, request: CallId, scene: &mut Scene<'_>) -> Option<(Purpose, u64)> {
        let open = self.open.remove(&request)?;
        if matches!(open.purpose, Purpose::Trespass) {
            self.trespassed(scene);
        }
        Some((open.purpose, open.since))
    }

    fn done(&mut self, request: CallId, scene: &mut Scene<'_>) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        if let Some(notes) = &mut self.notes {
            notes.push(format!("request {request} is done"));
        }
        match open.purpose {
            Purpose::Call(made) => self.call_done(&made, open.since, &open.received, scene),
            Purpose::Array(asked) => self.has_bytes(&asked, &open.received, scene),
            Purpose::Name(asked) => self.has_named(&asked, open.since, &open.received, scene),
            Purpose::Source(asked) => self.has_source_bytes(&asked, &open.received, scene),
            Purpose::Submitted(asked) => self.fetched(asked, open.since, open.received, scene),
            Purpose::Trespass => self.trespassed(scene),
            _ => {}
        }
    }

    fn failed(&mut self, request: CallId, failure: &Failure, scene: &mut Scene<'_>) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        let since = open.since;
        if let Some(notes) = &mut self.notes {
            notes.push(format!("request {request} has failed: {failure}"));
        }
        let is_expected = match open.purpose {
            Purpose::Call(made) => self.call_failed(&made, failure, scene),
            Purpose::Submitted(asked) => self.submitted_failed(asked, since, failure, scene),
            Purpose::Array(asked) => self.array_failed(&asked, failure, scene),
            Purpose::Object(asked) => self.object_failed(asked, since, failure, scene),
            Purpose::Name(asked) => self.name_failed(&asked, since, failure, scene),
            Purpose::Source(asked) => self.source_failed(&asked, failure, scene),
            Purpose::Reservation(asked) => self.reservation_failed(asked, failure, scene),
            Purpose::Library(asked) => self.library_failed(asked, failure, scene),
            Purpose::Share => matches!(failure.kind, FailureKind::Busy | FailureKind::TooLarge),
            Purpose::Describe(_) => false,
            // Its durable call was forgotten.
            Purpose::Status => failure.kind == FailureKind::NotFound,
            Purpose::Trespass => true,
        };
        let is_ending = scene.options.faults.ends
            && matches!(
                failure.kind,
                FailureKind::Draining | FailureKind::ServerStopping
            );
        if !is_expected && !is_ending {
            let user = self.user;
            let text = format!("a request of user {user} fails without a cause: {failure}");
            scene.checker.fail(text);
        }
    }
}

impl Purpose {
    /// What is asked for, for people.
    fn in_words(&self) -> String {
        match self {
            Purpose::Describe(index) => format!("describe {}", NAMES[*index]),
            Purpose::Call(made) => made.in_words(),
            Purpose::Submitted(asked) => asked.in_words(),
            Purpose::Array(asked) => format!("array {asked:?}"),
            Purpose::Object(asked) => format!("object {asked:?}"),
            Purpose::Name(asked) => format!("name {asked:?}"),
            Purpose::Source(asked) => format!("source {asked:?}"),
            Purpose::Reservation(asked) => format!("reservation {asked:?}"),
            Purpose::Share => "share memory".to_string(),
            Purpose::Library(asked) => format!("library {asked:?}"),
            Purpose::Status => "the status of a call".to_string(),
            Purpose::Trespass => "something of another user".to_string(),
        }
    }
}

impl Open {
    fn new(purpose: Purpose, since: u64) -> Open {
        Open {
            purpose,
            since,
            sends: VecDeque::new(),
            received: Vec::new(),
        }
    }
}
