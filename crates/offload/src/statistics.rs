//! Counts of calls, for each function. This module is pure; `shim` counts and prints.

use std::collections::BTreeMap;
use std::fmt;

/// What happened to the calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Computed here: small calls, and those that would not pay.
    pub local: u64,
    /// Computed by the server.
    pub remote: u64,
    /// Not sent, because the server is away, lacks the function or cannot take the call.
    pub refused: u64,
    /// Sent without success, or with a result that only a local call can give; then computed here.
    pub failed: u64,
    /// Seconds of the local calls that were measured.
    pub seconds_here: f64,
    /// Seconds of remote calls, to the return of their results.
    pub seconds_there: f64,
    /// Bytes of arrays that travelled, in both directions.
    pub bytes: u64,
    /// Seconds that remote calls would have taken here, less those that they took.
    pub gain: f64,
    /// The largest difference that `--verify` found, relative to the largest number of the array.
    pub difference: Option<f64>,
}

impl Counts {
    /// Adds the counts of the same function elsewhere.
    pub fn add(&mut self, other: &Counts) {
        self.local += other.local;
        self.remote += other.remote;
        self.refused += other.refused;
        self.failed += other.failed;
        self.seconds_here += other.seconds_here;
        self.seconds_there += other.seconds_there;
        self.bytes += other.bytes;
        self.gain += other.gain;
        self.difference = match (self.difference, other.difference) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
    }
}

/// The statistics of a process.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    functions: BTreeMap<String, Counts>,
}

impl Statistics {
    /// The counts of a function, to change.
    pub fn of(&mut self, function: &str) -> &mut Counts {
        self.functions.entry(function.to_string()).or_default()
    }

    /// The functions and their counts, by name.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &Counts)> {
        let functions = self.functions.iter();
        functions.map(|(name, counts)| (name.as_str(), counts))
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:>9} {:>7} {:>7} {:>6} {:>9} {:>9} {:>12} {:>9}",
            "function",
            "local",
            "remote",
            "refused",
            "failed",
            "s here",
            "s there",
            "bytes",
            "gain s"
        )?;
        for (name, counts) in &self.functions {
            write!(
                f,
                "{name:<10} {:>9} {:>7} {:>7} {:>6} {:>9.3} {:>9.3} {:>12} {:>9.3}",
                counts.local,
                counts.remote,
                counts.refused,
                counts.failed,
                counts.seconds_here,
                counts.seconds_there,
                counts.bytes,
                counts.gain,
            )?;
            match counts.difference {
                Some(difference) => writeln!(f, "  differs by {difference:.1e}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_function_in_order() {
        let mut statistics = Statistics::default();
        statistics.of("dgesv").remote += 2;
        statistics.of("dgemm").local += 1;
        statistics.of("dgesv").difference = Some(1e-16);
        let text = statistics.to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[1][..3], ["dgemm", "1", "0"]);
        assert_eq!(lines[2][..3], ["dgesv", "0", "2"]);
        assert_eq!(lines[2].last(), Some(&"1.0e-16"));
        assert_eq!(lines.len(), 3);
    }
}
