//! What libraries print, for clients that want it.

use crate::context::Context;
use crate::job::Printing;
use crate::keys::CallKey;

/// The function of a call has printed something: its client is sent that, if it wants it.
pub(crate) fn printed(cx: &mut Context, call: CallKey, mut printed: Vec<u8>) {
    let now = cx.now();
    let job = &mut cx.calls[call];
    let (Some(printing), Some(connection)) = (&mut job.printing, job.connection) else {
        return;
    };
    let proto = &mut cx.clients[connection].proto;
    let reads = !proto.is_congested();
    printed.truncate(printing.allow(printed.len(), reads, now));
    if !printed.is_empty() {
        proto.print(job.call, printed);
        cx.answered(connection);
    }
}

/// A call is about to end: what was left out of its function's output is said before.
pub(crate) fn finish(cx: &mut Context, call: CallKey) {
    let Some(job) = cx.calls.get(call) else {
        return;
    };
    let remark = job.printing.as_ref().and_then(Printing::remark);
    if let (Some(remark), Some(connection)) = (remark, job.connection) {
        let proto = &mut cx.clients[connection].proto;
        proto.print(job.call, remark.into_bytes());
    }
}
