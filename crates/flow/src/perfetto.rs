//! Traces in the JSON format of Chrome's tracing, which Perfetto opens. The module makes the text,
//! and its caller writes it. A rank is a process with a track for each cpu, for its sends and for
//! its receives; messages that overlap get further tracks. An arrow joins a send and its receive,
//! and a counter shows the load of a watched link.

use crate::engine::{Computation, LinkLoad, MessageRecord, Record};
use crate::platform::LinkId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

/// Shortest step of time in a trace, in microseconds.
const NANOSECOND: f64 = 1e-3;
/// Number of the first track of sends and of receives. Those of computations are below.
const TRACKS: [(u32, &str); 2] = [(1_000, "send"), (1_000_000, "receive")];

/// The tracks of a rank in one direction, by the end of their last message. Times are stored as
/// bits: they are not negative, so the bits sort like the numbers.
type Tracks = BTreeSet<(u64, u32)>;

/// The text of a trace, which grows with each record.
#[derive(Debug)]
pub struct Trace {
    text: String,
    ranks: u32,
    links: HashMap<LinkId, String>,
    /// By rank, for sends and receives.
    tracks: Vec<[Tracks; 2]>,
    named: HashSet<(u32, u32)>,
    arrows: u64,
}

impl Trace {
    /// A trace of `ranks` ranks, with counters for `links` and their names.
    pub fn new(ranks: u32, links: impl IntoIterator<Item = (LinkId, String)>) -> Self {
        let mut trace = Self {
            text: "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[".to_owned(),
            ranks,
            links: links
                .into_iter()
                .map(|(link, name)| (link, escaped(&name)))
                .collect(),
            tracks: vec![<[Tracks; 2]>::default(); ranks as usize],
            named: HashSet::new(),
            arrows: 0,
        };
        for rank in 0..ranks {
            trace.process(rank, &format!("rank {rank}"));
        }
        if !trace.links.is_empty() {
            trace.process(ranks, "links");
        }
        trace
    }

    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Message(message) => self.message(message),
            Record::Computation(computation) => self.computation(computation),
            Record::LinkLoad(load) => self.load(load),
        }
    }

    /// Ends the trace.
    pub fn finish(&mut self) {
        if self.text.ends_with(',') {
            self.text.pop();
        }
        self.text.push_str("\n]}\n");
    }

    /// The text since the last call. It keeps its last character, because a comma there is wrong
    /// if no event follows.
    pub fn take(&mut self) -> String {
        if !self.text.ends_with(',') {
            return std::mem::take(&mut self.text);
        }
        self.text.pop();
        std::mem::replace(&mut self.text, ",".to_owned())
    }

    /// Bytes of text that [`Trace::take`] would return.
    pub fn pending(&self) -> usize {
        self.text.len()
    }

    fn message(&mut self, m: &MessageRecord) {
        let (start, end) = (m.start * 1e6, m.end * 1e6);
        let duration = end - start;
        let arrow = self.arrows;
        self.arrows += 1;
        let ends = [
            (m.source, m.destination, "to"),
            (m.destination, m.source, "from"),
        ];
        for (side, (rank, other, word)) in ends.into_iter().enumerate() {
            let track = self.track(rank, side, m.start, m.end);
            // An arrow ends inside of the receive, not at its end.
            let (form, at) = match side {
                0 => ("\"ph\":\"s\"", start),
                _ => ("\"ph\":\"f\",\"bp\":\"e\"", (end - NANOSECOND).max(start)),
            };
            let pid = rank + 1;
            let _ = write!(
                self.text,
                "\n{{\"ph\":\"X\",\"name\":\"{word} {other}\",\"cat\":\"message\",\"pid\":{pid},\
                 \"tid\":{track},\"ts\":{start},\"dur\":{duration},\"args\":{{\"bytes\":{}}}}},\
                 \n{{{form},\"id\":{arrow},\"name\":\"message\",\"cat\":\"message\",\"pid\":{pid},\
                 \"tid\":{track},\"ts\":{at}}},",
                m.bytes,
            );
        }
    }

    fn computation(&mut self, c: &Computation) {
        let track = u32::from(c.cpu) + 1;
        self.name(c.rank, track, &format!("cpu {}", c.cpu));
        let (start, duration) = (c.start * 1e6, (c.end - c.start) * 1e6);
        let _ = write!(
            self.text,
            "\n{{\"ph\":\"X\",\"name\":\"calc\",\"cat\":\"calc\",\"pid\":{},\"tid\":{track},\
             \"ts\":{start},\"dur\":{duration}}},",
            c.rank + 1,
        );
    }

    fn load(&mut self, load: &LinkLoad) {
        let Some(name) = self.links.get(&load.link) else {
            return;
        };
        let _ = write!(
            self.text,
            "\n{{\"ph\":\"C\",\"name\":\"{name}\",\"pid\":{},\"ts\":{},\
             \"args\":{{\"bytes/s\":{}}}}},",
            self.ranks + 1,
            load.time * 1e6,
            load.rate,
        );
    }

    /// A track of a rank on which no message overlaps with this one. Of several, it is the one that
    /// was busy last: messages come in the order of their ends, so this needs the fewest tracks.
    fn track(&mut self, rank: u32, side: usize, start: f64, end: f64) -> u32 {
        let tracks = &mut self.tracks[rank as usize][side];
        let (first, word) = TRACKS[side];
        let free = tracks.range(..=(start.to_bits(), u32::MAX)).next_back();
        let track = match free.copied() {
            Some(free) => {
                tracks.remove(&free);
                free.1
            }
            None => first + tracks.len() as u32,
        };
        tracks.insert((end.to_bits(), track));
        self.name(rank, track, word);
        track
    }

    fn process(&mut self, rank: u32, name: &str) {
        let pid = rank + 1;
        let _ = write!(
            self.text,
            "\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\
             \"args\":{{\"name\":\"{name}\"}}}},\
             \n{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{pid},\
             \"args\":{{\"sort_index\":{pid}}}}},",
        );
    }

    fn name(&mut self, rank: u32, track: u32, name: &str) {
        if self.named.insert((rank, track)) {
            let pid = rank + 1;
            let _ = write!(
                self.text,
                "\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{track},\
                 \"args\":{{\"name\":\"{name}\"}}}},",
            );
        }
    }
}

/// Text inside of a JSON string.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_overlap_get_tracks_of_their_own() {
        let mut trace = Trace::new(3, [(7, "a \"b\"".to_owned())]);
        let message = |destination, start, end| {
            Record::Message(MessageRecord {
                source: 0,
                destination,
                bytes: 5.0,
                start,
                end,
            })
        };
        trace.add(&message(1, 0.0, 2.0));
        trace.add(&message(2, 1.0, 3.0));
        trace.add(&message(1, 2.0, 4.0));
        let mut text = trace.take();
        trace.add(&Record::Computation(Computation {
            rank: 1,
            cpu: 0,
            start: 0.0,
            end: 1.0,
        }));
        trace.add(&Record::LinkLoad(LinkLoad {
            link: 7,
            time: 1.0,
            rate: 9.0,
        }));
        trace.finish();
        text += &trace.take();
        let count = |part: &str| text.matches(part).count();
        assert_eq!(count("\"ph\":\"X\""), 7, "{text}");
        assert_eq!((count("\"ph\":\"s\""), count("\"ph\":\"f\"")), (3, 3));
        assert_eq!(count("\"ph\":\"C\""), 1);
        assert_eq!(count("\"tid\":1000,\"ts\""), 4, "{text}");
        assert_eq!(count("\"tid\":1001,\"ts\""), 2, "{text}");
        assert_eq!(count("a \\\"b\\\""), 1);
        assert!(
            text.contains("\"name\":\"rank 2\"") && text.ends_with("}\n]}\n"),
            "{text}"
        );
    }

    /// A search through all tracks would take minutes.
    #[test]
    fn many_messages_overlap_at_no_cost() {
        const COUNT: u32 = 100_000;
        let mut trace = Trace::new(2, []);
        for number in 0..2 * COUNT {
            // The second half begins when the first one is over.
            let start = f64::from(number / COUNT);
            trace.add(&Record::Message(MessageRecord {
                source: 0,
                destination: 1,
                bytes: 5.0,
                start,
                end: start + 1.0,
            }));
        }
        let tracks = 2 * COUNT as usize;
        assert_eq!(trace.take().matches("thread_name").count(), tracks);
    }
}
