//! Identifies the loaded libraries: path, version and kernel. The answer comes from the library
//! itself, or from the build id of its file. It is for people; only the kernel
//! decides something (`kernel`).

use crate::loader::Loaded;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::PathBuf;

/// Facts about a loaded library for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name in the interface file.
    pub name: String,
    /// The file it was loaded from.
    pub path: Option<PathBuf>,
    /// The version that the library reports.
    pub version: Option<String>,
    /// The build id of the file, if the library reports no version.
    pub build: Option<String>,
    /// The processor for which the library selected its code, if it selects when it is loaded.
    pub kernel: Option<String>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(version) = &self.version {
            write!(f, ": {version}")?;
        } else if let Some(build) = &self.build {
            write!(f, ": build {build}")?;
        }
        match &self.kernel {
            Some(kernel) => write!(f, ", kernel {kernel}"),
            None => Ok(()),
        }
    }
}

/// Functions without arguments that return a version as text.
const FUNCTIONS: [&str; 1] = ["openblas_get_config"];
/// Functions that write a version into a buffer, of which they get the address and the size.
const WRITERS: [&str; 1] = ["mkl_get_version_string"];
/// Functions without arguments that return the kernel as text.
const KERNELS: [&str; 1] = ["openblas_get_corename"];
/// Variables that hold a version as text.
const TEXTS: [&str; 3] = ["fftw_version", "fftwf_version", "farcall_library_version"];

impl Identity {
    /// What a library is. `address` is a function of it, if there is one.
    pub(crate) fn of(library: &Loaded, address: Option<*mut c_void>) -> Identity {
        let version = version(library);
        let build = address.filter(|_| version.is_none()).and_then(build_of);
        Identity {
            name: library.name.clone(),
            path: address.and_then(path_of),
            version,
            build,
            kernel: kernel(library),
        }
    }
}

/// The kernel that a library has selected.
pub(crate) fn kernel(library: &Loaded) -> Option<String> {
    text_of(library, &KERNELS)
}

fn version(library: &Loaded) -> Option<String> {
    if let Some(text) = text_of(library, &FUNCTIONS).or_else(|| written(library)) {
        return Some(text);
    }
    let mut texts = TEXTS.into_iter();
    let text = texts.find_map(|symbol| library.symbol(symbol))? as *const c_char;
    // SAFETY: the symbols in the list are texts ended by NUL.
    unsafe { copied(text) }
}

/// The result of the first of these functions that the library has.
fn text_of(library: &Loaded, functions: &[&str]) -> Option<String> {
    let mut functions = functions.iter();
    let address = functions.find_map(|symbol| library.symbol(symbol))?;
    // SAFETY: the functions in the lists are `char *(void)`.
    unsafe {
        let get: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(address);
        copied(get())
    }
}

/// What the first of [`WRITERS`] that the library has writes.
fn written(library: &Loaded) -> Option<String> {
    /// MKL asks for 198 bytes or more. The last one stays 0.
    const BYTES: usize = 256;
    let mut symbols = WRITERS.into_iter();
    let address = symbols.find_map(|symbol| library.symbol(symbol))?;
    let mut text: [c_char; BYTES] = [0; BYTES];
    // SAFETY: the functions in the list are `void (char *, int)`, and write that many bytes at
    // most.
    unsafe {
        let write: unsafe extern "C" fn(*mut c_char, c_int) = std::mem::transmute(address);
        write(text.as_mut_ptr(), BYTES as c_int - 1);
        copied(text.as_ptr())
    }
}

/// # Safety
/// `text` is null or a text ended by NUL.
unsafe fn copied(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().trim().to_string())
}

/// The build id that the linker has written into a loaded file: a number that differs whenever the
/// contents differ. `None` if the linker was told to write none.
fn build_of(address: *mut c_void) -> Option<String> {
    struct Search {
        address: usize,
        build: Option<String>,
    }
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker passes a valid description, whose segments are mapped as long
        // as this runs. `data` is the `Search` below.
        unsafe {
            let (info, search) = (&*info, &mut *data.cast::<Search>());
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            let base = info.dlpi_addr as usize;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let start = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
            let has = |header: &&libc::Elf64_Phdr| {
                let within = search.address.wrapping_sub(start(header));
                header.p_type == libc::PT_LOAD && within < header.p_memsz as usize
            };
            if !headers.iter().any(|header| has(&header)) {
                return 0;
            }
            for header in headers
                .iter()
                .filter(|header| header.p_type == libc::PT_NOTE)
            {
                let bytes = header.p_memsz as usize;
                let notes = std::slice::from_raw_parts(start(header) as *const u8, bytes);
                search.build = search.build.take().or_else(|| build_in(notes));
            }
        }
        1
    }
    let mut search = Search {
        address: address as usize,
        build: None,
    };
    // SAFETY: `look` gets the address of `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.build
}

/// The build id in the notes of a file, shortened to 16 digits.
fn build_in(mut notes: &[u8]) -> Option<String> {
    /// `NT_GNU_BUILD_ID`.
    const BUILD_ID: u32 = 3;
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name, rest) = rest.split_at_checked((word(0) as usize).next_multiple_of(4))?;
        let content = rest.get(..word(4) as usize)?;
        if (word(8), name) == (BUILD_ID, b"GNU\0") {
            let digits = content.iter().take(8).map(|byte| format!("{byte:02x}"));
            return Some(digits.collect());
        }
        notes = rest.get(content.len().next_multiple_of(4)..)?;
    }
}

fn path_of(address: *mut c_void) -> Option<PathBuf> {
    // SAFETY: dladdr only reads the address as a number and fills the structure.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(
            CStr::from_ptr(info.dli_fname)
                .to_string_lossy()
                .into_owned(),
        ))
    }
}
