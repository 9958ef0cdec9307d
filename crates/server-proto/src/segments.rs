//! Memory that the server shares with clients. The shell makes the memory and passes its
//! descriptor. A piece is freed only when its client has returned it and no call uses it.

use crate::action::{Action, Segment};
use crate::connection::MAX_SEGMENTS;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use crate::quota::{Owner, Quota};
use crate::settings::groups_of;
use farcall_rpc_proto::{CallId, Failure, FailureKind, User};
use std::rc::Rc;

/// Gives a client memory that both can use.
pub(crate) fn share(cx: &mut Context, key: ConnectionKey, request: CallId, bytes: u64) {
    let connection = &cx.clients[key];
    let shared = if connection.segments.len() >= MAX_SEGMENTS {
        let text = format!("at most {MAX_SEGMENTS} pieces of memory on one connection");
        Err(Failure::new(FailureKind::Busy, text))
    } else if connection.segments.contains_key(&request) {
        let text = "the request number was used before";
        Err(Failure::new(FailureKind::BadArgument, text))
    } else if let Err(failure) = within_quotas(cx, &connection.user, bytes) {
        Err(failure)
    } else {
        let shared = cx.memory.share(bytes, &mut cx.out);
        shared.map_err(|refusal| cx.no_room(bytes, refusal))
    };
    let connection = &mut cx.clients[key];
    match shared {
        Ok((memory, bytes)) => {
            cx.out.push(Action::ShareMemory {
                memory,
                bytes,
                connection: key,
                request,
            });
            let segment = Rc::new(Segment { memory, bytes });
            connection.segments.insert(request, segment);
        }
        Err(failure) => connection.proto.fail(request, &failure),
    }
}

/// Whether a user may share so many more bytes. What a user shares has the limit of the memory of
/// its calls for itself: a client that gets no shared memory sends its arrays, and these are
/// counted with the calls.
fn within_quotas(cx: &Context, user: &User, bytes: u64) -> Result<(), Failure> {
    let within = |owner, quota: &Quota, is_own: &dyn Fn(&User) -> bool| {
        if !quota.is_limited() {
            return Ok(());
        }
        let shared = cx.clients.shared_bytes(is_own);
        quota.allows_bytes(owner, shared.saturating_add(bytes))
    };
    let limits = &cx.settings.limits;
    within(Owner::User(user), &limits.calls_of_user(), &|one| {
        one == user
    })?;
    for (owner, group) in groups_of(&cx.settings.groups, user) {
        within(owner, &group.calls(), &|one| group.has(one))?;
    }
    Ok(())
}

/// Answers a client: its memory has so many bytes, or the system has refused it.
pub(crate) fn shared(
    cx: &mut Context,
    key: ConnectionKey,
    request: CallId,
    made: Result<u64, String>,
) {
    let Some(connection) = cx.clients.get_mut(key) else {
        return;
    };
    match made {
        Ok(bytes) => connection.proto.shared(request, bytes),
        Err(why) => {
            let failure = Failure::new(FailureKind::Busy, format!("no memory to share: {why}"));
            connection.proto.fail(request, &failure);
            unshare(cx, key, request);
        }
    }
    cx.answered(key);
}

/// Takes memory back from a client.
pub(crate) fn unshare(cx: &mut Context, key: ConnectionKey, request: CallId) {
    if let Some(segment) = cx.clients[key].segments.remove(&request) {
        give_up(cx, segment);
    }
}

/// Drops one use of a segment.
pub(crate) fn give_up(cx: &mut Context, segment: Rc<Segment>) {
    let memory = segment.memory;
    if Rc::into_inner(segment).is_some() || has(Flaw::FreesSegments) {
        cx.free(memory);
    }
}
