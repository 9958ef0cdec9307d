//! The variable `TRACEPARENT` of a worker: the place of the running call in its trace. A worker
//! runs call after call, so the variable changes from call to call, and is missing in calls without
//! a trace.
//!
//! The text lies in memory that the environment refers to. `setenv` would keep every text for ever.

use farcall_rpc_proto::TraceContext;
use std::ffi::c_char;
use std::io::Write;

const NAME: &str = "TRACEPARENT";
/// Bytes of the longest text, with the name and the 0 at its end.
const BYTES: usize = 72;

/// The variable.
pub(crate) struct Variable {
    /// Never freed: the environment refers to it.
    text: &'static mut [u8; BYTES],
    context: Option<TraceContext>,
}

impl Variable {
    /// The variable is not there yet.
    pub(crate) fn new() -> Variable {
        Variable {
            text: Box::leak(Box::new([0; BYTES])),
            context: None,
        }
    }

    /// Sets the variable for a call, or removes it. Returns its value if it has changed, `None` in
    /// it if it is gone.
    ///
    /// # Safety
    /// No other thread uses the environment: no function runs.
    pub(crate) unsafe fn set(&mut self, context: Option<TraceContext>) -> Option<Option<String>> {
        if self.context == context {
            return None;
        }
        let value = context.map(|context| context.to_string());
        match &value {
            Some(value) => {
                self.text.fill(0);
                // It is shorter than the memory.
                let _ = write!(&mut self.text[..BYTES - 1], "{NAME}={value}");
                // A function may have removed or replaced it, so it is set anew. SAFETY: the text
                // ends with a 0 and is never freed; the caller's promise.
                unsafe { libc::putenv(self.text.as_mut_ptr().cast::<c_char>()) };
            }
            // SAFETY: the caller's promise.
            None => unsafe {
                libc::unsetenv(c"TRACEPARENT".as_ptr());
            },
        }
        self.context = context;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_follows_the_calls() {
        let mut variable = Variable::new();
        let context = |span: u8| TraceContext::new([7; 16], [span; 8]);
        for wanted in [context(1), context(2), None, context(2), None] {
            let text = wanted.map(|context| context.to_string());
            // SAFETY: no other test of this crate uses the environment at the same time.
            assert_eq!(unsafe { variable.set(wanted) }, Some(text.clone()));
            // SAFETY: as above.
            assert_eq!(unsafe { variable.set(wanted) }, None);
            assert_eq!(std::env::var(NAME).ok(), text);
        }
    }
}
