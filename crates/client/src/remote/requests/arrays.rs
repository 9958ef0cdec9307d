//! Requests about arrays that stay at the server.

use super::state::{Answer, State};
use super::transfer::Transfer;
use super::{Connection, Request};
use crate::{Argument, Error};
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, Failure, FailureKind, HANDLES, HandleId, HandlePage, HandleRecord, LOANS,
    Pull, Put,
};
use std::sync::Arc;

impl Connection {
    /// Whether arrays may stay at the server; the error says that they may not.
    pub(crate) fn check_handles(&self) -> Result<(), Error> {
        self.check_one_server("arrays that stay")?;
        if self.features & HANDLES != 0 {
            return Ok(());
        }
        let text = "the server is too old to keep arrays; update it";
        let failure = Failure::new(FailureKind::BadArgument, text);
        Err(Error::Failed(failure))
    }

    /// Puts an array at the server: its bytes, or zeros.
    pub(crate) fn put(self: &Arc<Self>, put: &Put, bytes: &[u8]) -> Result<HandleRecord, Error> {
        self.check_handles()?;
        // SAFETY: the borrow outlives the request, which is over or given up when this returns.
        let transfer = unsafe { Transfer::of_one_piece(Argument::In(bytes), 1) };
        let request = self.start(|state| state.move_data(|proto| proto.put(put), transfer))?;
        self.handle_answer(request)
    }

    /// Puts an array of zeros at the server.
    pub(crate) fn put_zeros(self: &Arc<Self>, form: ArrayForm) -> Result<HandleId, Error> {
        let put = Put {
            form,
            data_bytes: 0,
            stays: false,
        };
        self.put(&put, &[]).map(|record| record.id)
    }

    /// Begins to fill a part of an array at the server.
    ///
    /// # Safety
    /// As [`Connection::call`].
    pub(crate) unsafe fn put_part(
        self: &Arc<Self>,
        part: &ArrayPart,
        bytes: &[u8],
    ) -> Result<Request, Error> {
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::of_one_piece(Argument::In(bytes), 1) };
        self.start(|state| state.move_data(|proto| proto.put_part(part), transfer))
    }

    /// Begins to get a part of an array, whose elements have parts of `unit` bytes.
    ///
    /// # Safety
    /// As [`Connection::call`].
    pub(crate) unsafe fn get_part(
        self: &Arc<Self>,
        part: &ArrayPart,
        bytes: &mut [u8],
        unit: usize,
    ) -> Result<Request, Error> {
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::of_one_piece(Argument::Out(bytes), unit) };
        self.start(|state| state.move_data(|proto| proto.get_part(part), transfer))
    }

    /// Gets an array from the server, whose elements have parts of `unit` bytes.
    pub(crate) fn get(
        self: &Arc<Self>,
        handle: HandleId,
        bytes: &mut [u8],
        unit: usize,
    ) -> Result<(), Error> {
        self.check_handles()?;
        let length = bytes.len() as u64;
        // SAFETY: the borrow outlives the request, which is over or given up when this returns.
        let transfer = unsafe { Transfer::of_one_piece(Argument::Out(bytes), unit) };
        let get = |state: &mut State| state.move_data(|proto| proto.get(handle, length), transfer);
        self.start(get)?.times().map(drop)
    }

    /// Asks about an array at the server.
    pub(crate) fn handle(self: &Arc<Self>, handle: HandleId) -> Result<HandleRecord, Error> {
        self.check_handles()?;
        let request = self.start(|state| state.ask(|proto| proto.ask_handle(handle)))?;
        self.handle_answer(request)
    }

    /// Gives an array at the server up.
    pub(crate) fn drop_handle(self: &Arc<Self>, handle: HandleId) -> Result<HandleRecord, Error> {
        self.check_handles()?;
        let request = self.start(|state| state.ask(|proto| proto.drop_handle(handle)))?;
        self.handle_answer(request)
    }

    /// Gives an array at the server up without waiting for the answer.
    pub(crate) fn drop_handle_soon(self: &Arc<Self>, handle: HandleId) {
        if self.process == std::process::id() && self.check_handles().is_ok() {
            // Its answer is thrown away with the request.
            drop(self.start(|state| state.ask(|proto| proto.drop_handle(handle))));
        }
    }

    /// Whether arrays travel from server to server; the error says that they do not.
    fn check_loans(&self) -> Result<(), Error> {
        if self.features & LOANS != 0 {
            return Ok(());
        }
        let text = "the server is too old to pass arrays to other servers; update it";
        let failure = Failure::new(FailureKind::BadArgument, text);
        Err(Error::Failed(failure))
    }

    /// Asks for a name of an array that is good for one reading by another server.
    pub(crate) fn lend(self: &Arc<Self>, handle: HandleId) -> Result<HandleId, Error> {
        self.check_loans()?;
        let request = self.start(|state| state.ask(|proto| proto.lend(handle)))?;
        Ok(self.handle_answer(request)?.id)
    }

    /// Has the server read an array from another.
    pub(crate) fn pull(self: &Arc<Self>, pull: &Pull) -> Result<HandleRecord, Error> {
        self.check_loans()?;
        let request = self.start(|state| state.ask(|proto| proto.pull(pull)))?;
        self.handle_answer(request)
    }

    fn handle_answer(&self, request: Request) -> Result<HandleRecord, Error> {
        match request.finish()? {
            Answer::Handle(record) => Ok(record),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for a page of arrays at the server.
    pub(crate) fn handles(self: &Arc<Self>, after: u64) -> Result<HandlePage, Error> {
        self.check_handles()?;
        let request = self.start(|state| state.ask(|proto| proto.list_handles(after)))?;
        match request.finish()? {
            Answer::Handles(page) => Ok(page),
            _ => Err(self.unexpected()),
        }
    }
}
