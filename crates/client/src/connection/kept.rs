//! Requests about what the server keeps for its user: submitted calls, and arrays.

use super::pace::Pace;
use super::state::{Answer, State};
use super::transfer::Transfer;
use super::{Connection, Request};
use crate::{Argument, Error};
use farcall_idl::Layout;
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, CallId, Failure, FailureKind, HANDLES, HandleId, HandlePage,
    HandleRecord, JOBS, JobDescription, JobId, JobPage, KEPT_OBJECTS, LOANS, ObjectPage,
    ObjectRecord, ObjectRequest, Pull, Put, RESERVATIONS, ReservationPage, ReservationRequest,
    Submission,
};
use std::sync::Arc;
use std::time::Duration;

impl Connection {
    /// Whether the server keeps submitted calls; the error says that it does not.
    pub(crate) fn check_jobs(&self) -> Result<(), Error> {
        self.check_one_server("submitted calls")?;
        if self.features & JOBS != 0 {
            return Ok(());
        }
        let text = "this server keeps no submitted calls: it has no folder for them (farcall serve \
                    --state DIR), or is too old";
        let failure = Failure::new(FailureKind::BadArgument, text);
        Err(Error::Failed(failure))
    }

    /// Submits a call.
    ///
    /// # Safety
    /// As [`Connection::call`].
    pub(crate) unsafe fn submit(
        self: &Arc<Self>,
        submission: &Submission,
        arguments: &mut [Argument<'_>],
        layout: Layout,
    ) -> Result<JobId, Error> {
        self.check_jobs()?;
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::submitting(arguments, layout) };
        match self
            .start(|state| state.move_data(|proto| proto.submit(submission), transfer))?
            .finish()?
        {
            Answer::Submitted(id) => Ok(id),
            _ => Err(self.unexpected()),
        }
    }

    /// Begins to fetch what a submitted call has come to.
    ///
    /// # Safety
    /// As [`Connection::call`].
    pub(crate) unsafe fn fetch(
        self: &Arc<Self>,
        job: JobId,
        arguments: &mut [Argument<'_>],
        layout: Layout,
    ) -> Result<Request, Error> {
        self.check_jobs()?;
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::fetching(arguments, layout) };
        let bytes = transfer.result_bytes();
        self.start(|state| state.move_data(|proto| proto.fetch(job, bytes), transfer))
    }

    /// Asks about a submitted call.
    pub(crate) fn job(self: &Arc<Self>, job: JobId) -> Result<JobDescription, Error> {
        self.check_jobs()?;
        let request = self.start(|state| state.ask(|proto| proto.ask_job(job)))?;
        self.job_answer(request)
    }

    /// Ends a submitted call, and has it forgotten.
    pub(crate) fn cancel_job(
        self: &Arc<Self>,
        job: JobId,
        forget: bool,
    ) -> Result<JobDescription, Error> {
        self.check_jobs()?;
        let request = self.start(|state| state.ask(|proto| proto.cancel_job(job, forget)))?;
        self.job_answer(request)
    }

    fn job_answer(&self, request: Request) -> Result<JobDescription, Error> {
        match request.finish()? {
            Answer::Job(description) => Ok(description),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for a page of submitted calls.
    pub(crate) fn jobs(self: &Arc<Self>, after: u64) -> Result<JobPage, Error> {
        self.check_jobs()?;
        match self
            .start(|state| state.ask(|proto| proto.list_jobs(after)))?
            .finish()?
        {
            Answer::Jobs(page) => Ok(page),
            _ => Err(self.unexpected()),
        }
    }

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

    /// Asks about objects that stay; the number of the request with the answer.
    pub(crate) fn objects(
        self: &Arc<Self>,
        asked: ObjectRequest,
    ) -> Result<(CallId, ObjectPage), Error> {
        self.check_one_server("objects that stay")?;
        if self.features & KEPT_OBJECTS == 0 {
            let text = "the server is too old to keep objects for other connections; update it";
            return Err(Error::Failed(Failure::new(FailureKind::BadArgument, text)));
        }
        let request = self.start(|state| state.ask(|proto| proto.objects(asked)))?;
        match request.finish()? {
            Answer::Objects(id, page) => Ok((id, page)),
            _ => Err(self.unexpected()),
        }
    }

    /// The same where the answer is one object.
    pub(crate) fn object(
        self: &Arc<Self>,
        asked: ObjectRequest,
    ) -> Result<(CallId, ObjectRecord), Error> {
        let (id, page) = self.objects(asked)?;
        let record = page.objects.into_iter().next();
        Ok((id, record.ok_or_else(|| self.unexpected())?))
    }

    /// Whether processor elements can be reserved there; the error says that they cannot.
    pub(crate) fn check_reservations(&self) -> Result<(), Error> {
        self.check_one_server("reservations")?;
        if self.features & RESERVATIONS != 0 {
            return Ok(());
        }
        let text = "the server is too old to reserve anything; update it";
        let failure = Failure::new(FailureKind::BadArgument, text);
        Err(Error::Failed(failure))
    }

    /// Has the bandwidth of a reservation from now on; `false` where its bytes cross no link.
    pub(crate) fn attach(self: &Arc<Self>, reservation: u64) -> Result<bool, Error> {
        if self.socket.is_unix() {
            return Ok(false);
        }
        let page = self.reservations(ReservationRequest::Attach(reservation))?;
        let record = page.reservations.first().ok_or_else(|| self.unexpected())?;
        let [begins, ends] = [record.begins, record.ends].map(Duration::from_millis);
        let pace = (record.up > 0).then(|| Pace::new(record.up, begins, ends));
        self.lock().set_pace(pace);
        Ok(true)
    }

    /// Is as all others again.
    pub(crate) fn detach(&self) {
        let mut state = self.lock();
        state.set_pace(None);
        self.send_soon(&mut state);
    }

    /// Asks about reservations.
    pub(crate) fn reservations(
        self: &Arc<Self>,
        asked: ReservationRequest,
    ) -> Result<ReservationPage, Error> {
        self.check_reservations()?;
        let request = self.start(|state| state.ask(|proto| proto.reservations(asked)))?;
        match request.finish()? {
            Answer::Reservations(page) => Ok(page),
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
