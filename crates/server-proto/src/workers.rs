//! All workers: which ones exist, which one may run a call, and which ones must end. The shell
//! starts and ends the processes. A worker that is killed while it starts is started again at most
//! ten times.

use crate::action::Action;
use crate::context::Context;
use crate::event::Finished;
use crate::flaw::{Flaw, has};
use crate::gpus::Resources;
use crate::keys::{Table, WorkerKey};
use crate::worker::{Found, Need, Version, Worker};
use farcall_rpc_proto::{Failure, FailureKind, Nanos};

/// A worker that is killed while it starts is started so many times.
const MOST_TRIES: u32 = 10;

/// All workers.
pub(crate) type Workers = Table<WorkerKey, Worker>;

impl Workers {
    /// Starts a worker of one process without GPUs, and returns its key.
    pub(crate) fn start(&mut self, cx: &mut Context, library: usize) -> WorkerKey {
        self.start_with(cx, library, Resources::ONE)
    }

    /// Starts a worker, and returns its key.
    pub(crate) fn start_with(
        &mut self,
        cx: &mut Context,
        library: usize,
        resources: Resources,
    ) -> WorkerKey {
        let worker = Worker::new(library, resources, cx.now());
        self.start_one(cx, worker)
    }

    /// Starts a worker in place of one that something else has killed while it started. Returns
    /// whether there was a worker to start: after some tries, there is none.
    pub(crate) fn start_again(&mut self, cx: &mut Context, killed: &Worker) -> bool {
        let mut worker = Worker::new(killed.library, killed.resources, cx.now());
        worker.tries = killed.tries + 1;
        let may_start = worker.tries < MOST_TRIES && cx.stopping.is_none();
        if may_start {
            self.start_one(cx, worker);
        }
        may_start
    }

    fn start_one(&mut self, cx: &mut Context, worker: Worker) -> WorkerKey {
        let library = worker.library;
        let Resources { processes, gpus } = worker.resources;
        let worker = self.insert(worker);
        cx.out.push(Action::StartWorker {
            worker,
            library,
            processes,
            gpus,
        });
        worker
    }

    /// Ends a worker. Its first reason counts.
    pub(crate) fn end(
        &mut self,
        cx: &mut Context,
        worker: WorkerKey,
        kind: FailureKind,
        why: &str,
    ) {
        if let Some(known) = self.get_mut(worker)
            && !std::mem::replace(&mut known.is_ended, true)
        {
            let reason = Failure::new(kind, why);
            cx.out.push(Action::EndWorker { worker, reason });
        }
    }

    /// Records that a worker ends by itself.
    pub(crate) fn leaves(&mut self, worker: WorkerKey) {
        if let Some(known) = self.get_mut(worker) {
            known.is_ended = true;
        }
    }

    /// Records that a worker has bound its library. Returns the library.
    pub(crate) fn ready(&mut self, cx: &Context, key: WorkerKey) -> Option<usize> {
        let worker = self.get_mut(key)?;
        worker.rest(cx.now());
        Some(worker.library)
    }

    /// Starts a worker with the new version of a library. A worker that tries an earlier one no
    /// longer matters.
    pub(crate) fn try_again(&mut self, cx: &mut Context, library: usize) {
        for (_, worker) in self.iter_mut().filter(|(_, one)| one.library == library) {
            if matches!(worker.version, Version::Trial(_)) {
                worker.version = Version::Old;
            }
        }
        let worker = self.start(cx, library);
        self[worker].version = Version::Trial(cx.now());
    }

    /// Records what a worker has found behind its functions. If it tried a new version of its
    /// library, the older workers end after their calls. Returns whether there are such workers.
    pub(crate) fn found(&mut self, key: WorkerKey, libraries: Found) -> bool {
        let Some(worker) = self.get_mut(key) else {
            return false;
        };
        let library = worker.library;
        worker.found(libraries);
        let Version::Trial(since) = worker.version else {
            return false;
        };
        worker.version = Version::Current;
        let others = self.iter_mut().filter(|(other, _)| *other != key);
        for (_, worker) in others.filter(|(_, one)| one.library == library && one.is_older(since)) {
            if !has(Flaw::KeepsOldFiles) {
                worker.version = Version::Old;
            }
        }
        true
    }

    /// Ends workers that run nothing and whose library has been replaced. Returns whether there
    /// may be more of them later.
    pub(crate) fn end_old(&mut self, cx: &mut Context) -> bool {
        let old = self.iter().filter(|(_, one)| one.version == Version::Old);
        let old: Vec<_> = old
            .map(|(key, one)| (key, one.is_idle() && one.object.is_none()))
            .collect();
        for (key, _) in old.iter().filter(|(_, ends)| *ends) {
            let text = "was ended because its library has a new version";
            self.end(cx, *key, FailureKind::Internal, text);
        }
        !old.is_empty()
    }

    /// Records that the first call of a worker has returned. If a callback of the call has no
    /// answer yet, the call fails and the worker ends: a client gets no results before it has
    /// answered.
    pub(crate) fn returned(&mut self, cx: &mut Context, key: WorkerKey, outcome: &mut Finished) {
        let waits = self.get(key).and_then(Worker::waits_since).is_some();
        if waits {
            let text = "returned before its callback was answered";
            outcome.failure = Some(Failure::new(FailureKind::LibraryCrashed, text));
            self.end(cx, key, FailureKind::LibraryCrashed, text);
        }
        self.goes_on(cx, key);
    }

    /// Records that a worker has finished its first call.
    pub(crate) fn goes_on(&mut self, cx: &mut Context, key: WorkerKey) {
        let now = cx.now();
        if let Some(worker) = self.get_mut(key) {
            worker.goes_on(now);
        }
    }

    /// An idle worker for a user's call, preferably one that has run calls of the user.
    pub(crate) fn idle(&self, need: &Need<'_>) -> Option<WorkerKey> {
        let workers = self.iter();
        let idle = workers.filter(|(_, worker)| worker.is_idle() && worker.serves(need));
        idle.max_by_key(|(_, worker)| worker.user.is_some())
            .map(|(key, _)| key)
    }

    /// When a worker with a short call will probably be idle and may serve the user.
    pub(crate) fn idle_soon(&self, cx: &Context, need: &Need<'_>) -> Option<Nanos> {
        let now = cx.now();
        let workers = self.values();
        workers
            .filter(|worker| worker.serves(need))
            .filter_map(Worker::idle_soon)
            .find(|soon| *soon > now)
    }

    /// Ends workers that have run for too long, or whose client does not answer a callback.
    pub(crate) fn end_late(&mut self, cx: &mut Context) {
        let (now, callbacks) = (cx.now(), cx.settings.limits.callback());
        let late = self.iter().filter(|(_, worker)| {
            let deadline = worker.deadline(callbacks);
            deadline.is_some_and(|end| end <= now)
        });
        let late: Vec<_> = late
            .map(|(key, worker)| (key, worker.waits_since().is_some()))
            .collect();
        for (worker, waits) in late {
            let (kind, text) = match waits {
                true => (
                    FailureKind::NoAnswer,
                    format!(
                        "was ended because the client did not answer its callback within {} s \
                         (limits.callback_s in the server's configuration)",
                        cx.settings.limits.callback_s
                    ),
                ),
                false => (
                    FailureKind::TimeLimit,
                    format!("exceeded its time limit of {} s", cx.settings.time_limit_s),
                ),
            };
            self.end(cx, worker, kind, &text);
        }
    }
}
