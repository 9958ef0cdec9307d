//! Interface files that come while the server runs.

use super::Reactor;
use crate::worker::{LibrarySource, is_parallel};
use farcall_library::{CompileError, Source};
use farcall_rpc_proto::{CallId, Failure, FailureKind, FunctionSummary, Listing};
use std::path::PathBuf;

/// A file whose library is being bound.
pub(super) struct Registration {
    /// Who waits for it: connection and request.
    from: (usize, CallId),
    /// Index of its library, which is the last one.
    library: usize,
}

impl Reactor {
    /// An operator registers an interface file. It is answered when a worker has bound the library.
    pub(super) fn register(&mut self, key: usize, request: CallId, path: PathBuf, text: String) {
        let source = Source { path, text };
        if let Err(failure) = self.begin_registration(key, request, source) {
            self.connections[key].proto.fail(request, &failure);
        }
    }

    fn begin_registration(
        &mut self,
        key: usize,
        request: CallId,
        source: Source,
    ) -> Result<(), Failure> {
        let user = &self.connections[key].user;
        if !self.access.is_operator(user) {
            tracing::warn!("{user} may not register {}", source.path.display());
            let text = format!(
                "{user} may not register libraries: the server's own user may, and those whom \
                 access.operators in its configuration names"
            );
            return Err(Failure::new(FailureKind::NotAllowed, text));
        }
        let refuse = |text: String| Failure::new(FailureKind::BadArgument, text);
        if self.registration.is_some() {
            let text = "another library is being registered; try again";
            return Err(Failure::new(FailureKind::Busy, text));
        }
        if source.is_python() {
            let text = "a Python module is served by a server that is started with it";
            return Err(refuse(text.to_string()));
        }
        let document = self.functions.check(&source);
        let document = document.map_err(|error| refuse(error.to_string()))?;
        farcall_library::compile(&document, source.folder(), false).map_err(|error| {
            refuse(match error {
                CompileError::NotAllowed { function } => format!(
                    "`{function}` has a body in C, which is compiled when a server starts: \
                     start it with this file"
                ),
                other => other.to_string(),
            })
        })?;
        let library = self.libraries.len();
        self.libraries.push(LibrarySource {
            source,
            compiled: None,
            identities: Default::default(),
            parallel: is_parallel(&document),
        });
        let from = (key, request);
        self.registration = Some(Registration { from, library });
        self.start_worker(library, 1).map(drop).map_err(|error| {
            self.libraries.pop();
            self.registration = None;
            Failure::new(FailureKind::Internal, format!("no worker: {error}"))
        })
    }

    /// A worker has bound the library that is being registered: its functions are served.
    pub(super) fn complete_registration(&mut self, library: usize) {
        let waits = |registration: &mut Registration| registration.library == library;
        let Some(Registration { from, .. }) = self.registration.take_if(waits) else {
            return;
        };
        let source = self.libraries[library].source.clone();
        let path = source.path.display().to_string();
        let added = self.functions.add(source, &self.config.queue.priorities);
        let (connection, request) = from;
        match added {
            Ok(names) => {
                tracing::info!("registered {path}: {}", names.join(", "));
                let functions = names.into_iter().map(|name| FunctionSummary {
                    name,
                    title: String::new(),
                });
                let listing = Listing {
                    functions: functions.collect(),
                    next: None,
                };
                if let Some(connection) = self.connections.get_mut(connection) {
                    connection.proto.listing(request, &listing);
                    self.answered(from.0);
                }
            }
            // It was checked before.
            Err(error) => {
                let failure = Failure::new(FailureKind::Internal, error.to_string());
                self.refuse_registration(from, &failure);
            }
        }
    }

    /// The library that is being registered cannot be bound.
    pub(super) fn fail_registration(&mut self, library: usize, cause: &str) {
        let waits = |registration: &mut Registration| registration.library == library;
        let Some(Registration { from, .. }) = self.registration.take_if(waits) else {
            return;
        };
        self.libraries.pop();
        let failure = Failure::new(FailureKind::BadArgument, cause.to_string());
        self.refuse_registration(from, &failure);
    }

    fn refuse_registration(&mut self, (key, request): (usize, CallId), failure: &Failure) {
        tracing::warn!("not registered: {failure}");
        if let Some(connection) = self.connections.get_mut(key) {
            connection.proto.fail(request, failure);
            self.answered(key);
        }
    }
}
