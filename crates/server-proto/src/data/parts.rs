//! Parts of stored arrays. They travel on any connection of their user, so that one array can
//! travel over several. A part waits for its turn like a call that reads the array. Two parts that
//! overlap and arrive at once leave a mixture, and so does a part that arrives while a call reads
//! it. Both are the client's fault.

use super::Data;
use crate::action::Action;
use crate::arrays::{Location, Use};
use crate::call::{ActiveCall, Task};
use crate::context::{Context, Step};
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use farcall_rpc_proto::{ArrayPart, CallId, Failure, FailureKind};

impl Data {
    /// The use of an array of which a client wants a part. It is queued like a call that reads the
    /// array, because several parts may move together.
    fn use_of_part(
        &self,
        cx: &Context,
        key: ConnectionKey,
        part: &ArrayPart,
    ) -> Result<Use, Failure> {
        let array = self.readable(part.id, &cx.clients[key].user)?;
        if !part.is_of(&array.form) {
            let text = format!(
                "an array of {} bytes has no part with {} bytes at offset {}",
                array.bytes, part.bytes, part.offset
            );
            return Err(Failure::new(FailureKind::BadArgument, text));
        }
        Ok(Use {
            id: part.id,
            writes: false,
            replaces: false,
            array: 0,
        })
    }

    /// Lets a client fill a part of an array.
    pub(crate) fn offer_part(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        id: CallId,
        part: ArrayPart,
    ) {
        let wanted = self.use_of_part(cx, key, &part).and_then(|wanted| {
            if self.names.is_named(part.id) {
                let text = "named data cannot change: put a new version";
                return Err(Failure::new(FailureKind::BadArgument, text));
            }
            let array = self.arrays.get(part.id);
            if let Some(failure) = array.and_then(|array| array.is_nowhere(part.id)) {
                return Err(failure);
            }
            let is_here = array.is_some_and(|array| {
                matches!(array.location, Location::Memory(_)) && !array.is_written()
            });
            let text = "a call writes the array or waits to write it, or the array is on the disk";
            let busy = || Failure::new(FailureKind::Busy, text);
            is_here.then_some(wanted).ok_or_else(busy)
        });
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(failure) => return cx.clients[key].proto.fail(id, &failure),
        };
        let user = cx.clients[key].user.clone();
        let mut call = ActiveCall::part(user, (key, id), part, wanted, Task::PutPart(part));
        call.memory.data = self.arrays.memory(&call.uses);
        let now = cx.now();
        call.times.accepted = now;
        let call = cx.calls.insert(call);
        cx.clients[key].calls.insert(id, call);
        if !has(Flaw::ForgetsParts) {
            self.arrays.line_up(call, &[wanted]);
        }
        cx.clients[key].proto.accept(id, now);
    }

    /// Handles the arrival of a whole part.
    pub(crate) fn part_arrived(&mut self, cx: &mut Context, key: CallKey, part: ArrayPart) {
        let call = &cx.calls[key];
        if let Some(array) = self.arrays.get(part.id)
            && let (true, Some(memory)) = (call.streams.swap, call.memory.data.first().copied())
        {
            let unit = array.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
            // No call writes the array. A client that fills a part which a call reads, or the same
            // part twice at once, gets a mixture.
            cx.out.push(Action::SwapMemory {
                memory,
                offset: part.offset,
                bytes: part.bytes,
                unit: unit.max(1),
            });
        }
        let (connection, request) = (call.connection, call.id);
        cx.step(Step::Release(key));
        if let (Some(connection), Some(record)) = (connection, self.arrays.record(part.id)) {
            cx.clients[connection].proto.handle(request, &record);
            cx.answered(connection);
        }
    }

    /// Sends a part of an array to a client.
    pub(crate) fn get_part(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        part: ArrayPart,
    ) {
        let wanted = match self.use_of_part(cx, key, &part) {
            Ok(wanted) => wanted,
            Err(failure) => return cx.clients[key].proto.fail(request, &failure),
        };
        let user = cx.clients[key].user.clone();
        let mut call = ActiveCall::part(user, (key, request), part, wanted, Task::GetPart);
        // Its age, if others wait for memory too.
        call.times.accepted = cx.now();
        let call = cx.calls.insert(call);
        cx.clients[key].calls.insert(request, call);
        self.arrays.line_up(call, &[wanted]);
        self.await_turn(cx, call);
    }
}
