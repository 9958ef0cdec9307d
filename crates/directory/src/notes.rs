//! The record of a metaserver: its placements with their outcomes, servers that come and go, and
//! measured paths. The caller takes the lines and writes them. A placement has a line when its
//! outcome is known or no longer expected. Without a record, this costs one comparison each.

use crate::calls::{Placed, PlacementNote};
use crate::message::Choose;
use farcall_record::{Budget, Fate, Line, Link, Measured, Placement, Placements, Sampler, Server};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Lines that can wait for the caller. Further ones are lost.
const MOST_LINES: usize = 16_384;
/// Seconds between lines about the same path.
const LINK_S: f64 = 60.0;
/// Paths whose last line is remembered.
const MOST_LINKS: usize = 4096;

/// Placements that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    user: Arc<str>,
    function: Arc<str>,
    site: u64,
    server: Arc<str>,
    outcome: &'static str,
}

/// The lines of a directory that wait for the caller.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    sampler: Sampler<Kind>,
    lines: Vec<Line>,
    /// When the last line about a path was made.
    links: BTreeMap<(u64, u64), f64>,
}

/// Nanoseconds for the sampler.
fn nanos(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e9) as u64
}

impl Notes {
    pub(crate) fn new(budget: Budget) -> Notes {
        Notes {
            sampler: Sampler::new(budget),
            lines: Vec::new(),
            links: BTreeMap::new(),
        }
    }

    fn push(&mut self, line: Line) {
        if self.lines.len() < MOST_LINES {
            self.lines.push(line);
        }
    }

    /// A server has come or gone.
    pub(crate) fn server(&mut self, time: f64, event: &str, server: &crate::message::Join) {
        self.push(Line::Server(Box::new(Server {
            time,
            server: server.address.clone(),
            id: format!("{:016x}", server.server),
            event: event.to_owned(),
            pes: server.pes,
            policy: String::new(),
            memory: server.memory,
        })));
    }

    /// Whether a path has had no line for a while. Its line follows.
    pub(crate) fn is_due(&mut self, path: (u64, u64), now: f64) -> bool {
        if self
            .links
            .get(&path)
            .is_some_and(|last| now - last < LINK_S)
        {
            return false;
        }
        if self.links.len() >= MOST_LINKS {
            self.links.clear();
        }
        self.links.insert(path, now);
        true
    }

    /// The measurements of a path.
    pub(crate) fn link(&mut self, link: Link) {
        self.push(Line::Link(link));
    }

    /// A call could not be placed.
    pub(crate) fn refused(
        &mut self,
        now: f64,
        site: (u64, &str),
        note: PlacementNote,
        wanted: &Choose,
    ) {
        let line = Placement {
            placed: None,
            sent_bytes: wanted.up,
            returned_bytes: wanted.down,
            memory: wanted.memory,
            ..Placement::default()
        };
        self.placement(now, "no server", site, note, line);
    }

    /// A placed call has ended, or its outcome will never be known.
    pub(crate) fn ended(&mut self, now: f64, outcome: &'static str, site: &str, placed: Placed) {
        let Some(note) = placed.note else { return };
        let line = Placement {
            placed: Some(placed.at),
            ended: (outcome != "unknown").then_some(now),
            up_s: Some(placed.up_s),
            wait_s: Some(placed.wait_s),
            compute_s: Some(placed.compute_s),
            down_s: Some(placed.down_s),
            pes: placed.pes,
            sent_bytes: placed.up,
            returned_bytes: placed.down,
            memory: placed.memory,
            ..Placement::default()
        };
        self.placement(now, outcome, (placed.site, site), *note, line);
    }

    fn placement(
        &mut self,
        now: f64,
        outcome: &'static str,
        (site, host): (u64, &str),
        note: PlacementNote,
        line: Placement,
    ) {
        let kind = Kind {
            user: note.user,
            function: note.function,
            site,
            server: note.address,
            outcome,
        };
        let measured = Measured {
            operations: note.work,
            bytes: [line.sent_bytes, line.returned_bytes],
            ..Measured::default()
        };
        let is_rare = !matches!(outcome, "done" | "unknown");
        let fate = self
            .sampler
            .count(nanos(now), kind.clone(), is_rare, &measured);
        if let Fate::Alone { share } = fate {
            let trace = note.trace.map(|trace| trace.trace_hex().to_string());
            self.push(Line::Placement(Box::new(Placement {
                trace: trace.unwrap_or_default(),
                user: kind.user.as_ref().to_owned(),
                function: kind.function.as_ref().to_owned(),
                host: host.to_owned(),
                server: kind.server.as_ref().to_owned(),
                operations: note.work,
                asked: note.asked,
                outcome: outcome.to_owned(),
                share,
                ..line
            })));
        }
    }

    /// The lines so far, with those of placements that were counted together and are due. At the
    /// end, all of them are. Their moments are dates of a calendar that is ahead of the clock by
    /// `ahead_s` seconds.
    pub(crate) fn take(&mut self, now: f64, ahead_s: f64, is_end: bool) -> Vec<Line> {
        let due = self.sampler.deadline().is_some_and(|at| at <= nanos(now));
        let counted = match due || is_end {
            true => self.sampler.take(),
            false => Vec::new(),
        };
        for (kind, tally) in counted {
            let [from, to] = tally.span.map(|nanos| nanos as f64 / 1e9);
            let mut line = Placements {
                from,
                to,
                placements: tally.calls,
                alone: tally.alone,
                operations: tally.operations,
                sent_bytes: tally.bytes[0],
                returned_bytes: tally.bytes[1],
                ..Placements::default()
            };
            if let Some(kind) = kind {
                line.user = kind.user.as_ref().to_owned();
                line.function = kind.function.as_ref().to_owned();
                line.server = kind.server.as_ref().to_owned();
                line.outcome = kind.outcome.to_owned();
            }
            self.push(Line::Placements(Box::new(line)));
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.iter_mut().for_each(|line| shift(line, ahead_s));
        lines
    }
}

/// Makes the moments of a line later by some seconds.
fn shift(line: &mut Line, seconds: f64) {
    match line {
        Line::Server(server) => server.time += seconds,
        Line::Link(link) => link.time += seconds,
        Line::Placement(placement) => {
            let Placement {
                asked,
                placed,
                ended,
                ..
            } = &mut **placement;
            *asked += seconds;
            for moment in [placed, ended].into_iter().flatten() {
                *moment += seconds;
            }
        }
        Line::Placements(placements) => {
            placements.from += seconds;
            placements.to += seconds;
        }
        // The directory makes no others.
        Line::Record(_) | Line::Call(_) | Line::Together(_) | Line::Other => {}
    }
}
