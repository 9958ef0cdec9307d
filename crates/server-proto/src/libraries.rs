//! Libraries: what is behind the functions, and libraries that are added while the server runs.

use crate::action::Action;
use crate::context::Context;
use crate::event::Ready;
use crate::flaw::{Flaw, has};
use crate::functions::Entry;
use crate::keys::ConnectionKey;
use farcall_idl::Document;
use farcall_rpc_proto::{CallId, Failure, FailureKind, FunctionSummary, Listing};

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
    /// The library behind each function, as a worker found it, by interface file.
    known: Vec<Vec<Option<String>>>,
    /// The interface file that is being registered; its library is the last one.
    registration: Option<Registration>,
    /// Missing protections that the log has reported already.
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

    /// Handles a bound library. If it was being registered, its functions are served now.
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

    /// Handles a registered library that cannot be bound.
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
