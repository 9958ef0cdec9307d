//! The data-flow graph of a transaction: which call waits for which, found by the identity of their
//! arrays.
//!
//! Calls are added in the order of the program, each with its arrays. Two calls keep their order if
//! both write an array, or if one writes what the other reads. All other calls may run at the same
//! time, on several servers. An array that one call writes and another reads goes from server to
//! server, not through the client. Arrays are identified by their addresses, as in the original
//! Ninf. Arrays that overlap without being equal are handled correctly through the client's memory.

mod draw;
mod run;

use std::collections::{BTreeSet, HashMap};

pub use draw::dot;
pub use run::{After, Run, Source, Step};

/// The identity of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Datum {
    /// Memory of the client.
    Memory {
        /// Address of its first byte.
        start: u64,
        /// Its length in bytes.
        bytes: u64,
        /// A number for its form: the same bytes as a matrix and as its transpose are two arrays
        /// that overlap.
        form: u64,
    },
    /// An array that exists only at servers, with this number.
    Deferred(u64),
}

impl Datum {
    fn overlaps(self, other: Datum) -> bool {
        match (self, other) {
            (Datum::Deferred(one), Datum::Deferred(other)) => one == other,
            (
                Datum::Memory { start, bytes, .. },
                Datum::Memory {
                    start: at,
                    bytes: most,
                    ..
                },
            ) => start < at.saturating_add(most) && at < start.saturating_add(bytes),
            (Datum::Memory { .. }, Datum::Deferred(_)) => false,
            (Datum::Deferred(_), Datum::Memory { .. }) => false,
        }
    }
}

/// What a call does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes the whole array and reads nothing.
    Write,
    /// Reads the array and writes some of it.
    Update,
}

impl Access {
    /// Whether the call needs the old contents.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether the call makes new contents.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// An array of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Index of the parameter.
    pub argument: usize,
    /// The array.
    pub datum: Datum,
    /// What the call does with it.
    pub access: Access,
}

/// Number of a version, among all versions of all arrays.
pub type VersionId = usize;

/// The contents of an array between two calls that write it.
#[derive(Clone, Debug)]
pub struct Version {
    /// The array.
    pub datum: Datum,
    /// The call that makes it; `None` for contents of the client's memory.
    pub made_by: Option<usize>,
    /// The calls that read it.
    pub read_by: Vec<usize>,
    /// Whether the client's memory needs it before a call that reads it there in another form.
    pub goes_home: bool,
    /// Whether a call replaces it, or writes memory that overlaps it.
    is_past: bool,
}

/// An array of a call, with its versions before and after the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The array.
    pub used: Use,
    /// The version that is read.
    pub reads: Option<VersionId>,
    /// The version that is made.
    pub makes: Option<VersionId>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Node {
    /// Weight relative to other calls, in any unit. The longest path through the graph goes first.
    pub weight: f64,
    /// Its arrays.
    pub flows: Vec<Flow>,
    /// Calls that must end before it starts.
    pub after: BTreeSet<usize>,
}

/// Why a call cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// An array that exists only at servers is read before any call has written it.
    Unwritten(usize),
    /// Two arrays of one call are the same or overlap, and it writes one of them.
    Aliased(usize, usize),
}

/// The calls of a transaction, and what each one waits for.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    versions: Vec<Version>,
    data: Vec<State>,
    known: HashMap<Datum, usize>,
    /// Memory whose final contents the client does not need: address and length.
    discarded: BTreeSet<(u64, u64)>,
}

/// The state of an array while calls are added.
#[derive(Clone, Debug)]
struct State {
    datum: Datum,
    version: VersionId,
    /// The last call that wrote it or memory that overlaps it, and the calls that have read it
    /// since.
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Graph {
    /// Adds the next call of the program. Returns its number.
    pub fn add(&mut self, weight: f64, uses: &[Use]) -> Result<usize, Misuse> {
        self.check(uses)?;
        let call = self.nodes.len();
        let mut after = BTreeSet::new();
        let mut flows = Vec::with_capacity(uses.len());
        for used in uses {
            let index = self.index_of(used.datum);
            self.order(call, index, used.access, &mut after);
            flows.push(self.flow(call, index, *used));
        }
        after.remove(&call);
        self.nodes.push(Node {
            weight,
            flows,
            after,
        });
        Ok(call)
    }

    /// Says that the client does not need the final contents of these bytes. It holds for calls
    /// that use them as one array.
    pub fn discard(&mut self, start: u64, bytes: u64) {
        self.discarded.insert((start, bytes));
    }

    fn is_wanted(&self, datum: Datum) -> bool {
        match datum {
            Datum::Memory { start, bytes, .. } => !self.discarded.contains(&(start, bytes)),
            Datum::Deferred(_) => false,
        }
    }

    /// The calls, in the order of the program.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All versions of all arrays.
    pub fn versions(&self) -> &[Version] {
        &self.versions
    }

    /// The versions that the client's memory must hold in the end: the last version of each array
    /// that a call has written.
    pub fn results(&self) -> impl Iterator<Item = VersionId> {
        let last = self.data.iter().map(|state| state.version);
        last.filter(|version| {
            let version = &self.versions[*version];
            version.made_by.is_some() && self.is_wanted(version.datum) && !version.goes_home
        })
    }

    /// The last version of an array that exists only at servers.
    pub fn deferred(&self, number: u64) -> Option<VersionId> {
        let index = self.known.get(&Datum::Deferred(number))?;
        Some(self.data[*index].version)
    }

    /// Whether a call writes some of this memory.
    pub fn is_written(&self, datum: Datum) -> bool {
        let mut states = self.data.iter();
        states.any(|state| state.writer.is_some() && state.datum.overlaps(datum))
    }

    /// Whether an array travels with the call itself, from the client's memory and back, because no
    /// other call needs it at a server.
    pub fn is_direct(&self, flow: &Flow) -> bool {
        let alone = |version: &Version| match version.made_by {
            Some(_) => false,
            None => version.read_by.len() <= 1,
        };
        let unread = |version: &Version| {
            version.read_by.is_empty() && (self.is_wanted(version.datum) || version.is_past)
        };
        matches!(flow.used.datum, Datum::Memory { .. })
            && flow.reads.is_none_or(|reads| alone(&self.versions[reads]))
            && flow.makes.is_none_or(|makes| unread(&self.versions[makes]))
    }

    fn check(&self, uses: &[Use]) -> Result<(), Misuse> {
        for (place, used) in uses.iter().enumerate() {
            let is_new =
                matches!(used.datum, Datum::Deferred(_)) && !self.known.contains_key(&used.datum);
            if is_new && used.access.reads() {
                return Err(Misuse::Unwritten(used.argument));
            }
            for other in &uses[..place] {
                let writes = used.access.writes() || other.access.writes();
                if writes && used.datum.overlaps(other.datum) {
                    return Err(Misuse::Aliased(other.argument, used.argument));
                }
            }
        }
        Ok(())
    }

    fn index_of(&mut self, datum: Datum) -> usize {
        if let Some(index) = self.known.get(&datum) {
            return *index;
        }
        let index = self.data.len();
        let version = self.new_version(datum, None);
        self.known.insert(datum, index);
        self.data.push(State {
            datum,
            version,
            writer: None,
            readers: Vec::new(),
        });
        // Versions that other forms of the same memory have made are read through the client.
        let overlapped: Vec<usize> = self.overlapping(index).collect();
        for other in overlapped {
            self.go_home(other);
        }
        index
    }

    fn new_version(&mut self, datum: Datum, made_by: Option<usize>) -> VersionId {
        self.versions.push(Version {
            datum,
            made_by,
            read_by: Vec::new(),
            goes_home: false,
            is_past: false,
        });
        self.versions.len() - 1
    }

    fn overlapping(&self, index: usize) -> impl Iterator<Item = usize> {
        let datum = self.data[index].datum;
        let all = self.data.iter().enumerate();
        all.filter(move |(other, state)| *other != index && state.datum.overlaps(datum))
            .map(|(other, _)| other)
    }

    fn go_home(&mut self, index: usize) {
        let version = &mut self.versions[self.data[index].version];
        version.goes_home = version.made_by.is_some();
    }

    /// Orders a call behind the calls whose arrays it needs or changes.
    fn order(&mut self, call: usize, index: usize, access: Access, after: &mut BTreeSet<usize>) {
        let overlapped: Vec<usize> = self.overlapping(index).collect();
        for other in std::iter::once(index).chain(overlapped) {
            let state = &mut self.data[other];
            after.extend(state.writer);
            if access.writes() {
                after.extend(state.readers.drain(..));
                state.writer = Some(call);
            } else {
                state.readers.push(call);
            }
        }
    }

    /// The versions of an array before and after a call.
    fn flow(&mut self, call: usize, index: usize, used: Use) -> Flow {
        let reads = used.access.reads().then(|| self.data[index].version);
        if let Some(reads) = reads {
            self.versions[reads].read_by.push(call);
        }
        let makes = used.access.writes().then(|| self.make(call, index));
        Flow { used, reads, makes }
    }

    fn make(&mut self, call: usize, index: usize) -> VersionId {
        let overlapped: Vec<usize> = self.overlapping(index).collect();
        let makes = self.new_version(self.data[index].datum, Some(call));
        self.replace(index, makes);
        // The new contents are also written to the client, because overlapping arrays must see
        // them.
        self.versions[makes].goes_home = !overlapped.is_empty();
        for other in overlapped {
            self.go_home(other);
            let anew = self.new_version(self.data[other].datum, None);
            self.replace(other, anew);
        }
        makes
    }

    fn replace(&mut self, index: usize, version: VersionId) {
        let last = std::mem::replace(&mut self.data[index].version, version);
        self.versions[last].is_past = true;
    }
}
