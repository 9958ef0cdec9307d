//! What clients ask about submitted calls.

use super::not_there;
use crate::buffer::{JobBuffer, NoBuffer};
use crate::job::Job;
use crate::reactor::Reactor;
use crate::spool::journal::{Outcome, Record};
use crate::spool::lifecycle::Change;
use crate::spool::{Asked, Content, Fetch, Kept, Purpose, Spool, Transfer, now_ms};
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, JobDescription, JobId, JobState, Pieces,
};
use std::io;
use std::time::{Duration, Instant};

impl Reactor {
    pub(super) fn result_read(&mut self, fetch: Fetch, buffer: JobBuffer, read: io::Result<()>) {
        let Fetch {
            connection,
            request,
            id,
        } = fetch;
        let kept = self.spool.as_ref().and_then(|spool| spool.get(id));
        let bytes = kept.map(|kept| kept.record.result.bytes);
        let failure = match (read, bytes) {
            (Ok(()), Some(bytes)) => {
                let user = self.connections[connection].user.clone();
                let job = Job::delivery(user, connection, request, bytes, buffer);
                let job = self.jobs.insert(job);
                self.connections[connection].jobs.insert(request, job);
                self.connections[connection].sending.push(job);
                return self.deliver(fetch);
            }
            (Ok(()), None) => not_there(id),
            (Err(error), _) => {
                tracing::error!("the results of {id} cannot be read: {error}");
                let text = format!("the results of {id} cannot be read: {error}");
                Failure::new(FailureKind::StorageFault, text)
            }
        };
        self.pool.give_back(buffer);
        self.refuse(connection, request, &failure);
    }

    pub(in crate::reactor) fn tell_of_job(&mut self, key: usize, request: CallId, id: JobId) {
        let user = self.connections[key].user.clone();
        let described = self.spool().and_then(|spool| {
            let kept = spool.of_user(id, &user)?;
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

    pub(in crate::reactor) fn list_jobs(&mut self, key: usize, request: CallId, after: u64) {
        let user = self.connections[key].user.clone();
        match self.spool().map(|spool| spool.page(&user, after)) {
            Ok(page) => self.connections[key].proto.jobs(request, &page),
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(in crate::reactor) fn cancel_job(
        &mut self,
        key: usize,
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
        let known = self.spool().and_then(|spool| {
            let is_over = spool.of_user(id, &user)?.record.state.is_over();
            if !is_over {
                spool.ask(id, asked);
                spool.change(id, Change::Cancel, Outcome::default());
            }
            Ok(is_over)
        });
        match known {
            Ok(true) => self.tell_of_change(id, asked),
            Ok(false) => {}
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    /// Answers who wanted a call to end, which it has.
    pub(super) fn tell_of_change(&mut self, id: JobId, asked: Asked) {
        let Some(spool) = &mut self.spool else { return };
        let Asked {
            connection,
            request,
            forget,
        } = asked;
        let Some(record) = spool.get(id).map(Kept::describe) else {
            return self.refuse(connection, request, &not_there(id));
        };
        let job = JobDescription { record, call: None };
        if forget {
            spool.forget(id);
        }
        self.connections[connection].proto.job(request, &job);
        self.answered(connection);
    }

    /// A client wants the results of a call, now or when they are there.
    pub(in crate::reactor) fn fetch(&mut self, key: usize, request: CallId, id: JobId) {
        let user = self.connections[key].user.clone();
        let fetch = Fetch {
            connection: key,
            request,
            id,
        };
        let known = self.spool().and_then(|spool| {
            let is_over = spool.of_user(id, &user)?.record.state.is_over();
            if !is_over {
                spool.wait(fetch);
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
    pub(in crate::reactor) fn refuse_stranded(&mut self) {
        let stranded = self.spool.as_mut().map(Spool::stranded);
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
        let Some(spool) = &mut self.spool else { return };
        let Some(Kept { record, .. }) = spool.get(id) else {
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
        let bytes = usize::try_from(stored.bytes).unwrap_or(usize::MAX);
        let user = self.connections[connection].user.clone();
        let buffer = self.pool.take(bytes, &user);
        self.unmap_retired();
        match (buffer, &mut self.spool) {
            (Ok(buffer), Some(spool)) => {
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    buffer,
                    pieces: Pieces::whole(stored.bytes),
                };
                spool.read(Purpose::Deliver(fetch), transfer, stored);
            }
            (Err(NoBuffer::Wait), Some(spool)) => spool.starve(fetch),
            (Err(refusal), _) => {
                let failure = self.refusal(bytes, refusal);
                self.refuse(connection, request, &failure);
            }
            (Ok(buffer), None) => self.pool.give_back(buffer),
        }
    }

    pub(super) fn serve_starved_fetches(&mut self) {
        let Some(spool) = &mut self.spool else { return };
        for fetch in std::mem::take(&mut spool.starved) {
            self.serve_fetch(fetch);
        }
    }

    /// The results of a call are in memory, as far as there are any: they leave.
    fn deliver(&mut self, fetch: Fetch) {
        let now = self.nanos();
        let Fetch {
            connection,
            request,
            id,
        } = fetch;
        let Some(kept) = self.spool.as_ref().and_then(|spool| spool.get(id)) else {
            return;
        };
        let (bytes, times) = (kept.record.result.bytes, kept.times());
        let proto = &mut self.connections[connection].proto;
        proto.deliver(request, bytes, times, now);
        self.answered(connection);
    }

    /// A client wants nothing fetched any more: that request, or none at all.
    pub(in crate::reactor) fn stop_fetching(&mut self, key: usize, request: Option<CallId>) {
        if let Some(spool) = &mut self.spool {
            spool.give_up(key, request);
        }
    }

    pub(in crate::reactor) fn next_expiry(&self, now: Instant) -> Option<Instant> {
        let calls = self.spool.as_ref().and_then(Spool::next_expiry);
        let objects = self.kept.next_expiry(self.store.keep_ms());
        let kept = self.store.next_expiry().into_iter().chain(objects);
        let at = calls.into_iter().chain(kept).min()?;
        Some(now + Duration::from_millis(at.saturating_sub(now_ms())))
    }

    /// Forgets calls whose time is over.
    pub(in crate::reactor) fn expire(&mut self) {
        let now = now_ms();
        while let Some(id) = self.spool.as_mut().and_then(|spool| spool.expired(now)) {
            tracing::debug!("{id} has expired");
            if let Some(spool) = &mut self.spool {
                spool.forget(id);
            }
        }
    }
}
