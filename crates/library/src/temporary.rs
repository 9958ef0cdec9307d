//! Temporary files of libraries.
//!
//! The C library's `tmpfile` creates its files in `/tmp` and ignores the environment, but a worker
//! might not be able to write there. The program that runs workers exports the function below. The
//! dynamic linker binds libraries to it before the C library's function.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::ptr;

/// Keeps the linker from removing the function.
#[used]
static TEMPORARY: extern "C" fn() -> *mut libc::FILE = tmpfile;

/// `tmpfile` of C (ISO C, 7.23.4.3), in the folder that `TMPDIR` names.
#[unsafe(no_mangle)]
extern "C" fn tmpfile() -> *mut libc::FILE {
    const MODE: *const c_char = c"w+".as_ptr();
    let mut pattern = std::env::temp_dir().into_os_string().into_vec();
    pattern.extend_from_slice(b"/farcall-XXXXXX");
    let Ok(pattern) = CString::new(pattern) else {
        return ptr::null_mut();
    };
    let name = pattern.into_raw();
    // SAFETY: the name is a string of this frame with the pattern at its end; the file is new.
    unsafe {
        let file: c_int = libc::mkostemp(name, libc::O_CLOEXEC);
        if file >= 0 {
            libc::unlink(name);
        }
        drop(CString::from_raw(name));
        if file < 0 {
            return ptr::null_mut();
        }
        let stream = libc::fdopen(file, MODE);
        if stream.is_null() {
            libc::close(file);
        }
        stream
    }
}
