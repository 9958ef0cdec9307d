//! A client of metaservers: the real client's decisions, with the real client's end of each
//! connection. Each call must end once, with the right result or with a failure that the faults of
//! the history allow.

use super::data::Dealing;
use crate::checker::Checker;
use crate::client::Client;
use crate::interfaces::{self, Contents, LOOK, LOOKED, MAKE, NAMES, Tag, look, next, user_name};
use crate::options::Options;
use farcall_directory::client::{ChosenServer, Course, Known, Next, Trouble};
use farcall_directory::message::{Choose, Chosen, Find, Found, Message, Observe, Transfer};
use farcall_idl::Scalar;
use farcall_random::SplitMix64;
use farcall_rpc_proto::client::{Answer, Connection, Event};
use farcall_rpc_proto::{
    CREDIT, Call, CallId, DIRECTORY, Failure, FailureKind, HANDLES, Hello, Kind, Limits,
    NAMES as DATA, PARTS,
};
use std::collections::{BTreeMap, VecDeque};

/// Calls of one client at a time.
const MOST_OPEN: usize = 4;

/// The peer of a connection that a client wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whom {
    /// Any metaserver.
    Meta,
    /// A server, by its number and its address.
    Server(u64, String),
}

/// A connection.
pub(super) struct Line {
    pub(super) whom: Whom,
    pub(super) proto: Connection,
    /// Numbers of the functions there.
    functions: BTreeMap<usize, u64>,
    pub(super) open: BTreeMap<CallId, Asked>,
}

/// What was asked on a connection.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Find { tag: Tag },
    Choose { tag: Tag },
    Describe { tag: Tag },
    Call { tag: Tag },
    Data { id: u64 },
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The servers that have its function; asked this many times.
    Finding(u32),
    /// A placement; asked this many times.
    Choosing(u32),
    /// A connection to its server, or the interface there.
    Reaching,
    /// Its results, with the connection by which they come.
    Running(usize),
}

/// A call in progress.
pub(super) struct Calling {
    function: usize,
    sends: Vec<u8>,
    /// Data that its server has not been sent yet.
    pub(super) unsent: VecDeque<u8>,
    pub(super) received: Vec<u8>,
    course: Course,
    stage: Stage,
    /// It must succeed.
    is_last: bool,
}

impl Calling {
    /// Whether its results are those of its function.
    fn is_right(&self, user: u8) -> bool {
        match self.function {
            MAKE => {
                // The second half is what was in memory.
                let half = self.course.wanted().down as usize / 2;
                let made = vec![user << 4 | 5; half];
                self.received.starts_with(&made)
            }
            LOOK => {
                let looked = self.sends.iter().take(LOOKED);
                let mut looked: Vec<u8> = looked.map(|byte| look(user, *byte)).collect();
                looked.resize(LOOKED, 0);
                self.received == looked
            }
            _ => {
                let changed = self.sends.iter().copied().map(next);
                self.received.iter().copied().eq(changed)
            }
        }
    }
}

/// One client. It shares its user with another.
pub(crate) struct Caller {
    pub(crate) user: u8,
    number: u64,
    made: u64,
    pub(crate) wishes: u32,
    pub(super) known: Known,
    /// Named data that are put or read.
    pub(super) dealings: BTreeMap<u64, Dealing>,
    pub(super) dealt: u64,
    pub(super) calls: BTreeMap<Tag, Calling>,
    pub(super) lines: BTreeMap<usize, Line>,
    /// Peers to which a connection is being made.
    reaching: Vec<Whom>,
    /// Connections that it wants.
    pub(crate) wants: Vec<Whom>,
    /// The events of its calls in words, if the history is recorded.
    pub(crate) told: Vec<String>,
    options: Options,
    digests: [u64; 4],
}

/// Whether the faults of this history allow such a failure.
fn is_expected(kind: FailureKind, options: &Options) -> bool {
    let faults = &options.faults;
    let ends = faults.kills || faults.ends;
    match kind {
        // Servers have not joined yet, or do not take calls.
        FailureKind::UnknownFunction | FailureKind::NoServer => true,
        FailureKind::LibraryCrashed | FailureKind::Internal => {
            faults.worker_crashes || faults.worker_starts_badly
        }
        FailureKind::TimeLimit => faults.worker_hangs,
        FailureKind::Stalled => faults.stalls || faults.pauses,
        FailureKind::OutcomeUnknown => ends || faults.resets || options.grid_faults.cuts,
        _ => false,
    }
}

impl Caller {
    pub(crate) fn new(number: u32, options: &Options) -> Caller {
        let document = interfaces::document();
        let mut functions = document.functions();
        let digests = [(); 4].map(|()| {
            let text = functions.next().map(|one| one.public_text());
            farcall_directory::digest(&text.unwrap_or_default())
        });
        Caller {
            user: 1 + (number / 2) as u8,
            number: number.into(),
            made: 0,
            wishes: options.wishes,
            known: Known::default(),
            dealings: BTreeMap::new(),
            dealt: 0,
            calls: BTreeMap::new(),
            lines: BTreeMap::new(),
            reaching: Vec::new(),
            wants: Vec::new(),
            told: Vec::new(),
            options: options.clone(),
            digests,
        }
    }

    pub(crate) fn is_content(&self) -> bool {
        self.wishes == 0 && self.calls.is_empty() && self.dealings.is_empty()
    }

    pub(crate) fn lacks(&self) -> String {
        let calls: Vec<_> = self
            .calls
            .iter()
            .map(|(tag, call)| (tag, call.stage))
            .collect();
        format!("{} wishes, {calls:?}, {:?}", self.wishes, self.dealings)
    }

    /// Begins a call, if it wants one and can.
    pub(crate) fn act(
        &mut self,
        now: f64,
        random: &mut SplitMix64,
        checker: &mut Checker,
        is_last: bool,
    ) {
        if self.wishes == 0 || self.calls.len() >= MOST_OPEN {
            return;
        }
        self.wishes -= 1;
        if !is_last && random.chance(0.2) {
            return self.deal(now, random, checker);
        }
        self.made += 1;
        let tag = Tag(u64::from(self.user) << 48 | self.number << 32 | self.made);
        let function = random.below(1 + LOOK as u64) as usize;
        let count = match is_last {
            true => 10,
            false => Client::size(random),
        };
        let contents = Contents {
            user: self.user,
            first: random.below(16) as u8,
            count,
        };
        let sends = if function == MAKE {
            Vec::new()
        } else {
            contents.bytes()
        };
        let down = if function == LOOK {
            LOOKED as u64
        } else {
            count
        };
        let is_repeatable = matches!(function, 1 | MAKE);
        checker.made(tag, self.user, is_repeatable);
        let wanted = Choose {
            function: NAMES[function].to_string(),
            digest: self.digests[function],
            work: (sends.len() as u64 + down) as f64,
            up: sends.len() as u64,
            down,
            memory: if function == LOOK {
                count + down
            } else {
                count
            },
            fewest: None,
            most: None,
            exclude: Vec::new(),
            explain: false,
            data: None,
            trace: None,
        };
        let call = Calling {
            function,
            sends,
            unsent: VecDeque::new(),
            received: Vec::new(),
            course: Course::new(wanted, is_repeatable, function < MAKE),
            stage: Stage::Finding(0),
            is_last,
        };
        self.calls.insert(tag, call);
        self.find(tag, now, checker);
    }

    /// The connection to a peer, if there is one. Otherwise the caller asks for one.
    pub(super) fn line(&mut self, whom: &Whom) -> Option<usize> {
        let found = self.lines.iter().find(|(_, line)| line.whom == *whom);
        let link = found.map(|(link, _)| *link);
        if link.is_none() && !self.reaching.contains(whom) {
            self.reaching.push(whom.clone());
            self.wants.push(whom.clone());
        }
        link
    }

    /// Asks which servers have the function of a call, unless it knows them, and then for a
    /// placement.
    fn find(&mut self, tag: Tag, now: f64, checker: &mut Checker) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        let name = NAMES[call.function];
        if self.known.is_fresh(now, name) || !self.known.asks(now) {
            if let Err(refusal) = self.known.directory().resolve(name) {
                return self.end(tag, Err(refusal.into()), checker);
            }
            call.stage = Stage::Choosing(0);
            return self.choose(tag, now, checker);
        }
        let find = Find {
            function: name.to_string(),
        };
        self.ask_meta(Asked::Find { tag }, Kind::Find, &find.to_bytes());
    }

    fn choose(&mut self, tag: Tag, now: f64, checker: &mut Checker) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        let wanted = call.course.wanted().clone();
        if self.known.asks(now) {
            return self.ask_meta(Asked::Choose { tag }, Kind::Choose, &wanted.to_bytes());
        }
        let chosen = self.known.choose(now, &wanted);
        self.place(tag, now, chosen, true, checker);
    }

    fn place(
        &mut self,
        tag: Tag,
        now: f64,
        chosen: Result<Chosen, farcall_directory::Refusal>,
        is_own: bool,
        checker: &mut Checker,
    ) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        let place =
            chosen.and_then(|chosen| ChosenServer::of(call.course.wanted(), chosen, is_own));
        match place {
            Err(refusal) => self.end(tag, Err(refusal.into()), checker),
            Ok(place) => {
                let server = place.server;
                call.course.goes_to(place);
                call.stage = Stage::Reaching;
                self.tell(|| format!("call {tag} goes to {server:x}, by its own choice: {is_own}"));
                self.reach(tag, now, checker);
            }
        }
    }

    /// Asks a metaserver, now or when there is a connection.
    pub(super) fn ask_meta(&mut self, asked: Asked, kind: Kind, message: &[u8]) {
        let Some(link) = self.line(&Whom::Meta) else {
            return;
        };
        if let Some(line) = self.lines.get_mut(&link)
            && let Ok(id) = line.proto.ask_directory(kind, message)
        {
            line.open.insert(id, asked);
        }
    }

    /// Continues a placed call at its server, when there is a connection.
    fn reach(&mut self, tag: Tag, now: f64, checker: &mut Checker) {
        let Some(place) = self.calls.get(&tag).and_then(|call| call.course.place()) else {
            return;
        };
        let whom = Whom::Server(place.server, place.address.clone());
        let Some(link) = self.line(&whom) else { return };
        let (Some(line), Some(call)) = (self.lines.get_mut(&link), self.calls.get_mut(&tag)) else {
            return;
        };
        let Some(function) = line.functions.get(&call.function) else {
            if let Ok(id) = line.proto.describe(NAMES[call.function]) {
                line.open.insert(id, Asked::Describe { tag });
            }
            return;
        };
        let wanted = call.course.wanted();
        let count = if call.function == LOOK {
            wanted.up
        } else {
            wanted.down
        };
        let mut scalars = vec![
            Some(Scalar::Int(tag.0 as i64)),
            Some(Scalar::Int(count as i64)),
        ];
        scalars.resize(if call.function == LOOK { 4 } else { 3 }, None);
        let message = Call {
            function: *function,
            scalars,
            elements: Vec::new(),
            data_bytes: call.sends.len() as u64,
            places: Vec::new(),
            output: false,
            handles: Vec::new(),
            object: None,
            reservation: None,
            trace: None,
            before: None,
        };
        match line.proto.call(&message, wanted.down) {
            Ok(id) => {
                line.open.insert(id, Asked::Call { tag });
                call.unsent = call.sends.iter().copied().collect();
                call.received.clear();
                call.stage = Stage::Running(link);
            }
            Err(_) => self.fails(tag, now, Trouble::Own, None, None, checker),
        }
    }

    /// Handles the failure of an attempt.
    fn fails(
        &mut self,
        tag: Tag,
        now: f64,
        trouble: Trouble,
        returning: Option<bool>,
        failure: Option<Failure>,
        checker: &mut Checker,
    ) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        let next = call.course.after(trouble, returning);
        if self.options.traces {
            self.told.push(format!("call {tag}: {trouble:?}, {next:?}"));
        }
        match next {
            Next::Elsewhere => {
                let given = call.course.give_away(trouble);
                call.stage = Stage::Finding(0);
                if let Some((place, observed)) = given {
                    self.observe(now, &place, &observed);
                }
                self.find(tag, now, checker);
            }
            Next::Lost(why) => {
                if let Some((place, observed)) = call.course.give_away(trouble) {
                    self.observe(now, &place, &observed);
                }
                self.end(
                    tag,
                    Err(Failure::new(FailureKind::OutcomeUnknown, why)),
                    checker,
                );
            }
            Next::End => {
                let failure = failure
                    .unwrap_or_else(|| Failure::new(FailureKind::NoServer, format!("{trouble:?}")));
                self.end(tag, Err(failure), checker);
            }
        }
    }

    pub(super) fn tell(&mut self, text: impl FnOnce() -> String) {
        if self.options.traces {
            self.told.push(text());
        }
    }

    /// A call is over.
    fn end(&mut self, tag: Tag, result: Result<(), Failure>, checker: &mut Checker) {
        let Some(call) = self.calls.remove(&tag) else {
            return;
        };
        self.tell(|| format!("call {tag} ends: {result:?}"));
        if let (true, Err(failure)) = (call.is_last, &result) {
            checker.fail(format!(
                "call {tag} fails when all is well again: {failure}"
            ));
        }
        if let Err(failure) = &result
            && !is_expected(failure.kind, &self.options)
        {
            checker.fail(format!("call {tag} fails without a cause: {failure}"));
        }
        checker.ended(tag, result.err().map(|failure| failure.kind));
    }

    fn observe(&mut self, now: f64, place: &ChosenServer, observed: &Observe) {
        let Some(told) = self.known.observe(now, place, observed) else {
            return;
        };
        let mut lines = self.lines.values_mut();
        if let Some(line) = lines.find(|line| line.whom == Whom::Meta) {
            line.proto.observe(&told.to_bytes());
        }
    }

    /// It has a connection.
    pub(crate) fn connected(&mut self, link: usize, whom: Whom, now: f64, checker: &mut Checker) {
        self.reaching.retain(|one| *one != whom);
        let mut hello = Hello::new("simulated client");
        hello.proof = Some(user_name(self.user));
        hello.features |= match whom {
            Whom::Meta => DIRECTORY | DATA,
            Whom::Server(..) => HANDLES | DATA | CREDIT | PARTS,
        };
        let line = Line {
            whom: whom.clone(),
            proto: Connection::new(Limits::default(), &hello),
            functions: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        self.lines.insert(link, line);
        for id in self.dealing_with(&whom) {
            self.go_on_dealing(id, now);
        }
        for tag in self.waiting(&whom) {
            match self.calls[&tag].stage {
                Stage::Finding(_) => self.find(tag, now, checker),
                Stage::Choosing(_) => self.choose(tag, now, checker),
                _ => self.reach(tag, now, checker),
            }
        }
    }

    /// Transfers of named data that wait for a peer.
    fn dealing_with(&self, whom: &Whom) -> Vec<u64> {
        let dealings = self.dealings.iter();
        let dealings = dealings.filter(|(_, dealing)| dealing.waits_for(whom));
        dealings.map(|(id, _)| *id).collect()
    }

    /// Calls that wait for a peer.
    fn waiting(&self, whom: &Whom) -> Vec<Tag> {
        let waits = |call: &Calling| match (call.stage, whom) {
            (Stage::Finding(_) | Stage::Choosing(_), Whom::Meta) => true,
            (Stage::Reaching, Whom::Server(server, _)) => call
                .course
                .place()
                .is_some_and(|place| place.server == *server),
            _ => false,
        };
        let calls = self.calls.iter().filter(|(_, call)| waits(call));
        calls.map(|(tag, _)| *tag).collect()
    }

    /// A peer cannot be reached.
    pub(crate) fn unreachable(&mut self, whom: &Whom, now: f64, checker: &mut Checker) {
        self.reaching.retain(|one| one != whom);
        for id in self.dealing_with(whom) {
            self.data_lost(id, now);
        }
        for tag in self.waiting(whom) {
            match whom {
                Whom::Meta => self.asks_again(tag, now, checker),
                Whom::Server(..) => self.fails(tag, now, Trouble::NotBegun, None, None, checker),
            }
        }
    }

    /// A metaserver has not answered: the next one is asked, or the client decides.
    fn asks_again(&mut self, tag: Tag, now: f64, checker: &mut Checker) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        let (Stage::Finding(tries) | Stage::Choosing(tries)) = &mut call.stage else {
            return;
        };
        *tries += 1;
        if *tries >= 2 {
            *tries = 0;
            self.known.answered(now, false);
        }
        match call.stage {
            Stage::Finding(_) => self.find(tag, now, checker),
            _ => self.choose(tag, now, checker),
        }
    }

    /// A connection is lost, or its peer has closed it.
    pub(crate) fn lost(&mut self, link: usize, was_let_go: bool, now: f64, checker: &mut Checker) {
        let Some(line) = self.lines.remove(&link) else {
            return;
        };
        let trouble = if was_let_go {
            Trouble::NotBegun
        } else {
            Trouble::Lost
        };
        for asked in line.open.into_values() {
            match asked {
                Asked::Find { tag } | Asked::Choose { tag } => self.asks_again(tag, now, checker),
                Asked::Describe { tag } => self.fails(tag, now, trouble, None, None, checker),
                Asked::Data { id } => self.data_lost(id, now),
                Asked::Call { tag } => {
                    let call = self.calls.get(&tag);
                    let returning = call.is_some_and(|call| !call.received.is_empty());
                    self.fails(tag, now, trouble, Some(returning), None, checker);
                }
            }
        }
    }

    pub(super) fn on_event(&mut self, link: usize, event: Event, now: f64, checker: &mut Checker) {
        let Some(line) = self.lines.get_mut(&link) else {
            return;
        };
        let (request, answer) = match event {
            Event::Answered(request, answer) => (request, Ok(answer)),
            Event::Failed(request, failure) => (request, Err(failure)),
            _ => return,
        };
        let Some(asked) = line.open.remove(&request) else {
            return;
        };
        match (asked, answer) {
            (Asked::Data { id }, answer) => self.data_answer(link, id, answer, now, checker),
            (Asked::Find { tag }, Ok(Answer::Directory(_, message))) => {
                self.known.answered(now, true);
                if let Ok(found) = Found::from_bytes(&message)
                    && let Some(call) = self.calls.get_mut(&tag)
                {
                    self.known.found(now, NAMES[call.function], found);
                    call.stage = Stage::Choosing(0);
                    self.choose(tag, now, checker);
                }
            }
            (Asked::Choose { tag }, Ok(Answer::Directory(_, message))) => {
                self.known.answered(now, true);
                if let Ok(chosen) = Chosen::from_bytes(&message) {
                    self.place(tag, now, Ok(chosen), false, checker);
                }
            }
            (Asked::Find { tag } | Asked::Choose { tag }, Err(failure)) => {
                self.end(tag, Err(failure), checker);
            }
            (Asked::Describe { tag }, Ok(Answer::Interface(told))) => {
                if let Some(call) = self.calls.get(&tag) {
                    line.functions.insert(call.function, told.function);
                    self.reach(tag, now, checker);
                }
            }
            (Asked::Describe { tag }, Err(failure)) => {
                let trouble = Trouble::Failed(failure.kind);
                self.fails(tag, now, trouble, None, Some(failure), checker);
            }
            (Asked::Call { tag }, Ok(Answer::Done(_))) => self.done(tag, now, checker),
            (Asked::Call { tag }, Err(failure)) => {
                let call = self.calls.get(&tag);
                let returning = call.is_some_and(|call| !call.received.is_empty());
                let trouble = Trouble::Failed(failure.kind);
                self.fails(tag, now, trouble, Some(returning), Some(failure), checker);
            }
            _ => {}
        }
    }

    fn done(&mut self, tag: Tag, now: f64, checker: &mut Checker) {
        let Some(call) = self.calls.get_mut(&tag) else {
            return;
        };
        checker.received(self.user, &call.received);
        if !call.is_right(self.user) {
            checker.fail(format!("call {tag} has wrong results"));
        }
        let wanted = call.course.wanted();
        let transfer = |bytes: u64| {
            Some(Transfer {
                bytes,
                seconds: 0.001,
            })
        };
        let observed = Observe {
            server: 0,
            placement: 0,
            up: transfer(wanted.up),
            down: transfer(wanted.down),
            lost: false,
        };
        if let Some(place) = call.course.place().cloned() {
            self.observe(now, &place, &observed);
        }
        self.end(tag, Ok(()), checker);
    }
}
