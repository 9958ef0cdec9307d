//! A function of one server, and how a call of it begins.

use crate::argument::Argument;
use crate::call::{LaidOut, Prepared, Travel};
use crate::description::Description;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::output::{Output, Printed};
use crate::remote::attempt::Attempt;
use crate::remote::callbacks::Callbacks;
use crate::remote::catalogue::Entry;
use crate::remote::connection::{Connection, Reply};
use crate::remote::files::Files;
use crate::remote::object::Instance;
use crate::remote::requests::{arrays, functions, reservations};
use crate::remote::server::Server;
use crate::remote::staging;
use crate::reservation::ReservationName;
use farcall_rpc_proto::{CALLBACKS, Estimate as ServerEstimate, FILES, FailureKind, OUTPUT};
use std::sync::Arc;
use std::time::Instant;

/// A function of one server. Clones share the interface.
#[derive(Clone)]
pub(crate) struct Function {
    server: Server,
    pub(super) entry: Arc<Entry>,
    output: Option<Output>,
    /// The object whose method it is.
    object: Option<Arc<Instance>>,
    /// The reservation whose processor elements its calls have.
    reservation: Option<ReservationName>,
}

impl Server {
    /// The function of that name. Its interface is fetched once.
    pub(crate) fn function(&self, name: &str) -> Result<Function, Error> {
        Ok(Function {
            server: self.clone(),
            entry: self.entry(name)?,
            output: None,
            object: None,
            reservation: None,
        })
    }
}

impl Function {
    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.entry.description
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    pub(crate) fn reservation(&self) -> Option<&ReservationName> {
        self.reservation.as_ref()
    }

    /// Whether it is called on an object.
    pub(crate) fn is_method(&self) -> bool {
        self.object.is_some()
    }

    /// The same function, whose calls have what the library prints written to `output`.
    pub(crate) fn with_output(self, output: Option<Output>) -> Function {
        Function { output, ..self }
    }

    /// The same function, whose calls have what is reserved.
    pub(crate) fn with_reservation(self, reservation: Option<ReservationName>) -> Function {
        Function {
            reservation,
            ..self
        }
    }

    /// The same method, called on an object.
    pub(crate) fn on(self, object: Arc<Instance>) -> Function {
        Function {
            object: Some(object),
            ..self
        }
    }

    /// The same function, as the server has described it anew.
    pub(super) fn described_by(&self, entry: Arc<Entry>) -> Function {
        Function {
            entry,
            ..self.clone()
        }
    }

    fn reserved(&self) -> Option<u64> {
        self.reservation.as_ref().map(|named| named.id)
    }

    /// What a call would take, before anything of it is sent.
    pub(crate) fn estimate(&self, laid_out: LaidOut) -> Result<Estimate, Error> {
        /// The first question may wake the server up.
        const QUESTIONS: usize = 3;
        let connection = self.server.connection()?;
        let (mut call, layout) = laid_out.into_question();
        call.function = self.entry.number_on(&connection)?;
        call.reservation = self.reserved();
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

    /// Checks the arguments of a call.
    pub(crate) fn prepare(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        Prepared::new(self.description(), laid_out, arguments, way)
    }

    /// Begins a call that was prepared, and returns at once.
    ///
    /// # Safety
    /// Until the attempt is over or dropped, the arrays of `arguments` stay where they are; OUT and
    /// INOUT arrays are not touched, IN arrays not written.
    pub(crate) unsafe fn begin(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Attempt, Error> {
        let start = prepared.begins();
        prepared.settle(arguments);
        prepared.call.reservation = self.reserved();
        let connection = self.connection_for(prepared)?;
        let interface = &self.description().interface;
        // Names of files are for the server as long as it has the call.
        let paths = (interface.moves_files()).then(|| prepared.call.scalars.clone());
        let reply = self.reply(&connection, prepared)?;
        let layout = &mut prepared.layout;
        // SAFETY: the caller's promise is the same.
        let staging = unsafe { staging::place(&connection, interface, arguments, layout) };
        prepared.tell_places();
        if !prepared.call.handles.is_empty() {
            arrays::check_handles(&connection)?;
        }
        let layout = prepared.layout.clone();
        // SAFETY: likewise.
        let request = unsafe { connection.call(&prepared.call, arguments, layout, reply) };
        if let Some(paths) = paths {
            prepared.call.scalars = paths;
        }
        let library = self.description().library.clone();
        Ok(Attempt::new(request?, staging, library, start))
    }

    /// The connection for a call, which is told the function's number there, and its object.
    fn connection_for(&self, prepared: &mut Prepared) -> Result<Arc<Connection>, Error> {
        let (call, layout) = (&mut prepared.call, &prepared.layout);
        let connection = match &self.object {
            Some(object) => object.connection.clone(),
            None => self.server.connection()?,
        };
        if call.reservation.is_some() {
            reservations::check_reservations(&connection)?;
        }
        // The number holds for every connection to the server.
        call.function = self.entry.number_on(&connection)?;
        call.object = self.object.as_ref().map(|object| object.id);
        let moves_files = self.description().interface.moves_files();
        if moves_files {
            let what = "work on files of its callers";
            connection.check(FILES | CALLBACKS, FailureKind::Internal, what)?;
        }
        if let Some(own) = self.own_connection(&connection)? {
            return Ok(own);
        }
        let bytes = layout.sent_bytes() + layout.returned_bytes();
        Ok(match moves_files || self.object.is_some() {
            true => connection,
            false => self.server.for_arrays(connection, bytes),
        })
    }

    /// The connection that has the bandwidth of the calls' reservation. Methods are called on the
    /// connection of their object.
    pub(super) fn own_connection(
        &self,
        first: &Arc<Connection>,
    ) -> Result<Option<Arc<Connection>>, Error> {
        match self.reserved().filter(|_| self.object.is_none()) {
            Some(id) => self
                .server
                .reserved(|reserved, to| reserved.connection(id, first, to)),
            None => Ok(None),
        }
    }

    /// What a call has its caller do while it runs.
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
        let printed = match &self.output {
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
