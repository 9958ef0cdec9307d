//! What clients ask about submitted calls.

use super::not_there;
use crate::durable::{Asked, Durable, Fetch, Kept, Purpose, Transfer};
use crate::job::Job;
use crate::keys::{ConnectionKey, MemoryKey};
use crate::lifecycle::Change;
use crate::memory::NoMemory;
use crate::record::{Content, DiskError, Outcome, Record};
use crate::server::Server;
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, JobDescription, JobId, JobState, Nanos, Pieces,
};

impl Server {
    pub(super) fn result_read(
        &mut self,
        fetch: Fetch,
        memory: MemoryKey,
        read: Result<(), DiskError>,
    ) {
        let Fetch {
            connection,
            request,
            id,
        } = fetch;
        let kept = self.durable.as_ref().and_then(|durable| durable.get(id));
        let bytes = kept.map(|kept| kept.record.result.bytes);
        let failure = match (read, bytes) {
            (Ok(()), Some(bytes)) => {
                let user = self.connections[connection].user.clone();
                let job = Job::delivery(user, connection, request, bytes, memory);
                let job = self.calls.insert(job);
                self.connections[connection].calls.insert(request, job);
                self.connections[connection].sending.push(job);
                return self.deliver(fetch);
            }
            (Ok(()), None) => not_there(id),
            (Err(error), _) => {
                tracing::error!("the results of {id} cannot be read: {}", error.text);
                let text = format!("the results of {id} cannot be read: {}", error.text);
                Failure::new(FailureKind::StorageFault, text)
            }
        };
        self.memory.give_back(memory);
        self.refuse(connection, request, &failure);
    }

    pub(in crate::server) fn tell_of_job(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        id: JobId,
    ) {
        let user = self.connections[key].user.clone();
        let described = self.durable().and_then(|durable| {
            let kept = durable.of_user(id, &user)?;
            let Record {
                interface, call, ..
            } = &kept.record;
            let call = Call::decode(call)
                .map_err(|error| Failure::new(FailureKind::StorageFault, error.to_string()))?;
            Ok(JobDescription {
                record: kept.describe(),
                call: Some((interface.clone(), call)),
            })
        });
        match described {
            Ok(job) => self.connections[key].proto.job(request, &job),
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(in crate::server) fn list_jobs(&mut self, key: ConnectionKey, request: CallId, after: u64) {
        let user = self.connections[key].user.clone();
        match self.durable().map(|durable| durable.page(&user, after)) {
            Ok(page) => self.connections[key].proto.jobs(request, &page),
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(in crate::server) fn cancel_job(
        &mut self,
        key: ConnectionKey,
        request: CallId,
        id: JobId,
        forget: bool,
    ) {
        let user = self.connections[key].user.clone();
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
            Ok(true) => self.tell_of_change(id, asked),
            Ok(false) => self.record_change(id, Change::Cancel, Outcome::default()),
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    /// Answers who wanted a call to end, which it has.
    pub(super) fn tell_of_change(&mut self, id: JobId, asked: Asked) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let Asked {
            connection,
            request,
            forget,
        } = asked;
        let Some(record) = durable.get(id).map(Kept::describe) else {
            return self.refuse(connection, request, &not_there(id));
        };
        let job = JobDescription { record, call: None };
        if forget {
            durable.forget(id, &mut self.out);
        }
        self.connections[connection].proto.job(request, &job);
        self.answered(connection);
    }

    /// A client wants the results of a call, now or when they are there.
    pub(in crate::server) fn fetch(&mut self, key: ConnectionKey, request: CallId, id: JobId) {
        let user = self.connections[key].user.clone();
        let fetch = Fetch {
            connection: key,
            request,
            id,
        };
        let known = self.durable().and_then(|durable| {
            let is_over = durable.of_user(id, &user)?.record.state.is_over();
            if !is_over {
                durable.wait(fetch);
            }
            Ok(is_over)
        });
        match known {
            Ok(true) => self.serve_fetch(fetch),
            Ok(false) if self.draining => self.refuse_stranded(),
            Ok(false) => {}
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    /// The server drains: who waits for calls that it does not begin any more is told.
    pub(in crate::server) fn refuse_stranded(&mut self) {
        let stranded = self.durable.as_mut().map(Durable::stranded);
        for fetch in stranded.unwrap_or_default() {
            let text = "the server is draining; the call runs when it is started again, fetch it \
                        then";
            let failure = Failure::new(FailureKind::ServerStopping, text);
            self.refuse(fetch.connection, fetch.request, &failure);
        }
    }

    /// Sends what a call that is over has come to.
    pub(super) fn serve_fetch(&mut self, fetch: Fetch) {
        let Fetch {
            connection,
            request,
            id,
        } = fetch;
        let Some(durable) = &mut self.durable else {
            return;
        };
        let Some(Kept { record, .. }) = durable.get(id) else {
            return self.refuse(connection, request, &not_there(id));
        };
        if record.state != JobState::Done {
            let failure = record.failure.clone().unwrap_or_else(|| {
                let text = format!("{} was cancelled by its user", record.function);
                Failure::new(FailureKind::Cancelled, text)
            });
            return self.refuse(connection, request, &failure);
        }
        let stored = record.result;
        if stored.bytes == 0 {
            return self.deliver(fetch);
        }
        let user = self.connections[connection].user.clone();
        let memory = self.memory.take(stored.bytes, &user, &mut self.out);
        match memory {
            Ok(memory) => {
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    memory,
                    pieces: Pieces::whole(stored.bytes),
                };
                let purpose = Purpose::Deliver(Some(fetch));
                durable.read(purpose, transfer, stored, &mut self.out);
            }
            Err(NoMemory::Wait) => durable.starve(fetch),
            Err(refusal) => {
                let failure = self.refusal(stored.bytes, refusal);
                self.refuse(connection, request, &failure);
            }
        }
    }

    pub(super) fn serve_starved_fetches(&mut self) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        for fetch in std::mem::take(&mut durable.starved) {
            self.serve_fetch(fetch);
        }
    }

    /// The results of a call are in memory, as far as there are any: they leave.
    fn deliver(&mut self, fetch: Fetch) {
        let now = self.now();
        let Fetch {
            connection,
            request,
            id,
        } = fetch;
        let Some(kept) = self.durable.as_ref().and_then(|durable| durable.get(id)) else {
            return;
        };
        let (bytes, times) = (kept.record.result.bytes, kept.times());
        let proto = &mut self.connections[connection].proto;
        proto.deliver(request, bytes, times, now);
        self.answered(connection);
    }

    /// A client wants nothing fetched any more: that request, or none at all.
    pub(in crate::server) fn stop_fetching(&mut self, key: ConnectionKey, request: Option<CallId>) {
        if let Some(durable) = &mut self.durable {
            durable.give_up(key, request);
        }
    }

    pub(in crate::server) fn next_expiry(&self) -> Option<Nanos> {
        let calls = self.durable.as_ref().and_then(Durable::next_expiry);
        let objects = self.kept.next_expiry(self.arrays.keep_ms());
        let kept = self.arrays.next_expiry().into_iter().chain(objects);
        let at = calls.into_iter().chain(kept).min()?;
        let left = at.saturating_sub(self.clock.unix_ms);
        Some(self.now().saturating_add(left.saturating_mul(1_000_000)))
    }

    /// Forgets calls whose time is over.
    pub(in crate::server) fn expire(&mut self) {
        let now = self.clock.unix_ms;
        while let Some(id) = self
            .durable
            .as_mut()
            .and_then(|durable| durable.expired(now))
        {
            tracing::debug!("{id} has expired");
            if let Some(durable) = &mut self.durable {
                durable.forget(id, &mut self.out);
            }
        }
    }
}
