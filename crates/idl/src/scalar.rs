//! Values of scalar arguments, as expressions and calls use them. `interface::fit` decides whether
//! a value fits a parameter. A text in an error message is cut after 40 characters.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The value of a scalar argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A value of any integer type. A `char` is its code.
    Int(i64),
    /// `float` and `double`.
    Float(f64),
    /// `scomplex` and `dcomplex`.
    Complex {
        /// Real part.
        re: f64,
        /// Imaginary part.
        im: f64,
    },
    /// `string`, `filename`, `filepointer`, or a `char` as one character.
    Text(String),
    /// An array of `string`. The last index varies fastest.
    Texts(Vec<String>),
}

impl Scalar {
    /// Stands for a NULL pointer, which C programs written for Ninf-G pass in place of a text. No
    /// text contains NUL.
    pub const NULL_TEXT: &str = "\0";

    /// The value for an expression that needs a whole number: an integer, or a character's code.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Scalar::Int(value) => Some(*value),
            Scalar::Text(text) if text.len() == 1 => Some(i64::from(text.as_bytes()[0])),
            _ => None,
        }
    }

    /// The value for an expression that needs a number.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Scalar::Float(value) => Some(*value),
            other => other.as_integer().map(|value| value as f64),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value:?}"),
            Scalar::Complex { re, im } => write!(f, "{re:?}{im:+?}i"),
            Scalar::Text(text) => match text.char_indices().nth(40) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Scalar::Texts(texts) => write!(f, "{} texts", texts.len()),
        }
    }
}
