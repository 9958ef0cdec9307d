//! Sends the printed output of library functions to the clients that asked for it. [`Printing`]
//! decides how much may be sent. Output that exceeds its limit is left out, and the client gets a
//! remark about that before the call ends.

use crate::call::Printing;
use crate::context::Context;
use crate::keys::CallKey;

/// Sends output of a call's function to its client, if the client wants it.
pub(crate) fn printed(cx: &mut Context, call: CallKey, mut printed: Vec<u8>) {
    let now = cx.now();
    let call = &mut cx.calls[call];
    let (Some(printing), Some(connection)) = (&mut call.printing, call.connection) else {
        return;
    };
    let proto = &mut cx.clients[connection].proto;
    let reads = !proto.is_congested();
    printed.truncate(printing.allow(printed.len(), reads, now));
    if !printed.is_empty() {
        proto.print(call.id, printed);
        cx.answered(connection);
    }
}

/// Sends a remark about output that was left out, before the call ends.
pub(crate) fn finish(cx: &mut Context, call: CallKey) {
    let Some(call) = cx.calls.get(call) else {
        return;
    };
    let remark = call.printing.as_ref().and_then(Printing::remark);
    if let (Some(remark), Some(connection)) = (remark, call.connection) {
        let proto = &mut cx.clients[connection].proto;
        proto.print(call.id, remark.into_bytes());
    }
}
