//! A client with wishes: the real client's end of a connection, and what it remembers.

use crate::checker::{Checker, Told};
use crate::options::Options;
use farcall_idl::{Document, Scalar};
use farcall_random::SplitMix64;
use farcall_rpc_proto as proto;
use farcall_rpc_proto::client::{Connection, Event};
use farcall_rpc_proto::{
    ArrayForm, Call, CallId, Failure, FailureKind, HandleId, Hello, JobId, Limits, Put, Submission,
    Transmit,
};
use std::collections::{BTreeMap, VecDeque};

/// Requests of one client at a time.
const MOST_OPEN: usize = 6;

/// What a request is for.
#[derive(Clone, Debug, PartialEq)]
enum Purpose {
    Describe(usize),
    Call { tag: u64, function: usize },
    Submit { tag: u64 },
    Fetch { tag: u64, id: JobId },
    Cancel { tag: u64 },
    Put,
    Get { tag: u64 },
    Drop,
}

/// A request that is open.
#[derive(Clone, Debug)]
struct Open {
    purpose: Purpose,
    /// What is still to be sent of its data.
    sends: VecDeque<u8>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// A submitted call that the server keeps.
#[derive(Clone, Debug)]
struct Kept {
    tag: u64,
    bytes: u64,
    /// Whether its outcome is known, and was asked for once more.
    asks: u32,
}

/// One client. It has a user of its own, or shares one with another.
pub(crate) struct Client {
    pub(crate) user: u8,
    /// The host of the server that it calls.
    pub(crate) host: usize,
    number: u64,
    made: u64,
    /// What it still wants to begin.
    pub(crate) wishes: u32,
    /// None while it has no connection.
    connection: Option<Connection>,
    greeted: bool,
    /// Numbers of the functions at the server that it is connected to.
    functions: BTreeMap<usize, u64>,
    open: BTreeMap<CallId, Open>,
    kept: BTreeMap<JobId, Kept>,
    handles: Vec<(HandleId, u64)>,
}

/// The functions, by their index in the document.
pub(crate) const NAMES: [&str; 4] = ["sim/once", "sim/again", "sim/make", "sim/look"];
/// Of which the worker fills only the first half of what it returns.
pub(crate) const MAKE: usize = 2;
/// Which only reads its array.
pub(crate) const LOOK: usize = 3;

/// The interfaces that are served.
pub(crate) fn document() -> Document {
    let text = r#"
        Module sim;
        Define once(IN long tag, IN int n, INOUT char x[n]) Calls "C" once(tag, n, x);
        Define again(IN long tag, IN int n, INOUT char x[n])
            Repeatable "yes" Calls "C" again(tag, n, x);
        Define make(IN long tag, IN int n, OUT char y[n])
            Repeatable "yes" Calls "C" make(tag, n, y);
        Define look(IN long tag, IN int n, IN char x[n], OUT char y[8])
            Calls "C" look(tag, n, x, y);
    "#;
    let parsed = farcall_idl::parse_document(text);
    assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
    parsed.document
}

/// What a worker makes of a byte.
pub(crate) fn next(byte: u8) -> u8 {
    byte & 0xf0 | byte.wrapping_add(1) & 0x0f
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
            greeted: false,
            functions: BTreeMap::new(),
            open: BTreeMap::new(),
            kept: BTreeMap::new(),
            handles: Vec::new(),
        }
    }

    /// Whether it has got all it wanted.
    pub(crate) fn is_content(&self) -> bool {
        let is_known = |kept: &Kept| kept.asks > 1;
        self.wishes == 0 && self.open.is_empty() && self.kept.values().all(is_known)
    }

    /// What it still waits for, in words.
    pub(crate) fn lacks(&self) -> String {
        let open: Vec<_> = self.open.values().map(|open| &open.purpose).collect();
        let kept = self.kept.values().filter(|kept| kept.asks < 2);
        let kept: Vec<u64> = kept.map(|kept| kept.tag).collect();
        format!("{} wishes, {open:?}, submitted calls {kept:?}", self.wishes)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// It has a connection, and greets.
    pub(crate) fn connect(&mut self) {
        let mut hello = Hello::new("simulated client");
        hello.token = Some(format!("user {}", self.user));
        hello.features |= proto::HANDLES | proto::JOBS | proto::CREDIT | proto::PARTS;
        let mut connection = Connection::new(Limits::default(), &hello);
        self.greeted = false;
        self.functions.clear();
        for (index, name) in NAMES.iter().enumerate() {
            if let Ok(id) = connection.describe(name) {
                self.open.insert(id, Open::new(Purpose::Describe(index)));
            }
        }
        self.connection = Some(connection);
    }

    /// Its connection is lost: nobody knows what became of what was open.
    pub(crate) fn lost(&mut self) {
        self.connection = None;
        self.open.clear();
        self.handles.clear();
        self.functions.clear();
    }

    /// It begins something, if there is anything that it wants and may begin.
    pub(crate) fn act(&mut self, random: &mut SplitMix64, checker: &mut Checker) {
        let is_ready = self.greeted && self.functions.len() == NAMES.len();
        if !is_ready || self.open.len() >= MOST_OPEN {
            return;
        }
        let asked: Vec<JobId> = self.open.values().filter_map(Open::fetches).collect();
        let wanted = self.kept.iter();
        let mut wanted = wanted.filter(|(id, kept)| kept.asks < 2 && !asked.contains(id));
        if (self.wishes == 0 || random.chance(0.3))
            && let Some((id, kept)) = wanted.next()
        {
            let (id, tag, bytes) = (*id, kept.tag, kept.bytes);
            return self.fetch(id, tag, bytes);
        }
        if self.wishes == 0 {
            return;
        }
        self.wishes -= 1;
        match random.below(20) {
            0..=8 => self.call(random, checker),
            9..=13 => self.submit(random, checker),
            14 => self.cancel(random),
            15 => self.cancel_kept(random, checker),
            16..=17 => self.put(random),
            18 => self.get(random),
            _ => self.drop_handle(random),
        }
    }

    fn bytes(&self, random: &mut SplitMix64, count: u64) -> VecDeque<u8> {
        let first = random.below(16) as u8;
        let byte = |index: u64| self.user << 4 | (first.wrapping_add(index as u8) & 0x0f);
        (0..count).map(byte).collect()
    }

    /// A new call: its tag, the message, and the bytes that it sends and returns.
    fn make(
        &mut self,
        random: &mut SplitMix64,
        checker: &mut Checker,
    ) -> (u64, usize, Call, VecDeque<u8>, u64) {
        self.made += 1;
        let tag = u64::from(self.user) << 48 | self.number << 32 | self.made;
        let function = random.below(NAMES.len() as u64) as usize;
        let count = size(random);
        let sends = match function {
            MAKE => VecDeque::new(),
            _ => self.bytes(random, count),
        };
        let mut scalars = vec![
            Some(Scalar::Int(tag as i64)),
            Some(Scalar::Int(count as i64)),
        ];
        scalars.resize(if function == LOOK { 4 } else { 3 }, None);
        let call = Call {
            function: self.functions[&function],
            scalars,
            elements: Vec::new(),
            data_bytes: sends.len() as u64,
            places: Vec::new(),
            output: false,
            handles: Vec::new(),
            object: None,
            reservation: None,
        };
        let returned = if function == LOOK { 8 } else { count };
        let is_repeatable = matches!(function, 1 | MAKE);
        checker.made(tag, self.user, is_repeatable);
        (tag, function, call, sends, returned)
    }

    fn call(&mut self, random: &mut SplitMix64, checker: &mut Checker) {
        let handle = match self.handles.is_empty() || random.chance(0.6) {
            true => None,
            false => {
                let index = random.below(self.handles.len() as u64) as usize;
                Some(self.handles[index])
            }
        };
        let (tag, function, mut call, mut sends, mut returned) = self.make(random, checker);
        if let Some((id, bytes)) = handle.filter(|_| function != MAKE) {
            // The array stays at the server, and nothing of it travels.
            call.scalars[1] = Some(Scalar::Int(bytes as i64));
            call.handles.push((0, id));
            call.data_bytes = 0;
            sends.clear();
            if function != LOOK {
                returned = 0;
            }
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Ok(id) = connection.call(&call, returned) {
            let purpose = Purpose::Call { tag, function };
            self.open.insert(id, Open::sending(purpose, sends));
        }
    }

    fn submit(&mut self, random: &mut SplitMix64, checker: &mut Checker) {
        let (tag, _, call, sends, returned) = self.make(random, checker);
        let Some(connection) = &mut self.connection else {
            return;
        };
        let submission = Submission { call, keep: None };
        if let Ok(id) = connection.submit(&submission) {
            let mut open = Open::sending(Purpose::Submit { tag }, sends);
            // Remembered for the fetch.
            open.received = returned.to_le_bytes().to_vec();
            self.open.insert(id, open);
        }
    }

    fn fetch(&mut self, id: JobId, tag: u64, bytes: u64) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Ok(request) = connection.fetch(id, bytes) {
            let purpose = Purpose::Fetch { tag, id };
            self.open.insert(request, Open::new(purpose));
        }
    }

    fn cancel(&mut self, random: &mut SplitMix64) {
        let calls = self.open.iter();
        let calls = calls.filter(|(_, open)| matches!(open.purpose, Purpose::Call { .. }));
        let calls: Vec<CallId> = calls.map(|(id, _)| *id).collect();
        if calls.is_empty() {
            return;
        }
        let id = calls[random.below(calls.len() as u64) as usize];
        if let Some(connection) = &mut self.connection {
            connection.cancel(id);
            self.open.remove(&id);
        }
    }

    fn cancel_kept(&mut self, random: &mut SplitMix64, checker: &mut Checker) {
        if self.kept.is_empty() {
            return;
        }
        let index = random.below(self.kept.len() as u64) as usize;
        let Some((id, kept)) = self.kept.iter().nth(index) else {
            return;
        };
        let (id, tag) = (*id, kept.tag);
        if let Some(known) = checker.calls.get_mut(&tag) {
            known.is_cancelled = true;
        }
        if let Some(connection) = &mut self.connection
            && let Ok(request) = connection.cancel_job(id, false)
        {
            let purpose = Purpose::Cancel { tag };
            self.open.insert(request, Open::new(purpose));
        }
    }

    fn put(&mut self, random: &mut SplitMix64) {
        let count = size(random);
        let sends = self.bytes(random, count);
        let put = Put {
            form: ArrayForm {
                element: "char".to_string(),
                shape: vec![count],
                column_major: false,
            },
            data_bytes: count,
            stays: false,
        };
        if let Some(connection) = &mut self.connection
            && let Ok(id) = connection.put(&put)
        {
            self.open.insert(id, Open::sending(Purpose::Put, sends));
        }
    }

    fn get(&mut self, random: &mut SplitMix64) {
        if self.handles.is_empty() {
            return;
        }
        let index = random.below(self.handles.len() as u64) as usize;
        let (handle, bytes) = self.handles[index];
        if let Some(connection) = &mut self.connection
            && let Ok(id) = connection.get(handle, bytes)
        {
            self.open.insert(id, Open::new(Purpose::Get { tag: 0 }));
        }
    }

    fn drop_handle(&mut self, random: &mut SplitMix64) {
        if self.handles.is_empty() {
            return;
        }
        let index = random.below(self.handles.len() as u64) as usize;
        let (handle, _) = self.handles.remove(index);
        if let Some(connection) = &mut self.connection
            && let Ok(id) = connection.drop_handle(handle)
        {
            self.open.insert(id, Open::new(Purpose::Drop));
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
                            let bytes = open.sends.drain(..length.min(open.sends.len()));
                            out.extend(bytes);
                        }
                        // It was given up with a part on its way.
                        None => out.resize(out.len() + length, self.user << 4),
                    }
                }
            }
        }
    }

    /// Takes what the server has sent. Returns whether the connection can go on.
    pub(crate) fn input(
        &mut self,
        mut bytes: &[u8],
        options: &Options,
        checker: &mut Checker,
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
                    if let Some(event) = event {
                        self.on_event(event, options, checker);
                    }
                }
                Err(_) => return false,
            }
        }
        true
    }

    fn on_event(&mut self, event: Event, options: &Options, checker: &mut Checker) {
        match event {
            Event::Connected(_) => self.greeted = true,
            Event::Interface {
                request, function, ..
            } => {
                if let Some(Purpose::Describe(index)) = self.closed(request) {
                    self.functions.insert(index, function);
                }
            }
            Event::Submitted(request, id) => {
                let Some(open) = self.open.remove(&request) else {
                    return;
                };
                if let Purpose::Submit { tag } = open.purpose {
                    checker.kept(tag, id);
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(&open.received);
                    let bytes = u64::from_le_bytes(bytes);
                    self.kept.insert(
                        id,
                        Kept {
                            tag,
                            bytes,
                            asks: 0,
                        },
                    );
                }
            }
            Event::Handle(request, record) => {
                if let Some(Purpose::Put) = self.closed(request) {
                    let bytes = record.form.bytes().unwrap_or(0);
                    self.handles.push((record.id, bytes));
                }
            }
            Event::Done(request, _) => self.done(request, checker),
            Event::Failed(request, failure) => self.failed(request, &failure, options, checker),
            Event::Job(request, _) => drop(self.closed(request)),
            _ => {}
        }
    }

    fn closed(&mut self, request: CallId) -> Option<Purpose> {
        self.open.remove(&request).map(|open| open.purpose)
    }

    fn done(&mut self, request: CallId, checker: &mut Checker) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        match open.purpose {
            Purpose::Call { tag, function } => {
                checker.received(self.user, tag, &open.received);
                let expected: Vec<u8> = open.sent.iter().map(|byte| next(*byte)).collect();
                let is_whole = function < MAKE && !expected.is_empty();
                if is_whole && open.received != expected {
                    checker.fail(format!("call {tag} has wrong results"));
                }
            }
            Purpose::Get { tag } => checker.received(self.user, tag, &open.received),
            Purpose::Fetch { tag, id } => {
                checker.received(self.user, tag, &open.received);
                checker.told(tag, Told::Done(open.received));
                self.asked(id);
            }
            _ => {}
        }
    }

    fn asked(&mut self, id: JobId) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.asks += 1;
        }
    }

    fn failed(
        &mut self,
        request: CallId,
        failure: &Failure,
        options: &Options,
        checker: &mut Checker,
    ) {
        let Some(open) = self.open.remove(&request) else {
            return;
        };
        let (tag, is_kept) = match open.purpose {
            Purpose::Fetch { tag, id } => {
                // A disk that cannot be read now may be read later: that is no outcome.
                let is_passing = failure.message.starts_with("the results of");
                let is_over = !matches!(
                    failure.kind,
                    FailureKind::Busy | FailureKind::NotFound | FailureKind::ServerStopping
                );
                if is_over {
                    self.asked(id);
                }
                if is_over && !is_passing {
                    checker.told(tag, Told::Failed(failure.kind));
                }
                (tag, true)
            }
            Purpose::Call { tag, .. } | Purpose::Submit { tag } => (tag, false),
            _ => return,
        };
        let faults = &options.faults;
        let disk = faults.disk_is_full || faults.disk_errors || faults.disk_forgets;
        let is_expected = match failure.kind {
            FailureKind::Busy | FailureKind::QuotaExceeded => true,
            FailureKind::Cancelled => true,
            FailureKind::NotFound | FailureKind::BadArgument => !is_kept,
            FailureKind::StorageFault => disk,
            FailureKind::OutcomeUnknown => faults.kills || faults.ends,
            FailureKind::LibraryCrashed | FailureKind::Internal => {
                faults.worker_crashes || faults.worker_starts_badly
            }
            FailureKind::TimeLimit => faults.worker_hangs,
            FailureKind::Stalled => faults.stalls || faults.pauses,
            FailureKind::StaleInterface => faults.kills || faults.ends,
            FailureKind::Draining | FailureKind::ServerStopping => faults.ends,
            _ => false,
        };
        if !is_expected {
            checker.fail(format!("call {tag} fails without a cause: {failure}"));
        }
    }
}

impl Open {
    fn new(purpose: Purpose) -> Open {
        Open::sending(purpose, VecDeque::new())
    }

    fn sending(purpose: Purpose, sends: VecDeque<u8>) -> Open {
        Open {
            purpose,
            sent: sends.iter().copied().collect(),
            sends,
            received: Vec::new(),
        }
    }

    fn fetches(&self) -> Option<JobId> {
        match self.purpose {
            Purpose::Fetch { id, .. } => Some(id),
            _ => None,
        }
    }
}
