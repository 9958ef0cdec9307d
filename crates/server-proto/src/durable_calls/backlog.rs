//! Durable calls that wait on the disk: they come into memory while there is room for them. A call
//! whose function this server does not have waits until the function is added.

use super::{
    DurableCalls, MOST_TRIES, audit_on_disk, has_room, is_behind, is_over, rank, record_failure,
};
use crate::action::Transfer;
use crate::call::{self, ActiveCall, Durability};
use crate::context::{Context, Step, lacks_memory, read_again};
use crate::disk::Purpose;
use crate::durable::{Durable, DurableCall, Lack, Stage};
use crate::keys::CallKey;
use crate::memory::{Memory, NoMemory};
use crate::record::{Content, DiskError, Stored};
use farcall_rpc_proto::{Call, Direction, Failure, FailureKind, JobId, Pieces, Side};
use std::collections::BTreeSet;

/// Whether a call that waits on the disk is in memory now.
enum Loaded {
    Yes,
    /// It waits for memory: for what others have, or for the part that durable calls have.
    NoRoom(Option<Lack>),
    /// It waits for memory that its user's other calls have.
    AwaitsOwn,
    /// It waits for its function, which the server does not have.
    NoFunction,
}

impl DurableCalls {
    /// Reads waiting calls from the disk while there is room for them.
    pub(crate) fn load_backlog(&mut self, cx: &mut Context) {
        let rests = |durable: &Durable| durable.rests_until.is_some();
        if self.durable.as_ref().is_none_or(rests) {
            return;
        }
        let (mut unserved, mut passed, mut lacks) = (0, BTreeSet::new(), None);
        let next = |calls: &DurableCalls, passed: &_| calls.durable.as_ref()?.next_waiting(passed);
        while let Some(id) = next(self, &passed) {
            let loaded = self.load(cx, id);
            let Some(durable) = &mut self.durable else {
                return;
            };
            match loaded {
                Ok(Loaded::NoRoom(lack)) => {
                    lacks = lack;
                    break;
                }
                // Other users need not wait until these calls have ended.
                Ok(Loaded::AwaitsOwn) => {
                    passed.extend(durable.get(id).map(|call| call.user.clone()));
                    continue;
                }
                Ok(Loaded::NoFunction) => {
                    durable.await_function(id);
                    unserved += 1;
                    continue;
                }
                Ok(Loaded::Yes) => {}
                Err(failure) => {
                    let function = durable.get(id).and_then(|call| {
                        let known = cx.functions.describe(&call.record.function).ok()?;
                        Some(known.0)
                    });
                    if let Some(function) = function {
                        cx.totals.count_failure(function, &mut cx.functions);
                    }
                    audit_on_disk(durable, cx, id, failure.kind);
                    record_failure(cx, id, failure);
                }
            }
            durable.leave_backlog(id);
        }
        if let Some(durable) = &mut self.durable {
            durable.lacks = lacks;
        }
        if unserved > 0 {
            tracing::warn!(
                "durable calls that wait for functions that this server does not have: \
                 {unserved}; register their libraries, or start it with them"
            );
        }
    }

    /// Brings a call from the disk into memory.
    fn load(&mut self, cx: &mut Context, id: JobId) -> Result<Loaded, Failure> {
        let Some(durable) = &mut self.durable else {
            return Ok(Loaded::Yes);
        };
        let Some(DurableCall { record, user, .. }) = durable.get(id) else {
            return Ok(Loaded::Yes);
        };
        if !cx.functions.has(&record.function) {
            return Ok(Loaded::NoFunction);
        }
        let changed = |text: String| Failure::new(FailureKind::StaleInterface, text);
        let (number, function) = cx.functions.describe(&record.function)?;
        if *function.text() != *record.interface {
            let text = format!(
                "the interface of `{}` has changed since the server was restarted; submit the \
                 call again",
                record.function
            );
            return Err(changed(text));
        }
        let call = Call::decode(&record.call).map_err(|error| changed(error.to_string()))?;
        let interface = &cx.functions.get(number)?.interface;
        let layout = interface
            .layout(&call.scalars, &call.elements)
            .map_err(|error| changed(error.to_string()))?;
        if layout.sent_bytes() != record.arguments.bytes {
            return Err(changed("the size of its arguments has changed".to_string()));
        }
        if cx.memory.awaits_own(layout.bytes, user) {
            return Ok(Loaded::AwaitsOwn);
        }
        if !has_room(durable, cx, layout.bytes) {
            return Ok(Loaded::NoRoom(None));
        }
        let lack = in_line(durable, cx, id, layout.bytes);
        if lack.bytes > Memory::SMALL
            && let Some(own) = rank(cx, user, lack.bytes, lack.since)
            && is_behind(durable, cx, own)
        {
            return Ok(Loaded::NoRoom(Some(lack)));
        }
        let (stored, big_endian) = (record.arguments, record.big_endian);
        // Reservations end with their server, and the next one numbers its own.
        let reservation = call.reservation.filter(|_| durable.is_own(record));
        let cause = call.trace;
        let (message, user) = (record.call.clone(), user.clone());
        let buffer = match layout.bytes {
            0 => None,
            bytes => match cx.memory.take(bytes, &user, &mut cx.out) {
                Ok(buffer) => Some(buffer),
                Err(NoMemory::Wait) => {
                    cx.seek_room();
                    return Ok(Loaded::NoRoom(Some(lack)));
                }
                Err(refusal) => return Err(cx.no_room(bytes, refusal)),
            },
        };
        let mut call = ActiveCall::new(user, None, number, message, layout);
        call.memory.buffer = buffer;
        call.clear_gaps(&mut cx.out);
        (call.times.asked, call.times.accepted) = (cx.now(), cx.now());
        call.enter(call::State::OnDisk);
        call.streams.swap = big_endian != cfg!(target_endian = "big");
        call.durability = Durability::Recorded(id);
        call.run.reservation = reservation;
        call.run.cause = cause;
        self.read_arguments(cx, id, call, stored);
        Ok(Loaded::Yes)
    }

    fn read_arguments(
        &mut self,
        cx: &mut Context,
        id: JobId,
        mut call: ActiveCall,
        stored: Stored,
    ) {
        let pieces = Pieces::new(&call.layout, Direction::Sent, Side::Buffer);
        let bytes = call.layout.bytes;
        let memory = match stored.bytes {
            0 => None,
            _ => call.memory.buffer.take(),
        };
        let key = cx.calls.insert(call);
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.held += bytes;
        durable.set_stage(id, Stage::Memory(key));
        let Some(memory) = memory else {
            return cx.step(Step::Enqueue(key));
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            memory,
            pieces,
            about: None,
        };
        cx.disk
            .read(Purpose::Load(key), transfer, stored, &mut cx.out);
    }

    pub(crate) fn arguments_read(
        &mut self,
        cx: &mut Context,
        key: CallKey,
        read: Result<(), DiskError>,
    ) {
        let Some(id) = cx.calls[key].job_id() else {
            return;
        };
        match read {
            _ if is_over(self.durable.as_ref(), id) => {
                cx.end_unbegun(key, FailureKind::Cancelled);
            }
            Ok(()) => cx.step(Step::Enqueue(key)),
            Err(_) if lacks_memory(cx, key) => cx.step(read_again(key)),
            Err(error) if !error.is_damage && reads_again(self, cx, id) => {
                tracing::warn!(
                    "the arguments of {id} cannot be read now: {}; the server tries again",
                    error.text
                );
                cx.step(Step::Release(key));
                if cx.draining {
                    self.refuse_stranded(cx);
                }
            }
            Err(error) => {
                cx.end_unbegun(key, FailureKind::StorageFault);
                tracing::error!("the arguments of {id} cannot be read: {}", error.text);
                let text = format!("its arguments cannot be read: {}", error.text);
                record_failure(cx, id, Failure::new(FailureKind::StorageFault, text));
            }
        }
    }
}

/// A call of the backlog with its place in the line for memory: the one that it had, or the last.
fn in_line(durable: &Durable, cx: &Context, id: JobId, bytes: u64) -> Lack {
    let before = durable.lacks.filter(|lack| lack.id == id);
    before.unwrap_or(Lack {
        id,
        bytes,
        since: cx.now(),
        fits: true,
    })
}

/// Lets a call wait for its turn again whose arguments could not be read, although they are there:
/// for lack of descriptors, for instance. Returns `false` after some tries.
fn reads_again(calls: &mut DurableCalls, cx: &Context, id: JobId) -> bool {
    let Some(durable) = &mut calls.durable else {
        return false;
    };
    let again = durable.counts_loss(id) < MOST_TRIES;
    if again {
        durable.await_turn_after(id, cx.retry_at());
    }
    again
}

/// Lets calls go on whose functions have been added.
pub(crate) fn look_for_functions(calls: &mut DurableCalls, cx: &mut Context) {
    if let Some(durable) = &mut calls.durable {
        durable.look_for_functions();
        cx.has_room = true;
    }
}
