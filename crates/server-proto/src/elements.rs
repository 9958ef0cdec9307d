//! Processor elements and workers: which call has which, and which call is next.
//!
//! A call that has all it needs is [enqueued](Elements::enqueue). It waits for processor elements,
//! and then for a worker. [`Elements::tear_down`] ends it early. No element is ever given to two
//! calls.

mod ahead;
mod callbacks;
mod dispatch;
pub(crate) mod gpus;
mod object;
mod workers;

pub(crate) use workers::Loss;

use crate::call::ActiveCall;
use crate::context::Context;
use crate::keys::{CallKey, Key};
use crate::map::Map;
use crate::worker::Worker;
use crate::workers::Workers;
use farcall_idl::Layout;
use farcall_rpc_proto::{Call, Nanos};
use farcall_schedule::queue::ExpectedStarts;
use farcall_schedule::{Queue, queue};
use std::collections::VecDeque;

/// The queue and the workers.
pub(crate) struct Elements {
    pub(crate) queue: Queue,
    pub(crate) workers: Workers,
    /// Calls that have processor elements and wait for a worker.
    admitted: VecDeque<CallKey>,
    /// Until when a short call waits for a certain worker before it gets another one.
    held_until: Option<Nanos>,
    /// Until when no call gets a worker of its own, because the system has refused one a process.
    lacks_until: Option<Nanos>,
    /// Names of users, by share number.
    user_names: Map<u64, String>,
    /// When waiting calls will probably start.
    pub(crate) expected: ExpectedStarts,
    /// Whether there may be workers whose library has been replaced.
    pub(crate) has_old: bool,
}

impl Elements {
    pub(crate) fn new(settings: queue::Settings) -> Elements {
        Elements {
            queue: Queue::new(settings),
            workers: Workers::default(),
            admitted: VecDeque::new(),
            held_until: None,
            lacks_until: None,
            user_names: Map::default(),
            expected: ExpectedStarts::default(),
            has_old: false,
        }
    }

    /// The name of the user with this share.
    pub(crate) fn user_name(&self, share: u64) -> &str {
        self.user_names.get(&share).map_or("?", String::as_str)
    }

    /// When to look again at the latest.
    pub(crate) fn next_deadline(&self, callbacks: Option<Nanos>, now: Nanos) -> Option<Nanos> {
        let workers = self.workers.values();
        let running = workers.clone().filter_map(|w| w.deadline(callbacks));
        let patience = workers.filter_map(Worker::patience);
        let change = self.queue.next_change(now);
        let ahead = self.expected.next(&self.queue);
        let lacks = self.lacks_until.filter(|_| !self.admitted.is_empty());
        let held = self.held_until.into_iter().chain(lacks);
        let others = held.chain(change).chain(ahead);
        running.chain(patience).chain(others).min()
    }

    /// Whether a call has reserved processor elements, or will have.
    pub(crate) fn is_reserved(&self, call: &ActiveCall, now: Nanos) -> bool {
        let booking = call.run.reservation.and_then(|id| self.queue.booking(id));
        booking.is_some_and(|booking| booking.until > now && booking.pes > 0)
    }

    /// Whether a call's reservation has begun.
    pub(crate) fn has_begun(&self, call: &ActiveCall, now: Nanos) -> bool {
        let booking = call.run.reservation.and_then(|id| self.queue.booking(id));
        booking.is_some_and(|booking| booking.covers(now))
    }

    /// Seconds until a call that takes this long would start.
    pub(crate) fn wait_of(
        &self,
        cx: &Context,
        call: &Call,
        layout: &Layout,
        seconds: Option<f64>,
    ) -> f64 {
        let nanos = |seconds: f64| (seconds * 1e9) as Nanos;
        let now = cx.now();
        if let Some(id) = call.reservation {
            let own = self.queue.booking(id);
            return own.map_or(0.0, |own| own.from.saturating_sub(now) as f64 * 1e-9);
        }
        let backlog = self.backlog(cx);
        if self.queue.bookings().next().is_none() {
            return backlog;
        }
        let fewest = layout.fewest_elements.unwrap_or(1);
        let from = now.saturating_add(nanos(backlog));
        let until = from.saturating_add(nanos(seconds.unwrap_or_default()).max(1));
        let fewest = u32::try_from(fewest).unwrap_or(u32::MAX);
        let start = self.queue.earliest(fewest, (from, until), now);
        start.saturating_sub(now) as f64 * 1e-9
    }

    /// Seconds until unreserved processor elements are free for one more call, if all elements
    /// computed all the time. Functions that were never observed count as nothing.
    pub(crate) fn backlog(&self, cx: &Context) -> f64 {
        if self.queue.is_empty() && self.queue.free() > 0 {
            return 0.0;
        }
        let now = cx.now();
        let work = |call: &ActiveCall, pes: u32, done: f64| {
            let function = cx.functions.get(call.function).ok()?;
            if self.is_reserved(call, now) {
                return None;
            }
            let seconds = function.predict(&call.layout, pes)?.seconds - done;
            Some(seconds.max(0.0) * f64::from(pes))
        };
        let running = self.workers.values().filter_map(|worker| {
            let call = &cx.calls[worker.call()?];
            work(call, call.run.pes, worker.running_for(now) as f64 * 1e-9)
        });
        let admitted = self.admitted.iter().filter_map(|call| {
            let call = &cx.calls[*call];
            work(call, call.run.pes, 0.0)
        });
        let waiting = self.queue.waiting().filter_map(|id| {
            let call = &cx.calls[CallKey::of_number(id)];
            let fewest = call.layout.fewest_elements.unwrap_or(1);
            work(call, u32::try_from(fewest).unwrap_or(u32::MAX), 0.0)
        });
        let all = running.chain(admitted).chain(waiting);
        // The sum of no numbers is -0.0.
        let seconds = all.fold(0.0, |sum, seconds| sum + seconds);
        seconds / f64::from(self.queue.settings().pes)
    }
}

#[cfg(test)]
mod tests;
