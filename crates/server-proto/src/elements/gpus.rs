//! Which call has which GPUs. The queue starts a call when enough are free. The call then gets a
//! set that no other call has, and keeps it until it leaves the queue. It runs in a worker that is
//! bound to exactly this set. A method has the set of its object.

use super::Elements;
use super::dispatch::need;
use crate::call::ActiveCall;
use crate::context::Context;
use crate::gpus::{Gpus, Resources};
use crate::keys::{CallKey, Key};
use crate::worker::{Need, Worker};

/// Number of GPUs that a call wants. A method wants all those of its object.
pub(super) fn wanted(elements: &Elements, cx: &Context, call: &ActiveCall) -> u32 {
    let function = cx.functions.get(call.function);
    let wanted = function.map_or(0, |function| function.interface.gpus);
    match object(elements, call) {
        Some(worker) if wanted > 0 => worker.resources.gpus.count(),
        _ => wanted,
    }
}

/// The worker of the object, if the call is of a method.
fn object<'e>(elements: &'e Elements, call: &ActiveCall) -> Option<&'e Worker> {
    elements.workers.get(call.run.object?)
}

/// Gives a call that may start its GPUs, if it wants any. Returns whether it has all of them. Only
/// those of an object can be in use. No other call takes them first, because the call is asked
/// before those that may start later.
pub(super) fn take(elements: &Elements, cx: &mut Context, key: CallKey) -> bool {
    let call = &cx.calls[key];
    let wanted = wanted(elements, cx, call);
    if call.run.gpus.count() == wanted {
        return true;
    }
    let used = used(elements, cx);
    let chosen = match object(elements, call) {
        Some(worker) => worker.resources.gpus,
        None => choose(elements, cx, call, (wanted, used)),
    };
    let is_free = !chosen.meets(used) && chosen.count() == wanted;
    if is_free {
        cx.calls[key].run.gpus = chosen;
    }
    is_free
}

/// The GPUs of all calls that may start or run.
fn used(elements: &Elements, cx: &Context) -> Gpus {
    let calls = elements.queue.running();
    let calls = calls.filter_map(|start| cx.calls.get(CallKey::of_number(start.id)));
    calls.fold(Gpus::default(), |used, call| used.with(call.run.gpus))
}

/// Free GPUs for a call: those of an idle worker that may run it, or those to which the fewest
/// workers are bound.
fn choose(elements: &Elements, cx: &Context, call: &ActiveCall, of: (u32, Gpus)) -> Gpus {
    let (wanted, used) = of;
    let Ok(function) = cx.functions.get(call.function) else {
        return Gpus::default();
    };
    let need = need(call, function);
    let may_run = |worker: &&Worker| {
        let gpus = worker.resources.gpus;
        let resources = Resources {
            gpus,
            ..need.resources
        };
        let is_free = gpus.count() == wanted && !gpus.meets(used);
        is_free && worker.is_idle() && worker.serves(&Need { resources, ..need })
    };
    let idle = elements.workers.values().filter(may_run);
    let idle = idle.max_by_key(|worker| worker.user.is_some());
    idle.map_or_else(
        || least_bound(elements, wanted, used),
        |worker| worker.resources.gpus,
    )
}

/// So many GPUs outside of `used` to which the fewest workers are bound.
pub(crate) fn least_bound(elements: &Elements, wanted: u32, used: Gpus) -> Gpus {
    let all = elements.queue.settings().gpus;
    Gpus::choose(wanted, all, used, |one| {
        let workers = elements.workers.values();
        workers
            .filter(|worker| worker.resources.gpus.meets(one))
            .count()
    })
}
