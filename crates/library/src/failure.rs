//! How a library fails a call with a text of its own. A shim calls `farcall_fail`, which the
//! program that runs workers exports, and returns. The results of the call are then dropped.

use std::ffi::{CStr, c_char};
use std::sync::{Mutex, PoisonError};

/// Most bytes of a text.
const MOST: usize = 4096;

/// The first failure of the running call.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the linker from removing the function.
#[used]
static EXPORTED: unsafe extern "C" fn(*const c_char) = farcall_fail;

/// `void farcall_fail(const char *text)`: the running call fails with this text. The first one
/// counts.
///
/// # Safety
/// `text` is NULL, or ends with NUL.
#[unsafe(no_mangle)]
unsafe extern "C" fn farcall_fail(text: *const c_char) {
    let text = match text.is_null() {
        true => "the function failed and did not say why".to_string(),
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .chars()
            .take(MOST)
            .collect(),
    };
    let mut failure = FAILURE.lock().unwrap_or_else(PoisonError::into_inner);
    failure.get_or_insert(text);
}

/// Takes the failure since the last call of this function.
pub(crate) fn take() -> Option<String> {
    FAILURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_text_is_the_failure() {
        for text in [c"the first", c"the second"] {
            // SAFETY: the text ends with NUL.
            unsafe { farcall_fail(text.as_ptr()) };
        }
        assert_eq!(take().as_deref(), Some("the first"));
        assert_eq!(take(), None);
        // SAFETY: NULL is allowed.
        unsafe { farcall_fail(std::ptr::null()) };
        assert!(take().unwrap().contains("did not say why"));
    }
}
