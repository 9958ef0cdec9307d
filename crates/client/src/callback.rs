//! Callbacks: functions of the caller that the called function calls while it runs.
//!
//! This module checks the arguments that a server sends for a callback, runs the caller's function,
//! and encodes its answer. `remote::callbacks` decides on which thread it runs.

use crate::error::CallbackError;
use farcall_idl::{Interface, Layout, Scalar};
use farcall_rpc_proto::{self as proto, CallbackAnswer, Direction, Piece, Pieces, Side};
use std::fmt;
use std::sync::Arc;

/// Limit on the arrays of one callback, in bytes of their declared sizes.
const MOST_BYTES: u64 = 1_000_000;

type Done = Result<(), CallbackError>;
type Run = dyn Fn(&mut CallbackArguments<'_>) -> Done + Send + Sync;

/// A callback. It runs on the thread that waits for the call, and the called function waits for it.
/// If it returns an error, the client gives the call up.
#[derive(Clone)]
pub struct Callback(Arc<Run>);

impl Callback {
    /// A callback that runs `run`.
    pub fn new(
        run: impl Fn(&mut CallbackArguments<'_>) -> Done + Send + Sync + 'static,
    ) -> Callback {
        Callback(Arc::new(run))
    }

    pub(crate) fn run(&self, arguments: &mut CallbackArguments<'_>) -> Done {
        (self.0)(arguments)
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

/// The arguments of a callback. Arrays have their declared size, in the declared order of indices.
/// Elements that did not travel are zero.
pub struct CallbackArguments<'a> {
    interface: &'a Interface,
    scalars: Vec<Option<Scalar>>,
    layout: Layout,
    /// The arrays, aligned for every element type.
    memory: Vec<u128>,
}

impl<'a> CallbackArguments<'a> {
    /// The interface of the callback: its name and its parameters.
    pub fn interface(&self) -> &'a Interface {
        self.interface
    }

    /// One value per parameter, `None` for arrays.
    pub fn scalars(&self) -> &[Option<Scalar>] {
        &self.scalars
    }

    /// Sizes and positions of the arrays.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The bytes of the array parameter with this index. Empty for a scalar.
    pub fn array(&mut self, param: usize) -> &mut [u8] {
        let range = self.layout.array(param).map_or(0..0, |array| {
            array.offset as usize..(array.offset + array.bytes) as usize
        });
        &mut self.bytes()[range]
    }

    fn bytes(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&self.memory[..]);
        // SAFETY: the memory holds plain bytes.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), bytes) }
    }

    /// Reads the arguments that a server sent. Checks their sizes before it allocates memory.
    pub(crate) fn new(
        interface: &'a Interface,
        callback: proto::Callback,
    ) -> Result<CallbackArguments<'a>, String> {
        let layout = interface.layout(&callback.scalars, &[]);
        let layout = layout.map_err(|error| error.to_string())?;
        if layout.bytes > MOST_BYTES {
            return Err(format!("its arrays have {} bytes", layout.bytes));
        }
        let (sent, given) = (layout.sent_bytes(), callback.data.len());
        if sent != given as u64 {
            return Err(format!("its arrays have {given} bytes, expected {sent}"));
        }
        let lines = (layout.bytes as usize).div_ceil(size_of::<u128>());
        let mut arguments = CallbackArguments {
            interface,
            scalars: callback.scalars,
            layout,
            memory: vec![0; lines],
        };
        let mut rest = &callback.data[..];
        for piece in arguments.pieces(Direction::Sent) {
            let (run, after) = rest.split_at(piece.length as usize);
            rest = after;
            arguments.bytes()[range(&piece)].copy_from_slice(run);
        }
        if callback.big_endian != cfg!(target_endian = "big") {
            arguments.swap();
        }
        Ok(arguments)
    }

    fn pieces(&self, direction: Direction) -> Vec<Piece> {
        let mut pieces = Pieces::new(&self.layout, direction, Side::Buffer);
        std::iter::from_fn(|| pieces.take(u64::MAX)).collect()
    }

    /// Converts the received arrays to this machine's byte order.
    fn swap(&mut self) {
        let came = |param: usize| self.interface.params[param].mode.is_sent();
        let arrays = self.layout.arrays.iter();
        let arrays: Vec<_> = arrays.filter(|array| came(array.param)).cloned().collect();
        for array in arrays {
            let bytes = self.array(array.param);
            proto::swap_bytes(bytes, array.element.swap_unit() as usize);
        }
    }

    /// The answer to the server.
    pub(crate) fn answer(mut self) -> CallbackAnswer {
        let mut data = Vec::with_capacity(self.layout.returned_bytes() as usize);
        for piece in self.pieces(Direction::Returned) {
            data.extend_from_slice(&self.bytes()[range(&piece)]);
        }
        let big_endian = cfg!(target_endian = "big");
        CallbackAnswer { data, big_endian }
    }
}

fn range(piece: &Piece) -> std::ops::Range<usize> {
    piece.offset as usize..(piece.offset + piece.length) as usize
}
