//! Which job computes next, and where.

use super::Server;
use super::connections::call_of;
use crate::action::{Action, Request};
use crate::flaw::{Flaw, has};
use crate::functions::Function;
use crate::job;
use crate::job::Job;
use crate::keys::{CallKey, Key, WorkerKey};
use crate::map::Set;
use crate::worker::{Need, Posting, State, Worker};
use farcall_rpc_proto::{FailureKind, Nanos};
use farcall_schedule::queue;
use farcall_schedule::queue::Start;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Names of users that are remembered before some are forgotten.
const MOST_NAMES: usize = 10_000;
/// Idle workers that are kept for users at least.
const LEAST_IDLE: usize = 8;

impl Server {
    /// A job has all its arguments: it waits for its processor elements.
    pub(super) fn enqueue(&mut self, job: CallKey) {
        let now = self.now();
        self.calls[job].enter(job::State::Queued);
        self.calls[job].times.queued = now;
        if !self.takes_turn(job) {
            return;
        }
        let request = self.queued(job);
        self.name_user(request.user, job);
        let start = self.queue.push(request, now);
        self.admit_job(start);
        self.dispatch();
    }

    /// What a job asks the queue for.
    pub(super) fn queued(&self, key: CallKey) -> queue::Request {
        let job = &self.calls[key];
        let [fewest, most] = [job.layout.fewest_elements, job.layout.processor_elements];
        let elements = |wanted: Option<i64>| match wanted {
            Some(wanted) => u32::try_from(wanted).unwrap_or(u32::MAX),
            None => self.settings.elements,
        };
        let fewest = elements(fewest);
        let function = self.functions.get(job.function).ok();
        let on = fewest.min(self.queue.settings().pes);
        queue::Request {
            id: key.number(),
            user: self.share_of(job),
            fewest,
            most: elements(most),
            seconds: function.and_then(|function| Some(function.predict(&job.layout, on)?.seconds)),
            priority: function.map_or(0, |function| function.priority),
            reservation: job.reservation,
        }
    }

    /// Whose share a call counts towards: the user's; of those who prove nothing, that of their
    /// host.
    fn share_of(&self, job: &Job) -> u64 {
        let mut hasher = DefaultHasher::new();
        job.user.hash(&mut hasher);
        if job.user.is_anonymous() {
            let connection = job.connection.and_then(|key| self.connections.get(key));
            connection
                .and_then(|known| known.peer.host)
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Remembers who has a share, for the status.
    fn name_user(&mut self, share: u64, job: CallKey) {
        if self.user_names.contains_key(&share) {
            return;
        }
        if self.user_names.len() >= MOST_NAMES {
            let known: Set<u64> = self.queue.users(self.now()).map(|u| u.user).collect();
            self.user_names.retain(|share, _| known.contains(share));
        }
        let job = &self.calls[job];
        let connection = job.connection.and_then(|key| self.connections.get(key));
        let host = connection.and_then(|connection| connection.peer.host);
        let name = match host.filter(|_| job.user.is_anonymous()) {
            Some(host) => format!("{} of {host}", job.user),
            None => job.user.to_string(),
        };
        self.user_names.insert(share, name);
    }

    pub(super) fn admit_job(&mut self, start: Option<Start>) -> bool {
        if let Some(Start { id, pes }) = start {
            let job = call_of(id);
            self.calls[job].pes = pes;
            self.admitted.push_back(job);
        }
        start.is_some()
    }

    /// Gives jobs that have their processor elements to workers. A brief one rather waits for a
    /// worker that will be idle soon than to wake another. Where no worker of the library is idle
    /// that may serve the user one is started, unless enough of them will soon be idle.
    pub(super) fn dispatch(&mut self) {
        self.held_until = None;
        if !self.queue.is_empty() {
            let now = self.now();
            while let start = self.queue.next(now)
                && self.admit_job(start)
            {}
            self.post_waiting(now);
        }
        if self.admitted.is_empty() || self.stopping.is_some() {
            return;
        }
        let workers = self.workers.iter();
        let starting = workers.filter(|(_, w)| w.object.is_none() && w.state == State::Starting);
        let mut starting: Vec<WorkerKey> = starting.map(|(key, _)| key).collect();
        let mut waiting = VecDeque::new();
        while let Some(job) = self.admitted.pop_front() {
            if let Some(worker) = self.calls[job].object.filter(|_| !has(Flaw::StraysMethods)) {
                // One that has just been started is not idle yet.
                match self.workers[worker].is_idle() {
                    true => self.hand_over(job, worker),
                    false => waiting.push_back(job),
                }
                continue;
            }
            if let Some(worker) = self.worker_ahead(job) {
                self.post_behind(job, worker);
                continue;
            }
            let Ok(function) = self.functions.get(self.calls[job].function) else {
                continue;
            };
            let need = self.need(&self.calls[job], function);
            if function.brief().is_some()
                && let Some(soon) = self.idle_soon(&need)
            {
                self.held_until = Some(soon);
                waiting.push_back(job);
                continue;
            }
            if let Some(worker) = self.idle_worker(&need) {
                self.hand_over(job, worker);
                continue;
            }
            let serves = |key: &WorkerKey| self.workers[*key].serves(&need);
            if let Some(index) = starting.iter().position(serves) {
                starting.swap_remove(index);
            } else {
                let Need {
                    library, processes, ..
                } = need;
                self.start_one_more(library, processes);
            }
            waiting.push_back(job);
        }
        waiting.append(&mut self.admitted);
        self.admitted = waiting;
    }

    /// What a job needs of its worker.
    pub(super) fn need<'n>(&self, job: &'n Job, function: &Function) -> Need<'n> {
        Need {
            library: function.entry.file,
            user: &job.user,
            processes: match function.interface.is_parallel() {
                true => job.pes,
                false => 1,
            },
        }
    }

    /// An idle worker for a user's call; rather one that knows the user than a fresh one.
    fn idle_worker(&self, need: &Need<'_>) -> Option<WorkerKey> {
        let workers = self.workers.iter();
        let idle = workers.filter(|(_, worker)| worker.is_idle() && worker.serves(need));
        idle.max_by_key(|(_, worker)| worker.user.is_some())
            .map(|(key, _)| key)
    }

    /// Starts a worker. Where there are too many idle ones, of other users and libraries, the one
    /// that was not needed for the longest time makes room.
    fn start_one_more(&mut self, library: usize, processes: u32) {
        let now = self.now();
        let most = (4 * self.queue.settings().pes as usize).max(LEAST_IDLE);
        let is_shared = |worker: &Worker| worker.user.is_some() && worker.object.is_none();
        let idle = |worker: &Worker| worker.idle_for(now).filter(|_| is_shared(worker));
        let workers = self.workers.iter();
        let idle = workers.filter_map(|(key, worker)| Some((idle(worker)?, key)));
        let idlest = idle.clone().max().filter(|_| idle.count() >= most);
        if let Some((_, key)) = idlest {
            let text = "was ended to make room for another";
            self.end_worker(key, FailureKind::Internal, text);
        }
        self.start_worker(library, processes);
    }

    /// When a worker that runs a brief call will probably be idle, and may serve the user.
    fn idle_soon(&self, need: &Need<'_>) -> Option<Nanos> {
        let now = self.now();
        let workers = self.workers.values();
        workers
            .filter(|worker| worker.serves(need))
            .filter_map(Worker::idle_soon)
            .find(|soon| *soon > now)
    }

    fn hand_over(&mut self, key: CallKey, worker: WorkerKey) {
        match self.calls[key].kept() {
            Some(id) => self.book(key, id, worker),
            None => self.launch(key, worker),
        }
    }

    pub(super) fn launch(&mut self, key: CallKey, worker: WorkerKey) {
        let now = self.now();
        let alone = self.goes_ahead(key).is_none();
        let time_limit = self.settings.time_limit();
        let job = &mut self.calls[key];
        job.times.started = now;
        job.alone = alone;
        let Ok(function) = self.functions.get(job.function) else {
            return;
        };
        let Some(known) = self.workers.get_mut(worker) else {
            return;
        };
        known.user.get_or_insert_with(|| job.user.clone());
        let posting = Posting {
            function: job.function,
            alone,
            is_brief: function.brief().is_some(),
            time_limit,
        };
        known.post(key, posting, now);
        job.enter(job::State::Running { worker });
        self.out.push(Action::Run { worker, call: key });
        if has(Flaw::BooksTwice) {
            self.queue.pause(key.number(), now);
        }
    }

    /// What a worker is to compute; none where the call is gone.
    pub fn request(&self, call: CallKey) -> Option<Request<'_>> {
        let job = self.calls.get(call)?;
        let function = self.functions.get(job.function).ok()?;
        Some(Request {
            function: function.entry.function,
            buffer: job.buffer,
            segments: &job.segments,
            arrays: &job.data,
            swap: job.swap,
            pes: job.pes,
            alone: job.alone,
            message: &job.message,
        })
    }

    /// A call could not be handed to its worker, which is as good as dead.
    pub(super) fn not_run(&mut self, key: CallKey, worker: WorkerKey, why: &str) {
        self.end_worker(worker, FailureKind::Internal, why);
        if let Some(known) = self.workers.get_mut(worker) {
            known.gives_back(key);
        }
        if self.calls.contains(key) {
            let text = "its worker died before the call";
            self.fail_job(key, FailureKind::Internal, text);
        }
    }

    /// A worker could not bind its library: calls that wait for one like it fail, because the
    /// next would fare no better.
    pub(super) fn fail_waiting(&mut self, library: usize, cause: &str) {
        self.fail_registration(library, cause);
        let of_library = |job: &CallKey| {
            self.functions
                .get(self.calls[*job].function)
                .is_ok_and(|f| f.entry.file == library)
        };
        let queued = self.queue.waiting().map(call_of);
        let admitted = self.admitted.iter().copied();
        let waiting: Vec<CallKey> = queued.chain(admitted).filter(of_library).collect();
        for job in waiting {
            // The end of one before may have let it go on.
            let waits = |job: &Job| job.state == job::State::Queued;
            if !self.calls.get(job).is_some_and(waits) {
                continue;
            }
            self.admitted.retain(|admitted| *admitted != job);
            self.fail_job(
                job,
                FailureKind::Internal,
                &format!("has no worker: it {cause}"),
            );
        }
    }
}
