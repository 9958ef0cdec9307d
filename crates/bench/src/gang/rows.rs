//! The rows of `farcall bench gang`, and their output as a table or as JSON. A row can have a bar.
//! A figure that is not a finite number misses every bar.

use crate::failure::Failure;
use crate::machine::Use;
use crate::progress;
use serde_json::{Value, json};

/// The bar of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bar {
    /// At most this value.
    Most(f64),
    /// At most this multiple of the peer's value.
    MostOfPeer(f64),
    /// At least this multiple of the peer's value.
    LeastOfPeer(f64),
}

/// One figure.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) peer: Option<(&'static str, f64)>,
    pub(super) is_higher_better: bool,
    pub(super) bar: Option<Bar>,
}

impl Row {
    pub(super) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Row {
        Row {
            name: name.into(),
            value,
            unit,
            peer: None,
            is_higher_better: false,
            bar: None,
        }
    }

    pub(super) fn beside(mut self, peer: &'static str, value: f64) -> Row {
        self.peer = Some((peer, value));
        self
    }

    pub(super) fn higher(mut self) -> Row {
        self.is_higher_better = true;
        self
    }

    pub(super) fn bar(mut self, bar: Bar) -> Row {
        self.bar = Some(bar);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.map(|(_, value)| self.value / value)
    }

    fn to_json(&self) -> Value {
        let (bar, of) = match self.bar {
            None => (None, None),
            Some(Bar::Most(bar)) => (Some(bar), Some("value")),
            Some(Bar::MostOfPeer(bar) | Bar::LeastOfPeer(bar)) => (Some(bar), Some("ratio")),
        };
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer.map(|(name, _)| name),
            "peer_value": self.peer.map(|(_, value)| value),
            "ratio": self.ratio(),
            "better": if self.is_higher_better { "higher" } else { "lower" },
            "bar": bar,
            "bar_of": of,
            "missed": self.misses(),
        })
    }

    fn misses(&self) -> bool {
        let peer = self.peer.map_or(f64::NAN, |(_, value)| value);
        let ratio = self.ratio().unwrap_or(f64::NAN);
        // Without a figure of the peer there is nothing to compare with.
        let is_known = ratio.is_finite() && peer.is_finite();
        match self.bar {
            None => false,
            Some(Bar::Most(bar)) => !self.value.is_finite() || self.value > bar,
            Some(Bar::MostOfPeer(bar)) => !is_known || ratio > bar,
            Some(Bar::LeastOfPeer(bar)) => !is_known || ratio < bar,
        }
    }
}

/// Prints the rows, and how busy the machine was. With `check`, a missed bar is a failure.
pub(super) fn report(rows: &[Row], busy: Use, as_json: bool, check: bool) -> Result<(), Failure> {
    progress::over();
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    if as_json {
        let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
        let mut told = json!({ "schema": 1, "rows": rows });
        busy.add_to(&mut told);
        println!("{told}");
    } else {
        for row in rows {
            let peer = row.peer.map(|(name, value)| {
                let ratio = row.value / value;
                format!("  {name} {value:.3}  ratio {ratio:.3}")
            });
            let bar = match row.bar {
                None => String::new(),
                Some(Bar::Most(bar)) => format!("  bar <= {bar}"),
                Some(Bar::MostOfPeer(bar)) => format!("  bar ratio <= {bar}"),
                Some(Bar::LeastOfPeer(bar)) => format!("  bar ratio >= {bar}"),
            };
            let mark = if row.misses() { "  MISSED" } else { "" };
            println!(
                "{:width$}  {:>12.3} {:6}{}{bar}{mark}",
                row.name,
                row.value,
                row.unit,
                peer.unwrap_or_default()
            );
        }
        println!("{busy}");
    }
    let missed: Vec<&str> = rows
        .iter()
        .filter(|row| row.misses())
        .map(|row| row.name.as_str())
        .collect();
    match check && !missed.is_empty() {
        true => Err(Failure::failed(format!(
            "bars missed: {}",
            missed.join("; ")
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_which_bar_was_missed() {
        let row = |value| Row::new("", value, "s").beside("", 1.0);
        let told = row(1.1).bar(Bar::MostOfPeer(1.05)).to_json();
        assert_eq!(
            (&told["bar"], &told["bar_of"]),
            (&json!(1.05), &json!("ratio"))
        );
        assert_eq!(told["missed"], json!(true));
        let told = row(1.1).bar(Bar::Most(2.0)).to_json();
        assert_eq!(
            (&told["bar_of"], &told["missed"]),
            (&json!("value"), &json!(false))
        );
        assert_eq!(row(1.1).to_json()["bar"], json!(null));
    }

    /// The ratio to a peer that moved nothing is infinite, and would pass as the best.
    #[test]
    fn beside_a_peer_that_has_failed_every_bar_is_missed() {
        for bar in [Bar::MostOfPeer(2.0), Bar::LeastOfPeer(2.0)] {
            for peer in [0.0, f64::INFINITY, f64::NAN] {
                let failed = Row::new("", 3.0, "MB/s").beside("", peer).bar(bar);
                assert!(failed.misses(), "{bar:?} beside {peer}");
            }
        }
    }
}
