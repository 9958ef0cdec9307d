//! Which job computes next, and where.

use super::Reactor;
use crate::function::Function;
use crate::job;
use crate::job::Job;
use crate::worker::{CallRequest, Need, State, Worker};
use farcall_rpc_proto::FailureKind;
use farcall_schedule::queue::{Request, Start};
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::Instant;

/// Names of users that are remembered before some are forgotten.
const MOST_NAMES: usize = 10_000;
/// Idle workers that are kept for users at least.
const LEAST_IDLE: usize = 8;

impl Reactor {
    /// A job has all its arguments: it waits for its processor elements.
    pub(super) fn enqueue(&mut self, job: usize) {
        let now = self.nanos();
        self.jobs[job].state = job::State::Queued;
        self.jobs[job].times.queued = now;
        if !self.takes_turn(job) {
            return;
        }
        let request = self.request(job);
        self.name_user(request.user, job);
        let start = self.queue.push(request, now);
        self.admit_job(start);
        self.dispatch();
    }

    /// What a job asks the queue for.
    pub(super) fn request(&self, key: usize) -> Request {
        let job = &self.jobs[key];
        let [fewest, most] = [job.layout.fewest_elements, job.layout.processor_elements];
        let elements = |wanted: Option<i64>| match wanted {
            Some(wanted) => u32::try_from(wanted).unwrap_or(u32::MAX),
            None => self.config.workers.elements(),
        };
        let fewest = elements(fewest);
        let function = self.functions.get(job.function).ok();
        let on = fewest.min(self.queue.settings().pes);
        Request {
            id: key as u64,
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
            connection.and_then(|known| known.host).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Remembers who has a share, for the status.
    fn name_user(&mut self, share: u64, job: usize) {
        if self.names.contains_key(&share) {
            return;
        }
        if self.names.len() >= MOST_NAMES {
            let known: HashSet<u64> = self.queue.users(self.nanos()).map(|u| u.user).collect();
            self.names.retain(|share, _| known.contains(share));
        }
        let job = &self.jobs[job];
        let connection = job.connection.and_then(|key| self.connections.get(key));
        let host = connection.and_then(|connection| connection.host);
        let name = match host.filter(|_| job.user.is_anonymous()) {
            Some(host) => format!("{} of {host}", job.user),
            None => job.user.to_string(),
        };
        self.names.insert(share, name);
    }

    pub(super) fn admit_job(&mut self, start: Option<Start>) -> bool {
        if let Some(Start { id, pes }) = start {
            let job = id as usize;
            self.jobs[job].pes = pes;
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
            let now = self.nanos();
            while let start = self.queue.next(now)
                && self.admit_job(start)
            {}
            self.post_waiting(now);
        }
        if self.admitted.is_empty() || self.stopping.is_some() {
            return;
        }
        let mut starting: Vec<usize> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.object.is_none())
            .filter(|(_, worker)| matches!(worker.state, State::Starting | State::Unmapping))
            .map(|(key, _)| key)
            .collect();
        let mut waiting = VecDeque::new();
        while let Some(job) = self.admitted.pop_front() {
            if let Some(worker) = self.jobs[job].object {
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
            let Ok(function) = self.functions.get(self.jobs[job].function) else {
                continue;
            };
            let need = self.need(&self.jobs[job], function);
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
            let serves = |key: &usize| self.workers[*key].serves(&need);
            if let Some(index) = starting.iter().position(serves) {
                starting.swap_remove(index);
            } else if let Need {
                library, processes, ..
            } = need
                && let Err(error) = self.start_one_more(library, processes)
            {
                self.fail_job(job, FailureKind::Internal, &format!("no worker: {error}"));
                continue;
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
    fn idle_worker(&self, need: &Need<'_>) -> Option<usize> {
        let workers = self.workers.iter();
        let idle = workers.filter(|(_, worker)| worker.is_idle() && worker.serves(need));
        idle.max_by_key(|(_, worker)| worker.user.is_some())
            .map(|(key, _)| key)
    }

    /// Starts a worker. Where there are too many idle ones, of other users and libraries, the one
    /// that was not needed for the longest time makes room.
    fn start_one_more(&mut self, library: usize, processes: u32) -> io::Result<()> {
        let most = (4 * self.queue.settings().pes as usize).max(LEAST_IDLE);
        let is_shared = |worker: &Worker| worker.user.is_some() && worker.object.is_none();
        let idle = |worker: &Worker| worker.idle_for().filter(|_| is_shared(worker));
        let workers = self.workers.iter();
        let idle = workers.filter_map(|(key, worker)| Some((idle(worker)?, key)));
        if idle.clone().count() >= most
            && let Some((_, key)) = idle.max()
        {
            let text = "was ended to make room for another";
            self.workers[key].end(FailureKind::Internal, text);
        }
        self.start_worker(library, processes).map(drop)
    }

    /// When a worker that runs a brief call will probably be idle, and may serve the user.
    fn idle_soon(&self, need: &Need<'_>) -> Option<Instant> {
        let now = Instant::now();
        let workers = self.workers.iter();
        workers
            .filter(|(_, worker)| worker.serves(need))
            .filter_map(|(_, worker)| worker.idle_soon())
            .find(|soon| *soon > now)
    }

    fn hand_over(&mut self, key: usize, worker: usize) {
        match self.jobs[key].kept() {
            Some(id) => self.book(key, id, worker),
            None => self.launch(key, worker),
        }
    }

    pub(super) fn launch(&mut self, key: usize, worker: usize) {
        let now = self.nanos();
        let alone = self.goes_ahead(key).is_none();
        let job = &mut self.jobs[key];
        job.times.started = now;
        let Ok(function) = self.functions.get(job.function) else {
            return;
        };
        let call = CallRequest {
            function: function.entry.function,
            number: job.function,
            alone,
            buffer: job.buffer.as_ref(),
            segments: &job.segments,
            data: &job.data,
            brief: function.brief().is_some(),
            swap: job.swap,
            pes: job.pes,
            message: &job.message,
        };
        let time_limit = self.config.workers.time_limit();
        self.workers[worker]
            .user
            .get_or_insert_with(|| job.user.clone());
        match self.workers[worker].run(key, &call, time_limit) {
            Ok(()) => job.state = job::State::Running { worker },
            // Its death is on its way and will be handled as such.
            Err(error) => {
                self.workers[worker].end(FailureKind::Internal, error.to_string());
                self.fail_job(
                    key,
                    FailureKind::Internal,
                    "its worker died before the call",
                );
            }
        }
    }

    /// A worker could not bind its library: calls that wait for one like it fail, because the
    /// next would fare no better.
    pub(super) fn fail_waiting(&mut self, library: usize, cause: &str) {
        self.fail_registration(library, cause);
        let of_library = |job: &usize| {
            self.functions
                .get(self.jobs[*job].function)
                .is_ok_and(|f| f.entry.file == library)
        };
        let queued = self.queue.waiting().map(|id| id as usize);
        let admitted = self.admitted.iter().copied();
        let waiting: Vec<usize> = queued.chain(admitted).filter(of_library).collect();
        self.admitted.retain(|job| !waiting.contains(job));
        for job in waiting {
            self.fail_job(
                job,
                FailureKind::Internal,
                &format!("has no worker: it {cause}"),
            );
        }
    }
}
