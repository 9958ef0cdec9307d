//! Durable calls. The client asks for each outcome twice. If the server keeps it for seconds only,
//! or was told to forget it, the second answer can be that there is no such call.

use super::calls::Expected;
use super::{Client, Purpose, Scene};
use crate::checker::{KnownOutcome, Secret};
use crate::interfaces::{AGAIN, LOOK, MAKE, ONCE, Tag, WIDE};
use crate::options::Faults;
use farcall_rpc_proto::{
    CallId, DurableDescription, DurablePage, Failure, FailureKind, JobId, SubmitRequest,
};

const S: u64 = 1_000_000_000;

/// A durable call that the server has acknowledged.
#[derive(Clone, Debug)]
pub(super) struct StoredCall {
    pub(super) tag: Tag,
    expected: Expected,
    bytes: u64,
    /// Whether its outcome is known, and was asked for once more.
    pub(super) asks: u32,
    /// Not asked for before this time.
    rests_until: u64,
    retention: Retention,
}

/// How long the server keeps the outcome of a call. Times are virtual nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Retention {
    /// When the client made the call, and when it learned that the call is recorded.
    made: u64,
    known: u64,
    /// How long its outcome is kept, if not longer than a history lasts.
    keep: Option<u64>,
    /// When a client was told the outcome.
    told: Option<u64>,
    /// Somebody has asked the server to forget it.
    is_unwanted: bool,
    /// When the server confirmed that, and in which life.
    forgotten: Option<(u64, u64)>,
}

impl Retention {
    /// Whether the server may have forgotten the call by now.
    fn may_be_over(&self, now: u64) -> bool {
        self.is_unwanted || self.keep.is_some_and(|keep| now >= self.made + keep)
    }

    /// Whether the server must have forgotten the call by then, in this life. While no server runs,
    /// or one stands still, retention does not pass.
    fn must_be_over(&self, then: u64, life: u64, faults: &Faults) -> bool {
        let is_forgotten = |(at, of): (u64, u64)| of == life && then > at;
        if self.forgotten.is_some_and(is_forgotten) {
            return true;
        }
        let passes = !faults.kills && !faults.ends && !faults.pauses;
        let ends = self.told.zip(self.keep).map(|(told, keep)| told + keep + S);
        passes && ends.is_some_and(|end| then >= end)
    }
}

/// What is asked about a durable call.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Submit {
        tag: Tag,
        expected: Expected,
        bytes: u64,
        /// In seconds.
        keep: Option<u64>,
        /// The request for its outcome, if it was made with it.
        fetch: Option<CallId>,
    },
    /// The outcome of a call that is not acknowledged.
    Outcome(Tag),
    Fetch(Tag, JobId),
    Cancel(JobId, bool),
    List,
}

impl Asked {
    /// A description for the history.
    pub(super) fn in_words(&self) -> String {
        match self {
            Asked::Submit { tag, .. } => format!("submit call {tag}"),
            Asked::Outcome(tag) => format!("fetch call {tag} when it is recorded"),
            Asked::Fetch(tag, _) => format!("fetch call {tag}"),
            Asked::Cancel(_, false) => "cancel a durable call".to_string(),
            Asked::Cancel(id, true) => format!("forget durable call {id}"),
            Asked::List => "list durable calls".to_string(),
        }
    }
}

impl Client {
    pub(super) fn submit(&mut self, scene: &mut Scene<'_>) {
        let functions = [ONCE, AGAIN, MAKE, LOOK, WIDE];
        let function = functions[scene.random.below(5) as usize];
        let count = Client::size(scene.random);
        let (made, mut call) = self.new_call(scene, function, count);
        let sends = match function {
            MAKE => Vec::new(),
            _ => self.contents(scene, count).bytes(),
        };
        call.data_bytes = sends.len() as u64;
        let is_brief = scene.options.subjects.retentions && scene.random.chance(0.5);
        let keep = is_brief.then(|| 1 + scene.random.below(5));
        let bytes = Client::returned(function, count);
        let submission = SubmitRequest {
            call,
            keep,
            fetch: None,
        };
        let fetches = scene.options.subjects.outcomes && scene.random.chance(0.5);
        let Some(connection) = &mut self.connection else {
            return;
        };
        let opened = match fetches {
            true => connection.submit_and_fetch(&submission, bytes),
            false => connection.submit(&submission).map(|id| (id, None)),
        };
        let Ok((id, fetch)) = opened else { return };
        let asked = Asked::Submit {
            tag: made.tag,
            expected: self.expected(function, count, &sends),
            bytes,
            keep,
            fetch,
        };
        self.asked(Ok(id), Purpose::Submitted(asked), sends, scene.now);
        if let Some(fetch) = fetch {
            let outcome = Purpose::Submitted(Asked::Outcome(made.tag));
            self.asked(Ok(fetch), outcome, Vec::new(), scene.now);
        }
    }

    /// The server has acknowledged a durable call.
    pub(super) fn is_kept(&mut self, asked: Asked, since: u64, id: JobId, scene: &mut Scene<'_>) {
        let Asked::Submit {
            tag,
            expected,
            bytes,
            keep,
            fetch,
        } = asked
        else {
            return;
        };
        if let Some(open) = fetch.and_then(|fetch| self.open.get_mut(&fetch)) {
            open.purpose = Purpose::Submitted(Asked::Fetch(tag, id));
        }
        scene.checker.kept(tag, id);
        scene
            .checker
            .secrets
            .add(Secret::QueuedCall(id), (self.life, self.user));
        let kept = StoredCall {
            tag,
            expected,
            bytes,
            asks: 0,
            rests_until: 0,
            retention: Retention {
                made: since,
                known: scene.now,
                keep: keep.map(|seconds| seconds * S),
                told: None,
                is_unwanted: false,
                forgotten: None,
            },
        };
        self.kept.insert(id, kept);
    }

    /// Whether it waits until the server has recorded a call.
    pub(crate) fn submits(&self) -> bool {
        let is_one =
            |purpose: &Purpose| matches!(purpose, Purpose::Submitted(Asked::Submit { .. }));
        self.open.values().any(|open| is_one(&open.purpose))
    }

    /// Asks for the outcome of a durable call, if there is one that was not asked for yet.
    pub(super) fn fetch_next(&mut self, scene: &mut Scene<'_>) -> bool {
        let fetches = |id: &JobId| {
            let mut open = self.open.values();
            open.any(|open| match &open.purpose {
                Purpose::Submitted(Asked::Fetch(_, other)) => id == other,
                _ => false,
            })
        };
        let mut wanted = self.kept.iter();
        let is_wanted = |kept: &StoredCall| kept.asks < 2 && scene.now >= kept.rests_until;
        let wanted = wanted.find(|(id, kept)| is_wanted(kept) && !fetches(id));
        let wanted = wanted.map(|(id, kept)| (*id, kept.tag, kept.bytes));
        let (Some((id, tag, bytes)), Some(connection)) = (wanted, &mut self.connection) else {
            return false;
        };
        let made = connection.fetch(id, bytes);
        let purpose = Purpose::Submitted(Asked::Fetch(tag, id));
        self.asked(made, purpose, Vec::new(), scene.now);
        true
    }

    pub(super) fn cancel_kept(&mut self, scene: &mut Scene<'_>) {
        if self.kept.is_empty() {
            return;
        }
        let index = scene.random.below(self.kept.len() as u64) as usize;
        let Some((id, kept)) = self.kept.iter_mut().nth(index) else {
            return;
        };
        let forget = scene.options.subjects.retentions && scene.random.chance(0.5);
        kept.retention.is_unwanted |= forget;
        let (id, tag) = (*id, kept.tag);
        if let Some(known) = scene.checker.calls.get_mut(&tag) {
            known.is_cancelled = true;
        }
        if let Some(connection) = &mut self.connection {
            let made = connection.cancel_job(id, forget);
            let purpose = Purpose::Submitted(Asked::Cancel(id, forget));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The server has cancelled a durable call, or forgotten it.
    pub(super) fn cancelled(
        &mut self,
        asked: Asked,
        told: &DurableDescription,
        scene: &mut Scene<'_>,
    ) {
        let Asked::Cancel(id, forget) = asked else {
            return;
        };
        if !told.record.state.is_over() || told.record.id != id {
            let text = format!("call {id} was cancelled, and the server tells: {told:?}");
            scene.checker.fail(text);
        }
        if let Some(kept) = self.kept.get_mut(&id).filter(|_| forget) {
            kept.retention.forgotten = Some((scene.now, self.life));
        }
    }

    pub(super) fn list(&mut self, scene: &mut Scene<'_>) {
        if let Some(connection) = &mut self.connection {
            let made = connection.list_jobs(0);
            let purpose = Purpose::Submitted(Asked::List);
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// Checks a list of the user's durable calls: it is in order, and none is missing.
    pub(super) fn listed(&self, since: u64, page: &DurablePage, scene: &mut Scene<'_>) {
        if !page.jobs.is_sorted_by(|one, next| one.number < next.number) {
            let text = format!("a list of durable calls is not in order: {page:?}");
            scene.checker.fail(text);
        }
        let calls = scene.checker.calls.values();
        let mut foreign = calls.filter(|known| known.user != self.user);
        let is_listed = |id: JobId| page.jobs.iter().find(|record| record.id == id);
        if let Some(known) = foreign.find(|known| known.id.and_then(is_listed).is_some()) {
            let text = format!("user {} is shown a call of user {}", self.user, known.user);
            return scene.checker.fail(text);
        }
        for (id, kept) in &self.kept {
            let retention = &kept.retention;
            let (shown, tag) = (is_listed(*id), kept.tag);
            let is_missing = shown.is_none() && page.next.is_none() && retention.known < since;
            if is_missing && !retention.may_be_over(scene.now) {
                let text = format!("call {tag} is missing in a list of durable calls");
                return scene.checker.fail(text);
            }
            if shown.is_some() && retention.must_be_over(since, self.life, &scene.options.faults) {
                let text = format!("call {tag} is listed, and must be forgotten");
                return scene.checker.fail(text);
            }
            let was_told = retention.told.is_some_and(|told| told < since);
            if was_told && shown.is_some_and(|record| !record.state.is_over()) {
                let text = format!("call {tag} had ended, and is listed as {shown:?}");
                return scene.checker.fail(text);
            }
        }
    }

    /// The results of a durable call are here.
    pub(super) fn fetched(
        &mut self,
        asked: Asked,
        since: u64,
        received: Vec<u8>,
        scene: &mut Scene<'_>,
    ) {
        let (tag, id) = match asked {
            Asked::Fetch(tag, id) => (tag, id),
            Asked::Outcome(tag) => {
                let text = format!("call {tag} has an outcome before it is acknowledged");
                return scene.checker.fail(text);
            }
            _ => return,
        };
        scene.checker.received(self.user, &received);
        self.is_told(id, since, scene);
        if let Some(kept) = self.kept.get(&id) {
            let is_right = match &kept.expected {
                Expected::Bytes(expected) => *expected == received,
                Expected::Begins(expected) => received.starts_with(expected),
                Expected::Changed(..) | Expected::State => true,
            };
            if !is_right {
                let text = format!("durable call {tag} has wrong results");
                scene.checker.fail(text);
            }
        }
        scene.checker.told(tag, KnownOutcome::Done(received));
    }

    /// The client is told the outcome of a call, for which it has asked then.
    fn is_told(&mut self, id: JobId, since: u64, scene: &mut Scene<'_>) {
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        kept.asks += 1;
        let retention = &mut kept.retention;
        if retention.must_be_over(since, self.life, &scene.options.faults) {
            let text = format!("call {} must be forgotten, and has an outcome", kept.tag);
            scene.checker.fail(text);
        }
        retention.told.get_or_insert(scene.now);
        if let Some(keep) = retention.keep {
            kept.rests_until = scene.now + scene.random.below(2 * keep);
        }
    }

    /// A request about a durable call has failed. Returns whether this failure is allowed.
    pub(super) fn submitted_failed(
        &mut self,
        asked: Asked,
        since: u64,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let faults = &scene.options.faults;
        let kind = failure.kind;
        // Here, the server before ends in time.
        if failure
            .message
            .starts_with("the server that this one replaces")
            && kind == FailureKind::Busy
        {
            let text = format!("a server that takes over refuses a durable call: {failure}");
            scene.checker.fail(text);
        }
        let disk = faults.disk_is_full || faults.disk_errors || faults.disk_forgets;
        let is_kept = match asked {
            Asked::Cancel(..) => return true,
            Asked::Submit { .. } | Asked::Outcome(_) | Asked::List => false,
            Asked::Fetch(tag, id) => {
                // If the disk cannot be read now, it might be readable later. So this failure is
                // not an outcome.
                let is_passing = failure.message.starts_with("the results of");
                let is_over = !matches!(
                    kind,
                    FailureKind::Busy
                        | FailureKind::NotFound
                        | FailureKind::Draining
                        | FailureKind::ServerStopping
                );
                if is_over {
                    self.is_told(id, since, scene);
                }
                if kind == FailureKind::NotFound {
                    return self.is_not_found(id, scene.now);
                }
                if is_over && !is_passing {
                    scene.checker.told(tag, KnownOutcome::Failed(kind));
                }
                true
            }
        };
        match kind {
            FailureKind::Busy | FailureKind::QuotaExceeded | FailureKind::Cancelled => true,
            FailureKind::StaleInterface => !is_kept && (faults.kills || faults.ends),
            FailureKind::StorageFault => disk,
            FailureKind::OutcomeUnknown => faults.kills || faults.ends,
            FailureKind::LibraryCrashed | FailureKind::Internal => {
                faults.worker_crashes || faults.worker_starts_badly
            }
            FailureKind::TimeLimit => faults.worker_hangs,
            FailureKind::Stalled => faults.stalls || faults.pauses || scene.options.subjects.lanes,
            _ => false,
        }
    }

    /// The server no longer has a call. Returns whether that is allowed.
    fn is_not_found(&mut self, id: JobId, now: u64) -> bool {
        self.kept.get_mut(&id).is_none_or(|kept| {
            kept.asks = 2;
            kept.retention.may_be_over(now)
        })
    }
}
