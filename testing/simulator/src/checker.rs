//! The invariants that hold after every step, judged from outside the product. Each subject has a
//! file. The checker sees what clients are told and what workers do; it does not look into the
//! server's state, except for the list of waiting calls.

mod fairness;
mod grid;
mod lanes;
mod names;
mod objects;
mod reservations;
mod secrets;
mod sources;

pub(crate) use secrets::Secret;
pub(crate) use sources::{SOURCES, contents, says_version};

use crate::interfaces::Tag;
use farcall_rpc_proto::{FailureKind, JobId};
use farcall_server_proto::{CallKey, MemoryKey, WorkerKey};
use std::collections::BTreeMap;
use std::fmt;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl Violation {
    /// Which invariant it is: the text without numbers and without what follows a colon.
    pub(crate) fn kind(&self) -> String {
        let end = self.0.rfind(": ").unwrap_or(self.0.len());
        let letters = self.0[..end].chars();
        letters.filter(|letter| !letter.is_ascii_digit()).collect()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The outcome of a durable call, as a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownOutcome {
    /// Its results.
    Done(Vec<u8>),
    /// Why it failed.
    Failed(FailureKind),
}

/// One call that a client has made.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) user: u8,
    pub(crate) is_repeatable: bool,
    /// When it was made.
    made: u64,
    /// How often a worker has started it.
    begun: u32,
    /// Its id, once the server has acknowledged the call.
    pub(crate) id: Option<JobId>,
    /// The last outcome that a client was told.
    told: Option<KnownOutcome>,
    /// Its user has cancelled it.
    pub(crate) is_cancelled: bool,
}

/// A worker, by its host and its key there.
type AtHost = (usize, WorkerKey);

/// What a worker does.
#[derive(Clone, Debug)]
struct Running {
    call: CallKey,
    tag: Tag,
    pes: u32,
    reservation: Option<u64>,
    /// It has waited for a callback. Processor elements that it has beyond others were not reserved
    /// for it.
    has_waited: bool,
    /// Other calls were posted before or behind it. They share processor elements: those of the
    /// call posted last, or of another one if that call is taken back.
    has_company: bool,
    /// Memory, and whether it is written.
    memory: Vec<(MemoryKey, bool)>,
}

/// What the workers of one host do.
fn of_host(
    workers: &BTreeMap<AtHost, Vec<Running>>,
    host: usize,
) -> impl Iterator<Item = &Vec<Running>> {
    let its = workers.iter().filter(move |((at, _), _)| *at == host);
    its.map(|(_, running)| running)
}

/// The call that a worker receives.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    pub(crate) call: CallKey,
    pub(crate) tag: Tag,
    pub(crate) pes: u32,
    pub(crate) reservation: Option<u64>,
    /// Memory, and whether it is written.
    pub(crate) memory: Vec<(MemoryKey, bool)>,
}

/// All invariants, with what they remember.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) calls: BTreeMap<Tag, Known>,
    workers: BTreeMap<AtHost, Vec<Running>>,
    /// Whose calls a worker has run.
    users: BTreeMap<AtHost, u8>,
    pub(crate) objects: objects::Objects,
    pub(crate) names: names::Names,
    pub(crate) reservations: reservations::Reservations,
    pub(crate) lanes: lanes::Lanes,
    pub(crate) versions: grid::Versions,
    pub(crate) fairness: fairness::Fairness,
    pub(crate) secrets: secrets::Secrets,
    pub(crate) sources: sources::Sources,
    /// Virtual nanoseconds.
    pub(crate) now: u64,
    pub(crate) violation: Option<Violation>,
}

impl Checker {
    /// Records a broken invariant. The first one counts.
    pub(crate) fn fail(&mut self, text: String) {
        self.violation.get_or_insert(Violation(text));
    }

    /// A client makes a call.
    pub(crate) fn made(&mut self, tag: Tag, user: u8, is_repeatable: bool) {
        let known = Known {
            user,
            is_repeatable,
            made: self.now,
            begun: 0,
            id: None,
            told: None,
            is_cancelled: false,
        };
        self.calls.insert(tag, known);
    }

    /// A worker receives a call.
    pub(crate) fn handed(&mut self, life: u64, worker: AtHost, handed: Handed, most_pes: u32) {
        let Handed { call, tag, pes, .. } = handed;
        let Some(user) = self.calls.get(&tag).map(|known| known.user) else {
            return self.fail(format!(
                "a worker is handed call {tag}, which nobody has made"
            ));
        };
        let owner = *self.users.entry(worker).or_insert(user);
        if owner != user {
            self.fail(format!(
                "a worker of user {owner} is handed call {tag} of user {user}"
            ));
        }
        let host = worker.0;
        let its = self.workers.iter().filter(|((at, _), _)| *at == host);
        for ((_, other), running) in its {
            for known in running {
                for (key, writes) in &handed.memory {
                    let clash =
                        |(held, written): &(MemoryKey, bool)| held == key && (*written || *writes);
                    if known.memory.iter().any(clash) && known.call != call {
                        let text = format!(
                            "call {tag} is handed memory that a call at worker {other:?} has"
                        );
                        return self.fail(text);
                    }
                }
            }
        }
        let running = Running {
            call,
            tag,
            pes,
            reservation: handed.reservation,
            has_waited: false,
            has_company: false,
            memory: handed.memory,
        };
        let is_reserved = handed.reservation.is_some();
        self.fairness.started(life, call, is_reserved);
        let known = self.workers.entry(worker).or_default();
        known.push(running);
        let has_company = known.len() > 1;
        known
            .iter_mut()
            .for_each(|one| one.has_company |= has_company);
        let used = self.used(host, |_| true);
        if used > most_pes {
            self.fail(format!(
                "{used} processor elements are in use, and there are {most_pes}"
            ));
        }
        self.check_booked((host, life), (tag, handed.reservation), most_pes);
    }

    /// Processor elements of the calls that `counts` selects. Calls of one worker share theirs.
    fn used(&self, host: usize, counts: impl Fn(&Running) -> bool) -> u32 {
        let of_worker = |calls: &Vec<Running>| {
            let calls = calls.iter().filter(|one| !one.has_waited && counts(one));
            calls.map(|one| one.pes).max()
        };
        of_host(&self.workers, host).filter_map(of_worker).sum()
    }

    /// Whether calls of a reservation have its processor elements, and other calls leave them
    /// alone.
    fn check_booked(
        &mut self,
        (host, life): (usize, u64),
        (tag, own): (Tag, Option<u64>),
        most_pes: u32,
    ) {
        let now = self.now;
        if let Some(id) = own
            && let Some(pes) = self.reservations.pes(life, id, now)
        {
            let used = self.used(host, |one| one.reservation == own && !one.has_company);
            if used > pes {
                let text = format!(
                    "calls of reservation {id} have {used} processor elements, and it has {pes}"
                );
                self.fail(text);
            }
            return;
        }
        let Some(made) = self.calls.get(&tag).map(|known| known.made) else {
            return;
        };
        let (booked, since) = self.reservations.booked(life, (made, now));
        if booked == 0 || own.is_some() {
            return;
        }
        let is_outside = |one: &Running| {
            let made = self.calls.get(&one.tag).map_or(0, |known| known.made);
            one.reservation.is_none() && made >= since && !one.has_company
        };
        let used = self.used(host, is_outside);
        if used + booked > most_pes {
            let text = format!(
                "call {tag} has a part of the {booked} processor elements that are reserved: \
                 {used} are in use besides"
            );
            self.fail(text);
        }
    }

    /// A worker waits for a callback of its call.
    pub(crate) fn waits(&mut self, worker: AtHost, call: CallKey) {
        let running = self.workers.get_mut(&worker).into_iter().flatten();
        let mut running = running.filter(|known| known.call == call);
        if let Some(known) = running.next() {
            known.has_waited = true;
        }
    }

    /// A worker starts a call.
    pub(crate) fn begins(&mut self, tag: Tag) {
        let Some(known) = self.calls.get_mut(&tag) else {
            return;
        };
        known.begun += 1;
        if known.begun > 1 && !known.is_repeatable {
            self.fail(format!("call {tag} runs twice and is not repeatable"));
        }
    }

    /// A worker no longer has a call: the call has finished, was taken back, or ended with the
    /// worker.
    pub(crate) fn leaves(&mut self, worker: AtHost, call: CallKey) {
        if let Some(running) = self.workers.get_mut(&worker) {
            running.retain(|known| known.call != call);
            if running.is_empty() {
                self.workers.remove(&worker);
            }
        }
    }

    /// A worker is gone.
    pub(crate) fn gone(&mut self, life: u64, worker: AtHost) {
        self.workers.remove(&worker);
        self.users.remove(&worker);
        self.objects.worker_gone(life, worker.1, self.now);
    }

    /// The server of a host is killed, and all its workers with it.
    pub(crate) fn killed(&mut self, life: u64, host: usize) {
        self.workers.retain(|(at, _), _| *at != host);
        self.users.retain(|(at, _), _| *at != host);
        self.objects.life_ended(life);
        self.fairness.ended(life);
    }

    /// Memory is given back to the system.
    pub(crate) fn freed(&mut self, host: usize, memory: MemoryKey) {
        let uses = |running: &Running| running.memory.iter().any(|(key, _)| *key == memory);
        let is_used = of_host(&self.workers, host).flatten().any(uses);
        if is_used {
            self.fail("memory is freed that a worker uses".to_string());
        }
    }

    /// A client receives the acknowledgement of a durable call.
    pub(crate) fn kept(&mut self, tag: Tag, id: JobId) {
        if let Some(known) = self.calls.get_mut(&tag) {
            known.id = Some(id);
        }
    }

    /// A client receives the outcome of a durable call.
    pub(crate) fn told(&mut self, tag: Tag, told: KnownOutcome) {
        let Some(known) = self.calls.get_mut(&tag) else {
            return;
        };
        if told == KnownOutcome::Failed(FailureKind::Cancelled) && !known.is_cancelled {
            return self.fail(format!("call {tag} was cancelled, and nobody wanted that"));
        }
        match &known.told {
            Some(before) if *before != told => {
                let text = format!("call {tag} had the outcome {before:?}, and now {told:?}");
                self.fail(text);
            }
            _ => known.told = Some(told),
        }
    }

    /// A call through a metaserver has ended, with success or with this failure.
    pub(crate) fn ended(&mut self, tag: Tag, failed: Option<FailureKind>) {
        let told = failed.map_or(KnownOutcome::Done(Vec::new()), KnownOutcome::Failed);
        match self.calls.get_mut(&tag) {
            Some(known) if known.told.is_none() => known.told = Some(told),
            _ => self.fail(format!("call {tag} ends a second time, with {told:?}")),
        }
    }

    /// A client has received bytes. They must belong to its own user or to nobody.
    pub(crate) fn received(&mut self, user: u8, bytes: &[u8]) {
        let is_foreign = |byte: &&u8| **byte >> 4 != 0 && **byte >> 4 != user;
        if let Some(byte) = bytes.iter().find(is_foreign) {
            let text = format!("user {user} is sent bytes of user {}", byte >> 4);
            self.fail(text);
        }
    }
}
