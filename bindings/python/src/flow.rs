//! The flow simulator for `farcall.flow`: platforms, patterns, and results as NumPy arrays.
//! `farcall_flow` simulates, and the Python part draws. The interpreter is free during a
//! simulation, which a signal can interrupt.

use farcall_flow::platform::{EdgeList, LinkId};
use farcall_flow::{
    Completion, Config, Failure, Goal, Job, Limits, LinkUser, LogGops, MessageRecord, Mode,
    PacketConfig, PacketSimulation, Pattern, Placement, Platform, Record, Routing, RunError,
    Script, Simulation, Sink, Step, Summary, Trace, Workload, hottest_links,
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The most batches of a simulation between two checks for signals.
const STRIDE: u32 = 1024;
/// A check for signals comes about this long after the one before, or after a single batch.
const MOMENT: Duration = Duration::from_millis(100);
/// Links with a counter in a trace for Perfetto.
const COUNTERS: usize = 16;

/// Panel, row and column of each link in a picture.
type Places<'py> = (
    Vec<String>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

fn value_error(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn not_negative(name: &str, value: f64) -> PyResult<f64> {
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(value_error(format!("{name} {value}: expected 0 or more"))),
    }
}

/// A network: nodes, directed links and the route of every pair.
#[pyclass(frozen, module = "farcall._native")]
pub(crate) struct FlowPlatform {
    platform: Platform,
    spec: String,
}

#[pymethods]
impl FlowPlatform {
    #[new]
    fn new(spec: &str) -> PyResult<Self> {
        let platform = Platform::parse(spec).map_err(value_error)?;
        Ok(Self {
            platform,
            spec: spec.to_owned(),
        })
    }

    /// Reads lines `from,to,bandwidth` and `both,from,to,bandwidth`.
    #[staticmethod]
    #[pyo3(signature = (text, latency = 0.0))]
    fn from_edges(text: &str, latency: f64) -> PyResult<Self> {
        let platform = EdgeList::parse(text).map_err(value_error)?;
        let latency = not_negative("latency", latency)?;
        Ok(Self {
            platform: platform.with_latency(latency),
            spec: "edges".to_owned(),
        })
    }

    /// Number of nodes.
    #[getter]
    fn nodes(&self) -> usize {
        self.platform.nodes()
    }

    /// Number of links.
    #[getter]
    fn links(&self) -> usize {
        self.platform.links()
    }

    /// Seconds added to every message.
    #[getter]
    fn latency(&self) -> f64 {
        self.platform.latency()
    }

    /// Bytes/s of every link.
    #[getter]
    fn bandwidths<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let links = 0..self.platform.links() as LinkId;
        PyArray1::from_iter(py, links.map(|link| self.platform.bandwidth(link)))
    }

    /// Names of all links.
    fn link_names(&self) -> Vec<String> {
        let links = 0..self.platform.links() as LinkId;
        links.map(|link| self.platform.link_name(link)).collect()
    }

    /// Panel, row and column of every link in a picture of the network.
    fn places<'py>(&self, py: Python<'py>) -> Places<'py> {
        let links = 0..self.platform.links() as LinkId;
        let places: Vec<_> = links.map(|link| self.platform.place(link)).collect();
        let rows = PyArray1::from_iter(py, places.iter().map(|place| place.row));
        let columns = PyArray1::from_iter(py, places.iter().map(|place| place.column));
        let panels = places.into_iter().map(|place| place.panel).collect();
        (panels, rows, columns)
    }

    /// The links from one node to another.
    fn route<'py>(
        &self,
        py: Python<'py>,
        source: u32,
        destination: u32,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let nodes = self.platform.nodes();
        if source.max(destination) as usize >= nodes {
            let text = format!("nodes {source} and {destination}: the platform has {nodes} nodes");
            return Err(PyIndexError::new_err(text));
        }
        let mut path = vec![0; self.platform.max_hops()];
        let hops = self.platform.route(source, destination, &mut path);
        path.truncate(hops);
        Ok(PyArray1::from_vec(py, path))
    }

    fn __repr__(&self) -> String {
        format!("Platform({:?})", self.spec)
    }
}

/// The messages of the ranks: a built-in pattern, arrays, a pattern file or a trace.
#[pyclass(frozen, module = "farcall._native")]
pub(crate) struct FlowPattern {
    workload: Workload,
    spec: String,
}

#[pymethods]
impl FlowPattern {
    #[new]
    #[pyo3(signature = (spec, ranks, size, *, count = 1, steps = None))]
    fn new(spec: &str, ranks: u32, size: f64, count: u32, steps: Option<u64>) -> PyResult<Self> {
        let pattern = Pattern::parse(spec, ranks, size)
            .map_err(value_error)?
            .with_count(count);
        let pattern = match steps {
            Some(steps) => pattern.with_steps(steps),
            None => pattern,
        };
        Ok(Self {
            workload: Workload::Pattern(pattern),
            spec: format!("{spec:?}, {ranks}, {size}"),
        })
    }

    /// A message for each element. A source sends its messages in the order of the arrays.
    #[staticmethod]
    #[pyo3(signature = (source, destination, size, wait = None))]
    fn from_arrays(
        source: PyReadonlyArray1<'_, u32>,
        destination: PyReadonlyArray1<'_, u32>,
        size: PyReadonlyArray1<'_, f64>,
        wait: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let (source, destination) = (source.as_array(), destination.as_array());
        let size = size.as_array();
        let wait = wait.as_ref().map(PyReadonlyArray1::as_array);
        let n = source.len();
        let lengths = [
            destination.len(),
            size.len(),
            wait.map_or(n, |wait| wait.len()),
        ];
        if lengths != [n; 3] {
            let text =
                format!("source has {n} elements, but destination, size and wait have {lengths:?}");
            return Err(value_error(text));
        }
        let limit = Limits::default().ranks;
        let (mut rows, mut ranks) = (Vec::with_capacity(n), 0);
        for i in 0..n {
            let (from, to, bytes) = (source[i], destination[i], size[i]);
            let wait = wait.map_or(0.0, |wait| wait[i]);
            let sound = |x: f64| x.is_finite() && x >= 0.0;
            if from.max(to) >= limit || !sound(bytes) || !sound(wait) {
                let text = format!("message {i}: {from} to {to}, {bytes} bytes, wait {wait} s");
                return Err(value_error(text));
            }
            ranks = ranks.max(from + 1).max(to + 1);
            rows.push((from, 0, i as u32, Step::Send { to, bytes, wait }));
        }
        Ok(Self {
            workload: Workload::Script(Script::from_rows(rows, ranks)),
            spec: format!("{n} messages"),
        })
    }

    /// Reads the text of a pattern file.
    #[staticmethod]
    fn from_csv(text: &str) -> PyResult<Self> {
        let script = Script::parse_csv(text, Limits::default()).map_err(value_error)?;
        Ok(Self {
            workload: Workload::Script(script),
            spec: "pattern file".to_owned(),
        })
    }

    /// Reads a GOAL trace: its text, or the bytes of a text or a binary schedule.
    #[staticmethod]
    #[pyo3(signature = (data, loggops = None))]
    fn from_goal(data: GoalArgument<'_>, loggops: Option<&str>) -> PyResult<Self> {
        let bytes = match &data {
            GoalArgument::Text(text) => text.as_bytes(),
            GoalArgument::Bytes(bytes) => bytes.as_bytes(),
        };
        let goal = Goal::read(bytes, Limits::default()).map_err(value_error)?;
        Self::from_trace(goal, loggops)
    }

    /// Reads Chakra execution traces: the bytes of the file of each rank.
    #[staticmethod]
    #[pyo3(signature = (files, loggops = None))]
    fn from_chakra(files: Vec<Bound<'_, PyBytes>>, loggops: Option<&str>) -> PyResult<Self> {
        let files: Vec<&[u8]> = files.iter().map(|file| file.as_bytes()).collect();
        let goal = Goal::parse_chakra(&files, Limits::default()).map_err(value_error)?;
        Self::from_trace(goal, loggops)
    }

    /// Several patterns at once, each from its start in seconds.
    #[staticmethod]
    fn of_jobs(jobs: Vec<(PyRef<'_, FlowPattern>, f64)>) -> PyResult<Self> {
        let single = |workload: &Workload| !matches!(workload, Workload::Jobs(_));
        let sound = |start: f64| start.is_finite() && start >= 0.0;
        if !jobs
            .iter()
            .all(|(job, start)| single(&job.workload) && sound(*start))
        {
            let text = "expected patterns that are not jobs themselves, with starts in seconds";
            return Err(value_error(text));
        }
        let jobs: Vec<Job> = jobs
            .into_iter()
            .map(|(job, start)| Job {
                workload: job.workload.clone(),
                start,
            })
            .collect();
        Ok(Self {
            spec: format!("{} jobs", jobs.len()),
            workload: Workload::Jobs(jobs),
        })
    }

    /// Number of ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.workload.ranks()
    }

    /// Number of messages.
    #[getter]
    fn messages(&self) -> u64 {
        self.workload.messages()
    }

    fn __repr__(&self) -> String {
        format!("Pattern({})", self.spec)
    }
}

impl FlowPattern {
    fn from_trace(mut goal: Goal, loggops: Option<&str>) -> PyResult<Self> {
        if let Some(spec) = loggops {
            goal = goal.with_hosts(LogGops::parse(spec).map_err(value_error)?);
        }
        Ok(Self {
            workload: Workload::Goal(goal),
            spec: "trace".to_owned(),
        })
    }
}

/// A trace in either form.
#[derive(FromPyObject)]
pub(crate) enum GoalArgument<'py> {
    Text(String),
    Bytes(Bound<'py, PyBytes>),
}

/// `regular`, `random:SEED`, or the node of each rank.
#[derive(FromPyObject)]
pub(crate) enum PlacementArgument<'py> {
    Spec(String),
    Nodes(PyReadonlyArray1<'py, u32>),
}

impl PlacementArgument<'_> {
    fn read(&self, nodes: usize) -> PyResult<Placement> {
        match self {
            Self::Spec(spec) => Placement::parse(spec, nodes).map_err(value_error),
            Self::Nodes(array) => Placement::explicit(array.as_array().to_vec(), nodes)
                .map_err(|error| value_error(error.reason)),
        }
    }
}

/// How to simulate; mirrors `farcall.flow.simulate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    mode: String,
    threshold: f64,
    window: u32,
    completion: Option<String>,
    tolerance: f64,
    resolution: f64,
    verify: bool,
    keep_messages: bool,
    keep_links: bool,
    packet_size: f64,
    buffer: u32,
    virtual_output_queues: bool,
    watch: Vec<LinkId>,
    routing: String,
    failures: Vec<String>,
    overhead: f64,
    stored_packet: f64,
}

impl Settings {
    fn completion(&self) -> PyResult<Option<Completion>> {
        match self.completion.as_deref() {
            None => Ok(None),
            Some("destination") => Ok(Some(Completion::Destination)),
            Some("source") => Ok(Some(Completion::Source)),
            Some(other) => {
                let text = format!("completion {other:?}: expected 'destination' or 'source'");
                Err(value_error(text))
            }
        }
    }

    fn routing(&self, platform: &Platform) -> PyResult<Routing> {
        let routing = Routing::parse(&self.routing).map_err(value_error)?;
        routing.check(platform).map_err(value_error)?;
        Ok(routing)
    }

    fn config(&self, platform: &Platform) -> PyResult<Config> {
        let mode = match self.mode.as_str() {
            "exact" | "packets" => Mode::Exact,
            "equal-split" => Mode::EqualSplit,
            "iterated" => Mode::Iterated {
                threshold: self.threshold,
            },
            other => {
                let known = "'exact', 'iterated', 'equal-split' or 'packets'";
                return Err(value_error(format!("mode {other:?}: expected {known}")));
            }
        };
        if self.threshold.is_nan() || self.threshold < 0.0 {
            let text = format!("threshold {}: expected 0 or more", self.threshold);
            return Err(value_error(text));
        }
        let completion = self.completion()?;
        if !(0.0..=0.1).contains(&self.tolerance) {
            let text = format!("tolerance {}: expected 0 to 0.1", self.tolerance);
            return Err(value_error(text));
        }
        Ok(Config {
            mode,
            window: self.window,
            completion,
            tolerance: self.tolerance,
            resolution: not_negative("resolution", self.resolution)?,
            verify: self.verify,
            link_bytes: self.keep_links,
            watch: self.watch.clone(),
            routing: self.routing(platform)?,
            failures: self
                .failures
                .iter()
                .map(|spec| Failure::parse(spec, platform).map_err(value_error))
                .collect::<PyResult<_>>()?,
            overhead: not_negative("overhead", self.overhead)?,
            stored_packet: not_negative("stored_packet", self.stored_packet)?,
        })
    }
}

/// Runs one simulation and returns a dictionary of numbers and arrays.
#[pyfunction]
pub(crate) fn simulate_flow<'py>(
    py: Python<'py>,
    platform: &FlowPlatform,
    pattern: &FlowPattern,
    placement: PlacementArgument<'py>,
    settings: Settings,
) -> PyResult<Bound<'py, PyDict>> {
    let platform = &platform.platform;
    let placement = placement.read(platform.nodes())?;
    let workload = pattern.workload.clone();
    let mut records: Vec<MessageRecord> = Vec::new();
    let keep: Option<Sink<'_>> = match settings.keep_messages {
        true => Some(Box::new(|record: &Record| {
            if let Record::Message(message) = record {
                records.push(*message);
            }
        })),
        false => None,
    };
    let outcome = run(py, platform, workload, placement, &settings, keep)?;
    result(py, outcome, &records)
}

/// Simulates again and writes a trace for Perfetto.
#[pyfunction]
pub(crate) fn write_flow_trace(
    py: Python<'_>,
    path: PathBuf,
    platform: &FlowPlatform,
    pattern: &FlowPattern,
    placement: PlacementArgument<'_>,
    mut settings: Settings,
) -> PyResult<()> {
    let platform = &platform.platform;
    let placement = placement.read(platform.nodes())?;
    let workload = &pattern.workload;
    settings.watch.clear();
    settings.keep_links = settings.mode != "packets";
    let first = run(
        py,
        platform,
        workload.clone(),
        placement.clone(),
        &settings,
        None,
    )?;
    let bandwidth = |link| platform.bandwidth(link);
    settings.watch = hottest_links(&first.link_bytes, bandwidth, COUNTERS);
    let names = settings.watch.iter().map(|&l| (l, platform.link_name(l)));
    let mut trace = Trace::new(workload.ranks(), names);
    let mut file = BufWriter::new(File::create(&path)?);
    let mut written = Ok(());
    let sink: Sink<'_> = Box::new(|record: &Record| {
        trace.add(record);
        if trace.pending() > 64 << 10 && written.is_ok() {
            written = file.write_all(trace.take().as_bytes());
        }
    });
    run(
        py,
        platform,
        workload.clone(),
        placement,
        &settings,
        Some(sink),
    )?;
    written?;
    trace.finish();
    file.write_all(trace.take().as_bytes())?;
    Ok(file.flush()?)
}

/// What a simulation gave.
struct Outcome {
    summary: Summary,
    link_bytes: Vec<f64>,
    users: Vec<Vec<LinkUser>>,
    job_ends: Vec<f64>,
}

/// Refuses costs of hosts that traces have by themselves, as the command does.
fn check_traces(platform: &Platform, workload: &Workload, config: &Config) -> PyResult<()> {
    match workload {
        Workload::Jobs(jobs) => jobs
            .iter()
            .try_for_each(|job| check_traces(platform, &job.workload, config)),
        Workload::Goal(_) if config.overhead > 0.0 => Err(value_error(
            "overhead is for patterns: use loggops=\"o=NANOSECONDS\" for traces",
        )),
        Workload::Goal(goal) if goal.hosts().is_some() && config.completion.is_some() => Err(
            value_error("loggops says when a send is complete: leave completion out"),
        ),
        Workload::Goal(goal) if goal.hosts().is_some() && platform.hop_latency() > 0.0 => Err(
            value_error("loggops: L is the latency of a message; leave hop-latency out"),
        ),
        _ => Ok(()),
    }
}

/// Runs a simulation to its end.
fn run(
    py: Python<'_>,
    platform: &Platform,
    workload: Workload,
    placement: Placement,
    settings: &Settings,
    keep: Option<Sink<'_>>,
) -> PyResult<Outcome> {
    let config = settings.config(platform)?;
    check_traces(platform, &workload, &config)?;
    if settings.mode == "packets" {
        if !settings.failures.is_empty() {
            return Err(value_error(
                "mode 'packets' has no failures: choose another mode",
            ));
        }
        if !(settings.packet_size.is_finite() && settings.packet_size >= 1.0) {
            let text = format!("packet_size {}: expected 1 or more", settings.packet_size);
            return Err(value_error(text));
        }
        let config = PacketConfig {
            packet_bytes: settings.packet_size,
            buffer_packets: settings.buffer,
            virtual_output_queues: settings.virtual_output_queues,
            window: settings.window,
            completion: settings.completion()?,
            routing: settings.routing(platform)?,
            overhead: not_negative("overhead", settings.overhead)?,
        };
        let simulation = PacketSimulation::new(platform, workload, placement, config);
        let mut simulation = simulation.map_err(run_error)?;
        if let Some(keep) = keep {
            simulation = simulation.with_sink(keep);
        }
        drive(py, || simulation.step())?;
        return Ok(Outcome {
            summary: simulation.summary(),
            link_bytes: Vec::new(),
            users: Vec::new(),
            job_ends: simulation.job_ends(),
        });
    }
    let simulation = Simulation::new(platform, workload, placement, config);
    let mut simulation = simulation.map_err(run_error)?;
    if let Some(keep) = keep {
        simulation = simulation.with_sink(keep);
    }
    drive(py, || simulation.step())?;
    Ok(Outcome {
        summary: simulation.summary(),
        link_bytes: simulation.link_bytes().to_vec(),
        users: simulation.users(),
        job_ends: simulation.job_ends(),
    })
}

/// Runs the simulation to its end without the interpreter, except to check for signals.
fn drive(py: Python<'_>, mut step: impl FnMut() -> Result<bool, RunError> + Send) -> PyResult<()> {
    let mut stride = 1;
    loop {
        let begin = Instant::now();
        let more = py.detach(|| {
            for _ in 0..stride {
                if !step()? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        py.check_signals()?;
        // A batch of a large network takes as long as many thousands of a small one.
        stride = match begin.elapsed() {
            long if long > MOMENT => (stride / 4).max(1),
            short if short < MOMENT / 4 => (2 * stride).min(STRIDE),
            _ => stride,
        };
        if !more.map_err(run_error)? {
            return Ok(());
        }
    }
}

fn run_error(error: RunError) -> PyErr {
    match error {
        RunError::TooManyRanks { .. } => value_error(error),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}

fn result<'py>(
    py: Python<'py>,
    outcome: Outcome,
    records: &[MessageRecord],
) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let summary = outcome.summary;
    out.set_item("makespan", summary.makespan)?;
    out.set_item("messages", summary.messages)?;
    out.set_item("events", summary.events)?;
    out.set_item("link_bytes", PyArray1::from_vec(py, outcome.link_bytes))?;
    out.set_item("users", outcome.users)?;
    out.set_item("job_ends", outcome.job_ends)?;
    let all = || records.iter();
    let integers = |field: fn(&MessageRecord) -> u32| PyArray1::from_iter(py, all().map(field));
    out.set_item("source", integers(|r| r.source))?;
    out.set_item("destination", integers(|r| r.destination))?;
    let numbers = |field: fn(&MessageRecord) -> f64| PyArray1::from_iter(py, all().map(field));
    out.set_item("bytes", numbers(|r| r.bytes))?;
    out.set_item("start", numbers(|r| r.start))?;
    out.set_item("end", numbers(|r| r.end))?;
    Ok(out)
}
