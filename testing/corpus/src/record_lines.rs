//! Any bytes as a file of a record of calls, compressed or not: lines or one error. A line that is
//! read has its bound, and is the same line when it is written and read again.

use farcall_record::{Line, MOST_LINE};
use farcall_recorder::Lines;
use std::path::Path;

/// Bytes of text that are looked at: compressed bytes can be a thousand times as much text.
const MOST: usize = 1 << 20;

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(lines) = Lines::new(Path::new("record"), data) else {
        return;
    };
    let (mut bytes, mut has_failed) = (0, false);
    for told in lines {
        assert!(!has_failed, "an error is the end");
        match told {
            Ok(told) => {
                assert!(told.text.len() <= MOST_LINE);
                let mut text = Vec::new();
                told.line.write(&mut text);
                if told.line != Line::Other {
                    assert!(Line::read(&text[..text.len() - 1]).is_ok());
                }
                bytes += told.text.len() + 1;
            }
            Err(_) => has_failed = true,
        }
        if bytes > MOST {
            return;
        }
    }
}
