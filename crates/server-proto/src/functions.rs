//! The functions of a server, by name and by number, with their counts and what was learned about
//! their run times. `libraries` knows which library is behind each of them, and `elements` decides
//! which call runs. The number of a function does not change while the server runs. A number from
//! before a restart is recognised and refused.

use crate::map::Map;
use farcall_idl::{Document, Interface, Layout};
use farcall_metrics::Histogram;
use farcall_rpc_proto::{Failure, FailureKind, FunctionSummary, Listing, Nanos};
use farcall_schedule::{Calibration, Interval, Prediction, Profile};
use farcall_spelling::closest;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Functions of one page of a listing.
const PAGE: usize = 256;
/// Times below this many seconds count alike where predictions are judged.
const LEAST_S: f64 = 1e-5;
/// Of calls that are shorter, the errors of one in so many are learned.
const SAMPLED: u64 = 16;
/// Most edits between a wrong name and a suggestion.
const MOST_EDITS: usize = 2;

/// Where a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of its interface file, which is also the index of its library.
    pub file: usize,
    /// Index of the function in the file.
    pub function: usize,
}

/// One function served.
#[derive(Debug)]
pub struct Function {
    /// Where its library and its interface are.
    pub entry: Entry,
    /// The interface.
    pub interface: Interface,
    /// The interface as clients receive it.
    text: String,
    /// Recent mean of the time in the library, in nanoseconds; `None` before the first call.
    exec: Option<f64>,
    /// How long its calls take, learned from earlier calls.
    pub profile: Profile,
    /// How far predictions of its calls were off.
    errors: Calibration,
    /// Counts of its calls.
    pub counts: Counts,
    /// Functions with a higher priority go first.
    pub(crate) priority: i32,
}

/// The work of a call: operations if the interface states them, otherwise bytes.
fn work(layout: &Layout) -> f64 {
    layout.cost.unwrap_or(layout.bytes as f64)
}

impl Function {
    /// The time of its calls, if it is shorter than waking a second worker for the next one.
    pub(crate) fn brief(&self) -> Option<Nanos> {
        const BRIEF: f64 = 20e3;
        let exec = self.exec.filter(|exec| *exec < BRIEF)?;
        Some(exec as Nanos)
    }

    /// Whether its calls only compute, on one worker and no GPU.
    pub(crate) fn only_computes(&self) -> bool {
        let interface = &self.interface;
        let is_plain = interface.callbacks.is_empty() && !interface.moves_files();
        is_plain && !interface.is_parallel() && interface.gpus == 0
    }

    /// The interface as clients receive it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first line of its description.
    pub fn title(&self) -> String {
        title(&self.interface)
    }

    /// Predicted time of a call in the library on this many processor elements.
    pub fn predict(&self, layout: &Layout, pes: u32) -> Option<Prediction> {
        self.profile.predict(work(layout), pes)
    }

    /// Predicted time of a call in the library on this many processor elements, in seconds. Four of
    /// five calls take a time in the interval.
    pub fn interval(&self, layout: &Layout, pes: u32) -> Option<Interval> {
        let Prediction { seconds, factor } = self.predict(layout, pes)?;
        Some(self.errors.interval(seconds, factor, LEAST_S))
    }
}

/// Counts of calls since the server started.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Its place in the order in which functions were first called, from 1.
    pub place: Option<u32>,
    /// Calls whose results have left.
    pub done: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes of arrays to the server, and back.
    pub bytes: [u64; 2],
    /// Nanoseconds of SEND, waiting, EXEC and RECV.
    pub nanos: [u64; 4],
    /// EXEC of each call.
    pub execs: Histogram,
}

impl Counts {
    /// Adds the counts of another function.
    pub fn merge(&mut self, other: &Counts) {
        self.done += other.done;
        self.failed += other.failed;
        let sums = self.bytes.iter_mut().chain(&mut self.nanos);
        let values = other.bytes.iter().chain(&other.nanos);
        sums.zip(values)
            .for_each(|(sum, value)| *sum = sum.saturating_add(*value));
        self.execs.merge(&other.execs);
    }
}

/// All functions served.
#[derive(Debug, Default)]
pub struct Functions {
    functions: Vec<Function>,
    /// Their indices in the order of their qualified names.
    order: Vec<usize>,
    /// By qualified name.
    qualified: Map<String, usize>,
    /// Functions by name alone. Several modules may have the same name.
    plain: Map<String, Vec<usize>>,
    /// Number of interface files.
    files: usize,
    /// Number of the first function. It differs between starts of a server, so that numbers from
    /// before a restart are recognized as stale.
    base: u64,
    priorities: BTreeMap<String, i32>,
}

impl Functions {
    /// No functions yet. The first one gets the number `base`.
    pub(crate) fn new(base: u64, priorities: BTreeMap<String, i32>) -> Functions {
        Functions {
            functions: Vec::new(),
            order: Vec::new(),
            qualified: Map::default(),
            plain: Map::default(),
            files: 0,
            base,
            priorities,
        }
    }

    /// Adds the functions of a file and returns their qualified names. Existing numbers do not
    /// change.
    pub(crate) fn add(&mut self, document: &Document) -> Vec<String> {
        let file = self.files;
        self.files += 1;
        let mut names = Vec::new();
        for (function, interface) in document.functions().enumerate() {
            let entry = Entry { file, function };
            names.push(self.insert(entry, interface));
        }
        let functions = &self.functions;
        self.order = (0..functions.len()).collect();
        self.order
            .sort_by_cached_key(|index| functions[*index].interface.qualified_name());
        names
    }

    fn insert(&mut self, entry: Entry, interface: &Interface) -> String {
        let name = interface.qualified_name().into_owned();
        let (index, priority) = (self.functions.len(), self.priorities.get(&name));
        let priority = priority.copied().unwrap_or(0);
        self.qualified.insert(name.clone(), index);
        let plain = interface.plain_name().into_owned();
        self.plain.entry(plain).or_default().push(index);
        self.functions.push(Function {
            entry,
            interface: interface.clone(),
            text: interface.public_text(),
            exec: None,
            profile: Profile::default(),
            errors: Calibration::default(),
            counts: Counts::default(),
            priority,
        });
        name
    }

    /// Learns that a call on this many processor elements spent this many nanoseconds in the
    /// library.
    pub(crate) fn observe(&mut self, number: u64, layout: &Layout, pes: u32, exec_nanos: u64) {
        /// Weight of the latest call in the mean.
        const WEIGHT: f64 = 1.0 / 8.0;
        let index = number.wrapping_sub(self.base) as usize;
        if let Some(function) = self.functions.get_mut(index) {
            let exec = exec_nanos as f64;
            let mean = function.exec.unwrap_or(exec);
            function.exec = Some(mean + (exec - mean) * WEIGHT);
            // A call that is shorter than what counts teaches little, and there are many of them.
            let counts = exec * 1e-9 >= LEAST_S || function.counts.done.is_multiple_of(SAMPLED);
            if counts && let Some(predicted) = function.profile.seconds(work(layout), pes) {
                function.errors.observe(predicted, exec * 1e-9, LEAST_S);
            }
            function.profile.observe(work(layout), pes, exec * 1e-9);
        }
    }

    /// The counts of a function.
    pub(crate) fn counts_mut(&mut self, number: u64) -> Option<&mut Counts> {
        let index = number.wrapping_sub(self.base) as usize;
        self.functions
            .get_mut(index)
            .map(|function| &mut function.counts)
    }

    /// All functions, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter()
    }

    /// Continues with what an earlier server has learned about a function.
    pub fn resume(&mut self, name: &str, exec: Option<f64>, profile: Profile) {
        let mut functions = self.functions.iter_mut();
        if let Some(function) = functions.find(|f| f.interface.qualified_name() == name) {
            function.exec = exec;
            function.profile = profile;
        }
    }

    /// What was learned: name, recent mean in nanoseconds, and times by work.
    pub fn learned(&self) -> impl Iterator<Item = (Cow<'_, str>, Option<f64>, &Profile)> {
        let known = self
            .functions
            .iter()
            .filter(|f| !f.profile.predictors().is_empty());
        known.map(|f| (f.interface.qualified_name(), f.exec, &f.profile))
    }

    /// Number of functions.
    pub fn count(&self) -> usize {
        self.functions.len()
    }

    /// Whether a function has this qualified name.
    pub(crate) fn has(&self, qualified: &str) -> bool {
        self.qualified.contains_key(qualified)
    }

    /// Number and text of the function with this name, qualified or not.
    pub(crate) fn describe(&self, name: &str) -> Result<(u64, &Function), Failure> {
        let index = match (self.qualified.get(name), self.plain.get(name)) {
            (Some(index), _) => *index,
            (None, Some(known)) if known.len() == 1 => known[0],
            (None, Some(known)) => {
                let names = known.iter().map(|index| self.name(*index).into_owned());
                return Err(ambiguous(name, names));
            }
            (None, None) => return Err(self.unknown(name)),
        };
        Ok((self.base + index as u64, &self.functions[index]))
    }

    fn name(&self, index: usize) -> Cow<'_, str> {
        self.functions[index].interface.qualified_name()
    }

    /// The class with this name, qualified or not: its file, and its own name.
    pub(crate) fn class(&self, name: &str) -> Result<(usize, &str), Failure> {
        let classes = self.functions.iter().filter_map(|function| {
            let class = function.interface.class.as_deref()?;
            let file = function.entry.file;
            Some((file, class, self.qualified_class(file, class)))
        });
        let of_name = |(_, class, qualified): &(usize, &str, String)| {
            name == *class || name == qualified.as_str()
        };
        let mut found: Vec<_> = classes.clone().filter(of_name).collect();
        found.dedup();
        match &found[..] {
            [(file, class, _)] => Ok((*file, *class)),
            [] => {
                let hint =
                    match closest(plain(name), classes.map(|(_, class, _)| class), MOST_EDITS) {
                        Some(known) => format!("; did you mean `{known}`?"),
                        None => "; `farcall ls` lists the methods".to_string(),
                    };
                let text = format!("there is no class `{name}`{hint}");
                Err(Failure::new(FailureKind::UnknownFunction, text))
            }
            several => Err(ambiguous(
                name,
                several.iter().map(|(_, _, name)| name.clone()),
            )),
        }
    }

    /// GPUs of an object of a class: as many as the method uses that uses most.
    pub(crate) fn gpus_of(&self, file: usize, class: &str) -> u32 {
        let functions = self.functions.iter();
        let methods = functions.filter(|function| {
            let of = function.interface.class.as_deref();
            function.entry.file == file && of == Some(class)
        });
        let gpus = methods.map(|function| function.interface.gpus);
        gpus.max().unwrap_or(0)
    }

    /// `module/class`.
    pub(crate) fn qualified_class(&self, file: usize, class: &str) -> String {
        let is_of = |function: &&Function| {
            let of = function.interface.class.as_deref();
            function.entry.file == file && of == Some(class)
        };
        let module = self.functions.iter().find(is_of);
        let module = module.and_then(|function| function.interface.module.as_deref());
        module.map_or_else(|| class.to_string(), |module| format!("{module}/{class}"))
    }

    /// The function with this number. Fails if the number is from before a restart.
    pub(crate) fn get(&self, number: u64) -> Result<&Function, Failure> {
        let index = number
            .checked_sub(self.base)
            .and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.functions.get(index))
            .ok_or_else(|| {
                let text = "the server was restarted; fetch the interface again";
                Failure::new(FailureKind::StaleInterface, text)
            })
    }

    /// The page of names that starts at index `from`.
    pub(crate) fn page(&self, from: u32) -> Listing {
        let from = (from as usize).min(self.functions.len());
        let end = (from + PAGE).min(self.functions.len());
        let functions = self.order[from..end]
            .iter()
            .map(|index| &self.functions[*index])
            .map(|function| FunctionSummary {
                name: function.interface.qualified_name().into_owned(),
                title: title(&function.interface),
            });
        let next = (end < self.functions.len()).then_some(end as u32);
        Listing {
            functions: functions.collect(),
            next,
        }
    }

    fn unknown(&self, name: &str) -> Failure {
        let functions = self.functions.iter();
        let names: Vec<_> = functions
            .map(|known| known.interface.plain_name())
            .collect();
        let hint = match closest(plain(name), names.iter().map(|known| &**known), MOST_EDITS) {
            Some(known) => format!("; did you mean `{known}`?"),
            None => "; `farcall ls` lists the functions".to_string(),
        };
        let shown: String = name.chars().take(100).collect();
        let text = format!("there is no function `{shown}`{hint}");
        Failure::new(FailureKind::UnknownFunction, text)
    }
}

/// The failure for a name that several modules have.
fn ambiguous(name: &str, candidates: impl Iterator<Item = String>) -> Failure {
    let candidates: Vec<String> = candidates.collect();
    let text = format!(
        "`{name}` is in several modules; call one of {}",
        candidates.join(", ")
    );
    Failure::new(FailureKind::UnknownFunction, text)
}

/// A name without its module.
fn plain(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, plain)| plain)
}

/// The first line of the description.
fn title(interface: &Interface) -> String {
    let description = interface.public_description().unwrap_or_default();
    description
        .lines()
        .next()
        .unwrap_or("")
        .trim()
        .chars()
        .take(200)
        .collect()
}
