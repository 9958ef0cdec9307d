//! Placed calls, until their outcome is known. The directory counts them towards the load of their
//! servers.

use farcall_rpc_proto::TraceContext;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A report that a server makes this many seconds after a call was placed already includes the
/// call, or the call has ended. By then the client has connected and the first bytes of the call
/// have arrived.
const UNTIL_SEEN_S: f64 = 0.03;
/// Seconds between two searches for calls that have taken too long.
const SEARCH_S: f64 = 1.0;

/// What a placement's line needs besides the placed call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlacementNote {
    pub(crate) user: Arc<str>,
    pub(crate) function: Arc<str>,
    pub(crate) address: Arc<str>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) work: f64,
    /// When the request came, and when it was answered.
    pub(crate) asked: f64,
}

/// A placed call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Placed {
    pub(crate) server: u64,
    pub(crate) site: u64,
    /// The connection of the client; 0 is the owner of the directory.
    pub(crate) connection: u64,
    pub(crate) at: f64,
    pub(crate) latency_s: f64,
    pub(crate) up: u64,
    pub(crate) down: u64,
    pub(crate) memory: u64,
    pub(crate) pes: u32,
    /// Predicted times, here and below.
    pub(crate) up_s: f64,
    pub(crate) wait_s: f64,
    pub(crate) compute_s: f64,
    pub(crate) down_s: f64,
    /// What its line in the record needs, if there is a record.
    pub(crate) note: Option<Box<PlacementNote>>,
}

impl Placed {
    /// Argument bytes that have not arrived yet.
    pub(crate) fn up_left(&self, now: f64) -> f64 {
        left(self.up, now - self.at, self.up_s)
    }

    /// Result bytes that have not left yet, once they are being sent.
    pub(crate) fn down_left(&self, now: f64) -> f64 {
        let since = now - self.at - self.up_s - self.wait_s - self.compute_s;
        match since >= 0.0 {
            true => left(self.down, since, self.down_s),
            false => 0.0,
        }
    }

    /// Seconds until its arguments have arrived.
    pub(crate) fn ready_s(&self, now: f64) -> f64 {
        (self.at + self.up_s - now).max(0.0)
    }

    /// When the server's reports begin to include the call.
    pub(crate) fn seen_after(&self) -> f64 {
        self.at + self.latency_s + UNTIL_SEEN_S
    }

    fn expires(&self) -> f64 {
        /// How much longer than predicted a call may take: a factor, and seconds added to that.
        const PATIENCE: (f64, f64) = (3.0, 10.0);
        let seconds = self.up_s + self.wait_s + self.compute_s + self.down_s;
        self.at + PATIENCE.0 * seconds + PATIENCE.1
    }
}

fn left(bytes: u64, since: f64, seconds: f64) -> f64 {
    let share = if seconds > 0.0 { since / seconds } else { 1.0 };
    bytes as f64 * (1.0 - share).clamp(0.0, 1.0)
}

/// All placed calls without a known outcome, by server and number.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    placed: BTreeMap<(u64, u64), Placed>,
    /// Calls in the order of their placement, including some that have ended.
    order: VecDeque<(u64, u64)>,
    last: u64,
    most: usize,
    /// When to search next for calls that have taken too long.
    search_at: f64,
}

impl Calls {
    /// No calls yet. Numbers start at `first`, and at most `most` calls are remembered.
    pub(crate) fn new(first: u64, most: usize) -> Calls {
        Calls {
            placed: BTreeMap::new(),
            order: VecDeque::new(),
            last: first,
            most,
            search_at: 0.0,
        }
    }

    /// Counts a placed call. Returns its number, and the calls that are forgotten for it.
    pub(crate) fn place(&mut self, call: Placed) -> (u64, Vec<Placed>) {
        self.last = self.last.wrapping_add(1).max(1);
        let mut gone = Vec::new();
        // Calls that have ended give way first.
        if self.order.len() >= 2 * self.most {
            self.order.retain(|key| self.placed.contains_key(key));
        }
        while self.placed.len() >= self.most
            && let Some(oldest) = self.order.pop_front()
        {
            gone.extend(self.placed.remove(&oldest));
        }
        let key = (call.server, self.last);
        self.order.push_back(key);
        self.placed.insert(key, call);
        (self.last, gone)
    }

    /// Ends a call that was placed for this connection.
    pub(crate) fn end(&mut self, number: u64, server: u64, connection: u64) -> Option<Placed> {
        let key = (server, number);
        let placed = self.placed.get(&key)?;
        (placed.connection == connection).then(|| self.placed.remove(&key))?
    }

    /// Forgets calls that have taken too long, and returns them. It may be a second late.
    pub(crate) fn expire(&mut self, now: f64) -> Vec<Placed> {
        if now < self.search_at {
            return Vec::new();
        }
        self.search_at = now + SEARCH_S;
        // A call that may take hours can be before those of seconds.
        let over = self.placed.iter().filter(|(_, call)| call.expires() <= now);
        let over: Vec<(u64, u64)> = over.map(|(key, _)| *key).collect();
        let gone = over.iter().filter_map(|key| self.placed.remove(key));
        gone.collect()
    }

    pub(crate) fn of_server(&self, server: u64) -> impl Iterator<Item = &Placed> {
        let calls = self.placed.range((server, 0)..=(server, u64::MAX));
        calls.map(|(_, call)| call)
    }

    pub(crate) fn of_site(&self, site: u64) -> impl Iterator<Item = &Placed> {
        let calls = self.placed.values();
        calls.filter(move |call| call.site == site)
    }

    pub(crate) fn len(&self) -> usize {
        self.placed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(compute_s: f64) -> Placed {
        Placed {
            server: 1,
            site: 2,
            connection: 0,
            at: 0.0,
            latency_s: 0.0,
            up: 0,
            down: 0,
            memory: 0,
            pes: 1,
            up_s: 0.0,
            wait_s: 0.0,
            compute_s,
            down_s: 0.0,
            note: None,
        }
    }

    #[test]
    fn a_long_call_does_not_keep_a_short_one_behind_it() {
        let mut calls = Calls::new(0, 4);
        calls.place(call(3600.0));
        calls.place(call(0.1));
        assert!(calls.expire(5.0).is_empty());
        let gone = calls.expire(20.0);
        assert_eq!(gone, [call(0.1)]);
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn a_long_call_is_remembered_behind_many_short_ones() {
        let mut calls = Calls::new(0, 4);
        let (long, _) = calls.place(call(3600.0));
        for _ in 0..100 {
            let (short, gone) = calls.place(call(0.1));
            assert!(gone.is_empty());
            assert!(calls.end(short, 1, 0).is_some());
            assert!(calls.order.len() <= 8);
        }
        assert!(calls.end(long, 1, 0).is_some());
        for _ in 0..10 {
            calls.place(call(3600.0));
        }
        assert_eq!(calls.len(), 4);
    }
}
