//! Libraries: what is behind the functions, and libraries that are added while the server runs.
//! `functions` has the interfaces, and workers bind the libraries. A registered function is served
//! only after a worker has bound its library.

use crate::action::Action;
use crate::context::{Context, Step};
use crate::event::Ready;
use crate::flaw::{Flaw, has};
use crate::functions::Entry;
use crate::keys::{CallKey, ConnectionKey};
use crate::worker::{Found, Worker};
use farcall_idl::Document;
use farcall_rpc_proto::{CallId, Failure, FailureKind, FunctionSummary, Listing, Made};

/// An interface file whose library is being bound.
#[derive(Debug)]
struct Registration {
    /// The client that waits for it.
    connection: ConnectionKey,
    request: CallId,
    /// Its path and contents, after the check.
    file: Option<(String, Document)>,
}

/// The libraries that workers bind.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    /// What is behind the functions, by interface file.
    known: Vec<Known>,
    /// The interface file that is being registered; its library is the last one.
    registration: Option<Registration>,
    /// Missing protections that the log has reported already.
    unprotected: Vec<String>,
}

/// What is behind the functions of an interface file.
#[derive(Debug, Default)]
struct Known {
    /// As the newest worker found it.
    libraries: Option<Found>,
    /// Whether not all workers have found the same.
    differs: bool,
}

impl Libraries {
    pub(crate) fn add(&mut self) -> usize {
        self.known.push(Known::default());
        self.known.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The library behind a function.
    pub(crate) fn identity(&self, entry: Entry) -> Option<String> {
        let libraries = self.known.get(entry.file)?.libraries.as_ref()?;
        libraries.get(entry.function)?.clone()
    }

    /// Whether workers of an interface file have found different libraries, so that a client may
    /// have been told of another one than computes its call.
    fn differs(&self, library: usize) -> bool {
        self.known.get(library).is_some_and(|known| known.differs)
    }

    /// Notes what has computed a call.
    pub(crate) fn note_maker(&self, cx: &mut Context, worker: Option<&Worker>, key: CallKey) {
        let (Some(worker), Some(call)) = (worker, cx.calls.get_mut(key)) else {
            return;
        };
        let entry = cx
            .functions
            .get(call.function)
            .map(|function| function.entry);
        // A client knows the library of its other calls by the description of the function.
        let is_told = |entry: &Entry| call.job_id().is_some() || self.differs(entry.file);
        let entry = entry.ok().filter(is_told);
        let made = Made {
            threads: call.run.pes,
            library: entry.and_then(|entry| worker.library_of(entry.function)),
        };
        call.run.made = Some(made);
    }

    /// The registration that waits for a library to be bound.
    fn take(&mut self, library: usize) -> Option<Registration> {
        let is_last = library + 1 == self.known.len();
        let registration = &mut self.registration;
        registration.take_if(|registration| is_last && registration.file.is_some())
    }
}

impl Libraries {
    /// Registers an interface file for an operator. The answer follows when a worker has bound the
    /// library.
    pub(crate) fn register(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        path: String,
        text: String,
    ) {
        let connection = &mut cx.clients[key];
        let user = &connection.user;
        let refusal = if !connection.peer.is_operator && !has(Flaw::RegistersAnyone) {
            tracing::warn!("{user} is not allowed to register {path}");
            let text = format!(
                "{user} is not allowed to register libraries; the server's own user, root, and \
                 the users in access.operators of its configuration are"
            );
            Failure::new(FailureKind::NotAllowed, text)
        } else if self.registration.is_some() {
            let text = "another library is being registered; try again";
            Failure::new(FailureKind::Busy, text)
        } else {
            self.registration = Some(Registration {
                connection: key,
                request,
                file: None,
            });
            return cx.out.push(Action::CheckLibrary { path, text });
        };
        connection.proto.fail(request, &refusal);
    }

    /// Handles a checked interface file. Returns the number of its library, which a worker must
    /// bind.
    pub(crate) fn checked(
        &mut self,
        cx: &mut Context,
        checked: Result<(String, Document), Failure>,
    ) -> Option<usize> {
        let mut registration = self.registration.take()?;
        match checked {
            Ok(file) => {
                registration.file = Some(file);
                self.registration = Some(registration);
                Some(self.add())
            }
            Err(failure) => {
                Libraries::refuse(cx, &registration, &failure);
                None
            }
        }
    }

    /// Handles a bound library. If it was being registered, its functions are served now. Returns
    /// what is behind its functions.
    pub(crate) fn bound(&mut self, cx: &mut Context, library: usize, ready: Ready) -> Found {
        let found = Found::from(ready.libraries);
        if let Some(known) = self.known.get_mut(library) {
            let before = known.libraries.replace(found.clone());
            if let Some(before) = before.filter(|before| *before != found) {
                known.differs = true;
                let mut pairs = found.iter().flatten().zip(before.iter().flatten());
                if let Some((now, before)) = pairs.find(|(now, before)| now != before) {
                    tracing::info!("new calls use {now} instead of {before}");
                }
            }
        }
        for text in ready.unprotected {
            if !self.unprotected.contains(&text) {
                tracing::warn!("workers are not fully protected: {text}");
                self.unprotected.push(text);
            }
        }
        let Some(Registration {
            connection,
            request,
            file: Some((path, document)),
        }) = self.take(library)
        else {
            return found;
        };
        let names = cx.functions.add(&document);
        cx.step(Step::LookForFunctions);
        cx.out.push(Action::KeepLibrary);
        tracing::info!("registered {path}: {}", names.join(", "));
        let functions = names.into_iter().map(|name| FunctionSummary {
            name,
            title: String::new(),
        });
        let listing = Listing {
            functions: functions.collect(),
            next: None,
        };
        if let Some(known) = cx.clients.get_mut(connection) {
            known.proto.listing(request, &listing);
            cx.answered(connection);
        }
        found
    }

    /// Handles a registered library that cannot be bound.
    pub(crate) fn not_bound(&mut self, cx: &mut Context, library: usize, cause: &str) {
        let Some(registration) = self.take(library) else {
            return;
        };
        self.known.pop();
        cx.out.push(Action::ForgetLibrary);
        let failure = Failure::new(FailureKind::BadArgument, format!("a worker {cause}"));
        Libraries::refuse(cx, &registration, &failure);
    }

    fn refuse(cx: &mut Context, registration: &Registration, failure: &Failure) {
        tracing::warn!("not registered: {failure}");
        cx.refuse(registration.connection, registration.request, failure);
    }
}
