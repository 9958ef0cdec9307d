//! Entries of durable calls on their way to the journal, and what follows when it has confirmed
//! them: a client learns that its call is recorded. `durable` has the calls themselves. Every entry
//! is confirmed once, in its order.

use crate::action::{Action, Actions, Haste};
use crate::context::{Context, Step};
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use crate::map::{Map, Set};
use crate::record::{Entry, Record};
use farcall_rpc_proto::{CallId, Failure, JobId};

/// A call that is being submitted.
pub(crate) struct Submission {
    pub(crate) call: CallKey,
    /// The request to acknowledge, if the call has left memory already.
    pub(crate) client: Option<(ConnectionKey, CallId)>,
}

impl Submission {
    /// The client that waits until the call is recorded.
    fn client(&self, cx: &Context) -> Option<ConnectionKey> {
        match cx.calls.get(self.call) {
            Some(call) => call.connection,
            None => self.client.map(|(connection, _)| connection),
        }
    }

    /// Takes the client that waits until the call is recorded, and its request.
    fn take_client(&self, cx: &mut Context) -> Option<(ConnectionKey, CallId)> {
        let Some(call) = cx.calls.get_mut(self.call) else {
            return self.client;
        };
        let (connection, request) = (call.connection.take()?, call.id);
        cx.clients[connection].calls.remove(&request);
        Some((connection, request))
    }

    /// Tells the client that its call is recorded. Returns which client that was, and its request
    /// for the outcome.
    pub(crate) fn acknowledge(
        &self,
        cx: &mut Context,
        id: JobId,
    ) -> Option<(ConnectionKey, Option<CallId>)> {
        let (connection, request) = self.take_client(cx)?;
        let known = cx.clients.get_mut(connection)?;
        let fetch = known.proto.submitted(request, id);
        cx.answered(connection);
        Some((connection, fetch))
    }

    /// Refuses a call that the disk did not take. If it runs already, that ends. Returns who was
    /// told.
    pub(crate) fn refuse(
        &self,
        cx: &mut Context,
        failure: &Failure,
        runs: bool,
    ) -> Option<ConnectionKey> {
        tracing::warn!("call refused: {failure}");
        // A call that runs fails when it ends.
        let function = cx.calls.get(self.call).map(|call| call.function);
        if let Some(function) = function.filter(|_| !runs) {
            cx.totals.count_failure(function, &mut cx.functions);
            cx.audit_call(self.call, failure.kind.name());
            cx.note_call(self.call, failure.kind.name());
        }
        let client = self.take_client(cx);
        let reason = Failure::new(failure.kind, format!("was ended because {failure}"));
        cx.step(match runs {
            true => Step::TearDown(self.call, reason),
            false => Step::Release(self.call),
        });
        let (connection, request) = client?;
        cx.refuse(connection, request, failure);
        cx.clients.is_open(connection).then_some(connection)
    }
}

/// The entries that the journal has not confirmed.
#[derive(Default)]
pub(crate) struct Unconfirmed {
    entries: usize,
    /// Calls that are being submitted.
    submissions: Map<JobId, Submission>,
    /// Calls that are being forgotten, and have results on the disk.
    forgetting: Set<JobId>,
}

impl Unconfirmed {
    /// Whether the journal has confirmed all entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub(crate) fn record(&mut self, entry: Entry, haste: Haste, out: &mut Actions) {
        self.entries += 1;
        out.push(Action::Record { entry, haste });
    }

    /// Counts an entry that the journal has confirmed.
    pub(crate) fn confirmed(&mut self) {
        self.entries = self.entries.saturating_sub(1);
    }

    /// Records a new call.
    pub(crate) fn insert(
        &mut self,
        record: Record,
        call: CallKey,
        haste: Haste,
        out: &mut Actions,
    ) {
        let submission = Submission { call, client: None };
        self.submissions.insert(record.id, submission);
        self.record(Entry::Insert(Box::new(record)), haste, out);
    }

    /// The calls that are being submitted.
    pub(crate) fn calls(&self) -> impl Iterator<Item = CallKey> {
        self.submissions.values().map(|submission| submission.call)
    }

    /// Whether a client, or this one, waits until a call is recorded.
    pub(crate) fn is_awaited(&self, cx: &Context, by: Option<ConnectionKey>) -> bool {
        let mut submissions = self.submissions.values();
        submissions.any(|submission| {
            let client = submission.client(cx);
            let client = client.filter(|client| cx.clients.is_open(*client));
            client.is_some_and(|client| by.is_none_or(|by| client == by))
        })
    }

    /// Ends the submission of a call that the journal has recorded or refused.
    pub(crate) fn inserted(&mut self, id: JobId) -> Option<Submission> {
        self.confirmed();
        self.submissions.remove(&id)
    }

    /// A call leaves memory. If it is still being submitted, its client waits on.
    pub(crate) fn leaves_memory(&mut self, id: JobId, client: Option<(ConnectionKey, CallId)>) {
        if let Some(submission) = self.submissions.get_mut(&id) {
            submission.client = client;
        }
    }

    /// A client has given up a request: nobody waits until that call is recorded.
    pub(crate) fn give_up(&mut self, connection: ConnectionKey, request: CallId) {
        for submission in self.submissions.values_mut() {
            let client = &mut submission.client;
            client.take_if(|client| *client == (connection, request));
        }
    }

    /// Forgets a call that has ended.
    pub(crate) fn forget(&mut self, id: JobId, has_results: bool, out: &mut Actions) {
        if has_results {
            self.forgetting.insert(id);
        }
        if !has(Flaw::KeepsForgotten) {
            self.record(Entry::Forget(id), Haste::Later, out);
        }
    }

    /// Ends a call that the journal has forgotten. Returns whether its results must be removed.
    pub(crate) fn forgotten(&mut self, id: JobId) -> bool {
        self.confirmed();
        self.forgetting.remove(&id)
    }
}
