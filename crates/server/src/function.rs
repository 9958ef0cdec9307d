//! The functions a server has, by name and by number.

use farcall_idl::{Document, Interface, Layout};
use farcall_library::{Catalog, CatalogError, Entry, Source};
use farcall_metrics::Histogram;
use farcall_rpc_proto::{Failure, FailureKind, FunctionSummary, Listing};
use farcall_schedule::{Prediction, Profile};
use farcall_spelling::closest;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Functions of one page of a listing.
const PAGE: usize = 256;
/// So many edits away is a function that may have been meant.
const MOST_EDITS: usize = 2;

/// One function served.
pub(crate) struct Function {
    /// Where its library and its interface are.
    pub(crate) entry: Entry,
    pub(crate) interface: Interface,
    /// What clients are sent as the interface.
    text: String,
    /// Mean nanoseconds in the library, of late; none before the first call.
    exec: Option<f64>,
    pub(crate) profile: Profile,
    pub(crate) counts: Counts,
    /// A higher one goes first.
    pub(crate) priority: i32,
}

/// How much a call computes: operations where the interface states them, else bytes.
fn work(layout: &Layout) -> f64 {
    layout.cost.unwrap_or(layout.bytes as f64)
}

impl Function {
    /// What its calls take, if it is less than it takes to wake a second worker for the next one.
    pub(crate) fn brief(&self) -> Option<Duration> {
        const BRIEF: f64 = 20e3;
        let exec = self.exec.filter(|exec| *exec < BRIEF)?;
        Some(Duration::from_nanos(exec as u64))
    }

    /// Whether its calls do nothing but compute, on one worker.
    pub(crate) fn only_computes(&self) -> bool {
        let interface = &self.interface;
        interface.callbacks.is_empty() && !interface.moves_files() && !interface.is_parallel()
    }

    /// What clients are sent as the interface.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The first line of its description.
    pub(crate) fn title(&self) -> String {
        title(&self.interface)
    }

    /// How long the library will take for a call on so many processor elements.
    pub(crate) fn predict(&self, layout: &Layout, pes: u32) -> Option<Prediction> {
        self.profile.predict(work(layout), pes)
    }
}

/// What calls have come to, since the server started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Its place in the order in which functions were first called, from 1.
    pub(crate) place: Option<u32>,
    /// Calls whose results have left.
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Bytes of arrays to the server, and back.
    pub(crate) bytes: [u64; 2],
    /// Nanoseconds of SEND, waiting, EXEC and RECV.
    pub(crate) nanos: [u64; 4],
    /// EXEC of each.
    pub(crate) execs: Histogram,
}

impl Counts {
    /// Those of another function as well.
    pub(crate) fn merge(&mut self, other: &Counts) {
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
pub(crate) struct FunctionTable {
    catalog: Catalog,
    functions: Vec<Function>,
    /// Their indices in the order of their qualified names.
    order: Vec<usize>,
    by_entry: HashMap<Entry, usize>,
    /// Number of the first function. It differs from one start of a server to the next, so that
    /// numbers from before a restart are recognised as stale.
    base: u64,
}

impl FunctionTable {
    pub(crate) fn new(catalog: Catalog, priorities: &BTreeMap<String, i32>) -> FunctionTable {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let base = (since_epoch.as_nanos() as u64 & 0xffff_ffff_ffff) << 16;
        let mut table = FunctionTable {
            catalog: Catalog::default(),
            functions: Vec::new(),
            order: Vec::new(),
            by_entry: HashMap::new(),
            base,
        };
        for (entry, interface) in catalog.entries() {
            table.insert(entry, interface, priorities);
        }
        table.catalog = catalog;
        table.sort();
        table
    }

    fn insert(&mut self, entry: Entry, interface: &Interface, priorities: &BTreeMap<String, i32>) {
        let priority = priorities.get(&*interface.qualified_name());
        self.by_entry.insert(entry, self.functions.len());
        self.functions.push(Function {
            entry,
            interface: interface.clone(),
            text: interface.public_text(),
            exec: None,
            profile: Profile::default(),
            counts: Counts::default(),
            priority: priority.copied().unwrap_or(0),
        });
    }

    fn sort(&mut self) {
        let functions = &self.functions;
        self.order = (0..functions.len()).collect();
        self.order
            .sort_by_cached_key(|index| functions[*index].interface.qualified_name());
    }

    /// What a file says, if it can be added.
    pub(crate) fn check(&self, source: &Source) -> Result<Document, CatalogError> {
        self.catalog.check(source)
    }

    /// Adds the functions of a file; returns their names. Numbers of functions stay.
    pub(crate) fn add(
        &mut self,
        source: Source,
        priorities: &BTreeMap<String, i32>,
    ) -> Result<Vec<String>, CatalogError> {
        let file = self.catalog.add(source)?;
        let entries = self
            .catalog
            .entries()
            .filter(|(entry, _)| entry.file == file);
        let added: Vec<_> = entries
            .map(|(entry, interface)| (entry, interface.clone()))
            .collect();
        for (entry, interface) in &added {
            self.insert(*entry, interface, priorities);
        }
        self.sort();
        let names = added.iter();
        Ok(names
            .map(|(_, interface)| interface.qualified_name().into_owned())
            .collect())
    }

    /// A call of the function on so many processor elements spent so many nanoseconds in the
    /// library.
    pub(crate) fn observe(&mut self, number: u64, layout: &Layout, pes: u32, exec_nanos: u64) {
        /// Weight of the latest call in the mean.
        const WEIGHT: f64 = 1.0 / 8.0;
        let index = number.wrapping_sub(self.base) as usize;
        if let Some(function) = self.functions.get_mut(index) {
            let exec = exec_nanos as f64;
            let mean = function.exec.unwrap_or(exec);
            function.exec = Some(mean + (exec - mean) * WEIGHT);
            function.profile.observe(work(layout), pes, exec * 1e-9);
        }
    }

    /// What the calls of a function have come to.
    pub(crate) fn counts_mut(&mut self, number: u64) -> Option<&mut Counts> {
        let index = number.wrapping_sub(self.base) as usize;
        self.functions
            .get_mut(index)
            .map(|function| &mut function.counts)
    }

    /// All functions, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter()
    }

    /// Goes on with what was learned of a function before.
    pub(crate) fn resume(&mut self, name: &str, exec: Option<f64>, profile: Profile) {
        let mut functions = self.functions.iter_mut();
        if let Some(function) = functions.find(|f| f.interface.qualified_name() == name) {
            function.exec = exec;
            function.profile = profile;
        }
    }

    /// What was learned: name, mean nanoseconds of late, and times by work.
    pub(crate) fn learned(&self) -> impl Iterator<Item = (Cow<'_, str>, Option<f64>, &Profile)> {
        let known = self
            .functions
            .iter()
            .filter(|f| !f.profile.predictors().is_empty());
        known.map(|f| (f.interface.qualified_name(), f.exec, &f.profile))
    }

    #[cfg(test)]
    pub(crate) fn empty() -> FunctionTable {
        let catalog = Catalog::load(Vec::<std::path::PathBuf>::new()).unwrap();
        FunctionTable::new(catalog, &BTreeMap::new())
    }

    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.functions.len()
    }

    /// Number, text and place of the function of that name, qualified or not.
    pub(crate) fn describe(&self, name: &str) -> Result<(u64, &str, Entry), Failure> {
        let entry = self
            .catalog
            .find(name)
            .map_err(|error| self.unknown(name, &error))?;
        let index = self.by_entry[&entry];
        Ok((self.base + index as u64, &self.functions[index].text, entry))
    }

    /// The class of that name, qualified or not: its file, and its own name.
    pub(crate) fn class(&self, name: &str) -> Result<(usize, &str), Failure> {
        let found = self.catalog.find_class(name);
        found.map_err(|error| {
            let is_unknown = matches!(error, CatalogError::UnknownClass(_));
            let functions = self.functions.iter();
            let classes = functions.filter_map(|function| function.interface.class.as_deref());
            let hint = match closest(plain(name), classes, MOST_EDITS) {
                Some(known) if is_unknown => format!("; did you mean `{known}`?"),
                None if is_unknown => "; `farcall ls` lists the methods there are".to_string(),
                _ => String::new(),
            };
            Failure::new(FailureKind::UnknownFunction, format!("{error}{hint}"))
        })
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

    /// The function of a number, unless the number is from before a restart.
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

    /// The page that starts at index `from` of the names in order.
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

    fn unknown(&self, name: &str, error: &CatalogError) -> Failure {
        if !matches!(error, CatalogError::Unknown(_)) {
            return Failure::new(FailureKind::UnknownFunction, error.to_string());
        }
        let functions = self.functions.iter();
        let names: Vec<_> = functions
            .map(|known| known.interface.plain_name())
            .collect();
        let hint = match closest(plain(name), names.iter().map(|known| &**known), MOST_EDITS) {
            Some(known) => format!("; did you mean `{known}`?"),
            None => "; `farcall ls` lists what there is".to_string(),
        };
        let shown: String = name.chars().take(100).collect();
        let text = format!("there is no function `{shown}`{hint}");
        Failure::new(FailureKind::UnknownFunction, text)
    }
}

/// A name without its module.
fn plain(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, plain)| plain)
}

/// The first line of the description.
fn title(interface: &Interface) -> String {
    let description = interface.description.as_deref().unwrap_or("");
    description
        .lines()
        .next()
        .unwrap_or("")
        .trim()
        .chars()
        .take(200)
        .collect()
}
