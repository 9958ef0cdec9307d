//! Which job computes next, and where.

use super::Reactor;
use crate::job;
use crate::worker::{CallRequest, State};
use farcall_rpc_proto::FailureKind;
use farcall_schedule::queue::{Request, Start};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

impl Reactor {
    /// A job has all its arguments: it waits for its processor elements.
    pub(super) fn enqueue(&mut self, job: usize) {
        self.jobs[job].state = job::State::Queued;
        let request = self.request(job);
        let start = self.queue.push(request, self.nanos());
        self.admit_job(start);
        self.dispatch();
    }

    /// What a job asks the queue for.
    fn request(&self, key: usize) -> Request {
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
            user: self.share_of(job.connection),
            fewest,
            most: elements(most),
            seconds: function.and_then(|function| Some(function.predict(&job.layout, on)?.seconds)),
            priority: function.map_or(0, |function| function.priority),
        }
    }

    /// Whose share a connection's calls count towards: the user's; of those who prove nothing, that
    /// of their host.
    fn share_of(&self, connection: Option<usize>) -> u64 {
        let mut hasher = DefaultHasher::new();
        if let Some(connection) = connection.and_then(|key| self.connections.get(key)) {
            connection.user.hash(&mut hasher);
            connection
                .host
                .filter(|_| connection.user.is_anonymous())
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    fn admit_job(&mut self, start: Option<Start>) -> bool {
        if let Some(Start { id, pes }) = start {
            let job = id as usize;
            self.jobs[job].pes = pes;
            self.admitted.push_back(job);
        }
        start.is_some()
    }

    /// Gives jobs that have their processor elements to workers. A brief one rather waits for a
    /// worker that will be idle soon than to wake another. Where a library has no idle worker one
    /// is started, unless enough of them will soon be idle.
    pub(super) fn dispatch(&mut self) {
        self.held_until = None;
        if !self.queue.is_empty() {
            let now = self.nanos();
            while let start = self.queue.next(now)
                && self.admit_job(start)
            {}
        }
        if self.admitted.is_empty() {
            return;
        }
        let mut starting: Vec<usize> = self
            .workers
            .iter()
            .filter(|(_, worker)| matches!(worker.state, State::Starting | State::Unmapping))
            .map(|(_, worker)| worker.library)
            .collect();
        let mut waiting = VecDeque::new();
        while let Some(job) = self.admitted.pop_front() {
            let Ok(function) = self.functions.get(self.jobs[job].function) else {
                continue;
            };
            let library = function.entry.file;
            if function.is_brief()
                && let Some(soon) = self.idle_soon(library)
            {
                self.held_until = Some(soon);
                waiting.push_back(job);
                continue;
            }
            let idle = self
                .workers
                .iter()
                .find(|(_, worker)| worker.library == library && worker.is_idle());
            if let Some((worker, _)) = idle {
                self.hand_over(job, worker);
                continue;
            }
            if let Some(index) = starting.iter().position(|starting| *starting == library) {
                starting.swap_remove(index);
            } else if let Err(error) = self.start_worker(library) {
                self.fail_job(job, FailureKind::Internal, &format!("no worker: {error}"));
                continue;
            }
            waiting.push_back(job);
        }
        waiting.append(&mut self.admitted);
        self.admitted = waiting;
    }

    /// When a worker of the library that runs a brief call will probably be idle.
    fn idle_soon(&self, library: usize) -> Option<Instant> {
        let now = Instant::now();
        let workers = self.workers.iter();
        workers
            .filter(|(_, worker)| worker.library == library)
            .filter_map(|(_, worker)| worker.idle_soon())
            .find(|soon| *soon > now)
    }

    fn hand_over(&mut self, key: usize, worker: usize) {
        let job = &mut self.jobs[key];
        let Ok(function) = self.functions.get(job.function) else {
            return;
        };
        let call = CallRequest {
            function: function.entry.function,
            buffer: job.buffer.as_ref(),
            segments: &job.segments,
            brief: function.is_brief(),
            swap: job.swap,
            pes: job.pes,
            message: &job.message,
        };
        let time_limit = self.config.workers.time_limit();
        self.workers[worker].function = Some(job.function);
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
