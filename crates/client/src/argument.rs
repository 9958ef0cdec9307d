//! The arguments of a call: what a caller passes for each parameter.
//!
//! This module owns the type [`Argument`] and its conversions. It does not compare arguments with
//! an interface; `call` does. An argument borrows the caller's memory and never copies an array.

mod array;
mod conversions;
mod held;
pub(crate) mod named;
#[cfg(feature = "ndarray")]
mod views;

pub use array::{Array, Element};
pub(crate) use held::Held;

use crate::callback::Callback;
use crate::data::Source;
use farcall_idl::Scalar;
use farcall_rpc_proto::{DataName, HandleId};

/// What a caller passes for one parameter. Callbacks come after all parameters.
///
/// Numbers, texts, slices and arrays become arguments by [`From`]: `2.into()`, `(&x).into()`,
/// `(&mut y).into()`. An array that is made like this has the type of its elements. An `ndarray`
/// view (feature `ndarray`) also has its shape and its order. The call compares them with the
/// interface.
#[derive(Debug)]
pub enum Argument<'a> {
    /// The value of a scalar, or an array of texts.
    Scalar(Scalar),
    /// An array with the type of its elements.
    Array(Array<'a>),
    /// An IN array: the bytes of the whole declared array, contiguous in the declared order of
    /// indices and in the byte order of this machine.
    In(&'a [u8]),
    /// An OUT or INOUT array, as bytes in the same order. After a failed call its contents are
    /// undefined.
    Out(&'a mut [u8]),
    /// Work space. It exists only at the server.
    Skip,
    /// A function of the caller.
    Function(Callback),
    /// A stored array at the server.
    Handle(HandleId),
    /// Named data at any server. The function reads them and does not write them.
    Named(DataName),
    /// An array at an address outside of Farcall. The server of the call reads it, and the function
    /// does not write it.
    Source(Box<Source>),
}

/// Memory of one argument.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) writable: bool,
}

impl Argument<'_> {
    /// The bytes of an array of the caller. Empty for every other argument.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Argument::In(bytes) => bytes,
            Argument::Out(bytes) => bytes,
            Argument::Array(array) => array.bytes(),
            Argument::Scalar(_)
            | Argument::Skip
            | Argument::Function(_)
            | Argument::Handle(_)
            | Argument::Named(_)
            | Argument::Source(_) => &[],
        }
    }

    /// The memory of an array of the caller. Empty for every other argument.
    pub(crate) fn memory(&mut self) -> Memory {
        let writable = self.is_writable();
        let bytes = self.bytes().len();
        let start = match self {
            Argument::Out(bytes) => bytes.as_mut_ptr(),
            Argument::Array(array) => array.start(),
            other => other.bytes().as_ptr().cast_mut(),
        };
        Memory {
            start,
            bytes,
            writable,
        }
    }

    /// Whether it shares memory of the caller with another argument.
    pub(crate) fn overlaps(&self, other: &Argument<'_>) -> bool {
        let (here, there) = (self.bytes().as_ptr_range(), other.bytes().as_ptr_range());
        !here.is_empty() && !there.is_empty() && here.start < there.end && there.start < here.end
    }

    /// The same argument with a shorter borrow.
    pub(crate) fn reborrow(&mut self) -> Argument<'_> {
        match self {
            Argument::Scalar(scalar) => Argument::Scalar(scalar.clone()),
            Argument::Array(array) => Argument::Array(array.reborrow()),
            Argument::In(bytes) => Argument::In(bytes),
            Argument::Out(bytes) => Argument::Out(bytes),
            Argument::Skip => Argument::Skip,
            Argument::Function(function) => Argument::Function(function.clone()),
            Argument::Handle(id) => Argument::Handle(*id),
            Argument::Named(name) => Argument::Named(name.clone()),
            Argument::Source(source) => Argument::Source(source.clone()),
        }
    }

    /// Whether it is an array of the caller that may be written to.
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Argument::Out(_) => true,
            Argument::Array(array) => array.is_writable(),
            _ => false,
        }
    }

    /// Whether this is an array of the caller that the call only reads.
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Argument::In(_) => true,
            Argument::Array(array) => !array.is_writable(),
            _ => false,
        }
    }

    /// Whether this is an array at a server, or one that a server reads.
    pub(crate) fn is_at_server(&self) -> bool {
        matches!(
            self,
            Argument::Handle(_) | Argument::Named(_) | Argument::Source(_)
        )
    }

    pub(crate) fn what(&self) -> &'static str {
        match self {
            Argument::Scalar(_) => "a scalar",
            Argument::In(_) => "an array that is only read",
            Argument::Out(_) => "an array to write to",
            Argument::Array(array) if array.is_writable() => "an array to write to",
            Argument::Array(_) => "an array that is only read",
            Argument::Skip => "nothing",
            Argument::Function(_) => "a function",
            Argument::Handle(_) => "a handle",
            Argument::Named(_) => "named data",
            Argument::Source(_) => "an address",
        }
    }
}
