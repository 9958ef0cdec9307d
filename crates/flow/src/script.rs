//! Pattern files: comma-separated rows that give the queue of sends and waits of every rank.
//! `engine` runs them, and `goal` reads traces with computations. The memory that a text can make
//! the program take is bounded by [`Limits`].

use crate::error::{TextError, lines};

/// Bounds on the memory that a text from outside can make the program allocate.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest number of ranks.
    pub ranks: u32,
    /// Largest number of rows or operations, and of dependencies.
    pub operations: usize,
}

impl Default for Limits {
    /// 2^20 ranks and 2^28 operations.
    fn default() -> Self {
        Self {
            ranks: 1 << 20,
            operations: 1 << 28,
        }
    }
}

/// One entry of a rank's queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Send `bytes` to rank `to`, `wait` seconds after the queue reaches this step.
    Send {
        /// Destination rank.
        to: u32,
        /// Message size.
        bytes: f64,
        /// Seconds of delay, for computation or start-up.
        wait: f64,
    },
    /// Hold the queue until one more message from rank `from` has arrived.
    Receive {
        /// Source rank.
        from: u32,
    },
}

/// The queues of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
    /// Line of each step in its file.
    lines: Vec<u32>,
    /// `steps[first[r]..first[r + 1]]` is the queue of rank `r`.
    first: Vec<usize>,
}

const HEADER: &str = "sender,destination,order,size,wait";

impl Script {
    /// Reads a pattern file. Rows are
    ///
    /// - `sender,destination,order,size[,wait]`: a send; size in bytes (`20KB`), wait in seconds;
    /// - `recv,rank,source,order`: holds the queue of `rank` until a message from `source` arrives.
    ///
    /// The rows of a rank are sorted by `order`, then by line. `#` starts a comment. The header
    /// `sender,destination,order,size,wait` is optional.
    ///
    /// # Errors
    /// The line and what was expected there.
    pub fn parse_csv(text: &str, limits: Limits) -> Result<Self, TextError> {
        let mut rows: Vec<(u32, i64, u32, Step)> = Vec::new();
        let mut ranks = 0;
        for (index, line) in lines(text).enumerate() {
            let number = index + 1;
            let fail = |reason: String| TextError::new(number, reason);
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() || line.replace(' ', "") == HEADER {
                continue;
            }
            if rows.len() == limits.operations || number > u32::MAX as usize {
                return Err(fail(format!("more than {} rows", limits.operations)));
            }
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let (rank, order, step) = row(&fields, limits.ranks).map_err(fail)?;
            let peer = match step {
                Step::Send { to, .. } => to,
                Step::Receive { from } => from,
            };
            ranks = ranks.max(rank + 1).max(peer + 1);
            rows.push((rank, order, number as u32, step));
        }
        if rows.is_empty() {
            return Err(TextError::new(0, format!("no rows; write `{HEADER}`")));
        }
        Ok(Self::from_rows(rows, ranks))
    }

    /// The queues of `ranks` ranks from steps `(rank, order, row, step)`. The steps of a rank are
    /// sorted by order, then by row. Deadlock reports name the row as the line.
    ///
    /// # Panics
    /// If a rank is not below `ranks`.
    pub fn from_rows(mut rows: Vec<(u32, i64, u32, Step)>, ranks: u32) -> Self {
        for &(rank, _, _, step) in &rows {
            let (Step::Send { to: peer, .. } | Step::Receive { from: peer }) = step;
            assert!(
                rank < ranks && peer < ranks,
                "rank {rank} or {peer} is not below {ranks}"
            );
        }
        rows.sort_by_key(|&(rank, order, line, _)| (rank, order, line));
        let first = (0..=ranks)
            .map(|r| rows.partition_point(|row| row.0 < r))
            .collect();
        let lines = rows.iter().map(|row| row.2).collect();
        Self {
            steps: rows.into_iter().map(|row| row.3).collect(),
            lines,
            first,
        }
    }

    /// Number of ranks named in the file.
    pub fn ranks(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        self.steps
            .iter()
            .filter(|s| matches!(s, Step::Send { .. }))
            .count() as u64
    }

    /// The queue of a rank.
    #[inline]
    pub fn queue(&self, rank: u32) -> &[Step] {
        match self.first.get(rank as usize + 1) {
            Some(&end) => &self.steps[self.first[rank as usize]..end],
            None => &[],
        }
    }

    /// The line of a step of a rank's queue.
    pub fn line(&self, rank: u32, index: usize) -> u32 {
        self.lines[self.first[rank as usize] + index]
    }
}

fn row(fields: &[&str], ranks: u32) -> Result<(u32, i64, Step), String> {
    let rank = |what: &str, text: &str| match text.parse::<u32>() {
        Ok(rank) if rank < ranks => Ok(rank),
        Ok(rank) => Err(format!("{what} {rank}: more than {ranks} ranks")),
        Err(_) => Err(format!("{what} `{text}`: expected a rank number")),
    };
    let order = |text: &str| {
        text.parse::<i64>()
            .map_err(|_| format!("order `{text}`: expected a whole number"))
    };
    match *fields {
        ["recv", at, from, when] => {
            let step = Step::Receive {
                from: rank("source", from)?,
            };
            Ok((rank("rank", at)?, order(when)?, step))
        }
        ["recv", ..] => Err("expected `recv,rank,source,order`".to_owned()),
        [from, to, when, size] | [from, to, when, size, ""] => {
            let bytes = farcall_quantity::volume(size).map_err(|e| format!("size {e}"))?;
            let step = Step::Send {
                to: rank("destination", to)?,
                bytes,
                wait: 0.0,
            };
            Ok((rank("sender", from)?, order(when)?, step))
        }
        [from, to, when, size, wait] => {
            let bytes = farcall_quantity::volume(size).map_err(|e| format!("size {e}"))?;
            let wait = farcall_quantity::seconds(wait).map_err(|e| format!("wait {e}"))?;
            let step = Step::Send {
                to: rank("destination", to)?,
                bytes,
                wait,
            };
            Ok((rank("sender", from)?, order(when)?, step))
        }
        _ => Err(format!("expected `{HEADER}` or `recv,rank,source,order`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_by_order_then_line() {
        let text = "sender,destination,order,size,wait\n1,0,2,10\n1,2,1,20KB,5us # first\n\
                    recv,0,1,1\n1,0,2,30,\n";
        let script = Script::parse_csv(text, Limits::default()).unwrap();
        assert_eq!((script.ranks(), script.messages()), (3, 3));
        assert_eq!(script.queue(0), [Step::Receive { from: 1 }]);
        assert_eq!(
            script.queue(1),
            [
                Step::Send {
                    to: 2,
                    bytes: 20e3,
                    wait: 5e-6
                },
                Step::Send {
                    to: 0,
                    bytes: 10.0,
                    wait: 0.0
                },
                Step::Send {
                    to: 0,
                    bytes: 30.0,
                    wait: 0.0
                },
            ]
        );
        assert_eq!(script.line(1, 0), 3);
        let marked = Script::parse_csv(&format!("\u{feff}{text}"), Limits::default());
        assert_eq!(marked, Ok(script.clone()));
        assert!(script.queue(2).is_empty() && script.queue(9).is_empty());
    }

    #[test]
    fn errors_name_line_and_reason() {
        let limits = Limits {
            ranks: 8,
            operations: 2,
        };
        for (text, line, part) in [
            ("", 0, "no rows"),
            ("0,1,1", 1, "expected `sender"),
            ("0,1,1,10\n0,9,2,10", 2, "more than 8 ranks"),
            ("0,x,1,10", 1, "destination `x`"),
            ("0,1,a,10", 1, "order `a`"),
            ("0,1,1,-4", 1, "size"),
            ("0,1,1,4KB/s", 1, "is a rate"),
            ("0,1,1,4,soon", 1, "wait"),
            ("recv,1,2", 1, "recv,rank,source,order"),
            ("0,1,1,1\n0,1,1,1\n0,1,1,1", 3, "more than 2 rows"),
        ] {
            let error = Script::parse_csv(text, limits).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.reason.contains(part), "{error}");
        }
    }
}
