//! GOAL traces: a graph of sends, receives and computations for every rank.
//!
//! The text form is the Group Operation Assembly Language (Hoefler, Siebert, Lumsdaine 2009) as
//! LogGOPSim reads it. It starts with `num_ranks N`. Then `rank R { ... }` blocks hold lines of the
//! form `label: send 10b to 1 tag 0`, `label: recv 10b from 1 tag 0` and `label: calc 100`
//! (nanoseconds), each with an optional `cpu C` and `nic N`. `a requires b` starts `a` when `b` is
//! done; `a irequires b` starts it when `b` has started.

use crate::error::TextError;
use crate::script::Limits;
use std::collections::HashMap;

/// One operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// A message to a rank.
    Send {
        /// Destination rank.
        to: u32,
        /// Size in bytes.
        bytes: f64,
        /// Matched with the receive's tag.
        tag: u32,
    },
    /// The arrival of a message.
    Receive {
        /// Source rank.
        from: u32,
        /// Matched with the send's tag.
        tag: u32,
    },
    /// A computation. Computations of one rank and cpu run one after the other.
    Calc {
        /// Duration in seconds.
        seconds: f64,
        /// The cpu of the rank.
        cpu: u32,
    },
}

/// A parsed trace. Operations are numbered rank by rank in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    pub(crate) operations: Vec<Operation>,
    pub(crate) lines: Vec<u32>,
    /// First operation of each rank, and the number of operations.
    pub(crate) first: Vec<u32>,
    /// Successors of each operation: those released when it starts, then those when it is done.
    pub(crate) successors: Vec<(u32, bool)>,
    pub(crate) first_successor: Vec<u32>,
    /// Number of operations that each operation waits for.
    pub(crate) waits: Vec<u32>,
}

impl Goal {
    /// Reads a trace.
    ///
    /// # Errors
    /// The line and the reason: an unexpected word, an unknown label or rank, a label that is
    /// defined twice, a cycle of dependencies, or more ranks or operations than `limits` allow.
    pub fn parse(text: &str, limits: Limits) -> Result<Self, TextError> {
        let mut parser = Parser::new(limits);
        for (index, line) in text.lines().enumerate() {
            let number = u32::try_from(index + 1)
                .map_err(|_| TextError::new(index + 1, "too many lines"))?;
            let line = line.split("//").next().unwrap_or("").trim();
            if !line.is_empty() && !line.starts_with('#') {
                parser
                    .line(number, line)
                    .map_err(|r| TextError::new(index + 1, r))?;
            }
        }
        parser.finish()
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        self.operations
            .iter()
            .filter(|o| matches!(o, Operation::Send { .. }))
            .count() as u64
    }

    /// All operations, rank by rank.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    pub(crate) fn rank_of(&self, operation: u32) -> u32 {
        self.first.partition_point(|&f| f <= operation) as u32 - 1
    }
}

/// A rank's operations, their lines and their dependencies.
type Block = (Vec<Operation>, Vec<u32>, Vec<Dependency>);

/// A dependency as read: (later operation, earlier operation, whether the earlier one must be done,
/// line).
type Dependency = (u32, u32, bool, u32);

struct Parser {
    limits: Limits,
    ranks: Option<u32>,
    /// The operations of each rank whose block has been read.
    blocks: Vec<Option<Block>>,
    open: Option<u32>,
    labels: HashMap<String, u32>,
    total: usize,
}

impl Parser {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            ranks: None,
            blocks: Vec::new(),
            open: None,
            labels: HashMap::new(),
            total: 0,
        }
    }

    fn line(&mut self, number: u32, line: &str) -> Result<(), String> {
        let spaced = line.replace('{', " { ").replace('}', " } ");
        let mut words: Vec<&str> = spaced.split_whitespace().collect();
        let closes = words.last() == Some(&"}");
        if closes {
            words.pop();
        }
        if !words.is_empty() {
            self.statement(number, &words)?;
        }
        if closes && self.open.take().is_none() {
            return Err("`}` without a `rank R {`".to_owned());
        }
        Ok(())
    }

    fn statement(&mut self, number: u32, words: &[&str]) -> Result<(), String> {
        match (words, self.open) {
            (["num_ranks", n], None) => self.num_ranks(n),
            (["rank", r, "{"], None) => self.open_rank(r),
            (["rank", ..], Some(open)) => Err(format!("rank {open} is not closed with `}}`")),
            (_, None) => Err("expected `num_ranks N` or `rank R {`".to_owned()),
            ([later, how @ ("requires" | "irequires"), earlier], Some(rank)) => {
                let (later, earlier) = (self.label(later)?, self.label(earlier)?);
                self.count_one()?;
                let done = *how == "requires";
                if let Some(block) = &mut self.blocks[rank as usize] {
                    block.2.push((later, earlier, done, number));
                }
                Ok(())
            }
            ([label, rest @ ..], Some(rank)) => self.operation(number, rank, label, rest),
            ([], _) => Ok(()),
        }
    }

    fn num_ranks(&mut self, text: &str) -> Result<(), String> {
        if self.ranks.is_some() {
            return Err("`num_ranks` is given twice".to_owned());
        }
        let ranks: u32 = number("number of ranks", text)?;
        if ranks == 0 || ranks > self.limits.ranks {
            return Err(format!(
                "{ranks} ranks: between 1 and {}",
                self.limits.ranks
            ));
        }
        self.ranks = Some(ranks);
        self.blocks.resize_with(ranks as usize, || None);
        Ok(())
    }

    fn open_rank(&mut self, text: &str) -> Result<(), String> {
        let rank = self.rank(text)?;
        if self.blocks[rank as usize].is_some() {
            return Err(format!("rank {rank} is given twice"));
        }
        self.blocks[rank as usize] = Some(Default::default());
        self.labels.clear();
        self.open = Some(rank);
        Ok(())
    }

    fn rank(&self, text: &str) -> Result<u32, String> {
        let ranks = self.ranks.ok_or("`num_ranks N` must come first")?;
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

    fn count_one(&mut self) -> Result<(), String> {
        self.total += 1;
        if self.total > self.limits.operations.min(u32::MAX as usize / 2) {
            return Err(format!("more than {} operations", self.limits.operations));
        }
        Ok(())
    }

    fn operation(
        &mut self,
        line: u32,
        rank: u32,
        label: &str,
        words: &[&str],
    ) -> Result<(), String> {
        let expected = "expected `label: send Nb to R tag T`, `label: recv Nb from R tag T`, \
                        `label: calc N`, or `a requires b`";
        let label = label.strip_suffix(':').ok_or(expected)?;
        let (operation, options) = match words {
            ["send", bytes, "to", to, options @ ..] => {
                let (to, bytes) = (self.rank(to)?, size(bytes)?);
                (Operation::Send { to, bytes, tag: 0 }, options)
            }
            ["recv", bytes, "from", from, options @ ..] => {
                size(bytes)?;
                (
                    Operation::Receive {
                        from: self.rank(from)?,
                        tag: 0,
                    },
                    options,
                )
            }
            ["calc", duration, options @ ..] => {
                let nanoseconds: u64 = number("duration", duration)?;
                (
                    Operation::Calc {
                        seconds: nanoseconds as f64 / 1e9,
                        cpu: 0,
                    },
                    options,
                )
            }
            _ => return Err(expected.to_owned()),
        };
        let operation = with_options(operation, options)?;
        self.count_one()?;
        let Some((operations, lines, _)) = &mut self.blocks[rank as usize] else {
            return Err(expected.to_owned());
        };
        if self
            .labels
            .insert(label.to_owned(), operations.len() as u32)
            .is_some()
        {
            return Err(format!("label `{label}` is defined twice in this rank"));
        }
        operations.push(operation);
        lines.push(line);
        Ok(())
    }

    fn finish(self) -> Result<Goal, TextError> {
        if self.ranks.is_none() {
            return Err(TextError::new(0, "no `num_ranks N`"));
        }
        if let Some(rank) = self.open {
            return Err(TextError::new(
                0,
                format!("rank {rank} is not closed with `}}`"),
            ));
        }
        let (mut operations, mut lines, mut first) = (Vec::new(), Vec::new(), vec![0]);
        let mut dependencies: Vec<Dependency> = Vec::new();
        for block in self.blocks {
            let base = operations.len() as u32;
            let (ops, at, needs) = block.unwrap_or_default();
            operations.extend(ops);
            lines.extend(at);
            let shifted = needs
                .into_iter()
                .map(|(a, b, done, l)| (a + base, b + base, done, l));
            dependencies.extend(shifted);
            first.push(operations.len() as u32);
        }
        let mut waits = vec![0u32; operations.len()];
        let mut first_successor = vec![0u32; operations.len() + 1];
        for &(later, earlier, ..) in &dependencies {
            waits[later as usize] += 1;
            first_successor[earlier as usize + 1] += 1;
        }
        for i in 1..first_successor.len() {
            first_successor[i] += first_successor[i - 1];
        }
        let mut fill = first_successor.clone();
        let mut successors = vec![(0, false); dependencies.len()];
        for &(later, earlier, done, _) in &dependencies {
            let at = &mut fill[earlier as usize];
            successors[*at as usize] = (later, done);
            *at += 1;
        }
        let goal = Goal {
            operations,
            lines,
            first,
            successors,
            first_successor,
            waits,
        };
        goal.refuse_cycles()?;
        Ok(goal)
    }
}

impl Goal {
    fn refuse_cycles(&self) -> Result<(), TextError> {
        let mut waits = self.waits.clone();
        let mut ready: Vec<u32> = (0..waits.len() as u32)
            .filter(|&o| waits[o as usize] == 0)
            .collect();
        let mut left = waits.len();
        while let Some(operation) = ready.pop() {
            left -= 1;
            for &(later, _) in self.successors_of(operation) {
                waits[later as usize] -= 1;
                if waits[later as usize] == 0 {
                    ready.push(later);
                }
            }
        }
        match waits.iter().position(|&w| w > 0) {
            Some(at) if left > 0 => {
                let rank = self.rank_of(at as u32);
                let reason = format!("rank {rank}: this operation waits for itself in a cycle");
                Err(TextError::new(self.lines[at] as usize, reason))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn successors_of(&self, operation: u32) -> &[(u32, bool)] {
        let o = operation as usize;
        &self.successors[self.first_successor[o] as usize..self.first_successor[o + 1] as usize]
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

fn with_options(mut operation: Operation, words: &[&str]) -> Result<Operation, String> {
    let pairs = words.chunks_exact(2);
    if let [word] = pairs.remainder() {
        return Err(format!("`{word}` has no value"));
    }
    for pair in pairs {
        let value: u32 = number(pair[0], pair[1])?;
        match (pair[0], &mut operation) {
            ("tag", Operation::Send { tag, .. } | Operation::Receive { tag, .. }) => *tag = value,
            ("cpu", Operation::Calc { cpu, .. }) => *cpu = value,
            ("cpu" | "nic", _) => {}
            (other, _) => return Err(format!("`{other}`: the options are tag, cpu and nic")),
        }
    }
    Ok(operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "num_ranks 2\n\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 10b to 1 tag 4 cpu 0\
                        \nl2 requires l1\n}\nrank 1 { \nl1: recv 10b from 0 tag 4\nl2: calc 5\n\
                        l2 irequires l1 }\n";

    #[test]
    fn reads_operations_and_dependencies() {
        let goal = Goal::parse(PING, Limits::default()).unwrap();
        assert_eq!((goal.ranks(), goal.messages()), (2, 1));
        assert_eq!(
            goal.operations()[0],
            Operation::Calc {
                seconds: 1e-7,
                cpu: 1
            }
        );
        assert_eq!(
            goal.operations()[1],
            Operation::Send {
                to: 1,
                bytes: 10.0,
                tag: 4
            }
        );
        assert_eq!(goal.successors_of(0), [(1, true)]);
        assert_eq!(goal.successors_of(2), [(3, false)]);
        assert_eq!((goal.rank_of(1), goal.rank_of(2)), (0, 1));
    }

    #[test]
    fn errors_name_line_and_reason() {
        for (text, line, part) in [
            ("", 0, "no `num_ranks N`"),
            ("rank 0 {\n}", 1, "must come first"),
            ("num_ranks 0", 1, "between 1 and"),
            ("num_ranks 2\nrank 2 {", 2, "rank 2 of 2"),
            ("num_ranks 1\nrank 0 {\nl1: calc 1", 0, "not closed"),
            (
                "num_ranks 1\nrank 0 {\nl1: jump 1\n}",
                3,
                "expected `label: send",
            ),
            (
                "num_ranks 1\nrank 0 {\nl1: send 1b to 7\n}",
                3,
                "rank 7 of 1",
            ),
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
                "num_ranks 1\nrank 0 {\na: calc 1 tag 1\n}",
                3,
                "options are",
            ),
            ("num_ranks 1\nrank 0 {\na: calc 1 cpu\n}", 3, "no value"),
            ("num_ranks 1\n}", 2, "without"),
        ] {
            let error = Goal::parse(text, Limits::default()).unwrap_err();
            assert!(error.reason.contains(part), "{error}");
            assert_eq!(error.line, line, "{error}");
        }
        let limits = Limits {
            ranks: 4,
            operations: 2,
        };
        assert_eq!(Goal::parse(PING, limits).unwrap_err().line, 6);
    }
}
