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
            let complete = match last {
                _ if is_over => kept.bytes.len(),
                Some(index) => index + 1,
                None if kept.bytes.len() > MOST_LINE => whole_characters(&kept.bytes),
                None => 0,
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

/// Length without the beginning of a character at the end, whose other bytes have not come yet.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    // An end that is wrong, and not just short, goes as it is.
    let begun = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(begun) {
        Err(error) if error.error_len().is_none() => bytes.len() - begun.len(),
        _ => bytes.len(),
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
        // Many lines at once: the last one has not come whole.
        printed.push(&b"one line\n".repeat(MOST_LINE / 8));
        printed.push(b"half");
        printed.write(false).unwrap();
        printed.push(b" a line\n");
        printed.write(false).unwrap();
        assert_eq!(lines.lock().unwrap().last().unwrap(), "half a line\n");
        lines.lock().unwrap().clear();
        // A long line is cut between two characters.
        let text = "\u{e4}".repeat(MOST_LINE);
        printed.push(&text.as_bytes()[..MOST_LINE + 1]);
        printed.write(false).unwrap();
        printed.push(&text.as_bytes()[MOST_LINE + 1..]);
        printed.write(true).unwrap();
        assert_eq!(lines.lock().unwrap().concat(), text);
        lines.lock().unwrap().clear();
        printed.push(&vec![b'x'; MOST_KEPT + 5]);
        printed.write(false).unwrap();
        let lines = lines.lock().unwrap();
        assert!(lines[0].ends_with("x[farcall: 5 bytes of output were left out]\n"));
    }
}
