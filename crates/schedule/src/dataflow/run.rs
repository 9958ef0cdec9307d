//! The execution of a graph: which call may start, where its arrays come from, and what to do after
//! the loss of a server. The caller moves arrays and makes calls. Memory of the client receives
//! each final version once, and never while a call still reads the older one.

use super::{Datum, Flow, Graph, Version, VersionId};
use std::collections::BTreeSet;

/// Where the contents of a call's array come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They travel with the call, and the results come back with it.
    Direct,
    /// The call's server has them.
    Here,
    /// The client sends them, for other calls too.
    Home,
    /// This server has them.
    Server(u64),
    /// There are none, because the call writes the whole array.
    Nothing,
}

/// A call that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its number.
    pub call: usize,
    /// Its server.
    pub server: u64,
    /// The source of each of its arrays.
    pub from: Vec<Source>,
    /// Versions that it makes and that must be in the client's memory before the step has ended.
    pub home: Vec<VersionId>,
}

/// What to do after a step has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct After {
    /// Results to fetch, and the servers that have them.
    pub results: Vec<(VersionId, u64)>,
    /// Copies that no call needs any more.
    pub unused: Vec<(VersionId, u64)>,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    Running,
    Over,
}

/// A result, and the calls that still read the client's memory that it replaces.
#[derive(Clone, Debug)]
struct Wanted {
    version: VersionId,
    readers: Vec<usize>,
}

impl Wanted {
    fn new(graph: &Graph, version: VersionId) -> Wanted {
        let datum = graph.versions[version].datum;
        let before = graph.versions[..version].iter();
        let replaced = before.filter(|earlier| earlier.datum.overlaps(datum));
        let readers = replaced.flat_map(|earlier| earlier.read_by.iter().copied());
        Wanted {
            version,
            readers: readers.collect(),
        }
    }
}

/// The execution of a graph. It says which call is next and where its arrays are; the caller
/// reports what has happened.
#[derive(Clone, Debug)]
pub struct Run {
    graph: Graph,
    progress: Vec<Progress>,
    /// Weight of the longest path from each call to the end.
    ranks: Vec<f64>,
    /// Servers that have each version.
    places: Vec<BTreeSet<u64>>,
    /// Versions that the client's memory holds.
    home: Vec<bool>,
    /// The versions in the client's memory that each version has replaced, or will replace when it
    /// arrives.
    replaced: Vec<Vec<VersionId>>,
    /// Versions that the client's memory has held. A second delivery would overwrite newer
    /// contents.
    delivered: Vec<bool>,
    /// The versions that the client's memory must hold in the end.
    results: Vec<Wanted>,
    /// The server from which each version is being fetched.
    fetched_from: Vec<Option<u64>>,
}

impl Run {
    /// A run in which nothing has started.
    pub fn new(graph: Graph) -> Run {
        let results: Vec<Wanted> = graph
            .results()
            .map(|one| Wanted::new(&graph, one))
            .collect();
        Run {
            progress: vec![Progress::Waiting; graph.nodes.len()],
            ranks: ranks(&graph),
            places: vec![BTreeSet::new(); graph.versions.len()],
            home: graph.versions.iter().map(is_of_client).collect(),
            replaced: vec![Vec::new(); graph.versions.len()],
            delivered: vec![false; graph.versions.len()],
            fetched_from: vec![None; graph.versions.len()],
            results,
            graph,
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The calls that may start, the one with the longest path to the end first. A call never
    /// starts before an earlier call that runs again, even if it depends on it only through others.
    pub fn ready(&self) -> Vec<usize> {
        let mut is_free: Vec<bool> = Vec::with_capacity(self.graph.nodes.len());
        for node in &self.graph.nodes {
            let mut after = node.after.iter();
            is_free
                .push(after.all(|call| is_free[*call] && self.progress[*call] == Progress::Over));
        }
        let waits = |call: &usize| self.progress[*call] == Progress::Waiting;
        let calls = 0..self.progress.len();
        let mut ready: Vec<usize> = calls.filter(|call| is_free[*call] && waits(call)).collect();
        ready.sort_by(|one, other| self.ranks[*other].total_cmp(&self.ranks[*one]));
        ready
    }

    /// Whether all calls have ended and all results are fetched.
    pub fn is_over(&self) -> bool {
        self.progress.iter().all(|one| *one == Progress::Over)
            && self.results.iter().all(|one| self.delivered[one.version])
    }

    /// The servers that have a version.
    pub fn holders(&self, version: VersionId) -> &BTreeSet<u64> {
        &self.places[version]
    }

    /// Where an array of a call would come from at this server.
    pub fn origin(&self, flow: &Flow, server: u64) -> Source {
        let is_delivered = flow.makes.is_some_and(|makes| self.delivered[makes]);
        if self.graph.is_direct(flow) && !is_delivered {
            return Source::Direct;
        }
        let Some(version) = flow.reads else {
            return Source::Nothing;
        };
        let holders = &self.places[version];
        match (holders.contains(&server), holders.first()) {
            (true, _) => Source::Here,
            (false, _) if self.home[version] => Source::Home,
            (false, Some(holder)) => Source::Server(*holder),
            // Only a version that no call has made yet is nowhere, and such a call is not ready.
            (false, None) => Source::Home,
        }
    }

    /// Starts a call that is ready at a server. The versions that it will overwrite are gone from
    /// here on.
    pub fn start(&mut self, call: usize, server: u64) -> Step {
        self.progress[call] = Progress::Running;
        let flows = self.graph.nodes[call].flows.clone();
        let from: Vec<Source> = flows.iter().map(|flow| self.origin(flow, server)).collect();
        let mut home = Vec::new();
        for (flow, from) in flows.iter().zip(&from) {
            let Some(makes) = flow.makes else { continue };
            self.replaced[makes].clear();
            if let Some(reads) = flow.reads {
                self.places[reads].remove(&server);
            }
            if *from == Source::Direct {
                self.overwrite_home(makes);
            } else if self.graph.versions[makes].goes_home && !self.delivered[makes] {
                self.overwrite_home(makes);
                home.push(makes);
            }
        }
        Step {
            call,
            server,
            from,
            home,
        }
    }

    /// Records that the array at this position among a call's arrays has reached the call's server.
    pub fn arrived(&mut self, step: &Step, place: usize) {
        let flow = &self.graph.nodes[step.call].flows[place];
        // Other calls cannot use an array that this call changes in place.
        if let (Some(reads), None) = (flow.reads, flow.makes) {
            self.places[reads].insert(step.server);
        }
    }

    /// Records that a step has ended, with the results that it had to fetch.
    pub fn finish(&mut self, step: &Step) -> After {
        self.progress[step.call] = Progress::Over;
        let flows = self.graph.nodes[step.call].flows.clone();
        let mut after = After::default();
        for (flow, from) in flows.iter().zip(&step.from) {
            match (flow.makes, from) {
                (Some(makes), Source::Direct) => self.is_home(makes),
                (Some(makes), _) => self.made(makes, step, &mut after),
                (None, _) => {}
            }
            if let Some(reads) = flow.reads {
                self.clear(reads, &mut after);
            }
        }
        self.fetch(&mut after);
        after
    }

    fn made(&mut self, version: VersionId, step: &Step, after: &mut After) {
        self.places[version].insert(step.server);
        if step.home.contains(&version) {
            self.is_home(version);
        }
        self.clear(version, after);
    }

    /// Fetches results that exist, unless a call still reads the memory that they replace.
    fn fetch(&mut self, after: &mut After) {
        for result in 0..self.results.len() {
            let version = self.results[result].version;
            let holder = self.places[version].first().copied();
            let Some(holder) = holder.filter(|_| self.fetched_from[version].is_none()) else {
                continue;
            };
            let mut readers = self.results[result].readers.iter();
            let is_free = readers.all(|call| self.progress[*call] == Progress::Over);
            if is_free && self.is_awaited(version) {
                self.overwrite_home(version);
                self.fetched_from[version] = Some(holder);
                after.results.push((version, holder));
            }
        }
    }

    /// Records that a result was fetched. Returns the copies that nobody needs any more.
    pub fn came_home(&mut self, version: VersionId) -> After {
        self.is_home(version);
        let mut after = After::default();
        self.clear(version, &mut after);
        after
    }

    fn is_home(&mut self, version: VersionId) {
        self.home[version] = true;
        self.delivered[version] = true;
        self.replaced[version].clear();
    }

    /// Gives the client's memory up to this version: what it replaces there is gone, unless
    /// [`Run::untouched`] says otherwise.
    fn overwrite_home(&mut self, version: VersionId) {
        let datum = self.graph.versions[version].datum;
        let goes = |earlier: &VersionId| {
            self.home[*earlier] && self.graph.versions[*earlier].datum.overlaps(datum)
        };
        let replaced: Vec<VersionId> = (0..version).filter(goes).collect();
        for earlier in &replaced {
            self.home[*earlier] = false;
        }
        self.replaced[version] = replaced;
    }

    /// Records that a version which was on its way to the client has changed nothing there.
    pub fn untouched(&mut self, version: VersionId) {
        for earlier in std::mem::take(&mut self.replaced[version]) {
            self.home[earlier] = true;
        }
    }

    /// Records that a step ended before its call began: it may start again, at any server.
    pub fn not_begun(&mut self, step: &Step) {
        self.progress[step.call] = Progress::Waiting;
        self.nothing_came(step);
    }

    /// Records that a step failed before any of its results came to the client.
    pub fn nothing_came(&mut self, step: &Step) {
        let flows = self.graph.nodes[step.call].flows.iter();
        let makes: Vec<VersionId> = flows.filter_map(|flow| flow.makes).collect();
        makes
            .into_iter()
            .for_each(|version| self.untouched(version));
    }

    /// Whether the client's memory must hold a version and never has.
    fn is_awaited(&self, version: VersionId) -> bool {
        let mut results = self.results.iter();
        !self.delivered[version] && results.any(|one| one.version == version)
    }

    /// Drops the copies of a version that nobody will read.
    fn clear(&mut self, version: VersionId, after: &mut After) {
        let known = &self.graph.versions[version];
        let mut readers = known.read_by.iter();
        let is_kept = matches!(known.datum, Datum::Deferred(_)) && !known.is_past;
        if is_kept
            || self.is_awaited(version)
            || readers.any(|call| self.progress[*call] != Progress::Over)
        {
            return;
        }
        let places = std::mem::take(&mut self.places[version]);
        after
            .unused
            .extend(places.into_iter().map(|server| (version, server)));
    }

    /// A server has lost all that it had, and the calls `running` there have failed. Calls whose
    /// contents are still needed run again, as do those that were running there. The error is the
    /// first call that cannot: it may not be repeated, or what it reads is nowhere any more.
    pub fn lost(
        &mut self,
        server: u64,
        running: &[usize],
        may_repeat: impl Fn(usize) -> bool,
    ) -> Result<After, usize> {
        self.places.iter_mut().for_each(|places| {
            places.remove(&server);
        });
        let mut again: Vec<usize> = running.to_vec();
        let missing = (0..self.places.len()).filter(|version| self.is_missing(*version));
        again.extend(missing.filter_map(|version| self.graph.versions[version].made_by));
        while let Some(call) = again.pop() {
            if self.progress[call] == Progress::Waiting {
                continue;
            }
            if !may_repeat(call) {
                return Err(call);
            }
            self.progress[call] = Progress::Waiting;
            let flows = &self.graph.nodes[call].flows;
            for reads in flows.iter().filter_map(|flow| flow.reads) {
                if self.home[reads] || !self.places[reads].is_empty() {
                    continue;
                }
                again.push(self.graph.versions[reads].made_by.ok_or(call)?);
            }
        }
        let mut after = After::default();
        let lost = self.fetched_from.iter_mut();
        lost.filter(|from| **from == Some(server))
            .for_each(|from| *from = None);
        self.fetch(&mut after);
        Ok(after)
    }

    /// Whether a version was made, is needed, and is nowhere.
    fn is_missing(&self, version: VersionId) -> bool {
        let known = &self.graph.versions[version];
        let is_made = known
            .made_by
            .is_some_and(|call| self.progress[call] == Progress::Over);
        let mut readers = known.read_by.iter();
        let is_kept = matches!(known.datum, Datum::Deferred(_)) && !known.is_past;
        let is_needed = is_kept
            || self.is_awaited(version)
            || readers.any(|call| self.progress[*call] != Progress::Over);
        is_made && is_needed && !self.home[version] && self.places[version].is_empty()
    }
}

fn is_of_client(version: &Version) -> bool {
    version.made_by.is_none() && matches!(version.datum, Datum::Memory { .. })
}

fn ranks(graph: &Graph) -> Vec<f64> {
    let mut ranks: Vec<f64> = graph
        .nodes
        .iter()
        .map(|node| node.weight.max(0.0))
        .collect();
    for call in (0..graph.nodes.len()).rev() {
        for before in &graph.nodes[call].after {
            let through = graph.nodes[*before].weight.max(0.0) + ranks[call];
            ranks[*before] = ranks[*before].max(through);
        }
    }
    ranks
}
