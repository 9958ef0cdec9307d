//! A handle on one remote function.

use crate::argument::{self, Argument, ArgumentError, Way};
use crate::callback::{Callback, Callbacks};
use crate::connection::{Answered, Connection, Reply};
use crate::files::Files;
use crate::grid;
use crate::object::Instance;
use crate::output::{Output, Printed};
use crate::pending::Attempt;
use crate::{DataName, Error, Job, Pending, Plan, ReservationName, Server, staging};
use farcall_directory::message::{Choose, Offer, Terms};
use farcall_idl::{Interface, Layout, Place, Scalar};
use farcall_rpc_proto::{self as proto, Call, Estimate, Failure, FailureKind, Submission};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A function of a server. Clones share the interface.
#[derive(Clone)]
pub struct Function {
    server: Server,
    described: Arc<Described>,
    output: Option<Output>,
    /// The object whose method it is.
    object: Option<Arc<Instance>>,
    /// The reservation whose processor elements its calls have.
    pub(crate) reservation: Option<ReservationName>,
}

/// What the server said of a function. The server's cache holds this and not the [`Function`],
/// which would keep the server alive for ever.
pub(crate) struct Described {
    /// The name by which it was asked for.
    requested: String,
    qualified: String,
    number: Mutex<Number>,
    text: String,
    library: Option<Arc<str>>,
    interface: Interface,
    /// The callbacks as interfaces of their own.
    pub(crate) callbacks: Vec<Interface>,
}

/// The number under which a server knows a function, and the connection on which it said so: the
/// next connection may lead to a server that was restarted and numbers its functions anew.
#[derive(Clone, Copy)]
struct Number {
    connection: u64,
    function: u64,
}

/// What a call gives besides the arrays it filled.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How long it took.
    pub times: Times,
    /// Seconds of [`Times::other`] from the last argument to the start of the library.
    pub wait: f64,
    /// Where a metaserver has placed the call.
    pub placement: Option<Placement>,
    /// The library that has computed it, its version and its kernel, as far as it says.
    pub library: Option<Arc<str>>,
}

/// Where a call was placed, and what it was predicted to take there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The server's number, as in [`Offer::server`].
    pub server: u64,
    /// Seconds from then until its results are back.
    pub predicted_s: f64,
    /// Of what these consist, where that was told.
    pub terms: Option<Terms>,
}

/// How long a call took, in seconds, split as in the second Ninf paper (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The server received the arguments.
    pub send: f64,
    /// The library ran.
    pub exec: f64,
    /// The server sent the results.
    pub recv: f64,
    /// The rest of `total`: waiting, hand-overs, the way through the network.
    pub other: f64,
    /// From the start of the call to its return, at the caller.
    pub total: f64,
}

/// Stands for memory of the server, where an array has its place that stays there.
const AT_SERVER: u64 = u64::MAX;

/// A call that was checked: what is sent, where its arrays lie, and whom it calls back.
type Prepared = (Call, Layout, Vec<Callback>);

impl Function {
    pub(crate) fn new(server: Server, described: Arc<Described>) -> Function {
        Function {
            server,
            described,
            output: None,
            object: None,
            reservation: None,
        }
    }

    /// The same function, whose calls go to the servers behind a metaserver.
    pub(crate) fn by(self, server: Server) -> Function {
        Function { server, ..self }
    }

    /// The same function of one of the servers behind a metaserver.
    pub(crate) fn at(&self, server: &Server) -> Result<Function, Error> {
        let function = server.function(&self.described.qualified)?;
        if function.described.text != self.described.text {
            let text = format!(
                "the interface of `{}` is another there",
                self.described.qualified
            );
            return Err(Error::Failed(Failure::new(
                FailureKind::StaleInterface,
                text,
            )));
        }
        Ok(function.with_output(self.output.clone()))
    }

    /// What is asked of a metaserver for a call.
    fn wanted(&self, layout: &Layout) -> Choose {
        let elements = |count: Option<i64>| count.map(|pes| u32::try_from(pes).unwrap_or(u32::MAX));
        Choose {
            function: self.described.qualified.clone(),
            digest: farcall_directory::digest(&self.described.text),
            work: layout.cost.unwrap_or(layout.bytes as f64).max(0.0),
            up: layout.sent_bytes(),
            down: layout.returned_bytes(),
            memory: layout.bytes,
            fewest: elements(layout.fewest_elements),
            most: elements(layout.processor_elements),
            exclude: Vec::new(),
            explain: false,
            data: None,
        }
    }

    /// What a call with these scalars would take at each of the servers behind a metaserver, the
    /// soonest first; then those that cannot have it, and why. `elements` are as in
    /// [`Function::plan`].
    pub fn offers(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Vec<Offer>, Error> {
        let Some(grid) = self.server.grid() else {
            let text = format!(
                "{} is a server, not a metaserver: there is no choice",
                self.server.address()
            );
            return Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)));
        };
        let layout = self.layout(scalars, elements)?;
        let wanted = Choose {
            explain: true,
            ..self.wanted(&layout)
        };
        grid.explain(&self.server, &wanted)
    }

    /// The servers that have it with this interface, as far as they can be reached: those behind a
    /// metaserver, or the one.
    pub fn servers(&self) -> Vec<Server> {
        match self.server.grid() {
            Some(grid) => grid.servers_of(
                &self.server,
                &self.described.qualified,
                &self.described.text,
            ),
            None => vec![self.server.clone()],
        }
    }

    pub(crate) fn nowhere(&self) -> Error {
        let text = format!(
            "no server has `{}` with this interface",
            self.described.qualified
        );
        Error::Failed(Failure::new(FailureKind::NoServer, text))
    }

    fn layout(&self, scalars: &[Option<Scalar>], elements: &[i64]) -> Result<Layout, Error> {
        let layout = self.described.interface.layout(scalars, elements);
        layout.map_err(|error| Error::Argument {
            function: self.described.qualified.clone(),
            source: error.into(),
        })
    }

    /// The function of the server that is chosen for a call.
    fn chosen(&self, layout: &Layout) -> Result<Function, Error> {
        let Some(grid) = self.server.grid() else {
            return Ok(self.clone());
        };
        let place = grid.choose(&self.server, &self.wanted(layout))?;
        self.at(&grid.server(&self.server, place.server, &place.address)?)
    }

    /// The same method, called on an object.
    pub(crate) fn on(self, object: Arc<Instance>) -> Function {
        Function {
            object: Some(object),
            ..self
        }
    }

    /// Whether it is called on an object.
    pub fn is_method(&self) -> bool {
        self.object.is_some()
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.described.interface
    }

    /// The interface in canonical IDL.
    pub fn text(&self) -> &str {
        &self.described.text
    }

    /// The library behind it, its version and its kernel, as far as it says.
    pub fn library(&self) -> Option<&str> {
        self.described.library.as_deref()
    }

    /// `module/name`.
    pub fn qualified_name(&self) -> &str {
        &self.described.qualified
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What a call with these scalars would take, before anything of it is sent. `elements` are the
    /// values of the array elements that sizes depend on
    /// ([`Interface::element_values`](farcall_idl::Interface::element_values)).
    pub fn plan(&self, scalars: &[Option<Scalar>], elements: &[i64]) -> Result<Plan, Error> {
        let layout = self.layout(scalars, elements)?;
        if let Some(function) = self.at_reservation()? {
            return function.plan(scalars, elements);
        }
        if let Some(grid) = self.server.grid() {
            let offers = self.offers(scalars, elements)?;
            let soonest = offers.first().ok_or_else(|| self.nowhere())?;
            let server = grid.server(&self.server, soonest.server, &soonest.address)?;
            return self.at(&server)?.plan(scalars, elements);
        }
        let connection = self.server.connection()?;
        let call = Call {
            function: self.described.number_on(&connection)?,
            scalars: scalars.to_vec(),
            elements: elements.to_vec(),
            data_bytes: layout.sent_bytes(),
            places: Vec::new(),
            output: false,
            handles: Vec::new(),
            object: None,
            reservation: self.reservation.as_ref().map(|named| named.id),
        };
        /// The first question may wake the server up.
        const QUESTIONS: usize = 3;
        let mut estimate = Estimate::default();
        let mut round_trip = f64::INFINITY;
        for _ in 0..QUESTIONS {
            let start = Instant::now();
            estimate = connection.estimate(&call)?;
            round_trip = round_trip.min(start.elapsed().as_secs_f64());
        }
        Ok(Plan::new(
            &layout,
            &estimate,
            round_trip,
            connection.shares(),
        ))
    }

    /// The same function, whose calls have what the library prints written to `output`; without one
    /// it goes to the server's log.
    pub fn with_output(&self, output: Option<Output>) -> Function {
        Function {
            output,
            ..self.clone()
        }
    }

    /// Calls the function with one argument for each parameter and each callback, and fills OUT and
    /// INOUT arrays in place. If it fails, their contents are undefined. Callbacks run on this
    /// thread.
    pub fn call(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.call(arguments);
        }
        if self.server.grid().is_some() {
            return self.call_once(arguments);
        }
        let names = self.look_up(arguments)?;
        match self.call_or_renew(arguments) {
            // They were put again since they were looked up; nothing of the call was done.
            Err(Error::Failed(failure))
                if !names.is_empty() && failure.kind == FailureKind::NotFound =>
            {
                for (index, name) in names {
                    arguments[index] = Argument::Named(name);
                }
                self.look_up(arguments)?;
                self.call_or_renew(arguments)
            }
            other => other,
        }
    }

    /// Finds the arrays that are named, at the one server that there is; returns their places among
    /// the arguments and their names.
    fn look_up(&self, arguments: &mut [Argument<'_>]) -> Result<Vec<(usize, DataName)>, Error> {
        let mut names = Vec::new();
        for (index, argument) in arguments.iter_mut().enumerate() {
            if let Argument::Named(name) = argument {
                let handle = self.server.data(name)?.id();
                names.push((index, name.clone()));
                *argument = Argument::Handle(handle);
            }
        }
        Ok(names)
    }

    fn call_or_renew(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        match self.server.persist(|| self.call_once(arguments)) {
            Err(error) if error.is_stale_interface() => {
                let renewed = self.server.fetch(&self.described.requested)?;
                // The arguments were made for the interface that the caller has seen.
                if renewed.described.text == self.described.text {
                    let renewed = Function {
                        output: self.output.clone(),
                        object: self.object.clone(),
                        reservation: self.reservation.clone(),
                        ..renewed
                    };
                    renewed.call_once(arguments)
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    }

    fn call_once(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        if self.server.grid().is_some()
            && self.is_large(arguments)
            && let Ok((_, layout)) = self.check(arguments)
        {
            return grid::call(self, self.wanted(&layout), arguments);
        }
        if let Some(outcome) = self.call_in_streams(arguments)? {
            return Ok(outcome);
        }
        // SAFETY: the borrows outlive the call, which is over or given up when this returns.
        unsafe { self.start(arguments) }?.wait()
    }

    /// Begins a call and returns at once; any number may be under way. Its arguments travel while
    /// somebody waits for one of the calls to this server; its callbacks run on a thread that waits
    /// for it.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// stay where they are; OUT and INOUT arrays are not touched, IN arrays not written.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        let start = Instant::now();
        if self.server.grid().is_none() {
            self.look_up(arguments)?;
        }
        let (mut call, mut layout, functions) = self.prepare(arguments, Way::Both)?;
        if self.server.grid().is_some() {
            // SAFETY: the caller's promise is the same.
            return unsafe { self.start_elsewhere(&layout, arguments) };
        }
        let connection = self.connection_for(&mut call, &layout)?;
        let reply = self.reply(&connection, &mut call, functions)?;
        let interface = &self.described.interface;
        // SAFETY: the caller's promise is the same.
        let staging = unsafe { staging::place(&connection, interface, arguments, &mut layout) };
        call.places = layout.places();
        if !call.handles.is_empty() {
            connection.check_handles()?;
            leave_places_to_server(&mut call);
        }
        call.data_bytes = layout.sent_bytes();
        // SAFETY: likewise.
        let request = unsafe { connection.call(&call, arguments, layout, reply) }?;
        let library = self.described.library.clone();
        Ok(Pending::new(Attempt::new(request, staging, library, start)))
    }

    /// The connection for a call, which is told the function's number there, and its object.
    fn connection_for(&self, call: &mut Call, layout: &Layout) -> Result<Arc<Connection>, Error> {
        let connection = match &self.object {
            Some(object) => object.connection.clone(),
            None => self.server.connection()?,
        };
        if call.reservation.is_some() {
            connection.check_reservations()?;
        }
        // The number holds for every connection to the server.
        call.function = self.described.number_on(&connection)?;
        call.object = self.object.as_ref().map(|object| object.id);
        let moves_files = self.described.interface.moves_files();
        if moves_files && !connection.moves_files() {
            return Err(self.too_old("work on files of its callers"));
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
    pub(crate) fn own_connection(
        &self,
        first: &Arc<Connection>,
    ) -> Result<Option<Arc<Connection>>, Error> {
        match self.reservation.as_ref().filter(|_| self.object.is_none()) {
            Some(named) => self.server.reserved(first, named.id),
            None => Ok(None),
        }
    }

    /// What a call has its caller do while it runs.
    fn reply(
        &self,
        connection: &Connection,
        call: &mut Call,
        functions: Vec<Callback>,
    ) -> Result<Reply, Error> {
        let interface = &self.described.interface;
        let files = Files::open(&self.described.qualified, interface, &mut call.scalars)?;
        let needed = !functions.is_empty() || interface.moves_files();
        let callbacks = needed.then(|| {
            Box::new(Callbacks {
                described: self.described.clone(),
                functions,
                files,
            })
        });
        let printed = match &self.output {
            Some(output) if connection.forwards_output() => {
                call.output = true;
                Some(Arc::new(Printed::new(output.clone())))
            }
            Some(_) => return Err(self.too_old("forward what functions print")),
            None => None,
        };
        Ok(Reply {
            callbacks,
            printed,
            function: self.described.clone(),
        })
    }

    /// Begins a call behind a metaserver: at the server of its reservation, or at the one that is
    /// chosen for it.
    ///
    /// # Safety
    /// As [`Function::start`].
    unsafe fn start_elsewhere(
        &self,
        layout: &Layout,
        arguments: &mut [Argument<'_>],
    ) -> Result<Pending, Error> {
        match self.at_reservation()? {
            // SAFETY: the caller's promise is the same.
            Some(function) => unsafe { function.start(arguments) },
            // SAFETY: likewise.
            None => unsafe { grid::start(self, self.wanted(layout), arguments) },
        }
    }

    /// Submits a call: once this returns, the server runs it whatever happens to this program or to
    /// the server, and keeps what it comes to for `keep`, or for as long as the server likes.
    /// INOUT arrays are read only, OUT arrays are [`Argument::Skip`].
    pub fn submit(
        &self,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<Job, Error> {
        let (mut call, layout, functions) = self.prepare(arguments, Way::There)?;
        if !functions.is_empty() {
            let text = "calls functions of its caller, so that it cannot be submitted";
            let text = format!("{} {text}", self.described.qualified);
            return Err(Error::Failed(Failure::new(FailureKind::BadArgument, text)));
        }
        if self.server.grid().is_some() {
            let function = match self.at_reservation()? {
                Some(function) => function,
                None => self.chosen(&layout)?,
            };
            return function.submit(arguments, keep);
        }
        let connection = self.server.connection()?;
        connection.check_jobs()?;
        if call.reservation.is_some() {
            connection.check_reservations()?;
        }
        call.function = self.described.number_on(&connection)?;
        let keep = keep.map(|keep| keep.as_secs().max(1));
        let submission = Submission { call, keep };
        let connection = self.own_connection(&connection)?.unwrap_or(connection);
        // SAFETY: the borrows outlive the submission, which is over when this returns.
        let id = unsafe { connection.submit(&submission, arguments, layout) }?;
        Ok(Job::new(self.server.clone(), id))
    }

    /// What a transaction keeps of a call: its scalars, the values of the elements that sizes
    /// depend on, and where its arrays lie.
    pub(crate) fn check(&self, arguments: &[Argument<'_>]) -> Result<(Call, Layout), Error> {
        let (call, layout, _) = self.prepare(arguments, Way::Both)?;
        Ok((call, layout))
    }

    /// The name by which the server was asked for it.
    pub(crate) fn requested(&self) -> &str {
        &self.described.requested
    }

    /// Where what it prints goes.
    pub(crate) fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    fn too_old(&self, what: &str) -> Error {
        let text = format!("the server is too old to {what}; update it");
        Error::Failed(Failure::new(FailureKind::Internal, text))
    }

    fn prepare(&self, arguments: &[Argument<'_>], way: Way) -> Result<Prepared, Error> {
        let prepared = self.try_prepare(arguments, way);
        prepared.map_err(|source| Error::Argument {
            function: self.described.qualified.clone(),
            source,
        })
    }

    fn try_prepare(&self, arguments: &[Argument<'_>], way: Way) -> Result<Prepared, ArgumentError> {
        let interface = &self.described.interface;
        let scalars = argument::scalars(interface, arguments)?;
        let elements = argument::elements(interface, &scalars, arguments)?;
        let mut layout = interface.layout(&scalars, &elements)?;
        for array in &layout.arrays {
            let param = &interface.params[array.param];
            argument::check_array(param, array, &arguments[array.param], way)?;
        }
        let handles = argument::handles(&layout, arguments);
        let mut places = vec![None; layout.arrays.len()];
        for (place, array) in places.iter_mut().zip(&layout.arrays) {
            let stays = argument::is_at_server(&arguments[array.param]);
            *place = stays.then_some(Place {
                segment: AT_SERVER,
                offset: 0,
            });
        }
        if places.iter().any(Option::is_some) {
            layout.place(places);
        }
        let functions = argument::callbacks(interface, arguments)?;
        let call = Call {
            function: 0,
            scalars,
            elements,
            data_bytes: layout.sent_bytes(),
            places: Vec::new(),
            output: false,
            handles,
            object: None,
            reservation: self.reservation.as_ref().map(|named| named.id),
        };
        argument::check_length(&call)?;
        Ok((call, layout, functions))
    }
}

impl Described {
    /// Reads the interface that a server sent.
    pub(crate) fn new(
        server: &Server,
        connection: &Connection,
        requested: &str,
        answered: Answered,
    ) -> Result<Described, Error> {
        let Answered {
            function,
            text,
            library,
        } = answered;
        let interface = farcall_idl::parse_interface(&text).map_err(|error| Error::Interface {
            address: server.address().clone(),
            function: requested.to_string(),
            reason: format!(
                "{error}\nthe server is {}, this is farcall-client {}: the newer one may know more \
                 of the interface language; update the other",
                connection.agent(),
                env!("CARGO_PKG_VERSION"),
            ),
        })?;
        Ok(Described {
            requested: requested.to_string(),
            qualified: interface.qualified_name().into_owned(),
            number: Mutex::new(Number {
                connection: connection.number(),
                function,
            }),
            text,
            library: library.map(Arc::from),
            callbacks: interface
                .callbacks
                .iter()
                .map(|callback| callback.interface(&interface))
                .collect(),
            interface,
        })
    }

    /// `module/name`.
    pub(crate) fn qualified(&self) -> &str {
        &self.qualified
    }

    /// The function's number for a call on this connection.
    fn number_on(&self, connection: &Arc<Connection>) -> Result<u64, Error> {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        if number.connection != connection.number() {
            let Answered { function, text, .. } = connection.describe(&self.requested)?;
            if text != self.text {
                let text = format!(
                    "the interface of `{}` is another since the server was restarted; ask for \
                     the function again",
                    self.qualified
                );
                return Err(Error::Failed(Failure::new(
                    FailureKind::StaleInterface,
                    text,
                )));
            }
            let connection = connection.number();
            *number = Number {
                connection,
                function,
            };
        }
        Ok(number.function)
    }
}

/// The server knows where those arrays are that it has.
fn leave_places_to_server(call: &mut Call) {
    for place in &mut call.places {
        *place = place.filter(|place| place.segment != AT_SERVER);
    }
    if call.places.iter().all(Option::is_none) {
        call.places.clear();
    }
}

impl Times {
    pub(crate) fn new(times: proto::Times, total: f64) -> Times {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        let [send, exec, recv] = [times.send, times.exec, times.recv].map(seconds);
        Times {
            send,
            exec,
            recv,
            other: total - send - exec - recv,
            total,
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Function({} at {})",
            self.described.qualified,
            self.server.address()
        )
    }
}
