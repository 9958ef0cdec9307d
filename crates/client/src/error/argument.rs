//! Why arguments do not fit an interface.

use farcall_idl::{ElementError, LayoutError};

/// Arguments that do not fit the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The number of arguments is wrong.
    #[error("expected {expected} arguments, given {given}")]
    Count {
        /// Parameters and callbacks of the interface.
        expected: usize,
        /// Arguments given.
        given: usize,
    },
    /// An argument is of the wrong kind.
    #[error("argument `{argument}`: expected {expected}, given {given}")]
    Kind {
        /// Its name.
        argument: String,
        /// What the parameter takes.
        expected: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// An array has the wrong length.
    #[error("argument `{argument}`: expected {expected} bytes, given {given}")]
    Length {
        /// Its name.
        argument: String,
        /// Bytes the dimensions come to.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// An array has elements of another type.
    #[error("argument `{argument}`: expected an array of {expected}, given one of {given}")]
    Type {
        /// Its name.
        argument: String,
        /// Type of the elements, by its name in the interface language.
        expected: &'static str,
        /// The type given, by its name in Rust.
        given: &'static str,
    },
    /// An array has another shape, or lies in memory in another order.
    #[error("argument `{argument}`: expected {expected}, given {given}")]
    Shape {
        /// Its name.
        argument: String,
        /// Shape and order that the function takes.
        expected: String,
        /// Shape and order of what was given.
        given: String,
    },
    /// An argument has a name that no parameter has.
    #[error("there is no argument `{argument}`; there are: {known}")]
    Unknown {
        /// Its name.
        argument: String,
        /// The names that there are.
        known: String,
    },
    /// An argument is given twice.
    #[error("argument `{argument}` is given twice")]
    Twice {
        /// Its name.
        argument: String,
    },
    /// An argument is not given.
    #[error("argument `{argument}` is missing")]
    Missing {
        /// Its name.
        argument: String,
    },
    /// Scalars and texts are too long for one message.
    #[error("its scalars and texts have {given} bytes, at most {most} can be sent")]
    TooLong {
        /// Bytes that there may be.
        most: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// A scalar does not fit, or sizes do not come out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An array element that a size depends on is not there.
    #[error(transparent)]
    Element(#[from] ElementError),
}
