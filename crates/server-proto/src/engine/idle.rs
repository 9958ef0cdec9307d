//! The end of a server that nobody uses, if its operator has set a limit. It ends as after a
//! request to drain. While a client is there, or may come back for something, the limit does not
//! run.

use super::Engine;
use crate::durable_calls;
use farcall_rpc_proto::Nanos;

/// Ends the server if nobody has used it for long enough.
pub(super) fn end(engine: &mut Engine, now: Nanos) {
    let Some(limit) = engine.cx.settings.limits.idle() else {
        return;
    };
    let since = *engine.idle_since.get_or_insert(now);
    if is_used(engine) {
        engine.idle_since = None;
    } else if now >= since + limit && !engine.cx.draining {
        tracing::info!(
            "nobody has used the server for {} s: it ends",
            limit as f64 / 1e9
        );
        engine.drain();
    }
}

/// Whether a client is there or may come back for something.
fn is_used(engine: &Engine) -> bool {
    let cx = &engine.cx;
    let kept = engine.objects.next_expiry(engine.data.arrays.keep_ms());
    let kept = kept.or_else(|| engine.data.arrays.next_expiry());
    !cx.clients.all_have_gone()
        || !cx.calls.is_empty()
        || kept.is_some()
        || !durable_calls::is_settled(&engine.durable_calls, cx)
}
