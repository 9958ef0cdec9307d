//! Identifies the loaded libraries: path, version and kernel.

use crate::Binding;
use crate::loader::Loaded;
use std::ffi::{CStr, c_char, c_void};
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
    /// The processor for which the library selected its code, if it selects when it is loaded.
    pub kernel: Option<String>,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(version) = &self.version {
            write!(f, ": {version}")?;
        }
        match &self.kernel {
            Some(kernel) => write!(f, ", kernel {kernel}"),
            None => Ok(()),
        }
    }
}

/// Functions without arguments that return a version as text.
const FUNCTIONS: [&str; 2] = ["openblas_get_config", "mkl_get_version_string"];
/// Functions without arguments that return the kernel as text.
const KERNELS: [&str; 1] = ["openblas_get_corename"];
/// Variables that hold a version as text.
const TEXTS: [&str; 3] = ["fftw_version", "fftwf_version", "farcall_library_version"];

impl Binding {
    /// The libraries that provide the functions.
    pub fn identities(&self) -> Vec<Identity> {
        let libraries = self.libraries().iter();
        libraries.map(|library| self.identify(library)).collect()
    }

    /// The library that provides the function with this index.
    pub fn identity(&self, function: usize) -> Option<Identity> {
        let function = self.functions.get(function)?.as_ref()?;
        Some(self.identify(&self.libraries()[function.library]))
    }

    fn identify(&self, library: &Loaded) -> Identity {
        Identity {
            name: library.name.clone(),
            path: self.symbol_of(library).and_then(path_of),
            version: version(library),
            kernel: text_of(library, &KERNELS),
        }
    }
}

fn version(library: &Loaded) -> Option<String> {
    if let Some(text) = text_of(library, &FUNCTIONS) {
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
