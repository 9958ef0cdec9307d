//! Errors of arguments that do not fit an interface. The client finds them before it sends
//! anything, so the function has not run. Each error about one argument names it.

use farcall_idl::{ElementError, LayoutError};

/// Why arguments do not fit the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The number of arguments is wrong.
    #[error("expected {expected} arguments, given {given}")]
    Count {
        /// Number of parameters and callbacks of the interface.
        expected: usize,
        /// Number of arguments given.
        given: usize,
    },
    /// An argument has the wrong kind.
    #[error("argument `{argument}`: expected {expected}, given {given}")]
    Kind {
        /// Its name.
        argument: String,
        /// The kind that the parameter takes.
        expected: &'static str,
        /// The kind that was given.
        given: &'static str,
    },
    /// An array has the wrong length.
    #[error("argument `{argument}`: expected {expected} bytes, given {given}")]
    Length {
        /// Its name.
        argument: String,
        /// Bytes that follow from the dimensions.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// The elements of an array have the wrong type.
    #[error("argument `{argument}`: expected an array of {expected}, given one of {given}")]
    Type {
        /// Its name.
        argument: String,
        /// Expected element type, by its name in the interface language.
        expected: &'static str,
        /// Given element type, by its name in Rust.
        given: &'static str,
    },
    /// An array has the wrong shape, or the wrong order in memory.
    #[error("argument `{argument}`: expected {expected}, given {given}")]
    Shape {
        /// Its name.
        argument: String,
        /// Shape and order that the function takes.
        expected: String,
        /// Shape and order of what was given.
        given: String,
    },
    /// The call writes two arrays that share memory.
    #[error(
        "arguments `{argument}` and `{other}` are written and share memory; pass an array of its \
         own for each"
    )]
    Shared {
        /// The name of one.
        argument: String,
        /// The name of the other.
        other: String,
    },
    /// No parameter has this name.
    #[error("there is no argument `{argument}`;{hint} there are: {known}")]
    Unknown {
        /// Its name.
        argument: String,
        /// A question whether another name was meant, or nothing.
        hint: String,
        /// The names of the parameters.
        known: String,
    },
    /// An argument was given twice.
    #[error("argument `{argument}` is given twice")]
    Twice {
        /// Its name.
        argument: String,
    },
    /// An argument is missing.
    #[error("argument `{argument}` is missing")]
    Missing {
        /// Its name.
        argument: String,
    },
    /// Scalars and texts are too long for one message.
    #[error("its scalars and strings have {given} bytes; at most {most} bytes can be sent")]
    TooLong {
        /// Limit in bytes.
        most: usize,
        /// Given bytes.
        given: usize,
    },
    /// A scalar is out of range, or a size cannot be computed.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A size depends on an array element that is missing.
    #[error(transparent)]
    Element(#[from] ElementError),
}
