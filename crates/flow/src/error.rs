//! Errors of the caller's input: a specification string, or a line of a text file.

use std::fmt;

/// A platform, pattern or placement specification that cannot be understood or built.
///
/// The text says what is wrong and which alternatives exist; the fault is the caller's.
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

/// A text file (pattern, trace, edge list or permutation) that cannot be read.
///
/// The caller knows the file's name; this says the line, counted from 1, and the reason.
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

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for TextError {}
