//! Submitted calls.

use crate::argument::{self, Argument, Way};
use crate::pending::Attempt;
use crate::{Error, JobId, JobState, Outcome, Pending, Server};
use farcall_idl::{Interface, Layout, Scalar};
use farcall_rpc_proto::{Failure, JobDescription, JobRecord};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A submitted call, by its id alone: it may have been submitted by another program.
#[derive(Clone)]
pub struct Job {
    server: Server,
    id: JobId,
}

/// What is known of a submitted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// Its id.
    pub id: JobId,
    /// Qualified name of the function.
    pub function: String,
    /// Where it is.
    pub state: JobState,
    /// When it was accepted.
    pub submitted: SystemTime,
    /// When it began to run.
    pub started: Option<SystemTime>,
    /// When its outcome was known.
    pub ended: Option<SystemTime>,
    /// When it is forgotten.
    pub expires: Option<SystemTime>,
    /// Bytes that it takes at the server.
    pub bytes: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A submitted call as it was made, which is what it takes to fetch its results.
pub struct Submitted {
    job: Job,
    status: JobStatus,
    interface: Interface,
    scalars: Vec<Option<Scalar>>,
    layout: Layout,
}

impl Job {
    pub(crate) fn new(server: Server, id: JobId) -> Job {
        Job { server, id }
    }

    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Asks where it is.
    pub fn status(&self) -> Result<JobStatus, Error> {
        let description = self.server.connection()?.job(self.id)?;
        Ok(JobStatus::new(description.record))
    }

    /// Asks how the call was made, to fetch its results.
    pub fn describe(&self) -> Result<Submitted, Error> {
        let connection = self.server.connection()?;
        let JobDescription { record, call } = connection.job(self.id)?;
        let unreadable = |reason: String| Error::Interface {
            address: self.server.address().clone(),
            function: record.function.clone(),
            reason,
        };
        let (text, call) = call.ok_or_else(|| unreadable("the server does not say it".into()))?;
        let interface = farcall_idl::parse_interface(&text);
        let interface = interface.map_err(|error| unreadable(error.to_string()))?;
        let layout = interface.layout(&call.scalars, &call.elements);
        let layout = layout.map_err(|error| unreadable(error.to_string()))?;
        Ok(Submitted {
            job: self.clone(),
            status: JobStatus::new(record),
            interface,
            scalars: call.scalars,
            layout,
        })
    }

    /// Ends it, if it has not ended: then it is cancelled, and the library is stopped. Returns what
    /// it has come to.
    pub fn cancel(&self) -> Result<JobStatus, Error> {
        let description = self.server.connection()?.cancel_job(self.id, false)?;
        Ok(JobStatus::new(description.record))
    }

    /// The same, and the server keeps nothing of it.
    pub fn forget(&self) -> Result<JobStatus, Error> {
        let description = self.server.connection()?.cancel_job(self.id, true)?;
        Ok(JobStatus::new(description.record))
    }
}

impl Submitted {
    /// Its status when it was asked for.
    pub fn status(&self) -> &JobStatus {
        &self.status
    }

    /// The interface of the function as it was called.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The scalars of the call, by parameter.
    pub fn scalars(&self) -> &[Option<Scalar>] {
        &self.scalars
    }

    /// Shapes and lengths of the arrays.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Waits for the end of the call and fills OUT and INOUT arrays with its results. `arguments`
    /// has one for each parameter: those, and [`Argument::Skip`]. The server keeps the results.
    pub fn fetch(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        // SAFETY: the borrows outlive the request, which is over or given up when this returns.
        unsafe { self.start(arguments) }?.wait()
    }

    /// Begins to fetch, and returns at once.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// stay where they are and are not touched.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        let start = Instant::now();
        let wrong = |source| Error::Argument {
            function: self.status.function.clone(),
            source,
        };
        let expected = self.interface.params.len();
        if arguments.len() != expected {
            let given = arguments.len();
            return Err(wrong(crate::ArgumentError::Count { expected, given }));
        }
        for array in &self.layout.arrays {
            let param = &self.interface.params[array.param];
            let argument = &arguments[array.param];
            argument::check_array(param, array, argument, Way::Back).map_err(wrong)?;
        }
        let connection = self.job.server.connection()?;
        let layout = self.layout.clone();
        // SAFETY: the caller's promise.
        let request = unsafe { connection.fetch(self.job.id, arguments, layout) }?;
        Ok(Pending::new(Attempt::new(request, None, None, start)))
    }
}

impl JobStatus {
    pub(crate) fn new(record: JobRecord) -> JobStatus {
        let time = |ms: u64| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        JobStatus {
            id: record.id,
            function: record.function,
            state: record.state,
            submitted: time(record.submitted).unwrap_or(UNIX_EPOCH),
            started: record.started.and_then(time),
            ended: record.ended.and_then(time),
            expires: record.expires.and_then(time),
            bytes: record.bytes,
            failure: record.failure,
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} at {})", self.id, self.server.address())
    }
}
