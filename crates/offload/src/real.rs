//! The real functions: those that the program would call without the drop-in library.
//!
//! The runtime looks in every loaded library except its own, because a library that the program has
//! opened itself is not in the dynamic linker's list of next libraries. If no library has the
//! symbol, it opens the usual ones by name. Calls from within such a library are its own business:
//! they never go to a server.

use crate::settings;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;

/// Libraries to open if the program has loaded none with a symbol.
const USUAL: &[&str] = &[
    "libopenblas.so.0",
    "liblapack.so.3",
    "libblas.so.3",
    "libmkl_rt.so.2",
    "libflexiblas.so.3",
];

/// Symbols by which a library counts as one of linear algebra.
pub(crate) const SIGNS: &[&CStr] = &[
    c"dgemm_",
    c"dgetrf_",
    c"dgemm_64_",
    c"scipy_dgemm_",
    c"scipy_dgemm_64_",
];

/// A loaded library or program.
pub(crate) struct Object {
    /// Empty for the program itself.
    path: CString,
    pub(crate) addresses: Range<usize>,
    /// The address of its dynamic section.
    pub(crate) dynamic: Option<usize>,
}

/// The program and the loaded libraries, without those that have one of the addresses `own`: the
/// drop-in libraries and this one.
pub(crate) fn loaded(own: &[usize]) -> Vec<Object> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        objects: *mut c_void,
    ) -> c_int {
        // SAFETY: the dynamic linker passes valid headers, and `objects` is the vector below.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
        // SAFETY: the headers are those of a loaded object.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let base = info.dlpi_addr as usize;
        let dynamic = headers.iter().find(|part| part.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.map(|part| base + part.p_vaddr as usize);
        let parts = headers.iter().filter(|part| part.p_type == libc::PT_LOAD);
        let ranges = parts.map(|part| {
            let start = base + part.p_vaddr as usize;
            start..start + part.p_memsz as usize
        });
        let whole = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        if let (Some(addresses), false) = (whole, info.dlpi_name.is_null()) {
            // SAFETY: the name ends with NUL.
            let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned();
            objects.push(Object {
                path,
                addresses,
                dynamic,
            });
        }
        0
    }
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: `visit` gets the vector and returns before this does.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut objects).cast()) };
    objects.retain(|object| !own.iter().any(|address| object.addresses.contains(address)));
    objects
}

impl Object {
    /// The name of its file.
    pub(crate) fn name(&self) -> String {
        let path = self.path.to_string_lossy();
        match path.rsplit('/').next() {
            None | Some("") => "the program".to_string(),
            Some(name) => name.to_string(),
        }
    }

    /// Whether this is the program itself. It may have an entry for the function of a library at an
    /// address of its own, and what it links statically is out of reach.
    pub(crate) fn is_program(&self) -> bool {
        self.path.is_empty()
    }

    /// The address of a symbol that this object itself defines.
    pub(crate) fn defines(&self, symbol: &CStr) -> Option<*mut c_void> {
        let address = self.reaches(symbol)?;
        self.addresses.contains(&address.addr()).then_some(address)
    }

    /// The address of a symbol that this object defines, or a library that it needs.
    fn reaches(&self, symbol: &CStr) -> Option<*mut c_void> {
        const FLAGS: c_int = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
        if self.is_program() {
            return None;
        }
        // SAFETY: the path ends with NUL, and the object is loaded.
        let handle = unsafe { libc::dlopen(self.path.as_ptr(), FLAGS) };
        if handle.is_null() {
            return None;
        }
        // SAFETY: the handle is open, and the name ends with NUL. The handle stays open, so that
        // the address remains valid.
        let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The address ranges of the libraries of linear algebra.
pub(crate) fn providers(own: &[usize]) -> Vec<Range<usize>> {
    let has_sign = |object: &Object| SIGNS.iter().any(|sign| object.defines(sign).is_some());
    let providers = loaded(own).into_iter().filter(has_sign);
    providers.map(|object| object.addresses).collect()
}

/// Whether a function has 64-bit integers under a name that promises 32: Debian's `libblas64.so.3`
/// and MKL have libraries of that kind. `isamax_` of the same library, or of one that it needs,
/// tells by a length that is 3 in 32 bits and negative in 64.
pub(crate) fn is_wide(symbol: &CStr, own: &[usize]) -> bool {
    let objects = loaded(own);
    let found = objects
        .iter()
        .find(|object| object.defines(symbol).is_some());
    let Some(isamax) = found.and_then(|object| object.reaches(c"isamax_")) else {
        return false;
    };
    // SAFETY: this is how BLAS declares the function; the lower half of the result is that of a
    // 32-bit one.
    let isamax: unsafe extern "C" fn(*const i64, *const f32, *const i64) -> i32 =
        unsafe { std::mem::transmute(isamax) };
    let (length, step) = ((-1 << 32) + 3, 1);
    // SAFETY: the function reads three numbers at most.
    unsafe { isamax(&raw const length, [1.0, 2.0, 1.0].as_ptr(), &raw const step) == 0 }
}

/// The real function with this symbol.
pub(crate) fn find(symbol: &CStr, own: &[usize]) -> Option<*mut c_void> {
    let objects = loaded(own);
    let found = objects.iter().find_map(|object| object.defines(symbol));
    found.or_else(|| {
        let named = std::env::var(settings::REAL).ok();
        let names = named.as_deref().into_iter().chain(USUAL.iter().copied());
        names.into_iter().find_map(|name| open(name, symbol, own))
    })
}

/// Opens a library by name, and looks in it and in the libraries that it needs.
fn open(name: &str, symbol: &CStr, own: &[usize]) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with NUL. The initialisers of a numerical library run.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return None;
    }
    let objects = loaded(own);
    objects.iter().find_map(|object| object.defines(symbol))
}
