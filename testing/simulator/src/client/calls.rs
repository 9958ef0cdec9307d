//! Clients that make calls: where their arrays are, and what their results must be. The module
//! decides which failures are allowed under the faults of a history.

use super::{Client, Purpose, Scene};
use crate::checker::Checker;
use crate::interfaces::{
    ADD, AGAIN, ASK, ASKED, BOTH, Contents, LOOK, LOOKED, MAKE, NAMES, ONCE, Tag, WIDE, look, next,
    state,
};
use farcall_idl::{Scalar, SharedRange};
use farcall_rpc_proto::{Call, CallId, Failure, FailureKind, HandleId};

/// A call that was made, and its expected result.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) tag: Tag,
    pub(super) function: usize,
    pub(super) expected: Expected,
    /// The array at the server that it uses, and whether it writes it.
    pub(super) array: Option<(HandleId, bool)>,
    /// The second array at the server, which it reads.
    pub(super) second: Option<HandleId>,
    /// Named data that it reads.
    pub(super) named: Option<HandleId>,
    /// The object whose method it is, as the checker knows it.
    pub(super) object: Option<usize>,
    /// The memory that it shares with the server.
    pub(super) segment: Option<CallId>,
    pub(super) reservation: Option<u64>,
    pub(super) has_deadline: bool,
    /// The client does not answer its callbacks.
    pub(super) is_unanswered: bool,
}

/// What a call returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, followed by bytes of the same user or zeros.
    Begins(Vec<u8>),
    /// The beginning of an array that so many calls of the client change before.
    Changed(HandleId, u64),
    /// The state of an object after it.
    State,
}

impl Made {
    /// A description for the history.
    pub(super) fn in_words(&self) -> String {
        let mut text = format!("call {} of {}", self.tag, NAMES[self.function]);
        let parts = [
            self.array.map(|(id, _)| format!(" with array {id}")),
            self.second.map(|id| format!(" with array {id}")),
            self.named.map(|id| format!(" with data {id}")),
            self.object.map(|index| format!(" on object {index}")),
            self.segment.map(|request| format!(" in memory {request}")),
            self.reservation.map(|id| format!(" of reservation {id}")),
            (self.has_deadline).then(|| " with a deadline".to_string()),
        ];
        text.extend(parts.into_iter().flatten());
        text
    }
}

/// Where the array of a call is.
enum Where {
    Travels,
    Array(HandleId),
    Named(HandleId, Contents),
    Segment(usize),
}

impl Client {
    /// A new call of a function with an array of `count` bytes, none of which travel yet.
    pub(super) fn new_call(
        &mut self,
        scene: &mut Scene<'_>,
        function: usize,
        count: u64,
    ) -> (Made, Call) {
        self.made += 1;
        let tag = Tag(u64::from(self.user) << 48 | self.number << 32 | self.made);
        let mut scalars = vec![
            Some(Scalar::Int(tag.0 as i64)),
            Some(Scalar::Int(count as i64)),
        ];
        let parameters = match function {
            BOTH => 6,
            LOOK => 4,
            _ => 3,
        };
        scalars.resize(parameters, None);
        let call = Call {
            function: self.functions[&function],
            scalars,
            elements: Vec::new(),
            data_bytes: 0,
            places: Vec::new(),
            output: false,
            handles: Vec::new(),
            object: None,
            reservation: None,
            trace: None,
            before: None,
        };
        let is_repeatable = matches!(function, AGAIN | MAKE);
        scene.checker.made(tag, self.user, is_repeatable);
        let made = Made {
            tag,
            function,
            expected: Expected::Bytes(Vec::new()),
            array: None,
            second: None,
            named: None,
            object: None,
            segment: None,
            reservation: None,
            has_deadline: false,
            is_unanswered: false,
        };
        (made, call)
    }

    /// The result of a function for these bytes, if they travel.
    pub(super) fn expected(&self, function: usize, count: u64, sent: &[u8]) -> Expected {
        match function {
            MAKE => Expected::Begins(vec![self.user << 4 | 5; count as usize / 2]),
            LOOK => {
                let looked = sent.iter().take(LOOKED);
                let mut looked: Vec<u8> = looked.map(|byte| look(self.user, *byte)).collect();
                looked.resize(LOOKED, 0);
                Expected::Bytes(looked)
            }
            ASK => {
                let mut bytes: Vec<u8> = sent.iter().copied().map(next).collect();
                let asked = bytes.len().min(ASKED);
                for byte in &mut bytes[..asked] {
                    *byte = next(*byte);
                }
                Expected::Bytes(bytes)
            }
            _ => Expected::Bytes(sent.iter().copied().map(next).collect()),
        }
    }

    /// Bytes that a function returns, where its array travels.
    pub(super) fn returned(function: usize, count: u64) -> u64 {
        match function {
            LOOK => LOOKED as u64,
            _ => count,
        }
    }

    pub(super) fn contents(&self, scene: &mut Scene<'_>, count: u64) -> Contents {
        Contents {
            user: self.user,
            first: scene.random.below(16) as u8,
            count,
        }
    }

    pub(super) fn call(&mut self, scene: &mut Scene<'_>) {
        let subjects = scene.options.subjects;
        let function = match scene.random.below(11) {
            0..=1 => ONCE,
            2..=4 => AGAIN,
            5..=6 => MAKE,
            7 => WIDE,
            8 if subjects.callbacks => ASK,
            _ => LOOK,
        };
        let place = match scene.random.below(10) {
            0..=2 if function != MAKE && function != ASK => self.any_array(scene),
            3 if function == LOOK => self.any_named(scene),
            4..=5 if matches!(function, ONCE | AGAIN | LOOK | WIDE) => self.any_segment(),
            _ => Where::Travels,
        };
        self.call_with(scene, function, place);
    }

    fn any_array(&mut self, scene: &mut Scene<'_>) -> Where {
        match self.pick_array(scene) {
            Some(index) => Where::Array(self.arrays[index].id),
            None => Where::Travels,
        }
    }

    fn any_named(&mut self, scene: &mut Scene<'_>) -> Where {
        let reader = (self.life, self.user);
        match scene.checker.names.pick(reader, scene.random) {
            Some((id, contents)) => Where::Named(id, contents),
            None => Where::Travels,
        }
    }

    fn any_segment(&self) -> Where {
        match self.segments.iter().position(|segment| !segment.is_busy) {
            Some(index) => Where::Segment(index),
            None => Where::Travels,
        }
    }

    fn call_with(&mut self, scene: &mut Scene<'_>, function: usize, place: Where) {
        let count = match &place {
            Where::Travels => Client::size(scene.random),
            Where::Array(id) => self.array(*id).map_or(1, |array| array.contents.count),
            Where::Named(_, contents) => contents.count,
            Where::Segment(index) => 1 + scene.random.below(self.segments[*index].bytes),
        };
        let contents = match place {
            Where::Named(_, contents) => contents,
            _ => self.contents(scene, count),
        };
        let (mut made, mut call) = self.new_call(scene, function, count);
        let mut sends = match function {
            MAKE => Vec::new(),
            _ => contents.bytes(),
        };
        made.expected = self.expected(function, count, &sends);
        let mut returned = Client::returned(function, count);
        call.reservation = self.any_reservation(scene);
        made.reservation = call.reservation;
        if call.reservation.is_none() && scene.options.subjects.reservations {
            call.before = scene.random.chance(0.2).then(|| scene.random.below(2000));
            made.has_deadline = call.before.is_some();
        }
        if !matches!(place, Where::Travels) {
            returned = if function == LOOK { LOOKED as u64 } else { 0 };
        }
        match place {
            Where::Travels => {}
            Where::Array(id) => {
                call.handles.push((0, id));
                sends.clear();
                made.expected = self.uses_array(id, function != LOOK);
                made.array = Some((id, function != LOOK));
            }
            Where::Named(id, _) => {
                call.handles.push((0, id));
                sends.clear();
                made.named = Some(id);
            }
            Where::Segment(index) => {
                let segment = &mut self.segments[index];
                segment.fill(&sends, &made.expected, function);
                let request = segment.request;
                call.places = vec![Some(SharedRange {
                    segment: request,
                    offset: 0,
                })];
                made.segment = Some(request);
                sends.clear();
                if function != LOOK {
                    made.expected = Expected::Bytes(Vec::new());
                }
            }
        }
        call.data_bytes = sends.len() as u64;
        self.make(scene, (made, call), sends, returned);
    }

    /// Makes a call.
    pub(super) fn make(
        &mut self,
        scene: &mut Scene<'_>,
        (made, call): (Made, Call),
        sends: Vec<u8>,
        returned: u64,
    ) {
        if let Some(connection) = &mut self.connection {
            let id = connection.call(&call, returned);
            self.asked(id, Purpose::Call(made), sends, scene.now);
        }
    }

    pub(super) fn cancel(&mut self, scene: &mut Scene<'_>) {
        let calls = self.open.iter();
        let calls = calls.filter(|(_, open)| matches!(open.purpose, Purpose::Call(_)));
        let calls: Vec<CallId> = calls.map(|(id, _)| *id).collect();
        if !calls.is_empty() {
            let id = calls[scene.random.below(calls.len() as u64) as usize];
            self.give_up(id, scene.checker);
        }
    }

    /// Cancels an open call.
    pub(super) fn give_up(&mut self, id: CallId, checker: &mut Checker) {
        if let Some(connection) = &mut self.connection {
            connection.cancel(id);
        }
        if let Some(open) = self.open.remove(&id) {
            self.forget_request(&open.purpose, checker);
        }
    }

    /// The outcome of a call will never be known.
    pub(super) fn given_up(&mut self, made: &Made, checker: &mut Checker) {
        if let Some((id, true)) = made.array {
            self.spoil(id);
        }
        if let Some(object) = made.object {
            checker.objects.gives_up(object);
        }
        if let Some(request) = made.segment {
            self.spoil_segment(request);
        }
    }

    pub(super) fn call_done(
        &mut self,
        made: &Made,
        since: u64,
        received: &[u8],
        scene: &mut Scene<'_>,
    ) {
        let (user, tag) = (self.user, made.tag);
        if let Some(id) = made.named {
            scene.checker.names.used(self.life, id, since);
        } else {
            scene.checker.received(user, received);
        }
        let is_right = match &made.expected {
            Expected::Bytes(expected) => received == expected,
            Expected::Begins(expected) => received.starts_with(expected),
            Expected::Changed(id, begun) => self.is_changed(*id, (0, received), *begun),
            Expected::State => {
                let applied = scene.checker.objects.after(tag);
                applied.is_some_and(|applied| received == state(user, &applied))
            }
        };
        if !is_right {
            scene.checker.fail(format!("call {tag} has wrong results"));
        }
        if let Some(object) = made.object {
            scene.checker.objects.used(object, since);
        }
        if let Some(request) = made.segment {
            self.check_segment(request, tag, scene);
        }
    }

    /// A call has failed. Returns whether this failure is allowed.
    pub(super) fn call_failed(
        &mut self,
        made: &Made,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        self.given_up(made, scene.checker);
        let options = scene.options;
        let faults = &options.faults;
        let kind = failure.kind;
        if made.function == ADD {
            let is_known = scene
                .checker
                .objects
                .failed(made.tag, kind, scene.now, options);
            if let Some(is_expected) = is_known {
                return is_expected;
            }
        }
        let spoils = made.array.is_some() || made.named.is_some();
        match kind {
            FailureKind::Busy => may_be_busy(scene, failure),
            FailureKind::Cancelled => true,
            FailureKind::NotFound => {
                let life = self.life;
                let checker = &scene.checker;
                let may_miss = |id| checker.names.may_miss(life, id, scene.now);
                let over = |id| checker.reservations.may_be_over(life, id, scene.now);
                made.array.is_some() && (faults.calendar_jumps || options.subjects.names)
                    || made.named.is_some_and(may_miss)
                    || made.reservation.is_some_and(over)
            }
            FailureKind::BadArgument => spoils,
            FailureKind::NotFree | FailureKind::QuotaExceeded => made.has_deadline,
            FailureKind::NoAnswer => made.is_unanswered || faults.stalls || faults.pauses,
            FailureKind::OutcomeUnknown | FailureKind::StaleInterface => {
                faults.kills || faults.ends
            }
            FailureKind::LibraryCrashed | FailureKind::Internal => {
                faults.worker_crashes || faults.worker_starts_badly
            }
            FailureKind::TimeLimit => faults.worker_hangs,
            FailureKind::Stalled => faults.stalls || faults.pauses || options.subjects.lanes,
            _ => false,
        }
    }
}

/// Whether a call may fail with this because the server is busy. It may lack memory for stored
/// arrays only if the disk accepts no others, or if others have memory that they may not give back:
/// clients share it, or a function may call back.
fn may_be_busy(scene: &Scene<'_>, failure: &Failure) -> bool {
    let is_other = !failure.message.contains("has no memory for the array");
    let subjects = &scene.options.subjects;
    let is_refused = failure.message.contains("the disk accepts none");
    let is_held = subjects.callbacks && failure.message.contains("with callbacks have the memory");
    // What a function may wait for is taken although others wait.
    let is_taken_early = subjects.callbacks && subjects.mixtures;
    is_other || is_refused || is_held || is_taken_early || subjects.segments
}
