//! The border to C. A drop-in library adds its table of routines when it is loaded, asks for real
//! functions, and lets `take` decide about large calls. No panic and no error crosses the border:
//! the call then goes to the real function.
//!
//! What a process knows is one [`Process`]. A forked child begins with a new one, because the old
//! one's locks may be held by threads that the child does not have, and its connection belongs to
//! the parent.

use crate::explain;
use crate::real;
use crate::remote::{self, Arrays, Remote, Written};
use crate::routine::{Given, NotSent, Routine};
use crate::rule::{self, Demand, Promise, Speed, Trials};
use crate::settings::{Mode, Settings};
use crate::statistics::{Counts, Statistics};
use crate::verify;
use farcall_client::{Estimate, Estimator, LaidOut};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// A routine of a drop-in library: `struct farcall_routine`.
#[repr(C)]
struct Entry {
    real: AtomicPtr<c_void>,
    least: f64,
    symbol: *const c_char,
    interface: *const c_char,
    /// Calls below `least`, if they are counted.
    below: AtomicU64,
    integer: u32,
    counts: u32,
}

/// The program calls the real function.
const HERE: c_int = 0;
/// The results are in place.
const DONE: c_int = 1;
/// The program calls the real function, and then `farcall_offload_watched`, which learns its speed.
const WATCHED: c_int = 2;

/// Local calls that take less are never worth a question to the server, in seconds.
const SHORT: f64 = 2e-4;

/// Calls with less bytes in each direction keep no arrays at the server.
const SMALL: u64 = 64 << 10;

/// The tables of the drop-in libraries. Each ends with a row without a symbol.
static TABLES: [AtomicPtr<Entry>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];

/// What this process knows; null until it is needed.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

struct Process {
    settings: Settings,
    cores: usize,
    /// Where the libraries of linear algebra are.
    providers: Mutex<Arc<[Range<usize>]>>,
    /// By the address of the interface.
    known: Mutex<HashMap<usize, Option<Arc<Known>>>>,
    /// Whether the program's library has wider integers than a row says, by the row's address.
    wide: Mutex<HashMap<usize, bool>>,
    remote: Remote,
}

/// A function that the program has called.
struct Known {
    routine: Routine,
    here: Mutex<Speed>,
    trials: Mutex<Trials>,
    /// Whether the server is on this host.
    is_here: OnceLock<bool>,
    /// The function of the server; `None` inside if it has none.
    there: Mutex<Option<Option<Arc<Estimator>>>>,
    counts: Mutex<Counts>,
}

/// A local call that is measured or compared.
struct Watch {
    known: Arc<Known>,
    operations: f64,
    start: Instant,
    remote: Vec<Written>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The settings, which the environment of the process has when the first library is loaded.
fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(Settings::of_environment)
}

/// The tables of the drop-in libraries.
fn tables() -> impl Iterator<Item = &'static [Entry]> {
    let starts = TABLES.iter().map(|table| table.load(Ordering::Acquire));
    let starts = starts.take_while(|start| !start.is_null());
    starts.map(|start| {
        let mut count = 0;
        // SAFETY: a table ends with a row without a symbol, and libraries are never unloaded.
        unsafe {
            while !(*start.add(count)).symbol.is_null() {
                count += 1;
            }
            std::slice::from_raw_parts(start, count)
        }
    })
}

/// An address in each drop-in library, and one in this library.
fn own() -> Vec<usize> {
    let tables = TABLES
        .iter()
        .map(|table| table.load(Ordering::Acquire) as usize);
    let this = (&raw const TABLES).addr();
    tables.filter(|table| *table != 0).chain([this]).collect()
}

fn process() -> &'static Process {
    let known = PROCESS.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: it was leaked below.
        return unsafe { &*known };
    }
    let new = Box::into_raw(Box::new(Process {
        settings: settings().clone(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        providers: Mutex::new(real::providers(&own()).into()),
        known: Mutex::default(),
        wide: Mutex::default(),
        remote: Remote::new(),
    }));
    let installed =
        PROCESS.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: each is leaked; the one that lost the race is never used.
    unsafe { &*installed.map_or_else(|winner| winner, |_| new) }
}

/// Adds the table of a library, which sets the bound of each routine.
///
/// # Safety
/// `table` has `count` rows and one without a symbol, and remains valid.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_offload_add(table: *mut Entry, count: u64) {
    let _ = catch_unwind(|| {
        static ONCE: OnceLock<()> = OnceLock::new();
        let settings = settings();
        ONCE.get_or_init(|| {
            // SAFETY: the handlers are functions of this library, which is never unloaded.
            unsafe {
                libc::pthread_atfork(None, None, Some(forget));
                if settings.statistics {
                    libc::atexit(print);
                }
                if settings.explain {
                    libc::atexit(explain);
                }
                let names_any = settings.only.is_some() || settings.has_unknown_values();
                if settings.mode != Mode::Off && names_any {
                    libc::atexit(tell_unknown);
                }
            }
        });
        for index in 0..count as usize {
            // SAFETY: the caller's promise; no other thread uses the table yet.
            let entry = unsafe { &mut *table.add(index) };
            // SAFETY: an interface is a text that ends with NUL.
            let interface = unsafe { CStr::from_ptr(entry.interface) };
            let interface = interface.to_str().unwrap_or_default();
            entry.least = settings.least(module(interface), called(interface));
            entry.counts = u32::from(settings.statistics);
        }
        let free = |slot: &&AtomicPtr<Entry>| {
            let null = ptr::null_mut();
            slot.compare_exchange(null, table, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        TABLES.iter().find(free);
    });
}

/// The name of the function that an interface calls: `dgesv` of `Calls "FORTRAN" dgesv(...)`.
/// Reading it from the end of the text is quick, and a library has hundreds of interfaces.
fn called(interface: &str) -> &str {
    let (_, calls) = interface.rsplit_once("Calls ").unwrap_or_default();
    let (before, _) = calls.split_once('(').unwrap_or_default();
    before.split_whitespace().last().unwrap_or_default()
}

/// The module of an interface: `lapack` of `Module lapack;`. Empty if it has none.
fn module(interface: &str) -> &str {
    let module = interface.strip_prefix("Module ");
    let named = module.and_then(|rest| rest.split_once(';'));
    named.map_or("", |(module, _)| module)
}

/// In a forked child. The connection belongs to the parent, and would stay open after the parent's
/// end if the child kept it. Connections that the program has made itself stay as they are.
unsafe extern "C" fn forget() {
    PROCESS.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: all servers with this option, and their functions and arrays, were in the `Process`
    // of the parent, which is never used or dropped again.
    unsafe { farcall_client::close_inherited() };
}

/// The real function of a routine. Without one, the program ends as with any missing symbol.
///
/// # Safety
/// `entry` is a row of a table.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_offload_real(entry: *const Entry) -> *mut c_void {
    // SAFETY: the caller's promise.
    let entry = unsafe { &*entry };
    // SAFETY: a symbol ends with NUL.
    let symbol = unsafe { CStr::from_ptr(entry.symbol) };
    let found = catch_unwind(|| {
        let own = own();
        let found = real::find(symbol, &own);
        // Libraries may have been loaded since, or just now.
        *lock(&process().providers) = real::providers(&own).into();
        found
    });
    match found {
        Ok(Some(found)) => {
            entry.real.store(found, Ordering::Relaxed);
            found
        }
        _ => {
            eprintln!(
                "farcall offload: no library has `{}`: install libopenblas0, or name the library \
                 in {}",
                symbol.to_string_lossy(),
                crate::settings::REAL
            );
            std::process::abort();
        }
    }
}

/// Decides about a call, and makes it if it goes to the server.
///
/// # Safety
/// `entry` is a row of a table, `arguments` has the addresses of the arguments of its function, and
/// `watch` takes an address.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_offload_take(
    entry: *const Entry,
    operations: f64,
    arguments: *const *mut c_void,
    caller: *const c_void,
    watch: *mut *mut Watch,
) -> c_int {
    let take = || {
        let process = process();
        let providers = lock(&process.providers).clone();
        if providers
            .iter()
            .any(|provider| provider.contains(&caller.addr()))
        {
            return HERE;
        }
        // SAFETY: the caller's promise.
        let entry = unsafe { &*entry };
        let Some(known) = process.known(entry) else {
            return HERE;
        };
        if process.is_wide(entry) {
            known.refused(false);
            return HERE;
        }
        // SAFETY: the caller's promise.
        let taken = unsafe { process.take(&known, operations, arguments, entry.integer) };
        let remote = match taken {
            Taken::There => return DONE,
            Taken::Here => return HERE,
            Taken::Watched(remote) => remote,
        };
        let start = Instant::now();
        let new = Box::into_raw(Box::new(Watch {
            known,
            operations,
            start,
            remote,
        }));
        // SAFETY: the caller's promise.
        unsafe { watch.write(new) };
        WATCHED
    };
    catch_unwind(AssertUnwindSafe(take)).unwrap_or(HERE)
}

/// Learns from a local call that has ended. After a longjmp out of the call, it is not called.
///
/// # Safety
/// `watch` is from `farcall_offload_take`, and the arrays of the call still exist.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_offload_watched(watch: *mut Watch) {
    let learn = || {
        // SAFETY: the caller's promise.
        let watch = unsafe { Box::from_raw(watch) };
        let seconds = watch.start.elapsed().as_secs_f64();
        let known = &watch.known;
        lock(&known.here).learn(watch.operations, seconds);
        lock(&known.trials).computed_here(seconds);
        let differences = watch.remote.iter().map(|written| {
            // SAFETY: the caller's promise.
            let here = unsafe { written.now() };
            verify::difference(written.element(), &written.contents, &here)
        });
        let difference = differences.reduce(f64::max);
        let mut counts = lock(&known.counts);
        counts.seconds_here += seconds;
        counts.difference = match (counts.difference, difference) {
            (Some(before), Some(now)) => Some(before.max(now)),
            (before, now) => now.or(before),
        };
    };
    let _ = catch_unwind(AssertUnwindSafe(learn));
}

/// Writes the status of the server as JSON, and returns its bytes. 0 if no server answers, if
/// nothing goes to one, or if there is no room.
///
/// # Safety
/// `text` has `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_offload_status(text: *mut u8, room: usize) -> usize {
    let status = || {
        let process = process();
        let server = match process.settings.mode {
            Mode::Off => None,
            Mode::Auto | Mode::Always => process.remote.server(),
        };
        let status = server?.status();
        process.remote.ended(&status);
        status.ok().filter(|status| status.len() <= room)
    };
    let Ok(Some(status)) = catch_unwind(status) else {
        return 0;
    };
    // SAFETY: the caller's promise, and the text fits.
    unsafe { text.copy_from_nonoverlapping(status.as_ptr(), status.len()) };
    status.len()
}

/// A call that goes to the server.
struct Call {
    given: Given,
    laid_out: LaidOut,
    operations: f64,
    /// Bytes of an integer.
    integer: u32,
    /// What the server and the link promise, if arrays may stay there.
    estimate: Option<Estimate>,
}

/// Where a call was computed.
enum Taken {
    There,
    /// Nowhere yet, and it may end early, so that its time says nothing about the speed.
    Here,
    /// Nowhere yet; or, to be compared, at the server with these results.
    Watched(Vec<Written>),
}

impl Process {
    /// The function of a table's row.
    fn known(&self, entry: &Entry) -> Option<Arc<Known>> {
        let mut known = lock(&self.known);
        let new = || {
            // SAFETY: an interface is a text that ends with NUL.
            let text = unsafe { CStr::from_ptr(entry.interface) };
            Some(Arc::new(Known {
                routine: Routine::read(text.to_str().ok()?)?,
                here: Mutex::default(),
                trials: Mutex::default(),
                is_here: OnceLock::new(),
                there: Mutex::default(),
                counts: Mutex::default(),
            }))
        };
        known
            .entry(entry.interface.addr())
            .or_insert_with(new)
            .clone()
    }

    /// Whether the program's library, and so the program, has wider integers than the row says.
    fn is_wide(&self, entry: &Entry) -> bool {
        let row = ptr::from_ref(entry).addr();
        let known = lock(&self.wide).get(&row).copied();
        known.unwrap_or_else(|| {
            // SAFETY: a symbol ends with NUL.
            let symbol = unsafe { CStr::from_ptr(entry.symbol) };
            let is_wide = entry.integer == 4 && real::is_wide(symbol, &own());
            lock(&self.wide).insert(row, is_wide);
            is_wide
        })
    }

    /// # Safety
    /// As for `farcall_offload_take`.
    unsafe fn take(
        &self,
        known: &Arc<Known>,
        operations: f64,
        arguments: *const *mut c_void,
        integer: u32,
    ) -> Taken {
        let here = rule::here(operations, &lock(&known.here), self.cores);
        if self.settings.mode == Mode::Auto && here < SHORT {
            return known.local();
        }
        // SAFETY: the caller's promise.
        let given = match unsafe { known.routine.given(arguments, integer) } {
            Ok(given) => given,
            Err(NotSent::Query) => {
                lock(&known.counts).local += 1;
                return Taken::Here;
            }
            Err(NotSent::Argument) => return known.refused(false),
        };
        let Some(estimator) = self.estimator(known) else {
            return known.refused(true);
        };
        let function = estimator.function();
        let Ok(laid_out) = function.lay_out(given.scalars.clone(), Vec::new()) else {
            return known.refused(false);
        };
        let layout = laid_out.layout();
        let is_small = layout.sent_bytes().max(layout.returned_bytes()) < SMALL;
        let estimate = match self.settings.mode == Mode::Auto || !is_small {
            true => match estimator.estimate(&laid_out) {
                Ok(estimate) => Some(estimate),
                Err(error) => {
                    self.remote.ended::<()>(&Err(error));
                    return known.refused(true);
                }
            },
            false => None,
        };
        if let (Mode::Auto, Some(estimate)) = (self.settings.mode, &estimate)
            && !known.goes(&estimator, operations, estimate, here)
        {
            return known.local();
        }
        let call = Call {
            given,
            laid_out,
            operations,
            integer,
            estimate: estimate.filter(|_| !is_small),
        };
        // SAFETY: the caller's promise.
        unsafe { self.send(known, &estimator, call) }
    }

    /// The function of the server, with its estimates.
    fn estimator(&self, known: &Known) -> Option<Arc<Estimator>> {
        let server = self.remote.server()?;
        let mut there = lock(&known.there);
        if there.is_none() {
            let found = remote::function(&server, &known.routine);
            if found.is_err() {
                self.remote.ended(&found);
                return None;
            }
            let function = found.ok().flatten();
            if function.is_none() {
                let name = &known.routine.name;
                let text = format!("the server has no function `{name}` with these parameters");
                self.remote.note(text);
            }
            *there = Some(function.map(|function| Arc::new(Estimator::new(function))));
        }
        there.clone().flatten()
    }

    /// Makes the call at the server.
    ///
    /// # Safety
    /// As for `farcall_offload_take`.
    unsafe fn send(&self, known: &Known, estimator: &Estimator, call: Call) -> Taken {
        let Call {
            given,
            laid_out,
            operations,
            integer,
            estimate,
        } = call;
        let (routine, store) = (&known.routine, &self.remote.store);
        // SAFETY: the caller's promise.
        let arrays = unsafe { Arrays::new(routine, &given, &laid_out, integer) };
        let Some(mut arrays) = arrays else {
            return known.refused(false);
        };
        let start = Instant::now();
        let server = estimator.function().server();
        if let Some(estimate) = estimate.filter(|_| !server.is_metaserver()) {
            // SAFETY: the caller's promise.
            unsafe { arrays.place(store, server, &estimate) };
        }
        // SAFETY: the caller's promise; the program lends the arrays to the function it calls.
        let result = unsafe { arrays.call(estimator.function(), laid_out) };
        self.remote.ended(&result);
        if result.is_err() {
            arrays.leave(store);
            return known.failed(true);
        }
        let info = arrays.info();
        // Errors are reported here, where the program's own handler is. What work arrays contain
        // after a failure is promised, too, and only a local call gives it.
        if info < 0 || (info > 0 && routine.has_work) {
            // SAFETY: the caller's promise.
            unsafe { arrays.restore() };
            arrays.leave(store);
            return known.failed(false);
        }
        // SAFETY: the caller's promise.
        let fetched = unsafe { arrays.fetch(store) };
        self.remote.ended(&fetched);
        if fetched.is_err() {
            // SAFETY: the caller's promise.
            unsafe { arrays.restore() };
            arrays.leave(store);
            return known.failed(true);
        }
        let seconds = start.elapsed().as_secs_f64();
        // SAFETY: the caller's promise.
        unsafe { arrays.complete() };
        let rate = lock(&known.here).rate(operations);
        let mut counts = lock(&known.counts);
        if counts.remote == 0 {
            // The server knows the time of its first call now.
            estimator.forget();
        }
        counts.remote += 1;
        counts.bytes += arrays.bytes();
        counts.seconds_there += seconds;
        counts.gain += rate.map_or(0.0, |rate| operations / rate - seconds);
        drop(counts);
        if !self.settings.verify {
            return Taken::There;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let results = arrays.results();
            arrays.restore_read();
            Taken::Watched(results)
        }
    }
}

impl Known {
    /// Whether the call ends sooner at the server, or is worth a trial.
    fn goes(&self, estimator: &Estimator, operations: f64, estimate: &Estimate, here: f64) -> bool {
        let server = estimator.function().server();
        let demand = Demand {
            operations,
            sent: estimate.sent_bytes as f64,
            returned: estimate.returned_bytes as f64,
        };
        let promise = Promise {
            is_here: *self
                .is_here
                .get_or_init(|| !server.is_metaserver() && server.shares_memory().unwrap_or(false)),
            latency: estimate.latency,
            wait: estimate.wait,
            computation: estimate.exec,
            up: estimate.rates.0,
            down: estimate.rates.1,
        };
        let mut trials = lock(&self.trials);
        trials.goes(&demand, &promise, here)
    }

    fn local(&self) -> Taken {
        lock(&self.counts).local += 1;
        Taken::Watched(Vec::new())
    }

    /// `is_whole` says whether the local call computes what the interface says.
    fn refused(&self, is_whole: bool) -> Taken {
        lock(&self.counts).refused += 1;
        match is_whole {
            true => Taken::Watched(Vec::new()),
            false => Taken::Here,
        }
    }

    fn failed(&self, is_whole: bool) -> Taken {
        lock(&self.counts).failed += 1;
        match is_whole {
            true => Taken::Watched(Vec::new()),
            false => Taken::Here,
        }
    }
}

/// Prints the statistics of a process that has called any function.
extern "C" fn print() {
    let _ = catch_unwind(|| {
        let mut statistics = Statistics::default();
        for entry in tables().flatten() {
            let below = entry.below.load(Ordering::Relaxed);
            // SAFETY: an interface is a text that ends with NUL.
            let interface = unsafe { CStr::from_ptr(entry.interface) };
            if below > 0 {
                statistics
                    .of(called(interface.to_str().unwrap_or_default()))
                    .local += below;
            }
        }
        let process = PROCESS.load(Ordering::Acquire);
        // SAFETY: a process is never freed.
        if let Some(process) = unsafe { process.as_ref() } {
            for known in lock(&process.known).values().flatten() {
                statistics.of(&known.routine.name).add(&lock(&known.counts));
            }
        }
        if statistics.functions().next().is_some() {
            eprint!(
                "farcall offload: process {}\n{statistics}",
                std::process::id()
            );
        }
        // SAFETY: as above.
        let trouble = unsafe { process.as_ref() }.and_then(|process| process.remote.trouble());
        if let Some(trouble) = trouble {
            eprintln!("farcall offload: the last failure at the server: {trouble}");
        }
    });
}

/// Prints a mode that there is not, values that do nothing, and the names to which the calls are
/// limited and that no drop-in library has, in a program that computes: `farcall offload` refuses
/// them, but the variables may have been set by hand.
extern "C" fn tell_unknown() {
    let _ = catch_unwind(|| {
        let interfaces = tables().flatten().map(|entry| {
            // SAFETY: an interface is a text that ends with NUL.
            let interface = unsafe { CStr::from_ptr(entry.interface) };
            interface.to_str().unwrap_or_default()
        });
        let known: Vec<_> = interfaces
            .map(|interface| (module(interface), called(interface)))
            .collect();
        let settings = settings();
        let unknown = settings.unknown(&known);
        let tells = !unknown.is_empty() || settings.has_unknown_values();
        if !tells || real::providers(&own()).is_empty() {
            return;
        }
        if let Some(mode) = &settings.unknown_mode {
            eprintln!(
                "farcall offload: {}: there is no `{mode}`, so that `auto` was used; write auto, \
                 always or off",
                crate::settings::MODE
            );
        }
        for (name, value) in &settings.unknown_flags {
            eprintln!("farcall offload: {name}: `{value}` does nothing; write 1, or unset it");
        }
        if !unknown.is_empty() {
            eprintln!(
                "farcall offload: {}: no drop-in library has a routine or module `{}`, so that no \
                 call went to the server for it",
                crate::settings::ONLY,
                unknown.join("`, `")
            );
        }
    });
}

/// Prints what the program uses of libraries of linear algebra, if it has loaded one.
extern "C" fn explain() {
    let _ = catch_unwind(|| {
        // SAFETY: a symbol ends with NUL.
        let symbols = tables()
            .flatten()
            .map(|entry| unsafe { CStr::from_ptr(entry.symbol) });
        let report = explain::report(&symbols.collect(), &own());
        let program = std::env::current_exe().unwrap_or_default();
        let (id, program) = (std::process::id(), program.display());
        eprint!("farcall offload: process {id}, {program}\n{report}");
    });
}
