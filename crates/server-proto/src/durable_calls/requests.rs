//! Requests of clients about durable calls: status, lists, cancellation and results. `durable` has
//! the table of calls. A client learns nothing about the calls of another user.

use super::{DurableCalls, is_behind, not_there, rank, rank_of_call, rank_of_results};
use crate::action::Transfer;
use crate::call::ActiveCall;
use crate::context::{Context, Step};
use crate::data::{Data, room};
use crate::disk::{Fetch, Purpose};
use crate::durable::{Asked, Durable, DurableCall, Stage};
use crate::flaw::{Flaw, has};
use crate::keys::{ConnectionKey, MemoryKey};
use crate::lifecycle::Change;
use crate::memory::{Memory, MemoryGrant, NoMemory};
use crate::record::{Content, DiskError, Outcome, Record};
use farcall_rpc_proto::server::Event;
use farcall_rpc_proto::{
    Call, CallId, DurableDescription, DurableState, Failure, FailureKind, JobId, Nanos, Pieces,
    User,
};

impl DurableCalls {
    /// Handles a client's request about durable calls.
    pub(crate) fn ask(&mut self, cx: &mut Context, key: ConnectionKey, event: Event) {
        match event {
            Event::AskJob(request, id) => self.tell_of_job(cx, key, request, id),
            Event::Fetch(request, id) => self.fetch(cx, key, request, id),
            Event::CancelJob(request, id, forget) => self.cancel_job(cx, key, request, id, forget),
            Event::ListJobs(request, after) => self.list_jobs(cx, key, request, after),
            _ => {}
        }
    }

    pub(crate) fn result_read(
        &mut self,
        cx: &mut Context,
        fetch: Fetch,
        memory: MemoryKey,
        read: Result<(), DiskError>,
    ) {
        let Fetch {
            connection,
            request,
            id,
            ..
        } = fetch;
        let damage = read.as_ref().err().filter(|error| error.is_damage);
        let durable_call = self.durable.as_mut();
        let bytes = durable_call.and_then(|durable| durable.is_read(id, damage));
        let failure = match (read, bytes) {
            (Ok(()), Some(bytes)) => {
                let user = cx.clients[connection].user.clone();
                let client = (connection, request);
                let call = ActiveCall::delivery(user, client, bytes, memory, cx.now());
                let call = cx.calls.insert(call);
                cx.clients[connection].calls.insert(request, call);
                cx.clients[connection].sending.push(call);
                return self.deliver(cx, fetch);
            }
            // It was forgotten while the disk was read.
            (_, None) => not_there(id),
            (Err(error), Some(_)) => {
                tracing::error!("the results of {id} cannot be read: {}", error.text);
                let text = format!("the results of {id} cannot be read: {}", error.text);
                Failure::new(FailureKind::StorageFault, text)
            }
        };
        cx.memory.give_back(memory);
        cx.has_room = true;
        cx.refuse(connection, request, &failure);
    }

    pub(crate) fn tell_of_job(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: JobId,
    ) {
        let (user, now) = (cx.clients[key].user.clone(), cx.clock.now);
        let described = self.durable().and_then(|durable| {
            let durable_call = durable.of_user(id, &user)?;
            let Record {
                interface, call, ..
            } = &durable_call.record;
            let call = Call::decode(call)
                .map_err(|error| Failure::new(FailureKind::StorageFault, error.to_string()))?;
            Ok(DurableDescription {
                record: durable.describe(durable_call, now),
                call: Some((interface.to_string(), call)),
            })
        });
        match described {
            Ok(call) => cx.clients[key].proto.job(request, &call),
            Err(failure) => cx.clients[key].proto.fail(request, &failure),
        }
    }

    pub(crate) fn list_jobs(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        after: u64,
    ) {
        let (user, now) = (cx.clients[key].user.clone(), cx.clock.now);
        match self
            .durable()
            .map(|durable| durable.page(&user, after, now))
        {
            Ok(page) => cx.clients[key].proto.jobs(request, &page),
            Err(failure) => cx.clients[key].proto.fail(request, &failure),
        }
    }

    pub(crate) fn cancel_job(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: JobId,
        forget: bool,
    ) {
        let user = cx.clients[key].user.clone();
        let asked = Asked {
            connection: key,
            request,
            forget,
        };
        let known = self.durable().and_then(|durable| {
            let is_over = durable.of_user(id, &user)?.record.state.is_over();
            if !is_over {
                durable.ask(id, asked);
            }
            Ok(is_over)
        });
        match known {
            Ok(true) => self.tell_of_change(cx, id, asked),
            Ok(false) => cx.step(Step::Record(id, Change::Cancel, Outcome::default())),
            Err(failure) => cx.clients[key].proto.fail(request, &failure),
        }
    }

    /// Answers clients that asked a call to end, after it has ended.
    pub(crate) fn tell_of_change(&mut self, cx: &mut Context, id: JobId, asked: Asked) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let Asked {
            connection,
            request,
            forget,
        } = asked;
        let Some(durable_call) = durable.get(id) else {
            return cx.refuse(connection, request, &not_there(id));
        };
        let record = durable.describe(durable_call, cx.clock.now);
        let call = DurableDescription { record, call: None };
        let mut told = vec![(connection, request)];
        if forget {
            let waiting = durable.forget(id, &mut cx.disk, &mut cx.out);
            cx.has_room = true;
            told.extend(waiting.iter().map(|one| (one.connection, one.request)));
        }
        for (connection, request) in told {
            cx.clients[connection].proto.job(request, &call);
            cx.answered(connection);
        }
    }

    /// Sends the results of a call to a client, now or when they exist.
    pub(crate) fn fetch(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: JobId,
    ) {
        let user = cx.clients[key].user.clone();
        let fetch = Fetch {
            connection: key,
            request,
            id,
            since: cx.now(),
        };
        let known = self.durable().and_then(|durable| {
            let is_over = durable.of_user(id, &user)?.record.state.is_over();
            if !is_over {
                durable.wait(fetch);
            }
            Ok(is_over)
        });
        match known {
            Ok(true) => self.serve_fetch(cx, fetch),
            Ok(false) if cx.draining => self.refuse_stranded(cx),
            Ok(false) => {}
            Err(failure) => cx.clients[key].proto.fail(request, &failure),
        }
    }

    /// Refuses clients that wait for calls which a draining server will not begin.
    pub(crate) fn refuse_stranded(&mut self, cx: &mut Context) {
        let stranded = self.durable.as_mut().map(Durable::stranded);
        // Others may have waited behind one of these calls.
        cx.has_room = true;
        for fetch in stranded.unwrap_or_default() {
            let text = "the server is draining; the call will run after the next start: fetch it \
             then";
            let failure = Failure::new(FailureKind::Draining, text);
            cx.refuse(fetch.connection, fetch.request, &failure);
        }
    }

    /// Sends the outcome of a call that has ended.
    pub(crate) fn serve_fetch(&mut self, cx: &mut Context, fetch: Fetch) {
        let Fetch {
            connection,
            request,
            id,
            ..
        } = fetch;
        let Some(durable) = &mut self.durable else {
            return;
        };
        let Some(DurableCall { record, .. }) = durable.get(id) else {
            return cx.refuse(connection, request, &not_there(id));
        };
        if record.state != DurableState::Done {
            let failure = record.failure.clone().unwrap_or_else(|| {
                let text = format!("{} was cancelled by its user", record.function);
                Failure::new(FailureKind::Cancelled, text)
            });
            return cx.refuse(connection, request, &failure);
        }
        let stored = record.result;
        if stored.bytes == 0 {
            return self.deliver(cx, fetch);
        }
        let user = cx.clients[connection].user.clone();
        let own = rank(cx, &user, stored.bytes, fetch.since);
        if let Some(own) = own.filter(|_| stored.bytes > Memory::SMALL) {
            let call = rank_of_call(durable, cx);
            if is_behind(durable, cx, own) || call.is_some_and(|first| first < own) {
                return durable.starve(fetch);
            }
        }
        let memory = cx.memory.take(stored.bytes, &user, &mut cx.out);
        match memory {
            Ok(memory) => {
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    memory,
                    pieces: Pieces::whole(stored.bytes),
                    about: None,
                };
                let purpose = Purpose::Deliver(Some(fetch));
                durable.serves(connection);
                cx.disk.read(purpose, transfer, stored, &mut cx.out);
            }
            Err(NoMemory::Wait) => {
                durable.starve(fetch);
                cx.seek_room();
            }
            Err(refusal) => {
                let failure = cx.no_room(stored.bytes, refusal);
                cx.refuse(connection, request, &failure);
            }
        }
    }

    pub(crate) fn serve_starved(&mut self, cx: &mut Context) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        for fetch in take_starved(durable, cx) {
            self.serve_fetch(cx, fetch);
        }
    }

    /// Sends results that are in memory.
    fn deliver(&mut self, cx: &mut Context, fetch: Fetch) {
        let now = cx.now();
        let Fetch {
            connection,
            request,
            id,
            ..
        } = fetch;
        let Some(durable_call) = self.durable.as_ref().and_then(|durable| durable.get(id)) else {
            return;
        };
        let (bytes, times) = (durable_call.record.result.bytes, durable_call.times());
        let proto = &mut cx.clients[connection].proto;
        proto.deliver(request, bytes, times, now);
        cx.answered(connection);
    }

    /// Ends the requests that a client has given up: one of them, or all.
    pub(crate) fn stop_fetching(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: Option<CallId>,
    ) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        if let Some(request) = request {
            durable.unconfirmed.give_up(key, request);
        }
        if durable.give_up(key, request) {
            cx.disk.give_up(key, request);
            // Others may have waited behind one of them.
            cx.has_room = true;
        }
    }

    /// In how many milliseconds the next outcome expires.
    pub(crate) fn next_expiry(&self, now: Nanos) -> Option<u64> {
        let durable = self.durable.as_ref()?;
        let rest = durable.rests_until;
        let rest = rest.map(|until| until.saturating_sub(now).div_ceil(1_000_000));
        durable.next_expiry(now).into_iter().chain(rest).min()
    }

    /// Forgets calls whose retention is over, and reads others again that could not be read.
    pub(crate) fn expire(&mut self, cx: &mut Context) {
        let now = match has(Flaw::ExpiresByCalendar) {
            true => cx.clock.by_calendar(),
            false => cx.now(),
        };
        if let Some(durable) = &mut self.durable {
            let is_over = |until: &mut Nanos| *until <= cx.clock.now.nanos;
            cx.has_room |= durable.rests_until.take_if(is_over).is_some();
        }
        while let Some(id) = self
            .durable
            .as_mut()
            .and_then(|durable| durable.expired(now))
        {
            tracing::debug!("{id} has expired");
            let durable = self.durable.as_mut();
            let waiting = durable.map(|durable| durable.forget(id, &mut cx.disk, &mut cx.out));
            // Its results may have waited for memory, and others behind them.
            cx.has_room = true;
            for asked in waiting.into_iter().flatten() {
                cx.refuse(asked.connection, asked.request, &not_there(id));
            }
        }
    }
}

/// Takes the results that wait for memory, the first in the line first.
fn take_starved(durable: &mut Durable, cx: &Context) -> Vec<Fetch> {
    let mut starved = Vec::from(std::mem::take(&mut durable.starved));
    starved.sort_by_cached_key(|fetch| rank_of_results(durable, cx, fetch));
    starved
}

/// The state of a durable call of a user, and where it is.
pub(crate) fn stage_of(
    calls: &mut DurableCalls,
    id: JobId,
    user: &User,
) -> Result<(DurableState, Stage), Failure> {
    let call = calls.durable()?.of_user(id, user)?;
    Ok((call.record.state, call.stage))
}

/// Lets stored arrays make way for calls and results on the disk. Results for which there will be
/// no room are refused; calls wait until clients have returned memory.
pub(crate) fn seek_room(calls: &mut DurableCalls, cx: &mut Context, data: &mut Data) {
    let Some(durable) = &mut calls.durable else {
        return;
    };
    if let Some(lack) = &mut durable.lacks {
        let fits = !matches!(room::make(data, cx, lack.bytes), MemoryGrant::Never(_));
        // Nobody waits behind it any more.
        cx.has_room |= lack.fits && !fits;
        lack.fits = fits;
    }
    for fetch in std::mem::take(&mut durable.starved) {
        let bytes = durable.get(fetch.id).map(|call| call.record.result.bytes);
        match room::make(data, cx, bytes.unwrap_or(0)) {
            MemoryGrant::Never(failure) => {
                cx.refuse(fetch.connection, fetch.request, &failure);
                cx.has_room = true;
            }
            _ => durable.starve(fetch),
        }
    }
}
