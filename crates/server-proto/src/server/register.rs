//! Libraries: what stands behind their functions, and those that come while the server runs.

use super::Server;
use crate::action::Action;
use crate::flaw::{Flaw, has};
use crate::functions::Entry;
use crate::keys::ConnectionKey;
use farcall_idl::Document;
use farcall_rpc_proto::{CallId, Failure, FailureKind, FunctionSummary, Listing};

/// A file whose library is being bound.
#[derive(Debug)]
struct Registration {
    /// Who waits for it.
    connection: ConnectionKey,
    request: CallId,
    /// Its path and what it says, once it was checked.
    file: Option<(String, Document)>,
}

/// The libraries that workers bind.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    /// By library and function: what is behind it, as a worker has found it.
    known: Vec<Vec<Option<String>>>,
    /// The interface file that is being registered; its library is the last one.
    registration: Option<Registration>,
    /// Protections that workers cannot have, as the log says already.
    pub(super) unprotected: Vec<String>,
}

impl Libraries {
    pub(super) fn add(&mut self) -> usize {
        self.known.push(Vec::new());
        self.known.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn bound(&mut self, library: usize, functions: Vec<Option<String>>) {
        if let Some(known) = self.known.get_mut(library) {
            *known = functions;
        }
    }

    /// The library behind a function.
    pub(super) fn identity(&self, entry: Entry) -> Option<String> {
        self.known.get(entry.file)?.get(entry.function)?.clone()
    }

    /// What waits for a library to be bound.
    fn take(&mut self, library: usize) -> Option<Registration> {
        let is_last = library + 1 == self.known.len();
        let registration = &mut self.registration;
        registration.take_if(|registration| is_last && registration.file.is_some())
    }
}

impl Server {
    /// An operator registers an interface file. It is answered when a worker has bound the library.
    pub(super) fn register(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        path: String,
        text: String,
    ) {
        let connection = &mut self.connections[key];
        let user = &connection.user;
        let refusal = if !connection.peer.is_operator && !has(Flaw::RegistersAnyone) {
            tracing::warn!("{user} may not register {path}");
            let text = format!(
                "{user} may not register libraries: the server's own user may, and those whom \
                 access.operators in its configuration names"
            );
            Failure::new(FailureKind::NotAllowed, text)
        } else if self.libraries.registration.is_some() {
            let text = "another library is being registered; try again";
            Failure::new(FailureKind::Busy, text)
        } else {
            self.libraries.registration = Some(Registration {
                connection: key,
                request,
                file: None,
            });
            return self.out.push(Action::CheckLibrary { path, text });
        };
        connection.proto.fail(request, &refusal);
    }

    /// The interface file that is being registered was checked: a worker binds its library.
    pub(super) fn library_checked(&mut self, checked: Result<(String, Document), Failure>) {
        let Some(registration) = &mut self.libraries.registration else {
            return;
        };
        match checked {
            Ok(file) => {
                registration.file = Some(file);
                let library = self.libraries.add();
                self.start_worker(library, 1);
            }
            Err(failure) => {
                let (connection, request) = (registration.connection, registration.request);
                self.libraries.registration = None;
                self.refuse_registration(connection, request, &failure);
            }
        }
    }

    /// A worker has bound the library that is being registered: its functions are served.
    pub(super) fn complete_registration(&mut self, library: usize) {
        let Some(Registration {
            connection,
            request,
            file: Some((path, document)),
        }) = self.libraries.take(library)
        else {
            return;
        };
        let names = self.functions.add(&document);
        self.out.push(Action::KeepLibrary);
        tracing::info!("registered {path}: {}", names.join(", "));
        let functions = names.into_iter().map(|name| FunctionSummary {
            name,
            title: String::new(),
        });
        let listing = Listing {
            functions: functions.collect(),
            next: None,
        };
        if let Some(known) = self.connections.get_mut(connection) {
            known.proto.listing(request, &listing);
            self.answered(connection);
        }
    }

    /// The library that is being registered cannot be bound.
    pub(super) fn fail_registration(&mut self, library: usize, cause: &str) {
        let Some(registration) = self.libraries.take(library) else {
            return;
        };
        self.libraries.known.pop();
        self.out.push(Action::ForgetLibrary);
        let failure = Failure::new(FailureKind::BadArgument, cause.to_string());
        self.refuse_registration(registration.connection, registration.request, &failure);
    }

    fn refuse_registration(
        &mut self,
        connection: ConnectionKey,
        request: CallId,
        failure: &Failure,
    ) {
        tracing::warn!("not registered: {failure}");
        if let Some(known) = self.connections.get_mut(connection) {
            known.proto.fail(request, failure);
            self.answered(connection);
        }
    }
}
