//! Stored arrays that a connector writes to addresses outside of Farcall.
//!
//! A write waits for its turn like a call that reads the array. From then on it goes on until the
//! connector has answered, also if its client has left: the array stays meanwhile, so that what is
//! written is this array and nothing else.

use super::source::{MOST_OF_USER, arriving};
use super::{Data, pull};
use crate::action::Action;
use crate::arrays::Use;
use crate::call::{ActiveCall, State, Task};
use crate::context::{Context, Step};
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use crate::source::SourceRequest;
use farcall_rpc_proto::{CallId, Failure, FailureKind, Receipt, Write};

/// Lets an array of a client wait until it can be written.
pub(super) fn offer(
    data: &mut Data,
    cx: &mut Context,
    key: ConnectionKey,
    request: CallId,
    write: Write,
) {
    let user = cx.clients[key].user.clone();
    let wanted = data.readable(write.id, &user).and_then(|array| {
        let wanted = SourceRequest {
            address: write.address,
            form: array.form.clone(),
            source: write.options,
            version: None,
        };
        wanted.check().map(|()| wanted)
    });
    let writes = cx.calls.iter().map(|(_, call)| call);
    let writes = writes.filter(|call| matches!(call.task, Task::Write(_)));
    let (mut all, mut of_user) = (arriving(data), 0);
    for call in writes {
        all += 1;
        of_user += usize::from(call.user == user);
    }
    let most = [(all, pull::MOST), (of_user, MOST_OF_USER)];
    let refused = most.into_iter().find(|(now, most)| now >= most);
    let busy = |(now, _)| {
        let text = format!("{now} arrays are already on their way to addresses; try again");
        Failure::new(FailureKind::Busy, text)
    };
    let wanted = wanted.and_then(|wanted| refused.map(busy).map_or(Ok(wanted), Err));
    let wanted = match (wanted, cx.is_ending()) {
        (Ok(wanted), None) => wanted,
        (Err(failure), _) | (Ok(_), Some(failure)) => return cx.refuse(key, request, &failure),
    };
    let of = Use {
        id: write.id,
        writes: false,
        replaces: false,
        array: 0,
    };
    let call = ActiveCall::write(user, (key, request), wanted, of, cx.now());
    let call = cx.calls.insert(call);
    cx.clients[key].calls.insert(request, call);
    data.arrays.line_up(call, &[of]);
    data.await_turn(cx, call);
}

/// Lets a connector write an array whose turn has come.
pub(super) fn begin(data: &mut Data, cx: &mut Context, key: CallKey, wanted: Box<SourceRequest>) {
    let call = &mut cx.calls[key];
    let Some(memory) = call.memory.data.first().copied() else {
        let text = "has no memory";
        return cx.fail(key, FailureKind::Internal, text);
    };
    call.enter(State::OnDisk);
    cx.out.push(Action::WriteSource {
        call: key,
        wanted,
        memory,
    });
    if has(Flaw::ReleasesWritten) {
        data.end_uses(cx, key, None);
    }
}

/// Answers the client whose array was written, or could not be.
pub(crate) fn written(cx: &mut Context, key: CallKey, written: Result<Receipt, Failure>) {
    let Some(call) = cx.calls.get(key) else {
        return;
    };
    let (connection, request) = (call.connection, call.id);
    cx.step(Step::Release(key));
    let Some(connection) = connection else { return };
    match written {
        Ok(receipt) => {
            cx.clients[connection].proto.receipt(request, &receipt);
            cx.answered(connection);
        }
        Err(failure) => {
            if failure.kind == FailureKind::NotAllowed {
                cx.audit_refusal(connection, &failure.message);
            }
            cx.refuse(connection, request, &failure);
        }
    }
}
