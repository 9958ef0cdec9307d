//! Metrics for Prometheus.
//!
//! A daemon's own thread collects the numbers. The thread that serves a request writes them in the
//! text format of OpenMetrics.

mod bounded;
mod histogram;

pub use bounded::Bounded;
pub use histogram::Histogram;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The HTTP content type of the format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A function that takes the numbers from the thread that has collected them.
pub type Answer = Box<dyn FnOnce(Text) + Send>;

/// Names and values that distinguish the series of a metric.
pub type Labels = Vec<(&'static str, String)>;

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any other number.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value::Whole(value as u64)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        let whole = value as u64;
        // The value is the same in both forms, and the text is shorter without a fraction.
        match whole < 1 << 53 && whole as f64 == value {
            true => Value::Whole(whole),
            false => Value::Real(value),
        }
    }
}

/// Metrics whose names share a prefix.
#[derive(Clone, Debug)]
pub struct Text {
    prefix: &'static str,
    families: Vec<Family>,
    /// Why the daemon is not ready.
    unready: Option<String>,
}

#[derive(Clone, Debug)]
struct Family {
    name: String,
    help: &'static str,
    series: Series,
}

#[derive(Clone, Debug)]
enum Series {
    Gauge(Vec<(Labels, Value)>),
    Counter(Vec<(Labels, Value)>),
    Histogram(Vec<(Labels, Histogram)>),
}

impl Text {
    /// An empty set of metrics whose names start with `prefix`.
    pub fn new(prefix: &'static str) -> Text {
        Text {
            prefix,
            families: Vec::new(),
            unready: None,
        }
    }

    /// The daemon accepts no work at present, and this is why.
    pub fn not_ready(&mut self, reason: impl Into<String>) {
        self.unready = Some(reason.into());
    }

    /// Why the daemon accepts no work at present. `None` if it accepts work.
    pub fn unready(&self) -> Option<&str> {
        self.unready.as_deref()
    }

    /// Adds a metric with several series that go up and down.
    pub fn gauges<V: Into<Value>>(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let series = series
            .into_iter()
            .map(|(labels, value)| (labels, value.into()));
        self.add(name, help, Series::Gauge(series.collect()));
    }

    /// Adds a metric that goes up and down.
    pub fn gauge(&mut self, name: impl Into<String>, help: &'static str, value: impl Into<Value>) {
        self.gauges(name, help, [(Labels::new(), value)]);
    }

    /// Adds a metric with several series that only grow. The series are called `name` with the
    /// suffix `_total`.
    pub fn counters<V: Into<Value>>(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let series = series
            .into_iter()
            .map(|(labels, value)| (labels, value.into()));
        self.add(name, help, Series::Counter(series.collect()));
    }

    /// Adds a metric that only grows. The series is called `name` with the suffix `_total`.
    pub fn counter(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        value: impl Into<Value>,
    ) {
        self.counters(name, help, [(Labels::new(), value)]);
    }

    /// Adds histograms of seconds.
    pub fn histograms(
        &mut self,
        name: impl Into<String>,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        let series = series.into_iter().collect();
        self.add(name, help, Series::Histogram(series));
    }

    fn add(&mut self, name: impl Into<String>, help: &'static str, series: Series) {
        let name = name.into();
        // Readers of the format refuse a name that comes twice, and `_total` is no part of it.
        debug_assert!(
            !self.families.iter().any(|family| family.name == name),
            "two metrics are called {name}"
        );
        self.families.push(Family { name, help, series });
    }

    /// The metrics in the text format of OpenMetrics.
    pub fn encode(mut self) -> String {
        let ready = u64::from(self.unready.is_none());
        self.gauge("ready", "1 while the daemon accepts work, else 0.", ready);
        let mut registry = Registry::with_prefix(self.prefix);
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Text {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, series } in &self.families {
            let kind = match series {
                Series::Gauge(_) => MetricType::Gauge,
                Series::Counter(_) => MetricType::Counter,
                Series::Histogram(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match series {
                Series::Gauge(all) => each(&mut metric, all, |series, value| match value {
                    Value::Whole(value) => series.encode_gauge(value),
                    Value::Real(value) => series.encode_gauge(value),
                })?,
                Series::Counter(all) => each(&mut metric, all, |series, value| match value {
                    Value::Whole(value) => series.encode_counter::<NoLabelSet, _, u64>(value, None),
                    Value::Real(value) => series.encode_counter::<NoLabelSet, _, u64>(value, None),
                })?,
                Series::Histogram(all) => each(&mut metric, all, |series, histogram| {
                    histogram.encode(series)
                })?,
            }
        }
        Ok(())
    }
}

/// Writes all series of a metric.
fn each<V>(
    metric: &mut MetricEncoder<'_>,
    all: &[(Labels, V)],
    write: impl Fn(&mut MetricEncoder<'_>, &V) -> fmt::Result,
) -> fmt::Result {
    for (labels, value) in all {
        match labels.is_empty() {
            true => write(metric, value)?,
            false => write(&mut metric.encode_family(labels)?, value)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_in_the_form_that_prometheus_reads() {
        let mut text = Text::new("farcall_gang");
        text.gauges(
            "jobs",
            "Jobs.",
            [(vec![("state", "waiting".into())], 2usize)],
        );
        text.counter("switches", "Switches.", 7u64);
        text.gauge("lag_seconds", "Lag.", 1.5);
        let label = "a\"b\\c\n".to_string();
        text.counters("calls", "Calls.", [(vec![("user", label)], 1.0)]);
        assert_eq!(
            text.encode(),
            "# HELP farcall_gang_jobs Jobs.\n# TYPE farcall_gang_jobs gauge\n\
             farcall_gang_jobs{state=\"waiting\"} 2\n\
             # HELP farcall_gang_switches Switches.\n\
             # TYPE farcall_gang_switches counter\nfarcall_gang_switches_total 7\n\
             # HELP farcall_gang_lag_seconds Lag.\n\
             # TYPE farcall_gang_lag_seconds gauge\nfarcall_gang_lag_seconds 1.5\n\
             # HELP farcall_gang_calls Calls.\n# TYPE farcall_gang_calls counter\n\
             farcall_gang_calls_total{user=\"a\\\"b\\\\c\\n\"} 1\n\
             # HELP farcall_gang_ready 1 while the daemon accepts work, else 0.\n\
             # TYPE farcall_gang_ready gauge\nfarcall_gang_ready 1\n\
             # EOF\n"
        );
    }

    #[test]
    fn histograms_have_their_bounds_their_sum_and_their_count() {
        let mut times = Histogram::default();
        times.add(1_000_000_000);
        times.add(2_000_000_000);
        let mut text = Text::new("farcall");
        text.histograms("wait_seconds", "Waits.", [(Labels::new(), times)]);
        let text = text.encode();
        for line in [
            "# TYPE farcall_wait_seconds histogram",
            "farcall_wait_seconds_sum 3.0",
            "farcall_wait_seconds_count 2",
            "farcall_wait_seconds_bucket{le=\"0.56\"} 0",
            "farcall_wait_seconds_bucket{le=\"1.0\"} 1",
            "farcall_wait_seconds_bucket{le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
