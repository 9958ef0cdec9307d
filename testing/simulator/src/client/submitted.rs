//! Durable calls. The client asks for each outcome twice.

use super::calls::Expected;
use super::{Client, Purpose, Scene};
use crate::checker::{KnownOutcome, Secret};
use crate::interfaces::{AGAIN, LOOK, MAKE, ONCE, Tag, WIDE};
use farcall_rpc_proto::{Failure, FailureKind, JobId, SubmitRequest};

/// A durable call that the server has acknowledged.
#[derive(Clone, Debug)]
pub(super) struct StoredCall {
    pub(super) tag: Tag,
    expected: Expected,
    bytes: u64,
    /// Whether its outcome is known, and was asked for once more.
    pub(super) asks: u32,
}

/// What is asked about a durable call.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Submit {
        tag: Tag,
        expected: Expected,
        bytes: u64,
    },
    Fetch(Tag, JobId),
    Cancel,
}

impl Asked {
    /// A description for the history.
    pub(super) fn in_words(&self) -> String {
        match self {
            Asked::Submit { tag, .. } => format!("submit call {tag}"),
            Asked::Fetch(tag, _) => format!("fetch call {tag}"),
            Asked::Cancel => "cancel a durable call".to_string(),
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
        let asked = Asked::Submit {
            tag: made.tag,
            expected: self.expected(function, count, &sends),
            bytes: Client::returned(function, count),
        };
        if let Some(connection) = &mut self.connection {
            let id = connection.submit(&SubmitRequest { call, keep: None });
            self.asked(id, Purpose::Submitted(asked), sends, scene.now);
        }
    }

    /// The server has acknowledged a durable call.
    pub(super) fn is_kept(&mut self, asked: Asked, id: JobId, scene: &mut Scene<'_>) {
        let Asked::Submit {
            tag,
            expected,
            bytes,
        } = asked
        else {
            return;
        };
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
        let wanted = wanted.find(|(id, kept)| kept.asks < 2 && !fetches(id));
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
        let Some((id, kept)) = self.kept.iter().nth(index) else {
            return;
        };
        let (id, tag) = (*id, kept.tag);
        if let Some(known) = scene.checker.calls.get_mut(&tag) {
            known.is_cancelled = true;
        }
        if let Some(connection) = &mut self.connection {
            let made = connection.cancel_job(id, false);
            let purpose = Purpose::Submitted(Asked::Cancel);
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The results of a durable call are here.
    pub(super) fn fetched(&mut self, asked: Asked, received: Vec<u8>, scene: &mut Scene<'_>) {
        let Asked::Fetch(tag, id) = asked else {
            return;
        };
        scene.checker.received(self.user, &received);
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.asks += 1;
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

    /// A request about a durable call has failed. Returns whether this failure is allowed.
    pub(super) fn submitted_failed(
        &mut self,
        asked: Asked,
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
            Asked::Cancel => return true,
            Asked::Submit { .. } => false,
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
                if is_over && let Some(kept) = self.kept.get_mut(&id) {
                    kept.asks += 1;
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
}
