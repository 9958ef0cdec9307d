//! Requests about submitted calls.

use super::state::Answer;
use super::transfer::Transfer;
use super::{Connection, Request};
use crate::{Argument, Error};
use farcall_idl::Layout;
use farcall_rpc_proto::{Failure, FailureKind, JOBS, JobDescription, JobId, JobPage, Submission};
use std::sync::Arc;

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
}
