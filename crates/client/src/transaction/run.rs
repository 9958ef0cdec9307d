//! Running a transaction: one thread decides, and others make calls and fetch results.
//!
//! The graph decides what may start. A call that failed with its server is made again if it had not
//! begun, or if its function is repeatable.

use super::site::{Need, Site};
use super::step::{Copies, Fault, Shared, Trouble};
use super::{Deferred, Recorded, Report, Transaction};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote;
use crate::server::{Backend, Server};
use farcall_rpc_proto::FailureKind;
use farcall_schedule::dataflow::{After, Flow, Run, Step, VersionId};
use farcall_schedule::placement::{Input, Link, Origin, Placer, Policy};
use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Most calls under way at once.
const MOST: usize = 256;

/// How long a transaction waits for a server to come back if no other one is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs all calls.
pub(super) fn run(transaction: &mut Transaction, servers: &[Server]) -> Result<Report, Error> {
    let start = Instant::now();
    let servers = &behind(servers, &transaction.calls)?;
    let mut sites: Vec<Site> = servers.iter().cloned().map(Site::new).collect();
    learn(&transaction.calls, &mut sites)?;
    let graph = transaction.graph.clone();
    let shared = Shared {
        graph: &transaction.graph,
        calls: &transaction.calls,
        servers,
        copies: Copies::default(),
        traffic: Default::default(),
        pending: Default::default(),
        ends: Default::default(),
    };
    let mut state = State {
        run: Run::new(graph),
        sites,
        placer: Placer::new(Policy::Completion),
        under_way: 0,
        losses: Vec::new(),
        last: None,
        calls: 0,
        failed: None,
    };
    thread::scope(|scope| state.go(scope, &shared));
    let report = Report {
        calls: state.calls,
        sent_bytes: shared.traffic.sent.load(Ordering::Relaxed),
        returned_bytes: shared.traffic.returned.load(Ordering::Relaxed),
        passed_bytes: shared.traffic.passed.load(Ordering::Relaxed),
        servers: state.sites.iter().filter(|site| site.is_used).count(),
        total: start.elapsed().as_secs_f64(),
    };
    let copies = shared.copies;
    if let Some(error) = state.failed {
        copies.drop_all();
        return Err(error);
    }
    for number in 0..transaction.deferred.len() as u64 {
        let version = transaction.graph.deferred(number);
        let holder = version.and_then(|one| Some((one, *state.run.holders(one).first()?)));
        let handle = holder.and_then(|(version, server)| copies.take(version, server));
        transaction.deferred.insert(Deferred(number), handle);
    }
    copies.drop_all();
    Ok(report)
}

/// The servers, with each metaserver replaced by the servers behind it that have one of the
/// functions.
fn behind(servers: &[Server], calls: &[Recorded]) -> Result<Vec<remote::Server>, Error> {
    let mut all: Vec<remote::Server> = Vec::new();
    for server in servers {
        let grid = match &server.0 {
            Backend::One(server) => {
                all.push(server.clone());
                continue;
            }
            Backend::Many(grid) => grid,
        };
        let functions = calls
            .iter()
            .map(|call| (call.qualified.as_str(), call.text.as_str()));
        let functions: BTreeSet<(&str, &str)> = functions.collect();
        for (name, text) in functions {
            for found in grid.servers_of(name, text)? {
                if all.iter().all(|known| known.address() != found.address()) {
                    all.push(found);
                }
            }
        }
    }
    Ok(all)
}

/// Asks every server about the functions. A server that does not answer is left out if another one
/// has them.
fn learn(calls: &[Recorded], sites: &mut [Site]) -> Result<(), Error> {
    let is_choice = sites.len() > 1;
    let mut failures: Vec<Option<Error>> = sites.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for (site, failure) in sites.iter_mut().zip(&mut failures) {
            run_beside(scope, move || {
                *failure = learn_all(site, calls, is_choice).err();
            });
        }
    });
    let mut last = None;
    for (site, failure) in sites.iter_mut().zip(failures) {
        site.is_lost |= failure.is_some();
        last = failure.or(last);
    }
    for (number, call) in calls.iter().enumerate() {
        let mut living = sites.iter().filter(|site| !site.is_lost);
        if !living.any(|site| site.function(call).is_some()) {
            let text = format!("no server of the transaction has `{}`", call.qualified);
            let unknown = || Error::failed(FailureKind::UnknownFunction, text);
            let source = last.unwrap_or_else(unknown);
            return Err(call.failed(number, calls.len() - number - 1, source));
        }
    }
    Ok(())
}

/// Does work on a thread of its own, or here if the system gives none.
fn run_beside<'s>(scope: &'s Scope<'s, '_>, work: impl FnOnce() + Send + 's) {
    let work = Arc::new(Mutex::new(Some(work)));
    let there = work.clone();
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let run = move || take(&there).into_iter().for_each(|work| work());
    if thread::Builder::new().spawn_scoped(scope, run).is_err() {
        take(&work).into_iter().for_each(|work| work());
    }
}

/// Does work with a server. If it panics, as a callback may, it has failed, and the panic can go on
/// when that was told: who waits for the work would wait for ever.
fn caught<T>(
    server: u64,
    work: impl FnOnce() -> Result<T, Fault>,
) -> (Result<T, Fault>, Option<Box<dyn Any + Send>>) {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => (done, None),
        Err(panic) => {
            let error = Error::failed(
                FailureKind::Internal,
                "a thread of the transaction panicked",
            );
            let fault = Fault {
                server,
                error,
                begun: true,
                touched: true,
            };
            (Err(fault), Some(panic))
        }
    }
}

fn learn_all(site: &mut Site, calls: &[Recorded], is_choice: bool) -> Result<(), Error> {
    calls
        .iter()
        .try_for_each(|call| site.learn(call, is_choice))
}

impl Recorded {
    fn failed(&self, number: usize, left: usize, source: Error) -> Error {
        Error::Transaction {
            call: number + 1,
            function: self.qualified.clone(),
            left,
            source: Box::new(source),
        }
    }
}

/// What a thread has finished.
enum Done {
    Step(Step, Result<Outcome, Fault>),
    Result(VersionId, u64, Result<(), Fault>),
}

/// A server that failed, while calls may still be under way there.
struct Loss {
    server: u64,
    error: Error,
    /// Calls that failed because of it.
    calls: Vec<usize>,
}

/// The state of a running transaction.
struct State {
    run: Run,
    sites: Vec<Site>,
    placer: Placer,
    /// Threads under way.
    under_way: usize,
    losses: Vec<Loss>,
    /// Why the last server was lost.
    last: Option<String>,
    /// Calls that were made.
    calls: usize,
    failed: Option<Error>,
}

impl State {
    fn go<'s, 't: 's>(&mut self, scope: &'s Scope<'s, 't>, shared: &'t Shared<'t>) {
        let (sender, receiver) = channel();
        loop {
            self.start(scope, shared, &sender);
            if self.under_way == 0 {
                match self.failed.is_none() && !self.run.is_over() && self.revive(shared) {
                    true => continue,
                    false => break,
                }
            }
            // A signal goes to this thread, not to those that wait for servers.
            let done = match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(done) => done,
                Err(RecvTimeoutError::Timeout) => {
                    if self.failed.is_none() && shared.is_interrupted() {
                        self.failed = Some(Error::Interrupted);
                        shared.cancel_all();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.under_way -= 1;
            let after = self.take(done, shared);
            for (version, server) in after.unused {
                shared.copies.discard(version, server);
            }
            if self.failed.is_none() {
                self.fetch(after.results, scope, shared, &sender);
            }
        }
        if self.failed.is_none() && !self.run.is_over() {
            let call = self.run.ready().first().copied().unwrap_or_default();
            let why = self
                .last
                .take()
                .map(|last| format!("; the last one: {last}"));
            let text = format!(
                "no server is left that has the function{}",
                why.unwrap_or_default()
            );
            self.fail(call, Error::failed(FailureKind::Unreachable, text), shared);
        }
    }

    /// Waits for a lost server to come back at its address. Called when no other server is left.
    fn revive(&mut self, shared: &Shared<'_>) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.sites.iter().any(Site::may_return) {
            if shared.is_interrupted() {
                self.failed = Some(Error::Interrupted);
                return false;
            }
            let lost = self.sites.iter_mut().filter(|site| site.may_return());
            if lost.map(Site::come_back).filter(|back| *back).count() > 0 {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }

    /// Starts the calls that may start. None starts while a server is being given up, because it is
    /// not known yet which calls must be made again.
    fn start<'s, 't: 's>(
        &mut self,
        scope: &'s Scope<'s, 't>,
        shared: &'t Shared<'t>,
        sender: &Sender<Done>,
    ) {
        while self.failed.is_none()
            && self.losses.is_empty()
            && self.under_way < MOST
            && let Some(step) = self.next(shared)
        {
            self.under_way += 1;
            let sender = sender.clone();
            run_beside(scope, move || {
                let (outcome, panic) = caught(step.server, || shared.perform(&step));
                // The receiver outlives every thread.
                let _ = sender.send(Done::Step(step, outcome));
                if let Some(panic) = panic {
                    resume_unwind(panic);
                }
            });
        }
    }

    fn fetch<'s, 't: 's>(
        &mut self,
        results: Vec<(VersionId, u64)>,
        scope: &'s Scope<'s, 't>,
        shared: &'t Shared<'t>,
        sender: &Sender<Done>,
    ) {
        for (version, server) in results {
            self.under_way += 1;
            self.sites[server as usize].fetches += 1;
            let sender = sender.clone();
            run_beside(scope, move || {
                let (fetched, panic) = caught(server, || shared.bring_home(version, server));
                let _ = sender.send(Done::Result(version, server, fetched));
                if let Some(panic) = panic {
                    resume_unwind(panic);
                }
            });
        }
    }

    /// The next call that may start and for which there is room. The call with the longest
    /// remaining path comes first.
    fn next(&mut self, shared: &Shared<'_>) -> Option<Step> {
        if !self.sites.iter().any(Site::has_room) {
            return None;
        }
        let unlimited = Link::unlimited();
        let mut judged: HashMap<&str, usize> = HashMap::new();
        for call in self.run.ready() {
            let recorded = &shared.calls[call];
            // Thousands may be ready. If so many of a function have to wait, the rest have, too.
            let judged = judged.entry(&recorded.text).or_default();
            *judged += 1;
            if *judged > MOST {
                continue;
            }
            let need = self.need(call, recorded);
            let living = (0u64..).zip(&self.sites).filter(|(_, site)| !site.is_lost);
            let views: Vec<_> = living
                .filter_map(|(id, site)| site.view(id, recorded, &self.held_by(id, call)))
                .collect();
            let candidates = views.iter().map(|view| view.candidate(&unlimited));
            let choice = self.placer.choose(&need.as_call(), candidates);
            // If the best server is busy, the call waits for it.
            let choice = choice.filter(|choice| self.sites[choice.id as usize].has_room());
            if let Some(choice) = choice {
                let step = self.run.start(call, choice.id);
                self.sites[choice.id as usize].begin(call, need, choice.terms);
                return Some(step);
            }
        }
        None
    }

    fn held_by(&self, server: u64, call: usize) -> Vec<u64> {
        let flows = &self.run.graph().nodes()[call].flows;
        let read = flows.iter().filter_map(|flow| flow.reads);
        read.filter(|version| self.run.holders(*version).contains(&server))
            .map(|version| version as u64)
            .collect()
    }

    fn need(&self, call: usize, recorded: &Recorded) -> Need {
        let graph = self.run.graph();
        let flows = &graph.nodes()[call].flows;
        let bytes = |flow: &Flow| {
            let mut arrays = recorded.prepared.layout.arrays.iter();
            let array = arrays.find(|array| array.param == flow.used.argument);
            array.map_or(0, |array| array.bytes)
        };
        let input = |flow: &Flow| {
            let version = flow.reads?;
            let holder = self.run.holders(version).first();
            let holder = holder.and_then(|holder| self.sites[*holder as usize].way_from(recorded));
            Some(Input {
                bytes: bytes(flow),
                data: Some(version as u64),
                origin: holder.map_or(Origin::Client, Origin::Holder),
            })
        };
        let returned = |flow: &&Flow| flow.makes.is_some() && graph.is_direct(flow);
        let elements = |wanted: Option<i64>| {
            let wanted = wanted.map(|wanted| u32::try_from(wanted).unwrap_or(u32::MAX));
            wanted.unwrap_or(1)
        };
        Need {
            work: recorded.prepared.layout.cost.unwrap_or(0.0),
            inputs: flows.iter().filter_map(input).collect(),
            down_bytes: flows.iter().filter(returned).map(bytes).sum(),
            fewest: elements(recorded.prepared.layout.fewest_elements),
            most: elements(recorded.prepared.layout.processor_elements),
        }
    }

    /// What to do after a thread has ended.
    fn take(&mut self, done: Done, shared: &Shared<'_>) -> After {
        let mut after = After::default();
        match done {
            Done::Step(step, outcome) => {
                let exec_s = outcome.as_ref().ok().map(|outcome| outcome.times.exec);
                let recorded = &shared.calls[step.call];
                self.sites[step.server as usize].end(step.call, recorded, exec_s);
                match outcome {
                    Ok(_) => {
                        self.calls += 1;
                        (0..step.from.len()).for_each(|place| self.run.arrived(&step, place));
                        after = self.run.finish(&step);
                    }
                    Err(fault) => self.step_failed(&step, fault, shared),
                }
            }
            Done::Result(version, server, fetched) => {
                self.sites[server as usize].fetches -= 1;
                let maker = shared.graph.versions()[version].made_by;
                match fetched {
                    Ok(()) => after = self.run.came_home(version),
                    Err(fault) => {
                        if !fault.touched {
                            self.run.untouched(version);
                        }
                        self.failure(maker.unwrap_or(0), false, fault, shared);
                    }
                }
            }
        }
        self.give_up_servers(shared, &mut after);
        after
    }

    fn step_failed(&mut self, step: &Step, fault: Fault, shared: &Shared<'_>) {
        let begun = fault.begun;
        match (begun, fault.touched) {
            (false, _) => self.run.not_begun(step),
            (true, false) => self.run.nothing_came(step),
            (true, true) => {}
        }
        self.failure(step.call, begun, fault, shared);
    }

    /// Handles a call that failed, or a result that could not be fetched. `begun` says that the
    /// call has begun and not ended.
    fn failure(&mut self, call: usize, begun: bool, fault: Fault, shared: &Shared<'_>) {
        match fault.trouble() {
            Trouble::Request => return self.fail(call, fault.error, shared),
            Trouble::Server => self.sites[fault.server as usize].is_lost = true,
            Trouble::Arrays => {}
        }
        let known = self
            .losses
            .iter_mut()
            .find(|loss| loss.server == fault.server);
        let loss = match known {
            Some(loss) => loss,
            None => {
                self.losses.push(Loss {
                    server: fault.server,
                    error: fault.error,
                    calls: Vec::new(),
                });
                self.losses.last_mut().expect("it was stored there")
            }
        };
        loss.calls.extend(begun.then_some(call));
    }

    fn fail(&mut self, call: usize, error: Error, shared: &Shared<'_>) {
        if self.failed.is_none() {
            // The other calls under way were made, and end now. Those that lost their server were
            // made, too.
            let fetches: usize = self.sites.iter().map(|site| site.fetches).sum();
            let others = self.under_way.saturating_sub(fetches);
            let lost = self.losses.iter().flat_map(|loss| &loss.calls);
            let lost = lost.filter(|lost| **lost != call).count();
            let made = self.calls + 1 + others + lost;
            let left = shared.calls.len().saturating_sub(made);
            self.failed = Some(shared.calls[call].failed(call, left, error));
            shared.cancel_all();
        }
    }

    /// Goes on without servers that have failed and where nothing is under way any more: what was
    /// lost with them is made again. Results that are about to be fetched may still be there.
    fn give_up_servers(&mut self, shared: &Shared<'_>, after: &mut After) {
        let (sites, results) = (&self.sites, &after.results);
        let idle = |loss: &mut Loss| {
            sites[loss.server as usize].is_idle()
                && results.iter().all(|(_, server)| *server != loss.server)
        };
        let losses: Vec<Loss> = self.losses.extract_if(.., idle).collect();
        for loss in losses {
            self.sites[loss.server as usize].has_lost_arrays();
            let may_repeat = |call: usize| shared.calls[call].repeatable;
            shared.copies.forget(loss.server);
            let address = shared.servers[loss.server as usize].address();
            self.last = Some(format!("{address}: {}", loss.error));
            match self.run.lost(loss.server, &loss.calls, may_repeat) {
                Ok(again) => after.results.extend(again.results),
                Err(call) => {
                    let text = format!(
                        "{address} was lost ({}), and the call cannot be repeated: it is not \
                         declared Repeatable, or an array that it read is lost",
                        loss.error
                    );
                    // Its calls count as made.
                    self.losses.push(loss);
                    self.fail(call, Error::failed(FailureKind::Unreachable, text), shared);
                    self.losses.pop();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_that_panics_fails_the_transaction() {
        let (outcome, panic) = caught(3, || -> Result<(), Fault> { panic!("a callback's") });
        let fault = outcome.unwrap_err();
        assert!(fault.server == 3 && fault.trouble() == Trouble::Request);
        assert!(panic.is_some());
    }
}
