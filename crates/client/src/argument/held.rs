//! Arguments of a call that goes on after the caller's borrow has ended, as pointers. Another
//! attempt of the call makes its arguments from them again. At most one attempt uses the memory at
//! a time, and the caller leaves it alone until the call ends.

use super::Argument;
use crate::callback::Callback;
use crate::data::Source;
use farcall_idl::Scalar;
use farcall_rpc_proto::{DataName, HandleId};

/// An argument of a running call. The caller leaves its memory alone until the call ends.
pub(crate) enum Held {
    Scalar(Scalar),
    In(*const u8, usize),
    Out(*mut u8, usize),
    Skip,
    Function(Callback),
    Handle(HandleId),
    Named(DataName),
    Source(Box<Source>),
}

// SAFETY: who starts a call promises that its arrays stay where they are and are left alone until
// the call ends. The memory goes to a new attempt only after the last attempt has ended.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    pub(crate) fn of(argument: &mut Argument<'_>) -> Held {
        match argument {
            Argument::Scalar(value) => Held::Scalar(value.clone()),
            Argument::In(_) | Argument::Out(_) | Argument::Array(_) => {
                let memory = argument.memory();
                match memory.writable {
                    true => Held::Out(memory.start, memory.bytes),
                    false => Held::In(memory.start.cast_const(), memory.bytes),
                }
            }
            Argument::Skip => Held::Skip,
            Argument::Function(callback) => Held::Function(callback.clone()),
            Argument::Handle(id) => Held::Handle(*id),
            Argument::Named(name) => Held::Named(name.clone()),
            Argument::Source(source) => Held::Source(source.clone()),
        }
    }

    /// # Safety
    /// The call is not over, and no other attempt of it is under way.
    pub(crate) unsafe fn argument<'a>(&self) -> Argument<'a> {
        match self {
            Held::Scalar(value) => Argument::Scalar(value.clone()),
            Held::In(start, bytes) => {
                // SAFETY: the caller holds the array until the call ends.
                let bytes = unsafe { std::slice::from_raw_parts(*start, *bytes) };
                Argument::In(bytes)
            }
            Held::Out(start, bytes) => {
                // SAFETY: the caller holds the array and leaves it alone until the call ends.
                let bytes = unsafe { std::slice::from_raw_parts_mut(*start, *bytes) };
                Argument::Out(bytes)
            }
            Held::Skip => Argument::Skip,
            Held::Function(callback) => Argument::Function(callback.clone()),
            Held::Handle(id) => Argument::Handle(*id),
            Held::Named(name) => Argument::Named(name.clone()),
            Held::Source(source) => Argument::Source(source.clone()),
        }
    }
}
