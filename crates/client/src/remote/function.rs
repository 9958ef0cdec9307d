//! Functions of one server, and the start of their calls: the module prepares the arguments and
//! chooses the connection. `attempt` follows the call to its end. Clones of a function share one
//! interface, which the client fetches once.

use crate::argument::Argument;
use crate::call::{LaidOut, Prepared, Travel};
use crate::description::Description;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::output::Printed;
use crate::remote::attempt::Attempt;
use crate::remote::callbacks::Callbacks;
use crate::remote::catalogue::Entry;
use crate::remote::connection::{Connection, Reply};
use crate::remote::files::Files;
use crate::remote::object::Instance;
use crate::remote::requests::{arrays, functions, reservations};
use crate::remote::server::{Server, connection_by, is_at};
use crate::remote::staging;
use crate::terms::Terms;
use crate::timeout::Timeout;
use farcall_rpc_proto::{
    CALLBACKS, DEADLINES, Estimate as ServerEstimate, FILES, FailureKind, OUTPUT, TRACES,
    TraceContext,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A function of one server. Clones share the interface.
#[derive(Clone)]
pub(crate) struct Function {
    server: Server,
    pub(super) entry: Arc<Entry>,
    /// The object, if the function is a method.
    object: Option<Arc<Instance>>,
    pub(crate) terms: Terms,
}

impl Server {
    /// The function with this name. The client fetches its interface once for each connection.
    pub(crate) fn function(&self, name: &str) -> Result<Function, Error> {
        Ok(Function {
            server: self.clone(),
            entry: self.entry(name)?,
            object: None,
            terms: Terms::default(),
        })
    }
}

/// The function with this name, if it has the interface with this text.
///
/// # Errors
/// It has another one, or the server does not have the function.
pub(crate) fn same_function(
    server: &Server,
    (name, text): (&str, &str),
) -> Result<Function, Error> {
    let function = server.function(name)?;
    match function.description().text == text {
        true => Ok(function),
        false => {
            let text = format!("the interface of `{name}` is different there");
            Err(Error::failed(FailureKind::StaleInterface, text))
        }
    }
}

impl Function {
    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.entry.description
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Whether the function is a method of an object.
    pub(crate) fn is_method(&self) -> bool {
        self.object.is_some()
    }

    /// The trace that a call on a connection belongs to, if the server knows traces: that of the
    /// function, or that of the call itself.
    pub(super) fn trace_on(
        &self,
        connection: &Connection,
        own: Option<TraceContext>,
    ) -> Option<TraceContext> {
        self.terms.trace.or(own).filter(|_| connection.has(TRACES))
    }

    /// The same method, called on an object.
    pub(crate) fn on(self, object: Arc<Instance>) -> Function {
        Function {
            object: Some(object),
            ..self
        }
    }

    /// The same function with a new description from the server.
    pub(super) fn described_by(&self, entry: Arc<Entry>) -> Function {
        Function {
            entry,
            ..self.clone()
        }
    }

    /// The number of the reservation that the calls use.
    ///
    /// # Errors
    /// The reservation is at another server.
    pub(super) fn reserved(&self) -> Result<Option<u64>, Error> {
        let Some(named) = &self.terms.reservation else {
            return Ok(None);
        };
        let Some(at) = &named.at else {
            return Ok(Some(named.id));
        };
        if is_at(&self.server, at)? {
            return Ok(Some(named.id));
        }
        let (id, server) = (named.id, self.server.address());
        let text = format!(
            "reservation {id} is at {at}, and this call goes to {server}: call the function at \
             {at}, or reserve at {server}; if both are one server, name the reservation {id}"
        );
        Err(Error::failed(FailureKind::BadArgument, text))
    }

    /// The estimated cost of a call. No array is sent.
    pub(crate) fn estimate(&self, laid_out: LaidOut) -> Result<Estimate, Error> {
        /// Number of round trips. The first one may have to wake the server.
        const QUESTIONS: usize = 3;
        let connection = self.server.connection()?;
        let (mut call, layout) = laid_out.into_question();
        call.function = self.entry.number_on(&connection)?;
        call.reservation = self.reserved()?;
        let mut estimate = ServerEstimate::default();
        let mut round_trip = f64::INFINITY;
        for _ in 0..QUESTIONS {
            let start = Instant::now();
            estimate = functions::estimate(&connection, &call)?;
            round_trip = round_trip.min(start.elapsed().as_secs_f64());
        }
        let shares = connection.shares();
        Ok(Estimate::new(&layout, &estimate, round_trip, shares))
    }

    /// The time-out of the calls.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.terms.timeout.or(self.server.options().timeout)
    }

    /// Checks the arguments of a call.
    pub(crate) fn prepare(
        &self,
        timeout: Timeout,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        Prepared::new(self.description(), timeout, laid_out, arguments, way)
    }

    /// Begins a prepared call and returns at once.
    ///
    /// # Safety
    /// Until the attempt has ended or is dropped, the arrays of `arguments` must stay where they
    /// are. The caller must not touch OUT and INOUT arrays, and must not write IN arrays.
    pub(crate) unsafe fn begin(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Attempt, Error> {
        let start = prepared.begins();
        prepared.settle(arguments);
        prepared.call.reservation = self.reserved()?;
        prepared.call.before = self.terms.before.map(|before| prepared.left(before));
        let connection = self.connection_for(prepared)?;
        let interface = &self.description().interface;
        // The server sees file names only while it has the call.
        let paths = (interface.moves_files()).then(|| prepared.call.scalars.clone());
        let reply = self.reply(&connection, prepared)?;
        let layout = &mut prepared.layout;
        let in_place = staging::fills_in_place(&connection, arguments, layout);
        // SAFETY: the caller makes the same promise.
        let staging = unsafe { staging::place(&connection, interface, arguments, layout) };
        prepared.tell_places();
        if !prepared.call.handles.is_empty() {
            arrays::check_handles(&connection)?;
        }
        let layout = prepared.layout.clone();
        // SAFETY: the caller makes the same promise.
        let request = unsafe { connection.call(&prepared.call, arguments, layout, reply) };
        if let Some(paths) = paths {
            prepared.call.scalars = paths;
        }
        let library = self.description().library.clone();
        let mut request = request?;
        // Other servers may have been tried, and arrays may have travelled apart in vain.
        request.within(prepared.timeout());
        Ok(Attempt::new(request, staging, library, start).in_place(in_place))
    }

    /// Chooses the connection for a call, and sets the numbers of the function and the object on
    /// it.
    fn connection_for(&self, prepared: &mut Prepared) -> Result<Arc<Connection>, Error> {
        let timeout = prepared.timeout();
        let connection = match &self.object {
            Some(object) => object.connection.clone(),
            None => connection_by(&self.server, timeout)?,
        };
        let (call, layout) = (&mut prepared.call, &prepared.layout);
        if call.reservation.is_some() {
            reservations::check_reservations(&connection)?;
        }
        if call.before.is_some() {
            connection.check(DEADLINES, FailureKind::BadArgument, "promise deadlines")?;
        }
        // The number is valid on every connection to the server.
        call.function = self.entry.number_on(&connection)?;
        call.object = self.object.as_ref().map(|object| object.id);
        call.trace = self.trace_on(&connection, call.trace);
        let moves_files = self.description().interface.moves_files();
        if moves_files {
            let what = "work on files of its callers";
            connection.check(FILES | CALLBACKS, FailureKind::Internal, what)?;
        }
        // Requests for a stored array keep their order on the connection of `get` and `drop`.
        if !call.handles.is_empty() {
            return Ok(connection);
        }
        if let Some(own) = self.own_connection(&connection, timeout)? {
            return Ok(own);
        }
        let bytes = layout.sent_bytes() + layout.returned_bytes();
        match moves_files || self.object.is_some() {
            true => Ok(connection),
            false => self.server.for_arrays(connection, bytes, timeout),
        }
    }

    /// The connection with the bandwidth of the reservation. Methods use the connection of their
    /// object instead, and calls on stored arrays that of the arrays. `timeout` is that of the
    /// call.
    pub(super) fn own_connection(
        &self,
        first: &Arc<Connection>,
        timeout: Timeout,
    ) -> Result<Option<Arc<Connection>>, Error> {
        let Some(id) = self.reserved()?.filter(|_| self.object.is_none()) else {
            return Ok(None);
        };
        let server = &self.server;
        let own = server.reserved(|reserved, to| reserved.connection(id, first, to, timeout));
        own.map_err(|error| match error {
            Error::Interrupted => error,
            _ if timeout.has_passed() => timeout.error(server.address()),
            _ => error,
        })
    }

    /// The work that a running call may ask of its caller.
    fn reply(&self, connection: &Connection, prepared: &mut Prepared) -> Result<Reply, Error> {
        let description = self.description();
        let interface = &description.interface;
        let scalars = &mut prepared.call.scalars;
        let files = Files::open(&description.qualified, interface, scalars)?;
        let needed = !prepared.functions.is_empty() || interface.moves_files();
        let callbacks = needed.then(|| {
            Box::new(Callbacks {
                description: description.clone(),
                functions: prepared.functions.clone(),
                files,
            })
        });
        let printed = match &self.terms.output {
            Some(output) => {
                let what = "forward what functions print";
                connection.check(OUTPUT, FailureKind::Internal, what)?;
                prepared.call.output = true;
                Some(Arc::new(Printed::new(output.clone())))
            }
            None => None,
        };
        Ok(Reply {
            callbacks,
            printed,
            function: description.clone(),
        })
    }
}
