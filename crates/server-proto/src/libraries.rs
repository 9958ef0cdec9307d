//! Libraries: what stands behind their functions, and those that come while the server runs.

use crate::action::Action;
use crate::context::Context;
use crate::event::Ready;
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
pub(crate) struct Libraries {
    /// By library and function: what is behind it, as a worker has found it.
    known: Vec<Vec<Option<String>>>,
    /// The interface file that is being registered; its library is the last one.
    registration: Option<Registration>,
    /// Protections that workers cannot have, as the log says already.
    unprotected: Vec<String>,
}

impl Libraries {
    pub(crate) fn add(&mut self) -> usize {
        self.known.push(Vec::new());
        self.known.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// The library behind a function.
    pub(crate) fn identity(&self, entry: Entry) -> Option<String> {
        self.known.get(entry.file)?.get(entry.function)?.clone()
    }

    /// What waits for a library to be bound.
    fn take(&mut self, library: usize) -> Option<Registration> {
        let is_last = library + 1 == self.known.len();
        let registration = &mut self.registration;
        registration.take_if(|registration| is_last && registration.file.is_some())
    }
}

impl Libraries {
    /// An operator registers an interface file. It is answered when a worker has bound the library.
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
            tracing::warn!("{user} may not register {path}");
            let text = format!(
                "{user} may not register libraries: the server's own user may, and those whom \
                 access.operators in its configuration names"
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

    /// The interface file that is being registered was checked. Returns the number of its library,
    /// which a worker is to bind.
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

    /// A worker has bound a library. The functions of one that is being registered are served now.
    pub(crate) fn bound(&mut self, cx: &mut Context, library: usize, ready: Ready) {
        if let Some(known) = self.known.get_mut(library) {
            *known = ready.libraries;
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
            return;
        };
        let names = cx.functions.add(&document);
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
    }

    /// The library that is being registered cannot be bound.
    pub(crate) fn not_bound(&mut self, cx: &mut Context, library: usize, cause: &str) {
        let Some(registration) = self.take(library) else {
            return;
        };
        self.known.pop();
        cx.out.push(Action::ForgetLibrary);
        let failure = Failure::new(FailureKind::BadArgument, cause.to_string());
        Libraries::refuse(cx, &registration, &failure);
    }

    fn refuse(cx: &mut Context, registration: &Registration, failure: &Failure) {
        tracing::warn!("not registered: {failure}");
        cx.refuse(registration.connection, registration.request, failure);
    }
}
