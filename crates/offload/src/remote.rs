//! The server: its connection, and calls that leave the program's arrays whole if they fail. `shim`
//! decides which calls are made.

use crate::routine::{Given, Routine};
use crate::rule::Reach;
use crate::store::{Access, Placed, Store};
use farcall_client::{
    Argument, ArrayForm, Error, Estimate, Fault, Function, LaidOut, Options, Outcome, Server,
};
use farcall_idl::{ArrayLayout, Body, Convention, Interface, Mode, Order, Passed, Scalar, Type};
use std::ops::Range;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for a connection. A program loses it once if there is no server.
const CONNECT: Duration = Duration::from_millis(900);

/// The server of a process.
pub(crate) struct Remote {
    pub(crate) store: Store,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reach: Reach,
    server: Option<Server>,
    /// Why the last call was not sent, or failed.
    trouble: Option<String>,
}

impl Remote {
    pub(crate) fn new() -> Remote {
        Remote {
            store: Store::new(),
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// The server, unless it is away. Other threads wait for the first connection.
    pub(crate) fn server(&self) -> Option<Server> {
        let mut state = self.state();
        if !state.reach.may_try(self.now()) {
            return None;
        }
        if state.server.is_none() {
            match connect() {
                Ok(server) => {
                    state.server = Some(server);
                    state.reach.reached();
                }
                Err(trouble) => {
                    state.trouble = Some(trouble);
                    state.reach.lost(self.now());
                }
            }
        }
        state.server.clone()
    }

    /// Remembers why a call was not sent, or failed.
    pub(crate) fn note(&self, trouble: String) {
        self.state().trouble = Some(trouble);
    }

    /// Why the last call was not sent, or failed. Waits for no other thread.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.try_lock().ok()?.trouble.clone()
    }

    /// Learns how a call has ended.
    pub(crate) fn ended<T>(&self, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.state().reach.reached(),
            Err(error) => {
                self.note(error.to_string());
                // A new connection has none of the arrays of the old one.
                self.store.clear();
                if error.fault() == Fault::Peer {
                    self.state().reach.lost(self.now());
                }
            }
        }
    }
}

/// Connects within a bound. The system's resolver of names has none, so a thread does it.
fn connect() -> Result<Server, String> {
    let (done, result) = mpsc::sync_channel(1);
    let open = move || {
        let options = Options {
            connect_timeout: CONNECT,
            close_in_children: true,
            ..Options::default()
        };
        let server = Server::connect(&farcall_client::default_address(), options);
        // The program may have given up.
        let _ = done.send(server.map_err(|error| error.to_string()));
    };
    let builder = std::thread::Builder::new().name("farcall-connect".to_string());
    builder.spawn(open).map_err(|error| error.to_string())?;
    let connected = result.recv_timeout(CONNECT);
    connected.unwrap_or_else(|_| {
        let (address, time) = (farcall_client::default_address(), CONNECT.as_secs_f64());
        Err(format!("no connection to {address} within {time} s"))
    })
}

/// The function of the server that computes what a routine does: of the same name, with the same
/// parameters. `None` if the server has none.
///
/// # Errors
/// The server does not answer.
pub(crate) fn function(server: &Server, routine: &Routine) -> Result<Option<Function>, Error> {
    let interface = &routine.interface;
    let suits = |function: &Function| {
        let served = function.interface();
        served.params == interface.params && called(served) == called(interface)
    };
    for name in [&*interface.qualified_name(), &interface.name] {
        match server.function(name) {
            Ok(function) if suits(&function) => return Ok(Some(function)),
            Err(error) if error.fault() == Fault::Peer => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

/// How an interface calls its function: what a description by the server has of it. The constants
/// that the library passes are not a part of descriptions.
fn called(interface: &Interface) -> Option<(Convention, &str, Vec<usize>, Option<usize>)> {
    let Body::Calls {
        convention,
        function,
        args,
        returns,
    } = &interface.body
    else {
        return None;
    };
    let params = args.iter().filter_map(Passed::param).collect();
    Some((*convention, function, params, *returns))
}

/// The arrays of one call in the memory of the program.
pub(crate) struct Arrays<'c> {
    routine: &'c Routine,
    given: &'c Given,
    integer: u32,
    arrays: Vec<Held>,
}

/// One array.
struct Held {
    layout: ArrayLayout,
    address: *mut u8,
    /// The integers in the size of the interface, if the program's are wider.
    narrow: Option<Vec<i32>>,
    /// What an array that the call writes contained. A routine that fails may leave parts of an OUT
    /// array as they were, too.
    before: Option<Vec<u8>>,
    /// Its place at the server, if it has one.
    placed: Option<Placed>,
}

impl<'c> Arrays<'c> {
    /// Finds the arrays, and copies those that a failed call might change. `None` if the program
    /// passes no memory for an array, integers that do not fit, or an array that the call writes
    /// and that shares memory with another one: the real function sees what it writes there.
    ///
    /// # Safety
    /// The addresses are those of the arrays that the interface declares for these scalars. Parts
    /// that do not travel need not exist.
    pub(crate) unsafe fn new(
        routine: &'c Routine,
        given: &'c Given,
        laid_out: &LaidOut,
        integer: u32,
    ) -> Option<Arrays<'c>> {
        let mut arrays = Vec::new();
        let layouts = laid_out.layout().arrays.iter();
        for layout in layouts.filter(|layout| layout.mode != Mode::Work) {
            let address = given.addresses[layout.param];
            if address.is_null() && layout.wire_bytes > 0 {
                return None;
            }
            let mut held = Held {
                layout: layout.clone(),
                address,
                narrow: None,
                before: None,
                placed: None,
            };
            if integer == 8 && layout.element == Type::Int {
                // SAFETY: the caller's promise.
                held.narrow = Some(unsafe { held.narrowed() }?);
            } else if layout.mode.is_returned() {
                // SAFETY: the caller's promise.
                held.before = Some(unsafe { held.contents() });
            }
            let shares =
                |other: &Held| (held.is_written() || other.is_written()) && held.shares(other);
            if arrays.iter().any(shares) {
                return None;
            }
            arrays.push(held);
        }
        Some(Arrays {
            routine,
            given,
            integer,
            arrays,
        })
    }

    /// Gives large arrays places at the server, or finds those that it has.
    ///
    /// # Safety
    /// As for [`Arrays::new`].
    pub(crate) unsafe fn place(&mut self, store: &Store, server: &Server, estimate: &Estimate) {
        let interface = &self.routine.interface;
        for held in &mut self.arrays {
            let layout = &held.layout;
            let is_whole = layout.is_full() && held.narrow.is_none();
            if !is_whole || !store.keeps(layout.wire_bytes, estimate) {
                continue;
            }
            let access = match layout.mode {
                Mode::In => Access::Read,
                Mode::InOut if !self.routine.reads(layout.param, &self.given.scalars) => {
                    Access::Write
                }
                Mode::InOut => Access::Change,
                Mode::Out | Mode::Work => Access::Write,
            };
            let form = ArrayForm {
                element: layout.element.name().to_string(),
                shape: layout.shape(interface.order()),
                column_major: interface.order() == Order::ColumnMajor,
            };
            let bytes = layout.client_bytes as usize;
            // SAFETY: the caller's promise; the whole array travels, so that it is there.
            let bytes = unsafe { std::slice::from_raw_parts(held.address, bytes) };
            held.placed = store.place(server, form, bytes, access);
        }
    }

    /// Bytes that travel to the server and back.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.arrays.iter().map(|held| {
            let wire = held.layout.wire_bytes;
            let there = match &held.placed {
                Some(placed) => placed.sent,
                None => wire * u64::from(held.layout.mode.is_sent()),
            };
            there + wire * u64::from(held.layout.mode.is_returned())
        });
        bytes.sum()
    }

    /// Fetches the results that are at the server. Without success, the caller restores the arrays.
    ///
    /// # Safety
    /// As for [`Arrays::new`]; nobody else uses the arrays.
    pub(crate) unsafe fn fetch(&mut self, store: &Store) -> Result<(), Error> {
        for held in &mut self.arrays {
            let Some(placed) = held.placed.as_ref().filter(|placed| placed.is_written()) else {
                continue;
            };
            let bytes = held.layout.client_bytes as usize;
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts_mut(held.address, bytes) };
            placed.handle.get(bytes)?;
            store.keep(placed, bytes);
        }
        Ok(())
    }

    /// Gives up the places of results, because there are none.
    pub(crate) fn leave(&self, store: &Store) {
        let placed = self.arrays.iter().filter_map(|held| held.placed.as_ref());
        placed.for_each(|placed| store.leave(placed));
    }

    /// Calls the function. Without success, all arrays are as before.
    ///
    /// # Safety
    /// As for [`Arrays::new`]; nobody else uses the arrays.
    pub(crate) unsafe fn call(
        &mut self,
        function: &Function,
        laid_out: LaidOut,
    ) -> Result<Outcome, Error> {
        let count = self.routine.interface.params.len();
        let mut arguments: Vec<Argument<'_>> = Vec::with_capacity(count);
        arguments.resize_with(count, || Argument::Skip);
        for held in &mut self.arrays {
            if let Some(placed) = &held.placed {
                arguments[held.layout.param] = Argument::Handle(placed.handle.id());
                continue;
            }
            let bytes = held.layout.client_bytes as usize;
            let start = match &mut held.narrow {
                Some(narrow) => narrow.as_mut_ptr().cast::<u8>(),
                None if bytes == 0 => std::ptr::NonNull::dangling().as_ptr(),
                None => held.address,
            };
            arguments[held.layout.param] = match held.layout.mode {
                // SAFETY: the caller's promise. The client touches only the parts that travel.
                Mode::In => Argument::In(unsafe { std::slice::from_raw_parts(start, bytes) }),
                // SAFETY: as above.
                _ => Argument::Out(unsafe { std::slice::from_raw_parts_mut(start, bytes) }),
            };
        }
        let result = function.call_laid_out(laid_out, &mut arguments);
        if result.is_err() {
            // SAFETY: the caller's promise.
            unsafe { self.restore() };
        }
        result
    }

    /// What the function reports: 0 for success. 0 if it does not report.
    pub(crate) fn info(&self) -> i64 {
        let mut arrays = self.arrays.iter();
        let held = arrays.find(|held| Some(held.layout.param) == self.routine.info);
        held.map_or(0, |held| match &held.narrow {
            Some(narrow) => narrow.first().copied().unwrap_or(0).into(),
            // SAFETY: `info` is an array of one `int`, which the call has written.
            None => unsafe { held.address.cast::<i32>().read_unaligned() }.into(),
        })
    }

    /// Puts the arrays back as they were.
    ///
    /// # Safety
    /// As for [`Arrays::new`].
    pub(crate) unsafe fn restore(&self) {
        // SAFETY: the caller's promise.
        self.arrays
            .iter()
            .for_each(|held| unsafe { held.restore() });
    }

    /// Puts back what the routine reads. What it only writes stays as it is, so that parts which
    /// the real function leaves alone count as equal in a comparison.
    ///
    /// # Safety
    /// As for [`Arrays::new`].
    pub(crate) unsafe fn restore_read(&self) {
        let read = self.arrays.iter().filter(|held| held.layout.mode.is_sent());
        // SAFETY: the caller's promise.
        read.for_each(|held| unsafe { held.restore() });
    }

    /// Completes a call that has succeeded: wide integers, and the length at the start of work
    /// arrays.
    ///
    /// # Safety
    /// As for [`Arrays::new`].
    pub(crate) unsafe fn complete(&self) {
        for held in self
            .arrays
            .iter()
            .filter(|held| held.layout.mode != Mode::In)
        {
            // SAFETY: the caller's promise.
            unsafe { held.widen() };
        }
        for &(work, length) in &self.routine.lengths {
            let address = self.given.addresses[work];
            if let (false, Some(Scalar::Int(length))) =
                (address.is_null(), &self.given.scalars[length])
            {
                let ty = self.routine.interface.params[work].ty;
                // SAFETY: the work array has at least one element.
                unsafe { write_number(ty, address, self.integer, *length) };
            }
        }
    }

    /// The contents of the arrays that the call has written, with their types. Arrays of wide
    /// integers are left out.
    ///
    /// # Safety
    /// As for [`Arrays::new`].
    pub(crate) unsafe fn results(&self) -> Vec<Written> {
        let written = self
            .arrays
            .iter()
            .filter(|held| held.layout.mode.is_returned());
        let written = written.filter(|held| held.narrow.is_none());
        let written = written.map(|held| Written {
            layout: held.layout.clone(),
            address: held.address,
            // SAFETY: the caller's promise.
            contents: unsafe { held.contents() },
        });
        written.collect()
    }
}

/// An array that a call has written, and a copy of what it wrote.
pub(crate) struct Written {
    layout: ArrayLayout,
    address: *mut u8,
    pub(crate) contents: Vec<u8>,
}

impl Written {
    /// The type of its elements.
    pub(crate) fn element(&self) -> Type {
        self.layout.element
    }

    /// What the array contains now.
    ///
    /// # Safety
    /// The array still exists.
    pub(crate) unsafe fn now(&self) -> Vec<u8> {
        // SAFETY: the caller's promise.
        unsafe { gather(&self.layout, self.address) }
    }
}

impl Held {
    fn is_written(&self) -> bool {
        self.layout.mode.is_returned()
    }

    /// Whether an element that travels is also one of the other array. Blocks of one matrix may lie
    /// between each other.
    fn shares(&self, other: &Held) -> bool {
        let (one, two) = (self.addresses(), other.addresses());
        if one.end <= two.start || two.end <= one.start {
            return false;
        }
        let (mut ours, mut theirs) = (self.ranges().peekable(), other.ranges().peekable());
        while let (Some(our), Some(their)) = (ours.peek(), theirs.peek()) {
            if our.end <= their.start {
                ours.next();
            } else if their.end <= our.start {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }

    /// The addresses of the whole array.
    fn addresses(&self) -> Range<usize> {
        let start = self.address.addr();
        start..start + self.layout.client_bytes as usize * self.width()
    }

    /// The addresses of the parts that travel, in ascending order.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let (start, width) = (self.address.addr(), self.width());
        self.layout.client_runs().map(move |run| {
            let first = start + run.offset as usize * width;
            first..first + run.len as usize * width
        })
    }

    /// How many times longer the program's elements are than those of the interface.
    fn width(&self) -> usize {
        if self.narrow.is_some() { 2 } else { 1 }
    }

    /// The bytes of the part that travels.
    unsafe fn contents(&self) -> Vec<u8> {
        // SAFETY: the caller's promise.
        unsafe { gather(&self.layout, self.address) }
    }

    /// Puts the array back as it was, if the call may have changed it.
    unsafe fn restore(&self) {
        if let Some(before) = &self.before {
            // SAFETY: the caller's promise.
            unsafe { self.fill(before) };
        }
    }

    /// Writes the bytes of the part that travels.
    unsafe fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for run in self.layout.client_runs() {
            let (part, after) = rest.split_at(run.len as usize);
            // SAFETY: the caller's promise; the run is within the array.
            unsafe {
                let target = self.address.add(run.offset as usize);
                target.copy_from_nonoverlapping(part.as_ptr(), part.len());
            }
            rest = after;
        }
    }

    /// The integers of the part that travels, in 32 bits. `None` if one does not fit.
    unsafe fn narrowed(&self) -> Option<Vec<i32>> {
        let mut narrow = vec![0; self.layout.client_bytes as usize / 4];
        if !self.layout.mode.is_sent() {
            return Some(narrow);
        }
        for index in self.indices() {
            // SAFETY: the caller's promise; the element travels.
            let value = unsafe { self.address.cast::<i64>().add(index).read_unaligned() };
            narrow[index] = i32::try_from(value).ok()?;
        }
        Some(narrow)
    }

    unsafe fn widen(&self) {
        let Some(narrow) = &self.narrow else { return };
        for index in self.indices() {
            // SAFETY: the caller's promise; the element travels.
            unsafe {
                let target = self.address.cast::<i64>().add(index);
                target.write_unaligned(narrow[index].into());
            }
        }
    }

    /// The indices of the integers that travel.
    fn indices(&self) -> impl Iterator<Item = usize> {
        let runs = self.layout.client_runs();
        runs.flat_map(|run| (run.offset / 4) as usize..((run.offset + run.len) / 4) as usize)
    }
}

/// The bytes of the part of an array that travels.
///
/// # Safety
/// That part of the array is there.
unsafe fn gather(layout: &ArrayLayout, address: *const u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(layout.wire_bytes as usize);
    for run in layout.client_runs() {
        // SAFETY: the caller's promise; the run is within the array.
        let part = unsafe {
            let start = address.add(run.offset as usize);
            std::slice::from_raw_parts(start, run.len as usize)
        };
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Writes a number as an element of this type.
///
/// # Safety
/// The address is that of such an element, in which an `int` has `integer` bytes.
unsafe fn write_number(ty: Type, address: *mut u8, integer: u32, number: i64) {
    // SAFETY: the caller's promise.
    unsafe {
        match ty {
            Type::Int if integer == 8 => address.cast::<i64>().write_unaligned(number),
            Type::Int => address.cast::<i32>().write_unaligned(number as i32),
            Type::Float => address.cast::<f32>().write_unaligned(number as f32),
            Type::Double => address.cast::<f64>().write_unaligned(number as f64),
            Type::SComplex => address
                .cast::<[f32; 2]>()
                .write_unaligned([number as f32, 0.0]),
            Type::DComplex => address
                .cast::<[f64; 2]>()
                .write_unaligned([number as f64, 0.0]),
            _ => {}
        }
    }
}
