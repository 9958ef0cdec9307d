//! Transactions: calls that are recorded first and then run as one data-flow graph, on one server
//! or on several.
//!
//! An array that one call writes and another reads stays at its server, or goes from server to
//! server. The client's memory receives only final contents. `farcall_schedule::dataflow` decides
//! which call waits for which; this module records calls, and its children run them.

mod recording;
mod run;
mod site;
mod step;

pub use recording::{Identity, Input, Recording};

use crate::argument::{Argument, Held};
use crate::call::{LaidOut, Prepared, Travel};
use crate::error::Error;
use crate::function::Function;
use crate::output::Output;
use crate::remote::{self, Handle};
use crate::server::Server;
use crate::trace;
use farcall_idl::{ArrayLayout, Interface, Mode, Order};
use farcall_rpc_proto::{ArrayForm, HandleId, TraceContext};
use farcall_schedule::dataflow::{self, Access, Datum, Graph, Misuse, Use};
use std::collections::HashMap;
use std::ops::Range;

/// Recorded calls that run together.
#[derive(Default)]
pub struct Transaction {
    graph: Graph,
    calls: Vec<Recorded>,
    forms: Vec<ArrayForm>,
    /// Number of forms that no other array may share. Such an array travels through the client's
    /// memory.
    single_forms: u64,
    deferred: HashMap<Deferred, Option<Handle>>,
    /// The trace of calls that nothing else has caused, once there is such a call.
    trace: Option<Option<TraceContext>>,
}

/// An array of a transaction that exists only at servers, until the caller fetches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deferred(u64);

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Calls that were made, including those repeated after a failure.
    pub calls: usize,
    /// Bytes of arrays that the client has sent.
    pub sent_bytes: u64,
    /// Bytes of arrays that the client has received.
    pub returned_bytes: u64,
    /// Bytes of arrays that went from server to server.
    pub passed_bytes: u64,
    /// Servers that ran at least one call.
    pub servers: usize,
    /// Time of the whole transaction, in seconds.
    pub total: f64,
}

/// A recorded call.
struct Recorded {
    qualified: String,
    text: String,
    repeatable: bool,
    output: Option<Output>,
    /// The layout before arrays get locations, and with stored arrays in theirs.
    laid_out: LaidOut,
    prepared: Prepared,
    /// Who records a call promises that its arrays outlive the transaction and are left alone. The
    /// graph keeps apart calls that use the same bytes.
    arguments: Vec<Held>,
    ways: ArgumentOptions,
    order: Order,
}

/// Options of a recorded call's arguments.
#[derive(Clone, Debug, Default)]
pub struct ArgumentOptions {
    /// Arguments whose arrays exist only at servers.
    pub deferred: Vec<(usize, Deferred)>,
    /// Arguments that are copies of other memory of the caller, with the addresses of that memory.
    pub copies: Vec<(usize, Range<usize>)>,
}

impl Transaction {
    /// A transaction without calls.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// The number of calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// A new array that exists only at servers. The first call that uses it must write it.
    pub fn defer(&mut self) -> Deferred {
        let deferred = Deferred(self.deferred.len() as u64);
        self.deferred.insert(deferred, None);
        deferred
    }

    /// Records a call. For an array in `ways.deferred`, pass [`Argument::Skip`].
    ///
    /// # Safety
    /// Until the transaction has run or is dropped, the arrays of `arguments` must stay where they
    /// are. The caller must not touch OUT and INOUT arrays, and must not write IN arrays.
    pub unsafe fn add(
        &mut self,
        function: &Function,
        arguments: &mut [Argument<'_>],
        ways: &ArgumentOptions,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.record_call(function, None, arguments, ways) }
    }

    /// Records a call with sizes that are already computed, as [`Function::call_laid_out`].
    ///
    /// # Safety
    /// As [`Transaction::add`].
    pub unsafe fn add_laid_out(
        &mut self,
        function: &Function,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
        ways: &ArgumentOptions,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.record_call(function, Some(laid_out), arguments, ways) }
    }

    /// The trace by which servers know its calls. With a collector, each call has one of its own.
    fn trace(&mut self) -> Option<TraceContext> {
        *self.trace.get_or_insert_with(trace::new_trace)
    }

    unsafe fn record_call(
        &mut self,
        function: &Function,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
        ways: &ArgumentOptions,
    ) -> Result<(), Error> {
        let interface = function.interface();
        let misuse = |param: usize, reason: &str| Error::Misuse {
            function: function.qualified_name().to_string(),
            argument: argument_name(interface, param),
            reason: reason.to_string(),
        };
        if let Some((param, reason)) = unfit(function, arguments) {
            return Err(misuse(param, reason));
        }
        let mut kept: Vec<Held> = arguments.iter_mut().map(Held::of).collect();
        let arguments = with_handles(arguments, &ways.deferred);
        let mut prepared = function.prepare(laid_out, &arguments, Travel::Both)?;
        prepared.call.trace = function.cause().or_else(|| self.trace());
        for (kept, scalar) in kept.iter_mut().zip(&prepared.call.scalars) {
            if let (Held::Skip, Some(scalar)) = (&*kept, scalar) {
                *kept = Held::Scalar(scalar.clone());
            }
        }
        let laid_out = prepared.laid_out(function.description());
        prepared.settle(&arguments);
        let layout = prepared.layout.clone();
        let mut uses = Vec::new();
        for array in layout
            .arrays
            .iter()
            .filter(|array| array.mode != Mode::Work)
        {
            let used = self.used(interface, array, &arguments[array.param], ways);
            uses.push(used.map_err(|reason| misuse(array.param, reason))?);
        }
        let weight = layout.cost.unwrap_or(layout.bytes as f64);
        self.graph.add(weight, &uses).map_err(|error| match error {
            Misuse::Unwritten(param) => misuse(param, "no call has written it yet"),
            Misuse::Aliased(_, param) => misuse(
                param,
                "it overlaps another array of the call, and the call writes one of them",
            ),
        })?;
        self.calls.push(Recorded {
            qualified: function.qualified_name().to_string(),
            text: function.text().to_string(),
            repeatable: interface.repeatable,
            output: function.output().cloned(),
            laid_out,
            prepared,
            order: interface.order(),
            arguments: kept,
            ways: ways.clone(),
        });
        Ok(())
    }

    /// Says that the caller does not need the final contents of these bytes. It holds for calls
    /// that use them as one array.
    pub fn discard(&mut self, bytes: Range<usize>) {
        self.graph.discard(bytes.start as u64, bytes.len() as u64);
    }

    /// Runs the calls on these servers and fills OUT and INOUT arrays in place. A call goes only to
    /// servers that have its function. After an error, the arrays that the calls write are
    /// undefined.
    pub fn run(&mut self, servers: &[Server]) -> Result<Report, Error> {
        run::run(self, servers)
    }

    /// The handle of an array that exists only at servers, after the transaction has run.
    pub fn take(&mut self, deferred: Deferred) -> Option<Handle> {
        self.deferred.get_mut(&deferred)?.take()
    }

    /// The graph in the DOT language: a box for each call, and an arrow for each array that goes
    /// from one call to another.
    pub fn dot(&self) -> String {
        let label =
            |(number, call): (usize, &Recorded)| format!("{} {}", number + 1, call.qualified);
        let labels: Vec<String> = self.calls.iter().enumerate().map(label).collect();
        let names = |call: usize, argument: usize| {
            let interface = farcall_idl::parse_interface(&self.calls[call].text);
            let name = |interface: &Interface| argument_name(interface, argument);
            interface
                .as_ref()
                .map_or_else(|_| argument.to_string(), name)
        };
        dataflow::dot(&self.graph, &labels, names)
    }

    fn used(
        &mut self,
        interface: &Interface,
        array: &ArrayLayout,
        argument: &Argument<'_>,
        ways: &ArgumentOptions,
    ) -> Result<Use, &'static str> {
        let access = match array.mode {
            Mode::Out if array.is_full() => Access::Write,
            Mode::Out | Mode::InOut => Access::Update,
            Mode::In | Mode::Work => Access::Read,
        };
        let used = |datum, access| Use {
            argument: array.param,
            datum,
            access,
        };
        let sizes = &interface.element_refs;
        let is_size = sizes.iter().any(|size| size.param == array.param);
        let mut deferred = ways.deferred.iter();
        if let Some((_, deferred)) = deferred.find(|(param, _)| *param == array.param) {
            if is_size || array.is_shrunk {
                return Err(
                    "an array of this type cannot be stored at servers; pass memory for it",
                );
            }
            let is_new = self.graph.deferred(deferred.0).is_none();
            // All other elements are zero.
            let access = match access {
                Access::Update if is_new && array.mode == Mode::Out => Access::Write,
                other => other,
            };
            return Ok(used(Datum::Deferred(deferred.0), access));
        }
        let mut copies = ways.copies.iter();
        let is_written = |range: &Range<usize>| self.graph.is_written(datum(range.clone(), 0));
        if let Some((_, range)) = copies.find(|(param, _)| *param == array.param)
            && (access.writes() || is_written(range))
        {
            return Err(
                "the transaction writes it, and the call takes a copy: its memory order is not the \
                 one that the function takes, or another argument shares its memory; pass it in \
                 that order and in memory of its own",
            );
        }
        let bytes = argument.bytes().as_ptr_range();
        let range = bytes.start as usize..bytes.end as usize;
        if is_size && self.graph.is_written(datum(range.clone(), 0)) {
            return Err("sizes depend on it, but an earlier call writes it");
        }
        let form = match is_size || array.is_shrunk {
            true => {
                self.single_forms += 1;
                u64::MAX - self.single_forms
            }
            false => self.form(interface, array),
        };
        Ok(used(datum(range, form), access))
    }

    /// The number of an array's form. Axes of length 1 do not matter.
    fn form(&mut self, interface: &Interface, array: &ArrayLayout) -> u64 {
        let form = ArrayForm::of(array, interface.order());
        let (order, shape) = (form.column_major, &form.shape);
        let mut known = self.forms.iter();
        let place = known.position(|known| known.fits(array.element, shape, order));
        let place = place.unwrap_or_else(|| {
            self.forms.push(form);
            self.forms.len() - 1
        });
        place as u64
    }
}

impl Recorded {
    /// The function at a server. With another interface, it would mistake the arguments.
    fn at(&self, server: &remote::Server) -> Result<remote::Function, Error> {
        let mut function = remote::same_function(server, (&self.qualified, &self.text))?;
        function.terms.output = self.output.clone();
        Ok(function)
    }
}

/// An argument that cannot be part of a transaction, and why.
fn unfit(function: &Function, arguments: &[Argument<'_>]) -> Option<(usize, &'static str)> {
    if function.is_method() {
        return Some((0, "methods of objects cannot be part of a transaction"));
    }
    if function.reservation().is_some() {
        let reason = "a call in a transaction can go to any server, so it cannot use a reservation";
        return Some((0, reason));
    }
    if function.deadline().is_some() {
        return Some((0, "a call in a transaction has no deadline"));
    }
    if function.terms().timeout.is_some() {
        return Some((0, "a call in a transaction has no time-out of its own"));
    }
    let param = arguments.iter().position(Argument::is_at_server)?;
    let reason = "a stored array cannot be part of a transaction; pass the array itself";
    Some((param, reason))
}

/// The arguments with a handle in place of each array that exists only at servers.
fn with_handles<'a>(
    arguments: &'a mut [Argument<'_>],
    deferred: &[(usize, Deferred)],
) -> Vec<Argument<'a>> {
    let same = |(param, argument): (usize, &'a mut Argument<'_>)| {
        if deferred.iter().any(|(known, _)| *known == param) {
            return Argument::Handle(HandleId([0; 16]));
        }
        argument.reborrow()
    };
    arguments.iter_mut().enumerate().map(same).collect()
}

/// The name of a parameter or callback.
fn argument_name(interface: &Interface, place: usize) -> String {
    let params = interface.params.iter().map(|param| &param.name);
    let mut names = params.chain(interface.callbacks.iter().map(|callback| &callback.name));
    names.nth(place).cloned().unwrap_or_default()
}

fn datum(range: Range<usize>, form: u64) -> Datum {
    Datum::Memory {
        start: range.start as u64,
        bytes: range.len() as u64,
        form,
    }
}
