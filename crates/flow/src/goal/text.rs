//! Reads the text form of GOAL. It takes all that LogGOPSim's txt2bin takes, and is more lenient:
//! comments stand anywhere, options in any order. `builder` makes the graph. Every error has its
//! line.

use super::{ANY_RANK, ANY_TAG, Builder, Goal, Operation};
use crate::error::{TextError, lines};
use crate::script::Limits;
use std::collections::HashMap;

const EXPECTED: &str = "expected `label: send Nb to R tag T`, `label: recv Nb from R tag T`, \
                        `label: calc N`, or `a requires b`";

pub(super) fn parse(text: &str, limits: Limits) -> Result<Goal, TextError> {
    let mut parser = Parser::new(limits);
    for (index, line) in lines(text).enumerate() {
        let fail = |reason: String| TextError::new(index + 1, reason);
        let number = u32::try_from(index + 1).map_err(|_| fail("too many lines".to_owned()))?;
        parser.line(number, line).map_err(fail)?;
    }
    parser.finish()
}

struct Parser {
    limits: Limits,
    trace: Option<Builder>,
    open: Option<u32>,
    /// The operations of the open rank that have a label.
    labels: HashMap<String, u32>,
    /// The line on which a comment began that is not closed.
    comment: Option<u32>,
}

impl Parser {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            trace: None,
            open: None,
            labels: HashMap::new(),
            comment: None,
        }
    }

    fn line(&mut self, number: u32, line: &str) -> Result<(), String> {
        if self.comment.is_none() && line.trim_start().starts_with('#') {
            return Ok(());
        }
        let spaced = self.spaced(number, line);
        let words: Vec<&str> = spaced.split_whitespace().collect();
        for statement in words.split_inclusive(|&word| word == "{" || word == "}") {
            match statement {
                [inside @ .., "}"] => {
                    if !inside.is_empty() {
                        self.statement(number, inside)?;
                    }
                    if self.open.take().is_none() {
                        return Err("`}` without a `rank R {`".to_owned());
                    }
                }
                _ => self.statement(number, statement)?,
            }
        }
        Ok(())
    }

    /// The line without its comments, with spaces around braces and colons.
    fn spaced(&mut self, number: u32, line: &str) -> String {
        let mut out = String::with_capacity(line.len() + 8);
        let mut rest = line;
        loop {
            if self.comment.is_some() {
                let Some(end) = rest.find("*/") else {
                    return out;
                };
                self.comment = None;
                out.push(' ');
                rest = &rest[end + 2..];
            }
            let end = match rest.find('/') {
                Some(at) if rest[at..].starts_with("//") => {
                    push_spaced(&mut out, &rest[..at]);
                    return out;
                }
                Some(at) if rest[at..].starts_with("/*") => {
                    self.comment = Some(number);
                    at
                }
                Some(at) => at + 1,
                None => rest.len(),
            };
            push_spaced(&mut out, &rest[..end]);
            if end == rest.len() {
                return out;
            }
            rest = &rest[end..];
            if self.comment.is_some() {
                rest = &rest[2..];
            }
        }
    }

    fn statement(&mut self, line: u32, words: &[&str]) -> Result<(), String> {
        match (words, self.open) {
            ([], _) => Ok(()),
            (["num_ranks", n], None) => self.num_ranks(n),
            (["rank", r, "{"], None) => self.open_rank(r),
            (["rank", ..], Some(open)) => Err(format!("rank {open} is not closed with `}}`")),
            (_, None) => Err("expected `num_ranks N` or `rank R {`".to_owned()),
            ([later, how @ ("requires" | "irequires"), earlier], Some(rank)) => {
                let (later, earlier) = (self.label(later)?, self.label(earlier)?);
                self.trace()?
                    .depend(rank, later, earlier, *how == "requires")
            }
            ([label, ":", words @ ..], Some(rank)) => {
                let operation = self.operation(line, rank, words)?;
                match self.labels.insert((*label).to_owned(), operation) {
                    Some(_) => Err(format!("label `{label}` is defined twice in this rank")),
                    None => Ok(()),
                }
            }
            (words, Some(rank)) => self.operation(line, rank, words).map(|_| ()),
        }
    }

    fn trace(&mut self) -> Result<&mut Builder, String> {
        let trace = self.trace.as_mut();
        trace.ok_or_else(|| "`num_ranks N` must come first".to_owned())
    }

    fn num_ranks(&mut self, text: &str) -> Result<(), String> {
        if self.trace.is_some() {
            return Err("`num_ranks` is given twice".to_owned());
        }
        let ranks: u32 = number("number of ranks", text)?;
        self.trace = Some(Builder::new(ranks, self.limits)?);
        Ok(())
    }

    fn open_rank(&mut self, text: &str) -> Result<(), String> {
        let rank = self.rank(text)?;
        self.trace()?.open(rank)?;
        self.labels.clear();
        self.open = Some(rank);
        Ok(())
    }

    fn rank(&mut self, text: &str) -> Result<u32, String> {
        let ranks = self.trace()?.ranks();
        let rank: u32 = number("rank", text)?;
        if rank >= ranks {
            Err(format!("rank {rank} of {ranks}"))
        } else {
            Ok(rank)
        }
    }

    fn label(&self, label: &str) -> Result<u32, String> {
        let known = self.labels.get(label).copied();
        known.ok_or_else(|| format!("label `{label}` is not defined above in this rank"))
    }

    /// Adds an operation and returns its number.
    fn operation(&mut self, line: u32, rank: u32, words: &[&str]) -> Result<u32, String> {
        let operation = match *words {
            ["calc", duration, ref options @ ..] => {
                let nanoseconds: u64 = number("duration", duration)?;
                let options = Options::parse(options, false)?;
                Operation::Calc {
                    seconds: nanoseconds as f64 / 1e9,
                    cpu: options.cpu,
                }
            }
            ["send", bytes, "b", "to", to, ref options @ ..]
            | ["send", bytes, "to", to, ref options @ ..] => {
                let Options { tag, cpu, nic } = Options::parse(options, true)?;
                Operation::Send {
                    to: self.rank(to)?,
                    bytes: size(bytes)?,
                    tag,
                    cpu,
                    nic,
                }
            }
            ["recv", bytes, "b", "from", from, ref options @ ..]
            | ["recv", bytes, "from", from, ref options @ ..] => {
                size(bytes)?;
                let Options { tag, .. } = Options::parse(options, true)?;
                let from = match from {
                    "-1" => ANY_RANK,
                    from => self.rank(from)?,
                };
                Operation::Receive { from, tag }
            }
            _ => return Err(EXPECTED.to_owned()),
        };
        self.trace()?.add(rank, operation, Some(line))
    }

    fn finish(self) -> Result<Goal, TextError> {
        if let Some(line) = self.comment {
            let reason = "the comment that starts here is not closed with `*/`";
            return Err(TextError::new(line as usize, reason));
        }
        let Some(trace) = self.trace else {
            return Err(TextError::new(0, "no `num_ranks N`"));
        };
        if let Some(rank) = self.open {
            let reason = format!("rank {rank} is not closed with `}}`");
            return Err(TextError::new(0, reason));
        }
        trace.finish()
    }
}

fn push_spaced(out: &mut String, text: &str) {
    for part in text.split_inclusive(['{', '}', ':']) {
        match part.char_indices().next_back() {
            Some((at, mark @ ('{' | '}' | ':'))) => {
                out.push_str(&part[..at]);
                out.extend([' ', mark, ' ']);
            }
            _ => out.push_str(part),
        }
    }
}

fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{what} `{text}`: expected a whole number"))
}

fn size(text: &str) -> Result<f64, String> {
    let bytes: u64 = number("size", text.strip_suffix('b').unwrap_or(text))?;
    Ok(bytes as f64)
}

/// What can follow an operation.
#[derive(Default)]
struct Options {
    tag: u64,
    cpu: u8,
    nic: u8,
}

impl Options {
    fn parse(words: &[&str], is_message: bool) -> Result<Self, String> {
        let mut options = Self::default();
        let pairs = words.chunks_exact(2);
        if let [word] = pairs.remainder() {
            return Err(format!("`{word}` has no value"));
        }
        let small = |what: &str, text: &str| {
            text.parse::<u8>()
                .map_err(|_| format!("{what} `{text}`: expected a number from 0 to 255"))
        };
        for pair in pairs {
            match (pair[0], pair[1]) {
                ("tag", "-1") if is_message => options.tag = ANY_TAG,
                ("tag", tag) if is_message => {
                    options.tag = number("tag", tag)?;
                    if options.tag == ANY_TAG {
                        return Err(format!("tag `{tag}`: the largest tag is {}", ANY_TAG - 1));
                    }
                }
                ("cpu", cpu) => options.cpu = small("cpu", cpu)?,
                ("nic", nic) => options.nic = small("nic", nic)?,
                (other, _) => {
                    return Err(format!("`{other}`: the options are tag, cpu and nic"));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "num_ranks 2\n\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 10b to 1 tag 4 cpu 0\
                        \nl2 requires l1\n}\nrank 1 { \nl1: recv 10b from 0 tag 4\nl2: calc 5\n\
                        l2 irequires l1 }\n";

    fn read(text: &str) -> Goal {
        parse(text, Limits::default()).unwrap()
    }

    #[test]
    fn reads_operations_and_dependencies() {
        let goal = read(PING);
        assert_eq!((goal.ranks(), goal.messages()), (2, 1));
        let seconds = 1e-7;
        assert_eq!(goal.operations()[0], Operation::Calc { seconds, cpu: 1 });
        let send = Operation::Send {
            to: 1,
            bytes: 10.0,
            tag: 4,
            cpu: 0,
            nic: 0,
        };
        assert_eq!(goal.operations()[1], send);
        assert_eq!(goal.successors_of(0), [(1, true)]);
        assert_eq!(goal.successors_of(2), [(3, false)]);
        assert_eq!((goal.rank_of(1), goal.rank_of(2)), (0, 1));
    }

    #[test]
    fn reads_what_schedgen_and_atlahs_write() {
        let text = "/* from a\n generator */ num_ranks 2 // two\nrank 0 { calc 0\nl1 : send 8 b to \
                    1 tag 12884901893 cpu 2 nic 1\n/* inside */ l2:recv 8b from -1 tag -1\n\
                    l2 requires l1 /* why */\n} rank 1 {\nsend 8b to 0 nic 3 cpu 255 tag -1 }\n";
        let goal = read(text);
        let send = |to, tag, cpu, nic| Operation::Send {
            to,
            bytes: 8.0,
            tag,
            cpu,
            nic,
        };
        let receive = Operation::Receive {
            from: ANY_RANK,
            tag: ANY_TAG,
        };
        assert_eq!(goal.operations()[1], send(1, 12_884_901_893, 2, 1));
        assert_eq!(goal.operations()[2], receive);
        assert_eq!(goal.operations()[3], send(0, ANY_TAG, 255, 3));
        assert_eq!((goal.line(1), goal.line(3)), (Some(4), Some(8)));
        assert_eq!(goal.successors_of(1), [(2, true)]);
    }

    #[test]
    fn errors_name_line_and_reason() {
        for (text, line, part) in [
            ("", 0, "no `num_ranks N`"),
            ("rank 0 {\n}", 1, "must come first"),
            ("num_ranks 0", 1, "between 1 and"),
            ("num_ranks 2\nrank 2 {", 2, "rank 2 of 2"),
            ("num_ranks 1\nrank 0 {\nl1: calc 1", 0, "not closed"),
            ("num_ranks 1\n/* open\nrank 0 {", 2, "not closed with `*/`"),
            ("num_ranks 1\nrank 0 {\nl1: jump 1\n}", 3, EXPECTED),
            ("num_ranks 1\nrank 0 {\nl1 calc 1\n}", 3, EXPECTED),
            ("num_ranks 1\nrank 0 {\nsend 1b to 7\n}", 3, "rank 7 of 1"),
            ("num_ranks 1\nrank 0 {\nsend 1b to -1\n}", 3, "rank `-1`"),
            (
                "num_ranks 1\nrank 0 {\nl1: calc 1\nl1: calc 2\n}",
                4,
                "twice",
            ),
            (
                "num_ranks 1\nrank 0 {\nl1: calc 1\nl1 requires l2\n}",
                4,
                "`l2` is not defined",
            ),
            (
                "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb requires a\n}",
                3,
                "cycle",
            ),
            (
                "num_ranks 1\nrank 0 {\nx: calc 1\ny: calc 1\nz: calc 1\nx requires y\n\
                 y requires z\nz requires y\n}",
                4,
                "operation 1 waits for itself",
            ),
            ("num_ranks 1\nrank 0 {\ncalc 1 tag 1\n}", 3, "options are"),
            ("num_ranks 1\nrank 0 {\ncalc 1 cpu\n}", 3, "no value"),
            ("num_ranks 1\nrank 0 {\ncalc 1 cpu 256\n}", 3, "0 to 255"),
            ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", 4, "given twice"),
            ("num_ranks 1\n}", 2, "without"),
        ] {
            let error = parse(text, Limits::default()).unwrap_err();
            assert!(error.reason.contains(part), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
        let limits = Limits {
            ranks: 4,
            operations: 2,
        };
        assert_eq!(parse(PING, limits).unwrap_err().line, 6);
    }
}
