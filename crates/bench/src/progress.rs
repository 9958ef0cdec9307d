//! What is being measured, on standard error. Many measurements take minutes, and all results come
//! at the end. Only a terminal has the line.

use std::fmt::Display;
use std::io::{IsTerminal, stderr};

/// Shows what is being measured now, in place of what was shown before.
pub(crate) fn measuring(what: impl Display) {
    if stderr().is_terminal() {
        eprint!("\r\x1b[Kmeasuring {what} ...");
    }
}

/// Takes the line away, before something else is printed.
pub(crate) fn over() {
    if stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

/// Says that something is not measured, and why.
pub(crate) fn left_out(text: impl Display) {
    over();
    eprintln!("{text}");
}
