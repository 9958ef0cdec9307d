//! Durable calls at one server: their status, how they were made, and their results. The server has
//! the calls, and a job id is all that a client needs to find one. The program that has submitted a
//! call need not ask how it was made. A fetch begins again at the server's successor if the server
//! lets the client go before.

use crate::address::Address;
use crate::argument::{Argument, Held};
use crate::call::{self, LaidOut, Travel};
use crate::call_status::CallStatus;
use crate::description::Description;
use crate::error::{Error, Failure};
use crate::remote::again::Next;
use crate::remote::attempt::{Attempt, Begun};
use crate::remote::early::Early;
use crate::remote::pages;
use crate::remote::requests::{functions, jobs};
use crate::remote::server::Server;
use crate::remote::source::OwnArrays;
use farcall_idl::{Interface, Layout, Scalar};
use farcall_rpc_proto::{CallName, DurableDescription, DurableRecord, DurableState, JobId};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A durable call, known by its job id alone. Another program may have submitted it.
#[derive(Clone)]
pub struct DurableCall {
    server: Server,
    id: JobId,
    /// How it was made, if that was here.
    made: Option<LaidOut>,
    /// Its results, if they come without being asked for again. The first fetch takes them.
    early: Arc<Mutex<Option<Early>>>,
}

/// The status of a durable call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableStatus {
    /// Its job id.
    pub id: JobId,
    /// Qualified name of the function.
    pub function: String,
    /// How far the call has come.
    pub state: DurableState,
    /// When the server accepted it.
    pub submitted: SystemTime,
    /// When it started to run.
    pub started: Option<SystemTime>,
    /// When it ended.
    pub ended: Option<SystemTime>,
    /// When the server forgets it.
    pub expires: Option<SystemTime>,
    /// Bytes that it occupies at the server.
    pub bytes: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A durable call with its interface and scalars, as needed to fetch its results.
pub struct SubmittedCall {
    job: DurableCall,
    made: LaidOut,
}

impl DurableCall {
    /// The job id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The same call, which was submitted here.
    pub(super) fn made_as(self, made: LaidOut, early: Option<Early>) -> DurableCall {
        DurableCall {
            made: Some(made),
            early: Arc::new(Mutex::new(early)),
            ..self
        }
    }

    /// Takes the results that come early; `None` if there are none, or not any more.
    fn take_early(&self) -> Option<Early> {
        let early = self.early.lock();
        let mut early = early.unwrap_or_else(PoisonError::into_inner).take()?;
        early.request.claim().then_some(early)
    }

    /// The address of its server.
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Asks the server for the status.
    pub fn status(&self) -> Result<DurableStatus, Error> {
        let description = self.ask()?;
        Ok(DurableStatus::new(description.record))
    }

    /// How the call fares: why it waits, and when it will start and end. This asks the server.
    pub fn call_status(&self) -> Result<CallStatus, Error> {
        let server = &self.server;
        server.persist(|| functions::call_status(&server.connection()?, CallName::Durable(self.id)))
    }

    /// How the call was made, as needed to fetch its results. This asks the server, unless the call
    /// was submitted here.
    pub fn describe(&self) -> Result<SubmittedCall, Error> {
        let made = match &self.made {
            Some(made) => made.clone(),
            None => self.ask_how()?,
        };
        let job = self.clone();
        Ok(SubmittedCall { job, made })
    }

    fn ask_how(&self) -> Result<LaidOut, Error> {
        let DurableDescription { record, call } = self.ask()?;
        let unreadable = |reason: String| Error::Interface {
            address: self.server.address().clone(),
            function: record.function.clone(),
            reason,
        };
        let (text, call) = call.ok_or_else(|| unreadable("the server does not say it".into()))?;
        let interface = farcall_idl::parse_interface(&text);
        let interface = interface.map_err(|error| unreadable(error.to_string()))?;
        let description = Arc::new(Description::of(&record.function, text, None, interface));
        let made = LaidOut::new(&description, call.scalars, call.elements);
        made.map_err(|error| unreadable(error.to_string()))
    }

    fn ask(&self) -> Result<DurableDescription, Error> {
        let server = &self.server;
        server.persist(|| jobs::job(&server.connection()?, self.id))
    }

    fn end(&self, forget: bool) -> Result<DurableStatus, Error> {
        let server = &self.server;
        let ended = server.persist(|| jobs::cancel_job(&server.connection()?, self.id, forget))?;
        Ok(DurableStatus::new(ended.record))
    }

    /// Cancels the call if it has not ended, and stops the library. Returns the status after that.
    pub fn cancel(&self) -> Result<DurableStatus, Error> {
        self.end(false)
    }

    /// Cancels the call as above, and makes the server forget it.
    pub fn forget(&self) -> Result<DurableStatus, Error> {
        self.end(true)
    }
}

impl SubmittedCall {
    /// Qualified name of the function.
    pub fn function(&self) -> &str {
        &self.made.description().qualified
    }

    /// The interface of the function as it was called.
    pub fn interface(&self) -> &Interface {
        &self.made.description().interface
    }

    /// The scalars of the call, by parameter.
    pub fn scalars(&self) -> &[Option<Scalar>] {
        self.made.scalars()
    }

    /// The elements of arrays that decide sizes.
    pub fn elements(&self) -> &[i64] {
        self.made.values().elements
    }

    /// Shapes and lengths of the arrays.
    pub fn layout(&self) -> &Layout {
        self.made.layout()
    }

    /// Begins to fetch the results into OUT and INOUT arrays.
    ///
    /// # Safety
    /// Until the attempt has ended or is dropped, the arrays of `arguments` must stay where they
    /// are, and the caller must not touch them.
    pub(crate) unsafe fn begin(&self, arguments: &mut [Argument<'_>]) -> Result<Begun, Error> {
        let start = Instant::now();
        let interface = self.interface();
        let checked = call::check_count(interface.params.len(), arguments)
            .and_then(|()| call::check_arrays(interface, self.layout(), arguments, Travel::Back));
        checked.map_err(|source| Error::Argument {
            function: self.function().to_owned(),
            source,
        })?;
        let (job, layout) = (self.job.clone(), self.made.shared_layout());
        let begin = move |arguments: &mut [Argument<'_>]| {
            job.server.persist(|| {
                let connection = job.server.connection()?;
                let layout = layout.clone();
                // SAFETY: the caller's promise.
                let request = unsafe { jobs::fetch(&connection, job.id, arguments, layout) }?;
                Ok(Attempt::new(request, None, None, start))
            })
        };
        let attempt = match self.job.take_early() {
            Some(Early { request, scratch }) => {
                Attempt::early(request, scratch.to(arguments), start)
            }
            None => begin(arguments)?,
        };
        let held: Vec<Held> = arguments.iter_mut().map(Held::of).collect();
        let again = move |_: &mut OwnArrays, _: Next| {
            // SAFETY: the caller leaves the arrays alone until the attempt has ended, and the one
            // before has ended.
            let arguments = held.iter().map(|held| unsafe { held.argument() });
            begin(&mut arguments.collect::<Vec<_>>())
        };
        Ok(Begun::with(attempt, OwnArrays::default(), false, again))
    }
}

impl Server {
    /// The durable call with this job id. The server is not asked yet.
    pub(crate) fn job(&self, id: JobId) -> DurableCall {
        DurableCall {
            server: self.clone(),
            id,
            made: None,
            early: Arc::default(),
        }
    }

    pub(crate) fn jobs(&self) -> Result<Vec<DurableStatus>, Error> {
        pages::all(|after| {
            let page = self.persist(|| jobs::jobs(&self.connection()?, after))?;
            Ok((page.jobs.into_iter().map(DurableStatus::new), page.next))
        })
    }
}

impl DurableStatus {
    pub(crate) fn new(record: DurableRecord) -> DurableStatus {
        let time = |ms: u64| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        DurableStatus {
            id: record.id,
            function: record.function,
            state: record.state,
            submitted: time(record.submitted).unwrap_or(UNIX_EPOCH),
            started: record.started.and_then(time),
            ended: record.ended.and_then(time),
            expires: record.expires.and_then(time),
            bytes: record.bytes,
            failure: record.failure.map(Failure::from),
        }
    }
}

impl fmt::Debug for DurableCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} at {})", self.id, self.server.address())
    }
}
