//! libpmix, which is loaded at run time. This module has its binary interface (PMIx standard 4.1,
//! chapters 3 and 17), as far as a server of one gang job needs it; `pmix` decides what the server
//! says. All values that are passed to libpmix live as long as the process.

use super::PmixError;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// `PMIX_RANK_WILDCARD`: all ranks.
const WILDCARD: u32 = u32::MAX - 1;
const SUCCESS: c_int = 0;
const ERROR: c_int = -1;
const NOT_SUPPORTED: c_int = -47;
const OPERATION_SUCCEEDED: c_int = -157;
/// `pmix_data_type_t`.
const STRING: u16 = 3;
const UINT16: u16 = 13;
const UINT32: u16 = 14;
const INFO: u16 = 24;
const DATA_ARRAY: u16 = 39;
const PROC_RANK: u16 = 40;
const REGEX: u16 = 49;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    job: [u8; 256],
    rank: u32,
}

/// `pmix_value_t`. The widest of its values have 24 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    kind: u16,
    data: [u64; 3],
}

/// `pmix_info_t`: a name and a value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Info {
    key: [u8; 512],
    flags: u32,
    value: Value,
}

/// `pmix_data_array_t`, and `pmix_byte_object_t` behind its type.
#[repr(C)]
struct Array {
    kind: u16,
    size: usize,
    start: *const c_void,
}

impl Process {
    fn new(job: &str, rank: u32) -> Process {
        Process {
            job: fixed(job),
            rank,
        }
    }
}

/// A text in a field of fixed length, with a null byte at its end.
fn fixed<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut field = [0; LENGTH];
    let bytes = text.as_bytes();
    let count = bytes.len().min(LENGTH - 1);
    field[..count].copy_from_slice(&bytes[..count]);
    field
}

/// A text that libpmix can read as long as the process lives.
fn lasting(text: &str) -> u64 {
    let text = CString::new(text).unwrap_or_default();
    text.into_raw() as u64
}

impl Info {
    fn new(key: &str, kind: u16, first: u64) -> Info {
        Info {
            key: fixed(key),
            flags: 0,
            value: Value {
                kind,
                data: [first, 0, 0],
            },
        }
    }

    pub(super) fn string(key: &str, text: &str) -> Info {
        Info::new(key, STRING, lasting(text))
    }

    pub(super) fn number(key: &str, number: u32) -> Info {
        Info::new(key, UINT32, number.into())
    }

    pub(super) fn short(key: &str, number: u16) -> Info {
        Info::new(key, UINT16, number.into())
    }

    pub(super) fn rank(key: &str, rank: u32) -> Info {
        Info::new(key, PROC_RANK, rank.into())
    }

    pub(super) fn list(key: &str, infos: Vec<Info>) -> Info {
        let infos = Vec::leak(infos);
        let array = Box::leak(Box::new(Array {
            kind: INFO,
            size: infos.len(),
            start: infos.as_ptr().cast(),
        }));
        Info::new(key, DATA_ARRAY, ptr::from_ref(array) as u64)
    }
}

type Done = unsafe extern "C" fn(c_int, *mut c_void);
type Release = unsafe extern "C" fn(*mut c_void);
type Exchanged =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Option<Release>, *mut c_void);

/// A fence that all processes of this node have reached.
pub(super) struct Fence {
    ranks: Vec<u32>,
    data: Vec<u8>,
    exchanged: Exchanged,
    /// What libpmix wants back.
    context: *mut c_void,
}

// SAFETY: libpmix accepts the answer from any thread.
unsafe impl Send for Fence {}

impl Fence {
    /// Whether all ranks of the gang job take part.
    pub(super) fn is_whole(&self, size: usize) -> bool {
        self.ranks == [WILDCARD] || self.ranks.len() == size
    }

    /// What the processes of this node have put.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }
}

/// A process that waits for an answer.
pub(super) struct Waiting {
    done: Done,
    /// What libpmix wants back.
    context: *mut c_void,
}

// SAFETY: libpmix accepts the answer from any thread.
unsafe impl Send for Waiting {}

impl Waiting {
    /// Lets the process go on.
    pub(super) fn answer(self) {
        // SAFETY: libpmix has passed both, and is answered once.
        unsafe { (self.done)(SUCCESS, self.context) };
    }
}

/// What libpmix asks for.
pub(super) enum Asked {
    /// Nothing: a process has connected.
    Connected {
        rank: u32,
    },
    /// An answer: a process leaves MPI.
    Finalized {
        rank: u32,
        done: Waiting,
    },
    Fence(Fence),
    /// A process has aborted the gang job with this code.
    Abort {
        rank: u32,
        code: i32,
    },
}

/// Where the threads of libpmix ask.
static ASKED: OnceLock<Sender<Asked>> = OnceLock::new();

/// Passes a fence on (`pmix_server_fencenb_fn_t`).
unsafe extern "C" fn fence(
    processes: *const Process,
    count: usize,
    _infos: *const Info,
    _info_count: usize,
    data: *const u8,
    bytes: usize,
    exchanged: Option<Exchanged>,
    context: *mut c_void,
) -> c_int {
    let (Some(asked), Some(exchanged)) = (ASKED.get(), exchanged) else {
        return ERROR;
    };
    // SAFETY: libpmix passes arrays of these lengths.
    let (ranks, data) = unsafe {
        let ranks = (0..count).map(|place| (*processes.add(place)).rank);
        let data = match data.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(data, bytes).to_vec(),
        };
        (ranks.collect(), data)
    };
    let fence = Fence {
        ranks,
        data,
        exchanged,
        context,
    };
    match asked.send(Asked::Fence(fence)) {
        Ok(()) => SUCCESS,
        Err(_) => ERROR,
    }
}

/// Passes on that a process has connected (`pmix_server_client_connected_fn_t`).
unsafe extern "C" fn connected(
    process: *const Process,
    _object: *mut c_void,
    _done: Option<Done>,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: libpmix names the process that has connected.
    let rank = unsafe { (*process).rank };
    let told = ASKED
        .get()
        .map(|asked| asked.send(Asked::Connected { rank }));
    match told {
        Some(Ok(())) => OPERATION_SUCCEEDED,
        _ => ERROR,
    }
}

/// Passes on that a process leaves MPI (`pmix_server_client_finalized_fn_t`).
unsafe extern "C" fn finalized(
    process: *const Process,
    _object: *mut c_void,
    done: Option<Done>,
    context: *mut c_void,
) -> c_int {
    let (Some(asked), Some(done)) = (ASKED.get(), done) else {
        return ERROR;
    };
    // SAFETY: libpmix names the process that leaves.
    let rank = unsafe { (*process).rank };
    let done = Waiting { done, context };
    match asked.send(Asked::Finalized { rank, done }) {
        Ok(()) => SUCCESS,
        Err(_) => ERROR,
    }
}

/// Passes an abort on (`pmix_server_abort_fn_t`).
unsafe extern "C" fn abort(
    process: *const Process,
    _object: *mut c_void,
    status: c_int,
    _message: *const c_char,
    _processes: *const Process,
    _count: usize,
    _done: Option<Done>,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: libpmix names the process that has aborted.
    let rank = unsafe { (*process).rank };
    let abort = Asked::Abort { rank, code: status };
    let told = ASKED.get().map(|asked| asked.send(abort));
    match told {
        Some(Ok(())) => OPERATION_SUCCEEDED,
        _ => ERROR,
    }
}

/// `pmix_server_module_t`, with room for the functions of later versions.
#[repr(C)]
struct Module([*const c_void; 64]);

/// The places of the functions in the module.
const CONNECTED: usize = 0;
const FINALIZED: usize = 1;
const ABORT: usize = 2;
const FENCE: usize = 3;

type Init = unsafe extern "C" fn(*mut Module, *const Info, usize) -> c_int;
type RegisterJob =
    unsafe extern "C" fn(*const u8, c_int, *const Info, usize, Done, *mut c_void) -> c_int;
type RegisterProcess =
    unsafe extern "C" fn(*const Process, u32, u32, *mut c_void, Done, *mut c_void) -> c_int;
type SetupFork = unsafe extern "C" fn(*const Process, *mut *mut *mut c_char) -> c_int;
type Generate = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;

/// The functions of libpmix.
pub(super) struct Library {
    init: Init,
    register_job: RegisterJob,
    register_process: RegisterProcess,
    setup_fork: SetupFork,
    generate_regex: Generate,
    generate_ppn: Generate,
}

impl Library {
    /// Loads libpmix.
    pub(super) fn load() -> Result<Library, PmixError> {
        // Modules that libpmix loads itself need its symbols.
        let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
        // SAFETY: the name ends with a null byte; the library runs its own code.
        let handle = unsafe { libc::dlopen(c"libpmix.so.2".as_ptr(), flags) };
        if handle.is_null() {
            return Err(PmixError::NoLibrary(last_error()));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is valid.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            match found.is_null() {
                true => Err(PmixError::NoLibrary(last_error())),
                false => Ok(found),
            }
        };
        // SAFETY: the symbols are those functions of PMIx, by the standard's C interface.
        unsafe {
            use std::mem::transmute;
            let job = symbol(c"PMIx_server_register_nspace")?;
            let process = symbol(c"PMIx_server_register_client")?;
            let fork = symbol(c"PMIx_server_setup_fork")?;
            let regex = symbol(c"PMIx_generate_regex")?;
            let ppn = symbol(c"PMIx_generate_ppn")?;
            Ok(Library {
                init: transmute::<*mut c_void, Init>(symbol(c"PMIx_server_init")?),
                register_job: transmute::<*mut c_void, RegisterJob>(job),
                register_process: transmute::<*mut c_void, RegisterProcess>(process),
                setup_fork: transmute::<*mut c_void, SetupFork>(fork),
                generate_regex: transmute::<*mut c_void, Generate>(regex),
                generate_ppn: transmute::<*mut c_void, Generate>(ppn),
            })
        }
    }

    /// Starts the server. `sender` gets what it asks for.
    pub(super) fn start(&self, about: &[Info], sender: Sender<Asked>) -> Result<(), PmixError> {
        let _ = ASKED.set(sender);
        let mut functions = [ptr::null(); 64];
        functions[CONNECTED] = connected as *const c_void;
        functions[FINALIZED] = finalized as *const c_void;
        functions[ABORT] = abort as *const c_void;
        functions[FENCE] = fence as *const c_void;
        let module = Box::leak(Box::new(Module(functions)));
        // SAFETY: the module lives as long as the process, the infos until the call returns.
        let status = unsafe { (self.init)(module, about.as_ptr(), about.len()) };
        check("PMIx_server_init", status)
    }

    /// Names the gang job, with the number of its processes here.
    pub(super) fn add_job(&self, job: &str, here: usize, facts: &[Info]) -> Result<(), PmixError> {
        let name: [u8; 256] = fixed(job);
        wait("PMIx_server_register_nspace", |done, context| {
            // SAFETY: all values live until `done` is called.
            unsafe {
                let (start, count) = (facts.as_ptr(), facts.len());
                (self.register_job)(name.as_ptr(), here as c_int, start, count, done, context)
            }
        })
    }

    /// Accepts a process of this user.
    pub(super) fn add_process(&self, job: &str, rank: u32) -> Result<(), PmixError> {
        let process = Process::new(job, rank);
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        wait("PMIx_server_register_client", |done, context| {
            // SAFETY: all values live until `done` is called.
            unsafe {
                let nothing = ptr::null_mut();
                (self.register_process)(&process, user, group, nothing, done, context)
            }
        })
    }

    /// The environment variables, as `NAME=VALUE`, of a process.
    pub(super) fn variables(&self, job: &str, rank: u32) -> Result<Vec<String>, PmixError> {
        let process = Process::new(job, rank);
        let mut list: *mut *mut c_char = ptr::null_mut();
        // SAFETY: libpmix makes a list of texts that ends with a null pointer. It is not released.
        unsafe {
            let status = (self.setup_fork)(&process, &mut list);
            check("PMIx_server_setup_fork", status)?;
            let mut variables = Vec::new();
            while !list.is_null() && !(*list).is_null() {
                let text = CStr::from_ptr(*list).to_string_lossy().into_owned();
                variables.push(text);
                list = list.add(1);
            }
            variables.retain(|text| text.starts_with("PMIX_") && !text.contains(['\t', '\n']));
            Ok(variables)
        }
    }

    /// The nodes, given their names with commas in between.
    pub(super) fn node_map(&self, names: &str) -> Result<Info, PmixError> {
        self.map(
            "pmix.nmap",
            "PMIx_generate_regex",
            self.generate_regex,
            names,
        )
    }

    /// The ranks of each node, with semicolons in between.
    pub(super) fn process_map(&self, ranks: &str) -> Result<Info, PmixError> {
        self.map("pmix.pmap", "PMIx_generate_ppn", self.generate_ppn, ranks)
    }

    fn map(
        &self,
        key: &str,
        name: &'static str,
        generate: Generate,
        text: &str,
    ) -> Result<Info, PmixError> {
        let text = CString::new(text).unwrap_or_default();
        let mut made: *mut c_char = ptr::null_mut();
        // SAFETY: both live until the call returns. What it makes is not released.
        let status = unsafe { generate(text.as_ptr(), &mut made) };
        check(name, status)?;
        // A value of type PMIX_REGEX has the form of a byte object: its start, and its length.
        // SAFETY: libpmix made a text, in which a prefix can end with a null byte of its own.
        let bytes = unsafe { regex_bytes(made) };
        let mut info = Info::new(key, REGEX, made as u64);
        info.value.data[1] = bytes as u64;
        Ok(info)
    }

    /// Answers a fence with what all processes have put.
    pub(super) fn answer(&self, fence: Fence, all: Vec<u8>) {
        let all = Box::into_raw(Box::new(all));
        // SAFETY: libpmix releases the bytes when it has read them.
        unsafe {
            let (start, bytes) = ((*all).as_ptr(), (*all).len());
            let (context, all) = (fence.context, all.cast());
            (fence.exchanged)(SUCCESS, start.cast(), bytes, context, Some(release), all);
        }
    }

    /// Refuses a fence of some of the processes.
    pub(super) fn refuse(&self, fence: Fence) {
        // SAFETY: without bytes there is nothing to release.
        unsafe {
            let nothing = ptr::null_mut();
            (fence.exchanged)(NOT_SUPPORTED, ptr::null(), 0, fence.context, None, nothing);
        }
    }
}

/// The length of a regular expression of PMIx. The kinds `pmix` and `raw` are texts; `blob` is
/// followed by the length of compressed bytes.
unsafe fn regex_bytes(made: *const c_char) -> usize {
    // SAFETY: the caller passes what libpmix made.
    unsafe {
        let kind = CStr::from_ptr(made);
        if !kind.to_bytes().starts_with(b"blob") {
            return kind.to_bytes_with_nul().len();
        }
        // "blob:", a null byte, "component=NAME:", a null byte, "size=N:", a null byte, N bytes.
        let mut place = kind.to_bytes_with_nul().len();
        place += CStr::from_ptr(made.add(place)).to_bytes_with_nul().len();
        let size = CStr::from_ptr(made.add(place));
        place += size.to_bytes_with_nul().len();
        let digits = size.to_str().unwrap_or_default();
        let digits = digits.trim_start_matches("size=").trim_end_matches(':');
        place + digits.parse::<usize>().unwrap_or_default()
    }
}

unsafe extern "C" fn release(all: *mut c_void) {
    // SAFETY: this is the box that `answer` has made, and libpmix releases it once.
    drop(unsafe { Box::from_raw(all.cast::<Vec<u8>>()) });
}

fn last_error() -> String {
    // SAFETY: the text lives until the next call of this thread.
    let text = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    text.unwrap_or_default()
}

fn check(name: &'static str, status: c_int) -> Result<(), PmixError> {
    match status {
        SUCCESS | OPERATION_SUCCEEDED => Ok(()),
        status => Err(PmixError::Call(name, status)),
    }
}

/// Waits for the end of a call that ends later.
fn wait(
    name: &'static str,
    call: impl FnOnce(Done, *mut c_void) -> c_int,
) -> Result<(), PmixError> {
    unsafe extern "C" fn done(status: c_int, context: *mut c_void) {
        // SAFETY: the context is the sender of the call, which waits for this.
        let sender = unsafe { &*context.cast::<Sender<c_int>>() };
        let _ = sender.send(status);
    }
    let (sender, status) = channel::<c_int>();
    // The thread of libpmix may still use it when the status is here.
    let sender = Box::leak(Box::new(sender));
    let started = call(done, ptr::from_mut(sender).cast());
    match started {
        SUCCESS => check(name, status.recv().unwrap_or(ERROR)),
        started => check(name, started),
    }
}
