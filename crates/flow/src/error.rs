//! Errors in the caller's input: a specification string, or a line of a text file. `engine::report`
//! has the errors of a simulation. The text says what is wrong and what to write instead.

use std::fmt;

/// An error in the specification of a platform, pattern or placement.
///
/// The text says what is wrong and which alternatives exist. The caller must correct the
/// specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{spec}`: {reason}")]
pub struct SpecError {
    /// The specification as given.
    pub spec: String,
    /// What is wrong with it and what to write instead.
    pub reason: String,
}

impl SpecError {
    pub(crate) fn new(spec: &str, reason: impl Into<String>) -> Self {
        Self {
            spec: spec.to_owned(),
            reason: reason.into(),
        }
    }
}

/// An error in a text file: a pattern, trace, edge list or permutation.
///
/// The error holds the line, counted from 1, and the reason. The caller knows the name of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// Line number, from 1; 0 when the error is about the file as a whole.
    pub line: usize,
    /// What is wrong on that line.
    pub reason: String,
}

impl TextError {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }
}

/// The lines of a text file, without the mark with which programs on Windows begin such files.
pub(crate) fn lines(text: &str) -> std::str::Lines<'_> {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines()
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for TextError {}
