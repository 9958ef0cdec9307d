//! The printed output of a called function, for a caller that wants it.
//!
//! Output travels before the results, at a bounded rate, and its memory is bounded here.

use crate::error::CallbackError;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of output that are kept while no thread waits for the call.
const MOST_KEPT: usize = 4 << 20;
/// Bytes of an incomplete line that are kept.
const MOST_LINE: usize = 64 << 10;

type Write = dyn Fn(&str) -> Result<(), CallbackError> + Send + Sync;

/// Where the output of a function goes, line by line, on the thread that waits for the call.
#[derive(Clone)]
pub struct Output(Arc<Write>);

impl Output {
    /// Passes each line to `write`, with its newline; the last line may have none. If `write`
    /// returns an error, the client gives the call up.
    pub fn new(
        write: impl Fn(&str) -> Result<(), CallbackError> + Send + Sync + 'static,
    ) -> Output {
        Output(Arc::new(write))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Output")
    }
}

/// Output of one call that is not written yet.
pub(crate) struct Printed {
    output: Output,
    kept: Mutex<KeptOutput>,
}

#[derive(Default)]
struct KeptOutput {
    bytes: Vec<u8>,
    left_out: usize,
}

impl Printed {
    pub(crate) fn new(output: Output) -> Printed {
        let kept = Mutex::default();
        Printed { output, kept }
    }

    fn lock(&self) -> MutexGuard<'_, KeptOutput> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps received output, up to the limit.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut kept = self.lock();
        let room = MOST_KEPT - kept.bytes.len().min(MOST_KEPT);
        let taken = bytes.len().min(room);
        kept.bytes.extend_from_slice(&bytes[..taken]);
        kept.left_out += bytes.len() - taken;
    }

    /// Whether there are complete lines to write.
    pub(crate) fn has_lines(&self) -> bool {
        let kept = self.lock();
        kept.bytes.contains(&b'\n') || kept.bytes.len() > MOST_LINE
    }

    /// Writes the complete lines, and at the end of the call all that is left.
    pub(crate) fn write(&self, is_over: bool) -> Result<(), CallbackError> {
        let text = {
            let mut kept = self.lock();
            let last = kept.bytes.iter().rposition(|byte| *byte == b'\n');
            let complete = match last.map(|index| index + 1) {
                _ if is_over || kept.bytes.len() > MOST_LINE => kept.bytes.len(),
                complete => complete.unwrap_or(0),
            };
            let rest = kept.bytes.split_off(complete);
            let bytes = std::mem::replace(&mut kept.bytes, rest);
            let mut text = String::from_utf8_lossy(&bytes).into_owned();
            let left_out = std::mem::take(&mut kept.left_out);
            if left_out > 0 {
                text += &format!("[farcall: {left_out} bytes of output were left out]\n");
            }
            text
        };
        for line in text.split_inclusive('\n') {
            (self.output.0)(line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_bounded() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let printed = Printed::new(Output::new(move |line| {
            seen.lock().unwrap().push(line.to_string());
            Ok(())
        }));
        printed.push(b"one\ntw");
        assert!(printed.has_lines());
        printed.write(false).unwrap();
        printed.push("o \u{e4}\nthree".as_bytes());
        printed.write(false).unwrap();
        assert!(!printed.has_lines());
        printed.write(true).unwrap();
        assert_eq!(*lines.lock().unwrap(), ["one\n", "two \u{e4}\n", "three"]);
        lines.lock().unwrap().clear();
        printed.push(&vec![b'x'; MOST_KEPT + 5]);
        printed.write(false).unwrap();
        let lines = lines.lock().unwrap();
        assert!(lines[0].ends_with("x[farcall: 5 bytes of output were left out]\n"));
    }
}
