//! Sets how many threads the loaded libraries use. It knows the functions of OpenBLAS, OpenMP, MKL
//! and BLIS; the worker decides on the number. No library is loaded or unloaded for this.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};

/// Functions that are `void (int)` in every release: OpenBLAS under its names, GNU and LLVM OpenMP,
/// MKL.
const SETTERS: [&CStr; 6] = [
    c"openblas_set_num_threads",
    c"openblas_set_num_threads64_",
    c"scipy_openblas_set_num_threads",
    c"scipy_openblas_set_num_threads64_",
    c"omp_set_num_threads",
    c"MKL_Set_Num_Threads",
];
/// Functions that are `void (dim_t)`, which is as wide as a pointer: BLIS.
const WIDE_SETTERS: [&CStr; 1] = [c"bli_thread_set_num_threads"];

/// Environment variables from which libraries read their number of threads when they are loaded.
pub const THREAD_VARIABLES: [&str; 4] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
];

/// The functions of the loaded libraries that set their number of threads.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    setters: BTreeSet<usize>,
    wide_setters: BTreeSet<usize>,
}

impl Threads {
    /// How many libraries this process has loaded so far. A function may load another one.
    pub fn loaded() -> u64 {
        unsafe extern "C" fn count(
            info: *mut libc::dl_phdr_info,
            _: libc::size_t,
            loads: *mut c_void,
        ) -> c_int {
            // SAFETY: `loads` is what is passed below; the dynamic linker passes a description.
            unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
            // Each description has the same number, so the first one is enough.
            1
        }
        let mut loads = 0u64;
        // SAFETY: the callback gets the number, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(count), (&raw mut loads).cast()) };
        loads
    }

    /// The functions of all libraries that this process has loaded so far.
    pub fn of_process() -> Threads {
        let mut threads = Threads::default();
        for path in loaded() {
            // SAFETY: the path ends with NUL. Nothing is loaded; the count of uses grows by one,
            // which keeps the library where it is.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
            if handle.is_null() {
                continue;
            }
            threads.setters.extend(symbols(handle, &SETTERS));
            threads.wide_setters.extend(symbols(handle, &WIDE_SETTERS));
        }
        threads
    }

    /// Sets the number of threads of the libraries. Returns false if no library has such a
    /// function.
    ///
    /// # Safety
    /// Runs code of the libraries. No function of them must be running.
    pub unsafe fn set(&self, threads: u32) -> bool {
        let threads = c_int::try_from(threads.max(1)).unwrap_or(c_int::MAX);
        for address in &self.setters {
            // SAFETY: the symbols in the list have this type; the library is never unloaded.
            unsafe {
                let set: unsafe extern "C" fn(c_int) = std::mem::transmute(*address);
                set(threads);
            }
        }
        for address in &self.wide_setters {
            // SAFETY: as above.
            unsafe {
                let set: unsafe extern "C" fn(isize) = std::mem::transmute(*address);
                set(threads as isize);
            }
        }
        !self.setters.is_empty() || !self.wide_setters.is_empty()
    }
}

/// The addresses of the symbols in `names` that a library, or a library that it needs, has.
fn symbols(handle: *mut c_void, names: &[&CStr]) -> impl Iterator<Item = usize> {
    names.iter().filter_map(move |name| {
        // SAFETY: the handle is one of dlopen's, and the name ends with NUL.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!address.is_null()).then_some(address as usize)
    })
}

/// The paths of all loaded libraries.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn take(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        paths: *mut c_void,
    ) -> c_int {
        // SAFETY: `paths` is what is passed below; a name is null or ends with NUL.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                let paths = &mut *paths.cast::<Vec<CString>>();
                paths.push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: the callback gets the list, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(take), (&raw mut paths).cast()) };
    paths
}
