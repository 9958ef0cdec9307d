//! The work of a transaction's threads: bring arrays to a server, make a call, and bring results
//! back. `run` decides what to do next. Two threads never bring the same version to the same
//! server.

use super::Recorded;
use crate::argument::{Argument, Held};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::{Attempt, Handle, Server};
use crate::timeout::Timeout;
use farcall_rpc_proto::{ArrayForm, FailureKind};
use farcall_schedule::dataflow::{Datum, Flow, Graph, Source, Step, VersionId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// State that all threads share.
pub(super) struct Shared<'t> {
    pub(super) graph: &'t Graph,
    pub(super) calls: &'t [Recorded],
    pub(super) servers: &'t [Server],
    pub(super) copies: Copies,
    pub(super) traffic: Traffic,
    /// Calls under way, which are given up if the transaction fails.
    pub(super) pending: Mutex<Vec<Arc<Attempt>>>,
    /// The transaction has failed: no further call begins.
    pub(super) ends: AtomicBool,
}

/// Bytes of arrays that have travelled.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) passed: AtomicU64,
}

/// An error, the server that caused it, and how far the step had come.
pub(super) struct Fault {
    pub(super) server: u64,
    pub(super) error: Error,
    /// The call may have begun.
    pub(super) begun: bool,
    /// Results may have begun to arrive in the client's memory.
    pub(super) touched: bool,
}

/// What a fault means for the server that caused it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server is gone.
    Server,
    /// The server no longer has an array of the transaction: it has started anew.
    Arrays,
    /// Only this request failed.
    Request,
}

impl Fault {
    /// A fault before the call of a step has begun.
    fn before(server: u64, error: Error) -> Fault {
        Fault {
            server,
            error,
            begun: false,
            touched: false,
        }
    }

    pub(super) fn trouble(&self) -> Trouble {
        match &self.error {
            Error::Connect { .. } | Error::Disconnected { .. } | Error::Protocol { .. } => {
                Trouble::Server
            }
            Error::Failed(failure) => match failure.kind {
                FailureKind::ServerStopping | FailureKind::Draining => Trouble::Server,
                // Another one has taken its place.
                FailureKind::StaleInterface | FailureKind::UnknownFunction => Trouble::Server,
                FailureKind::NotFound => Trouble::Arrays,
                _ => Trouble::Request,
            },
            _ => Trouble::Request,
        }
    }
}

/// Whether a server has refused a request, so that nothing came of it.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::Failed(failure) => matches!(
            failure.kind,
            FailureKind::NotFound
                | FailureKind::Draining
                | FailureKind::StaleInterface
                | FailureKind::UnknownFunction
        ),
        other => other.is_before_call(),
    }
}

/// Contents of arrays at servers, by version and server.
#[derive(Default)]
pub(super) struct Copies(Mutex<HashMap<(VersionId, u64), Cell>>);

/// A copy that exists or is being made.
type Cell = Arc<Mutex<Option<Handle>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copies {
    fn get(&self, version: VersionId, server: u64) -> Option<Handle> {
        let cell = lock(&self.0).get(&(version, server)).cloned()?;
        lock(&cell).clone()
    }

    /// The copy. Calls `bring` if there is none; a second thread waits until the first has brought
    /// it.
    fn get_or(
        &self,
        version: VersionId,
        server: u64,
        bring: impl FnOnce() -> Result<Handle, Fault>,
    ) -> Result<Handle, Fault> {
        let cell = lock(&self.0).entry((version, server)).or_default().clone();
        let mut copy = lock(&cell);
        match &*copy {
            Some(handle) => Ok(handle.clone()),
            None => Ok(copy.insert(bring()?).clone()),
        }
    }

    fn put(&self, version: VersionId, server: u64, handle: Handle) {
        lock(&self.0).insert((version, server), Arc::new(Mutex::new(Some(handle))));
    }

    pub(super) fn take(&self, version: VersionId, server: u64) -> Option<Handle> {
        let cell = lock(&self.0).remove(&(version, server))?;
        lock(&cell).take()
    }

    pub(super) fn discard(&self, version: VersionId, server: u64) {
        if let Some(handle) = self.take(version, server) {
            handle.drop_soon();
        }
    }

    /// Gives up the copies at a server that has failed. One that is still there drops them.
    pub(super) fn forget(&self, server: u64) {
        let copies: Vec<(_, Cell)> = lock(&self.0)
            .extract_if(|(_, at), _| *at == server)
            .collect();
        for handle in copies.iter().filter_map(|(_, cell)| lock(cell).take()) {
            handle.drop_soon();
        }
    }

    pub(super) fn drop_all(self) {
        let copies = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for handle in copies.into_values().filter_map(|cell| lock(&cell).take()) {
            handle.drop_soon();
        }
    }
}

impl Shared<'_> {
    /// Whether the caller wants to give the transaction up.
    pub(super) fn is_interrupted(&self) -> bool {
        let server = self.servers.first();
        let ask = server.and_then(|server| server.options().on_interrupt.as_ref());
        ask.is_some_and(|ask| ask())
    }

    pub(super) fn cancel_all(&self) {
        self.ends.store(true, Ordering::Relaxed);
        lock(&self.pending)
            .iter()
            .for_each(|attempt| attempt.request.cancel());
    }

    /// Makes a call: brings its arrays to the server, calls, and fetches what must be at the
    /// client.
    pub(super) fn perform(&self, step: &Step) -> Result<Outcome, Fault> {
        let mut own = Vec::new();
        let performed = self.perform_with(step, &mut own);
        if performed.is_err() {
            own.iter()
                .for_each(|(_, handle): &(VersionId, Handle)| handle.drop_soon());
        }
        performed
    }

    /// Makes a call. `own` receives the arrays that the call changes, with their new versions.
    fn perform_with(
        &self,
        step: &Step,
        own: &mut Vec<(VersionId, Handle)>,
    ) -> Result<Outcome, Fault> {
        let call = &self.calls[step.call];
        let flows = &self.graph.nodes()[step.call].flows;
        let mut handles = HashMap::new();
        for (flow, from) in flows.iter().zip(&step.from) {
            if *from == Source::Direct {
                continue;
            }
            let handle = match flow.makes {
                None => self.shared_copy(step, flow, *from)?,
                Some(makes) => {
                    let handle = self.own_copy(step, flow, *from)?;
                    own.push((makes, handle.clone()));
                    handle
                }
            };
            handles.insert(flow.used.argument, handle);
        }
        let outcome = self.call(step, call, &handles)?;
        for (version, handle) in own.iter() {
            if step.home.contains(version) {
                let copied = self.copy_home(*version, handle, step.server);
                // Another result of the step may have come before this one.
                copied.map_err(|fault| Fault {
                    touched: true,
                    ..fault
                })?;
            }
        }
        for (version, handle) in own.drain(..) {
            self.copies.put(version, step.server, handle);
        }
        Ok(outcome)
    }

    fn call(
        &self,
        step: &Step,
        call: &Recorded,
        handles: &HashMap<usize, Handle>,
    ) -> Result<Outcome, Fault> {
        let at = |error, touched| Fault {
            server: step.server,
            begun: touched || !is_refusal(&error),
            touched,
            error,
        };
        let function = call.at(&self.servers[step.server as usize]);
        let function = function.map_err(|error| Fault::before(step.server, error))?;
        let argument = |(place, kept): (usize, &Held)| match handles.get(&place) {
            Some(handle) => Argument::Handle(handle.id()),
            // SAFETY: who recorded the call keeps its arrays, and the graph keeps apart calls that
            // write them.
            None => unsafe { kept.argument() },
        };
        let mut arguments: Vec<_> = call.arguments.iter().enumerate().map(argument).collect();
        if self.ends.load(Ordering::Relaxed) {
            let error = Error::failed(FailureKind::Cancelled, "the transaction has failed");
            return Err(Fault::before(step.server, error));
        }
        self.count_direct(call, handles);
        // The call was recorded earlier, and begins now.
        let timeout = Timeout::from_now(function.timeout());
        let mut prepared = call.prepared.again().within(timeout);
        // SAFETY: the arrays outlive the transaction, and so the call.
        let attempt = unsafe { function.begin(&mut prepared, &mut arguments) };
        let attempt = Arc::new(attempt.map_err(|error| at(error, false))?);
        lock(&self.pending).push(attempt.clone());
        if self.ends.load(Ordering::Relaxed) {
            attempt.request.cancel();
        }
        let outcome = attempt.wait_shared();
        if outcome.is_err() {
            attempt.request.cancel();
        }
        lock(&self.pending).retain(|other| !Arc::ptr_eq(other, &attempt));
        outcome.map_err(|error| {
            let touched = attempt.has_changed(!is_refusal(&error));
            at(error, touched)
        })
    }

    /// Counts the bytes that travel with a call.
    fn count_direct(&self, call: &Recorded, handles: &HashMap<usize, Handle>) {
        let travelling = call.prepared.layout.arrays.iter();
        for array in travelling.filter(|array| !handles.contains_key(&array.param)) {
            if array.mode.is_sent() {
                self.traffic
                    .sent
                    .fetch_add(array.wire_bytes, Ordering::Relaxed);
            }
            if array.mode.is_returned() {
                self.traffic
                    .returned
                    .fetch_add(array.wire_bytes, Ordering::Relaxed);
            }
        }
    }

    /// An array that the call reads. Other calls at the server may read it too.
    fn shared_copy(&self, step: &Step, flow: &Flow, from: Source) -> Result<Handle, Fault> {
        let version = flow.reads.expect("a call reads what it does not make");
        let bring = || self.bring(step, flow, version, from);
        self.copies.get_or(version, step.server, bring)
    }

    /// An array that the call changes. Nobody else uses it from here on.
    fn own_copy(&self, step: &Step, flow: &Flow, from: Source) -> Result<Handle, Fault> {
        match (flow.reads, from) {
            (Some(version), Source::Here) => {
                let copy = self.copies.take(version, step.server);
                copy.ok_or_else(|| self.nowhere(step.server))
            }
            (Some(version), _) => self.bring(step, flow, version, from),
            (None, _) => {
                let put = self.server(step).put(self.form(step, flow), &[], false);
                put.map_err(|error| Fault::before(step.server, error))
            }
        }
    }

    fn bring(
        &self,
        step: &Step,
        flow: &Flow,
        version: VersionId,
        from: Source,
    ) -> Result<Handle, Fault> {
        match from {
            Source::Server(other) => self.pass(step, flow, version, other),
            Source::Here => Err(self.nowhere(step.server)),
            Source::Direct | Source::Home | Source::Nothing => {
                let kept = &self.calls[step.call].arguments[flow.used.argument];
                // SAFETY: as in `call`; the graph lets nobody write to it now.
                let argument = unsafe { kept.argument() };
                self.upload(step, flow, argument.bytes())
            }
        }
    }

    fn upload(&self, step: &Step, flow: &Flow, bytes: &[u8]) -> Result<Handle, Fault> {
        let form = self.form(step, flow);
        self.traffic
            .sent
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let put = self.server(step).put(form, bytes, false);
        put.map_err(|error| Fault::before(step.server, error))
    }

    /// Makes the server read an array from another server. If the servers cannot reach each other,
    /// the array goes through the client.
    fn pass(
        &self,
        step: &Step,
        flow: &Flow,
        version: VersionId,
        other: u64,
    ) -> Result<Handle, Fault> {
        let copy = self.copies.get(version, other);
        let copy = copy.ok_or_else(|| self.nowhere(other))?;
        let bytes = copy.form().bytes().unwrap_or(0);
        let timeout = Timeout::from_now(self.server(step).options().timeout);
        match copy.copy(self.server(step), false, timeout) {
            Ok(handle) => {
                self.traffic.passed.fetch_add(bytes, Ordering::Relaxed);
                Ok(handle)
            }
            Err(Error::Interrupted) => Err(Fault::before(step.server, Error::Interrupted)),
            Err(_) => {
                let got = copy.fetch();
                let array = got.map_err(|error| Fault::before(other, error))?;
                self.traffic.returned.fetch_add(bytes, Ordering::Relaxed);
                self.upload(step, flow, &array)
            }
        }
    }

    /// Fetches a result that no later call reads.
    pub(super) fn bring_home(&self, version: VersionId, server: u64) -> Result<(), Fault> {
        let copy = self.copies.get(version, server);
        let copy = copy.ok_or_else(|| self.nowhere(server))?;
        self.copy_home(version, &copy, server)
    }

    fn copy_home(&self, version: VersionId, copy: &Handle, server: u64) -> Result<(), Fault> {
        let Datum::Memory { start, bytes, .. } = self.graph.versions()[version].datum else {
            return Ok(());
        };
        // SAFETY: the memory of an OUT or INOUT array of a call; the graph lets nobody use it now.
        let memory = unsafe {
            let start = std::ptr::with_exposed_provenance_mut(start as usize);
            std::slice::from_raw_parts_mut(start, bytes as usize)
        };
        self.traffic.returned.fetch_add(bytes, Ordering::Relaxed);
        copy.get(memory).map_err(|error| Fault {
            server,
            begun: true,
            touched: !is_refusal(&error),
            error,
        })
    }

    fn server(&self, step: &Step) -> &Server {
        &self.servers[step.server as usize]
    }

    fn form(&self, step: &Step, flow: &Flow) -> ArrayForm {
        let call = &self.calls[step.call];
        let mut arrays = call.prepared.layout.arrays.iter();
        let array = arrays.find(|array| array.param == flow.used.argument);
        ArrayForm::of(array.expect("every flow is of an array"), call.order)
    }

    /// Another thread may have given up the server meanwhile, and with it the array.
    fn nowhere(&self, server: u64) -> Fault {
        let text = "an array of the transaction is not where it was";
        Fault::before(server, Error::failed(FailureKind::NotFound, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_that_was_given_up_meanwhile_fails_no_transaction() {
        let shared = Shared {
            graph: &Graph::default(),
            calls: &[],
            servers: &[],
            copies: Copies::default(),
            traffic: Traffic::default(),
            pending: Mutex::default(),
            ends: AtomicBool::default(),
        };
        let fault = shared.bring_home(0, 3).unwrap_err();
        assert!(fault.trouble() == Trouble::Arrays);
        assert!(fault.server == 3 && !fault.begun && !fault.touched);
    }
}
