//! The rows of a benchmark: our figure, the figure of a peer from the same run, and their ratio.
//! The benchmarks measure; this module prints and checks the bars. A ratio that is not a finite
//! number misses every bar.

use crate::failure::Failure;
use crate::machine::Use;
use crate::progress;
use serde_json::{Value, json};

/// Whether lower or higher figures are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// One figure with its peer's. All figures are medians over the rounds of a run.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// One value per round.
    pub(crate) values: Vec<f64>,
    pub(crate) peer: &'static str,
    pub(crate) peer_values: Vec<f64>,
    pub(crate) better: Better,
    /// The ratio that `--check` requires.
    pub(crate) bar: Option<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        median(&self.values) / median(&self.peer_values)
    }

    fn misses_bar(&self) -> bool {
        let ratio = self.ratio();
        // Without a figure of the peer there is nothing to compare with.
        let is_known = ratio.is_finite() && median(&self.peer_values).is_finite();
        match (self.bar, self.better) {
            (None, _) => false,
            (Some(bar), Better::Lower) => !is_known || ratio > bar,
            (Some(bar), Better::Higher) => !is_known || ratio < bar,
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let (least, most) = spread(&self.values);
        json!({
            "name": self.name,
            "value": median(&self.values),
            "unit": self.unit,
            "min": least,
            "max": most,
            "peer": self.peer,
            "peer_value": median(&self.peer_values),
            "ratio": self.ratio(),
            "better": match self.better { Better::Lower => "lower", Better::Higher => "higher" },
            "bar": self.bar,
            "missed": self.misses_bar(),
        })
    }
}

/// The rows as JSON, with how busy the machine was.
fn told(rows: &[Row], busy: Use) -> Value {
    let rows: Vec<Value> = rows.iter().map(Row::to_json).collect();
    let mut told = json!({ "schema": 1, "rows": rows });
    busy.add_to(&mut told);
    told
}

/// Prints the rows, and how busy the machine was. With `check`, a missed bar is a failure.
pub(crate) fn report(rows: &[Row], busy: Use, as_json: bool, check: bool) -> Result<(), Failure> {
    progress::over();
    if !as_json {
        print_table(rows);
    }
    end_beside(rows, busy, as_json, check)
}

/// Prints how busy the machine was, after the rows, or both as JSON. With `check`, a missed bar is
/// a failure.
pub(crate) fn end_beside(
    rows: &[Row],
    busy: Use,
    as_json: bool,
    check: bool,
) -> Result<(), Failure> {
    progress::over();
    match as_json {
        true => println!("{}", told(rows, busy)),
        false => println!("{busy}"),
    }
    match check {
        true => bars(rows),
        false => Ok(()),
    }
}

/// Fails if a bar is missed.
pub(crate) fn bars(rows: &[Row]) -> Result<(), Failure> {
    let missed: Vec<&str> = rows
        .iter()
        .filter(|row| row.misses_bar())
        .map(|row| row.name.as_str())
        .collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(format!(
            "bars missed: {}",
            missed.join("; ")
        ))),
    }
}

/// Prints rows as soon as they are measured, where others may take long. The first ones come with
/// the header.
pub(crate) fn show(rows: &[Row], are_first: bool) {
    progress::over();
    if are_first && !rows.is_empty() {
        print_header();
    }
    print_rows(rows);
}

pub(crate) fn print_table(rows: &[Row]) {
    print_header();
    print_rows(rows);
}

fn print_header() {
    let header = ["", "ours", "min..max", "beside", "its", "ratio", "bar"];
    let [name, ours, range, peer, its, ratio, bar] = header;
    println!("{name:40} {ours:>12} {range:>21} {peer:>14} {its:>10} {ratio:>7} {bar:>8}");
}

fn print_rows(rows: &[Row]) {
    for row in rows {
        let (least, most) = spread(&row.values);
        let (ours, its) = (median(&row.values), median(&row.peer_values));
        let (digits, its_digits) = (digits_of(ours), digits_of(its));
        let value = format!("{ours:.digits$} {}", row.unit);
        let range = format!("{least:.digits$}..{most:.digits$}");
        let bar = match (row.bar, row.better) {
            (None, _) => String::new(),
            (Some(bar), Better::Lower) => format!("<= {bar}"),
            (Some(bar), Better::Higher) => format!(">= {bar}"),
        };
        let mark = if row.misses_bar() { " missed" } else { "" };
        println!(
            "{:40} {value:>12} {range:>21} {:>14} {its:>10.its_digits$} {:>7.2} {bar:>8}{mark}",
            row.name,
            row.peer,
            row.ratio(),
        );
    }
}

/// Digits after the decimal point, for three significant digits.
fn digits_of(value: f64) -> usize {
    match value.abs() {
        small if small < 1.0 => 3,
        small if small < 10.0 => 2,
        _ => 1,
    }
}

/// The median; NaN if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn spread(values: &[f64]) -> (f64, f64) {
    let fold = |pick: fn(f64, f64) -> f64, start| values.iter().copied().fold(start, pick);
    (
        fold(f64::min, f64::INFINITY),
        fold(f64::max, f64::NEG_INFINITY),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64, better: Better) -> Row {
        let (values, peer_values) = (vec![value], vec![1.0]);
        Row {
            name: String::new(),
            unit: "",
            values,
            peer: "",
            peer_values,
            better,
            bar: Some(2.0),
        }
    }

    #[test]
    fn a_figure_on_the_wrong_side_misses_its_bar() {
        assert!(!row(1.9, Better::Lower).misses_bar());
        assert!(row(2.1, Better::Lower).misses_bar());
        assert!(row(1.9, Better::Higher).misses_bar());
        assert!(!row(2.1, Better::Higher).misses_bar());
        assert!(row(f64::NAN, Better::Lower).misses_bar());
    }

    /// The ratio to a peer that moved nothing is infinite, and would pass as the best.
    #[test]
    fn beside_a_peer_that_has_failed_every_bar_is_missed() {
        for better in [Better::Lower, Better::Higher] {
            for peer in [0.0, f64::INFINITY, f64::NAN] {
                let failed = Row {
                    peer_values: vec![peer],
                    ..row(3.0, better)
                };
                assert!(failed.misses_bar(), "{better:?} beside {peer}");
            }
        }
    }

    #[test]
    fn json_says_what_the_table_says() {
        let busy = Use {
            cpu_percent: 50.0,
            stolen_percent: 3.5,
            load: 1.5,
        };
        let rows = [row(1.9, Better::Lower), row(2.1, Better::Lower)];
        let told = told(&rows, busy);
        assert_eq!(
            (&told["load"], &told["stolen_percent"]),
            (&json!(1.5), &json!(3.5))
        );
        let missed = [0, 1].map(|at| &told["rows"][at]["missed"]);
        assert_eq!(missed, [&json!(false), &json!(true)]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
