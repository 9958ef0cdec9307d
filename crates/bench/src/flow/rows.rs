//! The rows of `farcall bench flow`: a value, the value of a peer, and a bar. Lower is better for
//! all of these figures. A row without a bar or without its peer neither passes nor fails.

use serde_json::{Value, json};

/// One figure.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) peer: Option<(String, f64)>,
    /// The largest value or ratio that passes. Lower is better for all of these figures.
    pub(crate) bar: Option<Bar>,
}

/// The bar of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    /// A bar for the value itself.
    Value(f64),
    /// A bar for value / peer value.
    Ratio(f64),
}

impl Row {
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|(_, peer)| self.value / peer)
    }

    /// Whether the row passes. `None` if there is no bar, or the peer is missing.
    pub(crate) fn passes(&self) -> Option<bool> {
        let (have, bar) = match self.bar? {
            Bar::Value(bar) => (self.value, bar),
            Bar::Ratio(bar) => (self.ratio()?, bar),
        };
        Some(have <= bar)
    }

    pub(crate) fn json(&self) -> Value {
        let (bar, of) = match self.bar {
            None => (None, None),
            Some(Bar::Value(bar)) => (Some(bar), Some("value")),
            Some(Bar::Ratio(bar)) => (Some(bar), Some("ratio")),
        };
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "peer": self.peer.as_ref().map(|(name, _)| name),
            "peer_value": self.peer.as_ref().map(|(_, value)| value),
            "ratio": self.ratio(),
            "better": "lower",
            "bar": bar,
            "bar_of": of,
            "missed": self.passes() == Some(false),
        })
    }

    pub(crate) fn line(&self, width: usize) -> String {
        let mut line = format!(
            "{:width$}  {:>12.6} {:11}",
            self.name, self.value, self.unit
        );
        if let (Some((peer, value)), Some(ratio)) = (&self.peer, self.ratio()) {
            line += &format!("  {peer} {value:.6}");
            if self.unit == "s" {
                line += &format!("  {:.1} x faster", 1.0 / ratio);
            } else {
                line += &format!("  ratio {ratio:.3}");
            }
        }
        match self.passes() {
            Some(true) => line + "  ok",
            Some(false) => line + "  MISSED",
            None => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_which_bar_was_missed() {
        let row = |value, peer: Option<f64>, bar| {
            Row {
                name: String::new(),
                value,
                unit: "s",
                peer: peer.map(|value| (String::new(), value)),
                bar,
            }
            .json()
        };
        let told = row(3.0, Some(2.0), Some(Bar::Ratio(1.0)));
        assert_eq!(told["bar"], json!(1.0));
        assert_eq!(
            (&told["bar_of"], &told["missed"]),
            (&json!("ratio"), &json!(true))
        );
        let told = row(3.0, None, Some(Bar::Value(4.0)));
        assert_eq!(
            (&told["bar_of"], &told["missed"]),
            (&json!("value"), &json!(false))
        );
        // Without the peer nobody knows.
        assert_eq!(
            row(3.0, None, Some(Bar::Ratio(1.0)))["missed"],
            json!(false)
        );
        assert_eq!(row(3.0, None, None)["bar"], json!(null));
    }
}
