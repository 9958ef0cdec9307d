//! The record of calls: which calls get a line, and what it says. The shell writes the lines
//! ([`Action::Note`](crate::Action::Note)). A call has a line when its results have left or are
//! stored, or when it has failed. The same moments become the spans of a call that belongs to a
//! trace ([`Action::Trace`](crate::Action::Trace)). Without a record and without traces, this costs
//! one comparison for each call.

use crate::action::TracedCall;
use crate::call::{ActiveCall, Durability, Task};
use crate::connection::Peer;
use crate::event::Now;
use crate::functions::Functions;
use crate::links::Links;
use crate::map::Map;
use crate::settings::Settings;
use core::net::IpAddr;
use farcall_idl::{Interface, Op, Scalar};
use farcall_record::{Budget, Fate, Line, Link, Measured, Sampler, Server, Tally, Together};
use farcall_rpc_proto::{Call, Nanos, User};
use serde_json::Value;

/// Most scalars of a line.
const MOST_SCALARS: usize = 32;
/// Microseconds by which the calendar must go back before lines follow it.
const JUMP: u64 = 1_000_000;
/// Nanoseconds between lines about the same path.
const LINK: Nanos = 60_000_000_000;
/// Lines about paths at a time, and paths whose last line is remembered.
const LINKS: usize = 64;
const MOST_LINKS: usize = 1024;

/// The host of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Host {
    /// The call has no client any more.
    Unknown,
    /// On a Unix socket.
    Local,
    At(IpAddr),
}

impl Host {
    /// Of a call, if its client is still there.
    fn of(client: Option<&Peer>) -> Host {
        match client.map(|client| client.host) {
            None => Host::Unknown,
            Some(None) => Host::Local,
            Some(Some(host)) => Host::At(host),
        }
    }

    fn name(self) -> String {
        match self {
            Host::Unknown => String::new(),
            Host::Local => "local".to_owned(),
            Host::At(host) => host.to_string(),
        }
    }
}

/// Calls that are counted together: their work differs at most by a factor of two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    user: User,
    function: u64,
    host: Host,
    outcome: &'static str,
    octave: u32,
}

/// What the record needs to know.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Which calls get lines; `None` without a record.
    sampler: Option<Sampler<Kind>>,
    /// Microseconds since 1970 at the start of the clock.
    epoch: u64,
    /// What the last line about each path said, and when: bytes per second in each direction.
    links: Map<IpAddr, [Option<f64>; 2]>,
    links_noted: Nanos,
}

impl Notes {
    /// What the settings ask for: a record, spans, or both.
    pub(crate) fn wanted(settings: &Settings) -> Option<Notes> {
        let is_wanted = settings.record.is_some() || settings.traces;
        is_wanted.then(|| Notes::new(settings.record))
    }

    pub(crate) fn new(budget: Option<Budget>) -> Notes {
        Notes {
            sampler: budget.map(Sampler::new),
            epoch: 0,
            links: Map::default(),
            links_noted: 0,
        }
    }

    /// When the next lines are due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.sampler.as_ref()?.deadline()
    }

    /// Follows the calendar. It is read in whole milliseconds and a little before the clock, so the
    /// latest start of the clock that was found is the best one, unless the calendar has jumped.
    fn follow(&mut self, now: Now) {
        let epoch = (now.unix_ms * 1000).saturating_sub(now.nanos / 1000);
        if epoch > self.epoch || self.epoch - epoch > JUMP {
            self.epoch = epoch;
        }
    }

    /// A moment in seconds since 1970.
    fn unix_s(&self, nanos: Nanos) -> f64 {
        (self.epoch + nanos / 1000) as f64 / 1e6
    }

    /// A call has ended. Returns its line, if it has one of its own, and what its spans need, if
    /// they are wanted. `client` is set if the client is still there.
    pub(crate) fn call(
        &mut self,
        call: &mut ActiveCall,
        client: Option<&Peer>,
        outcome: &'static str,
        functions: &Functions,
        now: Now,
    ) -> (Option<Line>, Option<Box<TracedCall>>) {
        let Ok(function) = functions.get(call.function) else {
            return (None, None);
        };
        if !matches!(call.task, Task::Call) || std::mem::replace(&mut call.run.is_noted, true) {
            return (None, None);
        }
        self.follow(now);
        let host = Host::of(client);
        let share = self.share(call, host, outcome, now);
        if share.is_none() && call.run.traced.is_none() {
            return (None, None);
        }
        let mut line = self.line(call, &function.interface, now.nanos);
        outcome.clone_into(&mut line.outcome);
        line.host = host.name();
        let number = client.map_or(0, |client| client.client);
        line.client = if number == 0 {
            String::new()
        } else {
            format!("{number:016x}")
        };
        line.share = share.unwrap_or(1.0);
        let traced = call.run.traced.map(|traced| {
            Box::new(TracedCall {
                call: line.clone(),
                context: traced.context,
                parent: traced.parent,
            })
        });
        let line = share.map(|_| Line::Call(Box::new(line)));
        (line, traced)
    }

    /// Counts a call for the record. Returns its share of the calls of its kind, if it has a line
    /// of its own.
    fn share(
        &mut self,
        call: &ActiveCall,
        host: Host,
        outcome: &'static str,
        now: Now,
    ) -> Option<f64> {
        let sampler = self.sampler.as_mut()?;
        let work = call.layout.cost.unwrap_or(call.layout.bytes as f64);
        let kind = Kind {
            user: call.user.clone(),
            function: call.function,
            host,
            outcome,
            octave: (work as u64).checked_ilog2().map_or(0, |octave| octave + 1),
        };
        let measured = Measured {
            operations: call.layout.cost.unwrap_or_default(),
            bytes: [call.layout.sent_bytes(), call.layout.returned_bytes()],
            placed: placed_bytes(call),
            wait: call.times.started.saturating_sub(call.times.queued),
            exec: call.times.exec,
            pes: call.run.pes,
        };
        match sampler.count(now.nanos, kind, outcome != "done", &measured) {
            Fate::Together => None,
            Fate::Alone { share } => Some(share),
        }
    }

    /// The line of a call that ends now.
    fn line(&self, call: &ActiveCall, interface: &Interface, now: Nanos) -> farcall_record::Call {
        let moment = |nanos: Nanos| (nanos > 0).then(|| self.unix_s(nanos));
        let nanos = |seconds: f64| (seconds * 1e9).round() / 1e9;
        let (times, range) = (&call.times, call.run.range);
        let request = Call::decode(&call.message).ok();
        let scalars = request.map(|request| scalars(interface, &request));
        farcall_record::Call {
            trace: call
                .run
                .cause
                .map_or_else(String::new, |of| of.trace_hex().to_string()),
            user: call.user.name().to_owned(),
            function: interface.qualified_name().into_owned(),
            scalars: scalars.unwrap_or_default(),
            operations: call.layout.cost,
            sent_bytes: call.layout.sent_bytes(),
            returned_bytes: call.layout.returned_bytes(),
            placed_bytes: placed_bytes(call),
            predicted_s: call.run.predicted.map(nanos),
            predicted_low_s: range.map(|range| nanos(range.low)),
            predicted_high_s: range.map(|range| nanos(range.high)),
            asked: moment(times.asked).unwrap_or_else(|| self.unix_s(now)),
            granted: moment(times.accepted),
            queued: moment(times.queued),
            started: moment(times.started),
            ended: moment(times.ended),
            sent: self.unix_s(now),
            exec_s: times.exec as f64 / 1e9,
            pes: call.run.pes,
            durable: !matches!(call.durability, Durability::None),
            ..farcall_record::Call::default()
        }
    }

    /// The lines that are due: of calls that were counted together, and of paths that have changed.
    pub(crate) fn due(&mut self, links: &Links, functions: &Functions, now: Now) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.deadline().is_some_and(|at| at <= now.nanos) {
            lines = self.together(functions, now);
        }
        if self.sampler.is_some()
            && links.has_any()
            && now.nanos >= self.links_noted.saturating_add(LINK)
        {
            self.links(links, now, &mut lines);
        }
        lines
    }

    /// The lines when the server starts or stops. At the end, nothing is left to be noted.
    pub(crate) fn server(
        &mut self,
        server: Server,
        links: &Links,
        functions: &Functions,
        now: Now,
    ) -> Vec<Line> {
        let mut lines = self.together(functions, now);
        self.links(links, now, &mut lines);
        lines.push(Line::Server(Box::new(Server {
            time: self.unix_s(now.nanos),
            ..server
        })));
        lines
    }

    /// The lines of calls that were counted together.
    fn together(&mut self, functions: &Functions, now: Now) -> Vec<Line> {
        self.follow(now);
        let counted = self.sampler.as_mut().map(Sampler::take);
        let counted = counted.unwrap_or_default().into_iter();
        let lines = counted.map(|(kind, tally)| {
            let mut line = together(self, tally);
            if let Some(kind) = kind {
                let function = functions.get(kind.function);
                let name = function.map(|function| function.interface.qualified_name());
                line.function = name.map(|name| name.into_owned()).unwrap_or_default();
                line.user = kind.user.name().to_owned();
                line.host = kind.host.name();
                line.outcome = kind.outcome.to_owned();
            }
            Line::Together(Box::new(line))
        });
        lines.collect()
    }

    /// The lines of paths that have changed since their last lines.
    fn links(&mut self, links: &Links, now: Now, lines: &mut Vec<Line>) {
        self.follow(now);
        self.links_noted = now.nanos;
        if self.links.len() > MOST_LINKS {
            self.links.clear();
        }
        let before = lines.len();
        for (host, up, down) in links.rates() {
            let rates = [up.rate(), down.rate()];
            if lines.len() - before >= LINKS || self.links.get(&host) == Some(&rates) {
                continue;
            }
            self.links.insert(host, rates);
            lines.push(Line::Link(Link {
                time: self.unix_s(now.nanos),
                server: String::new(),
                host: host.to_string(),
                up_bytes_per_s: rates[0],
                down_bytes_per_s: rates[1],
                ..Link::default()
            }));
        }
    }
}

/// The line of calls that were counted together.
fn together(notes: &Notes, tally: Tally) -> Together {
    let [waits, execs] = tally.times.unwrap_or_default();
    Together {
        from: notes.unix_s(tally.span[0]),
        to: notes.unix_s(tally.span[1]),
        calls: tally.calls,
        alone: tally.alone,
        operations: tally.operations,
        sent_bytes: tally.bytes[0],
        returned_bytes: tally.bytes[1],
        placed_bytes: tally.placed,
        pe_s: tally.pe_s,
        wait_s: waits.sum_s(),
        exec_s: execs.sum_s(),
        wait_quantiles_s: waits.quantiles_s(),
        exec_quantiles_s: execs.quantiles_s(),
        ..Together::default()
    }
}

/// Bytes of the arrays of a call that did not travel.
fn placed_bytes(call: &ActiveCall) -> u64 {
    let placed = call
        .layout
        .arrays
        .iter()
        .filter(|array| array.place.is_some());
    placed.fold(0, |sum, array| sum.saturating_add(array.bytes))
}

/// The numbers of a call on which sizes, cost or processor elements depend, by their names.
fn scalars(interface: &Interface, call: &Call) -> serde_json::Map<String, Value> {
    let mut numbers = serde_json::Map::new();
    for index in interface
        .expressions()
        .flat_map(|expression| expression.ops())
    {
        let &Op::Param(index) = index else { continue };
        let index = usize::from(index);
        let (Some(param), Some(Some(scalar))) =
            (interface.params.get(index), call.scalars.get(index))
        else {
            continue;
        };
        if numbers.len() >= MOST_SCALARS || numbers.contains_key(&param.name) {
            continue;
        }
        let value = match scalar {
            Scalar::Int(value) => Value::from(*value),
            Scalar::Float(value) => Value::from(*value),
            Scalar::Complex { .. } | Scalar::Text(_) | Scalar::Texts(_) => continue,
        };
        numbers.insert(param.name.clone(), value);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_calendar_and_do_not_tremble() {
        let mut notes = Notes::new(Some(Budget::of_day(1)));
        let at = |ms: u64, unix_ms: u64| Now {
            nanos: ms * 1_000_000,
            unix_ms,
        };
        // The calendar was read 300 ms before.
        notes.follow(at(300, 1_000_000));
        notes.follow(at(1000, 1_001_000));
        assert_eq!(notes.unix_s(2_000_000_000), 1002.0);
        // Read a little before the clock: nothing changes.
        notes.follow(at(3000, 1_002_990));
        assert_eq!(notes.unix_s(2_000_000_000), 1002.0);
        // Somebody has set the calendar back, and ahead.
        notes.follow(at(4000, 900_000));
        assert_eq!(notes.unix_s(5_000_000_000), 901.0);
        notes.follow(at(5000, 2_000_000));
        assert_eq!(notes.unix_s(5_000_000_000), 2000.0);
    }
}
