//! Communication between the processes of a parallel function, through the message-passing library
//! that the function is linked with.
//!
//! No MPI header is needed. The MPI functions are found beside the parallel function, and the
//! handles of the two families of libraries are known: MPICH's binary interface (MPICH, Intel MPI,
//! MVAPICH, Cray) uses numbers, Open MPI uses addresses of objects.

use crate::bind::Binding;
use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::time::Duration;

/// Longest sleep of a process that waits for the next call. Most message-passing libraries would
/// spin instead.
const LONGEST_NAP: Duration = Duration::from_millis(1);
/// Tag of the messages between calls.
const TAG: c_int = 32_749;
/// Largest number of bytes in one message. Counts are a C `int`.
const MOST_BYTES: usize = 1 << 30;
/// Storage for a status, larger than that of any message-passing library.
type Status = [u64; 16];

/// An MPI handle: an integer in a register, or an address.
type Handle = usize;

/// The processes that compute together. Only one thread of each process uses this type.
pub struct Processes {
    rank: c_int,
    size: c_int,
    functions: Functions,
    world: Handle,
    byte: Handle,
}

type Send = unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
type Recv =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Status) -> c_int;
type Iprobe = unsafe extern "C" fn(c_int, c_int, Handle, *mut c_int, *mut Status) -> c_int;
type Bcast = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, Handle) -> c_int;

/// The MPI functions (MPI 3.1, chapters 3 and 5) that are used between calls.
struct Functions {
    send: Send,
    recv: Recv,
    iprobe: Iprobe,
    bcast: Bcast,
}

impl Processes {
    /// Joins the processes that were started together.
    pub fn join(binding: &Binding) -> Result<Processes, String> {
        let symbol = |name: &str| {
            binding.symbol(name).ok_or_else(|| {
                format!("no library of the file is linked with MPI: symbol {name} is missing")
            })
        };
        let init = symbol("MPI_Init")?;
        make_global(init);
        let (world, byte) = match binding.symbol("ompi_mpi_comm_world") {
            Some(world) => (world as Handle, symbol("ompi_mpi_byte")? as Handle),
            None => (0x4400_0000, 0x4c00_010d),
        };
        // SAFETY: the symbols are those functions of MPI, by the standard's C interface.
        unsafe {
            let init: unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int =
                std::mem::transmute(init);
            let ask: [*mut c_void; 2] = [symbol("MPI_Comm_rank")?, symbol("MPI_Comm_size")?];
            let ask: [unsafe extern "C" fn(Handle, *mut c_int) -> c_int; 2] =
                std::mem::transmute(ask);
            let functions = Functions {
                send: std::mem::transmute::<*mut c_void, Send>(symbol("MPI_Send")?),
                recv: std::mem::transmute::<*mut c_void, Recv>(symbol("MPI_Recv")?),
                iprobe: std::mem::transmute::<*mut c_void, Iprobe>(symbol("MPI_Iprobe")?),
                bcast: std::mem::transmute::<*mut c_void, Bcast>(symbol("MPI_Bcast")?),
            };
            if init(ptr::null_mut(), ptr::null_mut()) != 0 {
                return Err("MPI_Init failed".to_string());
            }
            let (mut rank, mut size) = (0, 0);
            if ask[0](world, &mut rank) != 0 || ask[1](world, &mut size) != 0 {
                return Err("MPI_Comm_rank or MPI_Comm_size failed".to_string());
            }
            Ok(Processes {
                rank,
                size,
                functions,
                world,
                byte,
            })
        }
    }

    /// Whether this process has the arrays.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Number of processes.
    pub fn size(&self) -> i32 {
        self.size
    }

    /// Sends a message from the first process to all others.
    pub fn tell(&self, message: &[u8]) {
        for rank in 1..self.size {
            self.send_message(message, rank);
        }
    }

    /// Sends a message from this process to the first one.
    pub fn report(&self, message: &[u8]) {
        self.send_message(message, 0);
    }

    /// The next message of each other process, which the first one waits for.
    pub fn reports(&self) -> Vec<Vec<u8>> {
        let others = 1..self.size;
        others.map(|rank| self.receive_message(rank)).collect()
    }

    fn send_message(&self, message: &[u8], rank: c_int) {
        let length = message.len() as u64;
        self.send(&length.to_ne_bytes(), rank);
        for part in message.chunks(MOST_BYTES) {
            self.send(part, rank);
        }
    }

    fn receive_message(&self, rank: c_int) -> Vec<u8> {
        let mut length = [0; 8];
        self.receive(&mut length, rank);
        let mut message = vec![0; u64::from_ne_bytes(length) as usize];
        for part in message.chunks_mut(MOST_BYTES) {
            self.receive(part, rank);
        }
        message
    }

    fn send(&self, bytes: &[u8], rank: c_int) {
        let count = bytes.len() as c_int;
        // SAFETY: the bytes live until the call returns. An error ends all processes, which is
        // MPI's default.
        unsafe {
            let bytes = bytes.as_ptr().cast();
            (self.functions.send)(bytes, count, self.byte, rank, TAG, self.world);
        }
    }

    /// Receives a message from the first process. It waits without using the processor.
    pub fn hear(&self) -> Vec<u8> {
        let mut nap = Duration::from_micros(20);
        while !self.has_message() {
            std::thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
        self.receive_message(0)
    }

    fn has_message(&self) -> bool {
        let (mut flag, mut status) = (0, Status::default());
        // SAFETY: both are of this frame, the status is larger than MPI's.
        unsafe { (self.functions.iprobe)(0, TAG, self.world, &mut flag, &mut status) };
        flag != 0
    }

    fn receive(&self, place: &mut [u8], rank: c_int) {
        let (count, mut status) = (place.len() as c_int, Status::default());
        // SAFETY: place and status live until the call returns.
        unsafe {
            let place = place.as_mut_ptr().cast();
            (self.functions.recv)(place, count, self.byte, rank, TAG, self.world, &mut status);
        }
    }

    /// Copies the bytes of the first process to all processes. Every process calls this.
    ///
    /// # Safety
    /// `start` is good for reads and writes of `bytes` bytes. `bytes` is the same at all processes.
    pub unsafe fn broadcast(&self, start: *mut u8, bytes: usize) {
        for offset in (0..bytes).step_by(MOST_BYTES) {
            let count = (bytes - offset).min(MOST_BYTES) as c_int;
            // SAFETY: the caller's promise.
            unsafe {
                let start = start.add(offset).cast();
                (self.functions.bcast)(start, count, self.byte, 0, self.world);
            }
        }
    }
}

/// Makes the symbols of MPI visible to modules that MPI loads itself, as Open MPI does.
fn make_global(symbol: *mut c_void) {
    // SAFETY: the information is of this frame; the name that it points to lives as long as the
    // library. A library that is loaded is only opened once more.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(symbol, &mut info) != 0 && !info.dli_fname.is_null() {
            let name = CString::from(std::ffi::CStr::from_ptr(info.dli_fname));
            libc::dlopen(
                name.as_ptr(),
                libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD,
            );
        }
    }
}
