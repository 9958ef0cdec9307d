//! Dispatch: gives calls that have processor elements to workers. The queue, in the crate
//! `schedule`, decides which call is next. A durable call starts only after the journal has
//! recorded that it runs.

use super::{Elements, gpus};
use crate::action::Action;
use crate::call;
use crate::call::ActiveCall;
use crate::context::{Context, Step, lacks_memory, read_again};
use crate::event::Death;
use crate::flaw::{Flaw, has};
use crate::functions::Function;
use crate::gpus::{Gpus, Resources};
use crate::keys::{CallKey, Key, WorkerKey};
use crate::lifecycle::Change;
use crate::map::Set;
use crate::record::Outcome;
use crate::worker::{Need, Posting, State, Worker};
use crate::workers::Workers;
use farcall_rpc_proto::{Failure, FailureKind, JobId};
use farcall_schedule::queue;
use farcall_schedule::queue::Start;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most names of users that are remembered.
const MOST_NAMES: usize = 10_000;
/// Least number of idle workers that are kept for their users.
const LEAST_IDLE: usize = 8;

impl Elements {
    /// Lets a call with all its arguments wait for processor elements.
    pub(crate) fn enqueue(&mut self, cx: &mut Context, call: CallKey) {
        let now = cx.now();
        cx.calls[call].enter(call::State::Queued);
        cx.calls[call].times.queued = now;
        if cx.settings.traces {
            cx.calls[call].join_trace(&mut cx.ids);
        }
        if !self.takes_turn(cx, call) {
            return;
        }
        let request = self.queued(cx, call);
        // A durable call may have come to a server with more GPUs.
        if let Err(failure) = cx.has_gpus(request.gpus) {
            return cx.fail(call, failure.kind, &failure.message);
        }
        cx.calls[call].run.predicted = request.seconds;
        if cx.totals.notes.is_some() && request.seconds.is_some() {
            cx.calls[call].run.range = cx.interval(call, request.fewest.min(cx.settings.queue.pes));
        }
        self.name_user(cx, request.user, call);
        let start = self.queue.push(request, now);
        self.admit_job(cx, start);
        self.dispatch(cx);
    }

    /// The request of a call to the queue.
    pub(crate) fn queued(&self, cx: &Context, key: CallKey) -> queue::Request {
        let call = &cx.calls[key];
        let [fewest, most] = [call.layout.fewest_elements, call.layout.processor_elements];
        let elements = |wanted: Option<i64>| match wanted {
            Some(wanted) => u32::try_from(wanted).unwrap_or(u32::MAX),
            None => cx.settings.elements,
        };
        let fewest = elements(fewest);
        let function = cx.functions.get(call.function).ok();
        let on = fewest.min(self.queue.settings().pes);
        queue::Request {
            id: key.number(),
            user: share_of(cx, call),
            fewest,
            most: elements(most),
            gpus: gpus::wanted(self, cx, call),
            seconds: function
                .and_then(|function| Some(function.predict(&call.layout, on)?.seconds)),
            priority: function.map_or(0, |function| function.priority),
            reservation: call.run.reservation,
        }
    }

    /// Remembers the name of a share's user, for the status.
    fn name_user(&mut self, cx: &mut Context, share: u64, call: CallKey) {
        if self.user_names.contains_key(&share) {
            return;
        }
        if self.user_names.len() >= MOST_NAMES {
            let known: Set<u64> = self.queue.users(cx.now()).map(|u| u.user).collect();
            self.user_names.retain(|share, _| known.contains(share));
        }
        let call = &cx.calls[call];
        let connection = call.connection.and_then(|key| cx.clients.get(key));
        let host = connection.and_then(|connection| connection.peer.host);
        let name = match host.filter(|_| call.user.is_anonymous()) {
            Some(host) => format!("{} of {host}", call.user),
            None => call.user.to_string(),
        };
        self.user_names.insert(share, name);
    }

    pub(crate) fn admit_job(&mut self, cx: &mut Context, start: Option<Start>) -> bool {
        if let Some(Start { id, pes }) = start {
            let call = CallKey::of_number(id);
            cx.calls[call].run.pes = pes;
            cx.calls[call].run.gpus = Gpus::default();
            self.admitted.push_back(call);
        }
        start.is_some()
    }

    /// Gives calls with processor elements to workers. A short call waits for a worker that will
    /// soon be idle rather than wake another one. If no idle worker of the library may serve the
    /// user, a new one is started, unless enough workers will soon be idle.
    pub(crate) fn dispatch(&mut self, cx: &mut Context) {
        self.held_until = None;
        if !self.queue.is_empty() {
            let now = cx.now();
            while let start = self.queue.next(now)
                && self.admit_job(cx, start)
            {}
            self.post_waiting(cx, now);
        }
        if self.admitted.is_empty() || cx.stopping.is_some() {
            return;
        }
        let workers = self.workers.iter();
        let starting = workers.filter(|(_, w)| w.object.is_none() && w.state == State::Starting);
        let mut starting: Vec<WorkerKey> = starting.map(|(key, _)| key).collect();
        let mut waiting = VecDeque::new();
        while let Some(call) = self.admitted.pop_front() {
            if !gpus::take(self, cx, call) {
                waiting.push_back(call);
                continue;
            }
            if let Some(worker) = cx.calls[call]
                .run
                .object
                .filter(|_| !has(Flaw::StraysMethods))
            {
                // A worker that was just started is not idle yet.
                match self.workers[worker].is_idle() {
                    true => self.hand_over(cx, call, worker),
                    false => waiting.push_back(call),
                }
                continue;
            }
            if let Some(worker) = self.worker_ahead(cx, call) {
                self.post_behind(cx, call, worker);
                continue;
            }
            let Ok(function) = cx.functions.get(cx.calls[call].function) else {
                continue;
            };
            let need = need(&cx.calls[call], function);
            if function.brief().is_some()
                && let Some(soon) = self.workers.idle_soon(cx, &need)
            {
                self.held_until = Some(soon);
                waiting.push_back(call);
                continue;
            }
            if let Some(worker) = self.workers.idle(&need) {
                self.hand_over(cx, call, worker);
                continue;
            }
            let serves = |key: &WorkerKey| self.workers[*key].serves(&need);
            if let Some(index) = starting.iter().position(serves) {
                starting.swap_remove(index);
            } else if !self.lacks_processes(cx) {
                let (library, resources) = (need.library, need.resources);
                self.start_one_more(cx, library, resources);
            }
            waiting.push_back(call);
        }
        waiting.append(&mut self.admitted);
        self.admitted = waiting;
    }

    /// Starts a worker. If there are too many idle workers of other users and libraries, the one
    /// that was unused for the longest time ends.
    fn start_one_more(&mut self, cx: &mut Context, library: usize, resources: Resources) {
        let now = cx.now();
        let most = (4 * self.queue.settings().pes as usize).max(LEAST_IDLE);
        let is_shared = |worker: &Worker| worker.user.is_some() && worker.object.is_none();
        let idle = |worker: &Worker| worker.idle_for(now).filter(|_| is_shared(worker));
        let workers = self.workers.iter();
        let idle = workers.filter_map(|(key, worker)| Some((idle(worker)?, key)));
        let idlest = idle.clone().max().filter(|_| idle.count() >= most);
        if let Some((_, key)) = idlest {
            let text = "was ended to make room for another";
            self.workers.end(cx, key, FailureKind::Internal, text);
        }
        self.workers.start_with(cx, library, resources);
    }

    fn hand_over(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        match cx.calls[key].job_id() {
            Some(_) if lacks_memory(cx, key) => cx.step(read_again(key)),
            Some(id) => self.book(cx, key, id, worker),
            None => self.launch(cx, key, worker),
        }
    }

    pub(crate) fn launch(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        let now = cx.now();
        let alone = Elements::goes_ahead(cx, key).is_none();
        let time_limit = cx.settings.time_limit();
        self.expected.started(key.number(), now);
        let call = &mut cx.calls[key];
        call.times.started = now;
        call.run.alone = alone;
        let Ok(function) = cx.functions.get(call.function) else {
            return;
        };
        let Some(known) = self.workers.get_mut(worker) else {
            return;
        };
        known.user.get_or_insert_with(|| call.user.clone());
        let posting = Posting {
            function: call.function,
            alone,
            is_brief: function.brief().is_some(),
            time_limit,
        };
        known.post(key, posting, now);
        call.enter(call::State::Running { worker });
        // A durable call that runs leaves its place to one that waits on the disk.
        cx.has_room |= call.job_id().is_some();
        cx.out.push(Action::Run { worker, call: key });
        if has(Flaw::BooksTwice) {
            self.queue.pause(key.number(), now);
        }
    }

    /// Handles a call that could not be given to its worker. The worker is ended, and the call
    /// fares as with any worker that ends before the call.
    pub(crate) fn not_run(&mut self, cx: &mut Context, worker: WorkerKey, why: &str) {
        let text = format!("could not be given the call: {why}");
        self.workers.end(cx, worker, FailureKind::Internal, &text);
    }

    /// Whether the system has just refused a worker a process.
    fn lacks_processes(&mut self, cx: &Context) -> bool {
        let now = cx.now();
        self.lacks_until.take_if(|until| *until <= now);
        self.lacks_until.is_some()
    }

    /// Fails the calls that wait for a worker like one that could not start. The next one could not
    /// start either. A library that one process cannot bind cannot be bound by several. If only the
    /// system refused a process, calls that another worker can run wait for that one.
    pub(crate) fn fail_waiting(&mut self, cx: &mut Context, dead: &Worker, death: &Death) {
        let (library, processes) = (dead.library, dead.resources.processes);
        if death.is_unborn {
            self.lacks_until = Some(cx.retry_at());
        }
        let is_alike = |call: &CallKey, has_elements: bool| {
            let call = &cx.calls[*call];
            cx.functions.get(call.function).is_ok_and(|function| {
                let need = need(call, function);
                // An object has its worker.
                let wants_one = call.run.object.is_none() && need.library == library;
                wants_one
                    && (processes == 1 || need.resources.processes == processes)
                    && !(death.is_unborn && has_other(&self.workers, &need, has_elements))
            })
        };
        let queued = self.queue.waiting().map(CallKey::of_number);
        let queued = queued.filter(|call| is_alike(call, false));
        let admitted = self.admitted.iter().copied();
        let admitted = admitted.filter(|call| is_alike(call, true));
        let waiting: Vec<CallKey> = queued.chain(admitted).collect();
        self.admitted.retain(|call| !waiting.contains(call));
        // The end of one call lets others start, so all of these leave the queue first.
        for call in &waiting {
            self.queue.remove(call.number(), cx.now());
        }
        for call in waiting {
            let text = format!("has no worker: it {}", death.cause);
            cx.fail(call, FailureKind::Internal, &text);
        }
    }

    /// Books a worker for a durable call until the journal has recorded that the call runs. If the
    /// server ends, nobody may then believe that the call has not begun.
    pub(crate) fn book(&mut self, cx: &mut Context, key: CallKey, id: JobId, worker: WorkerKey) {
        self.workers[worker].state = State::Booked { call: key };
        cx.calls[key].enter(call::State::Running { worker });
        cx.step(Step::Record(id, Change::Start, Outcome::default()));
        if has(Flaw::StartsEarly) {
            self.launch(cx, key, worker);
        }
    }

    /// Starts a call after the journal has recorded that it runs, or before, if it may run twice.
    pub(crate) fn begin(&mut self, cx: &mut Context, key: CallKey) {
        if cx.stopping.is_some() {
            return;
        }
        if let call::State::Running { worker } = cx.calls[key].state
            && self.workers[worker].state == (State::Booked { call: key })
        {
            if lacks_memory(cx, key) {
                self.workers[worker].rest(cx.now());
                return cx.step(read_again(key));
            }
            self.launch(cx, key, worker);
        }
    }

    /// Removes a call that no longer waits for a worker.
    pub(crate) fn leave(&mut self, key: CallKey) {
        self.admitted.retain(|admitted| *admitted != key);
    }

    /// Ends a call that is in memory early, for this reason.
    pub(crate) fn tear_down(&mut self, cx: &mut Context, key: CallKey, reason: &Failure) {
        match cx.calls[key].state {
            call::State::Queued => {
                self.leave(key);
                cx.end_unbegun(key, reason.kind);
            }
            call::State::Running { worker } => match self.workers[worker].state {
                State::Booked { .. } => {
                    self.workers[worker].rest(cx.now());
                    cx.end_unbegun(key, reason.kind);
                }
                _ => self.workers.end(cx, worker, reason.kind, &reason.message),
            },
            // It ends when the disk has answered.
            _ => {}
        }
    }
}

/// Whether there is a worker that will be able to run such a call. What a call without elements
/// will need of it is not known yet.
fn has_other(workers: &Workers, need: &Need<'_>, has_elements: bool) -> bool {
    workers.values().any(|worker| {
        let resources = match has_elements {
            true => need.resources,
            false => worker.resources,
        };
        !worker.is_ended && worker.serves(&Need { resources, ..*need })
    })
}

/// What a call needs from its worker.
pub(super) fn need<'n>(call: &'n ActiveCall, function: &Function) -> Need<'n> {
    Need {
        library: function.entry.file,
        user: &call.user,
        resources: Resources {
            processes: match function.interface.is_parallel() {
                true => call.run.pes,
                false => 1,
            },
            gpus: call.run.gpus,
        },
    }
}

/// The share that a call counts towards: its user's, or for users without proof the share of their
/// host.
fn share_of(cx: &Context, call: &ActiveCall) -> u64 {
    let mut hasher = DefaultHasher::new();
    call.user.hash(&mut hasher);
    if call.user.is_anonymous() {
        let connection = call.connection.and_then(|key| cx.clients.get(key));
        connection
            .and_then(|known| known.peer.host)
            .hash(&mut hasher);
    }
    hasher.finish()
}
