//! Which call has which GPUs. The queue starts a call when enough are free. The call then gets a set
//! that no other call has, and keeps it until it leaves the queue. It runs in a worker that is bound
//! to exactly this set. A method has the set of its object.

use super::Elements;
use crate::call::ActiveCall;
use crate::context::Context;
use crate::flaw::{Flaw, has};
use crate::gpus::Gpus;
use crate::keys::{CallKey, Key};
use crate::worker::Need;

impl Elements {
    /// Number of GPUs that a call wants. A method wants all those of its object.
    pub(super) fn wanted_gpus(&self, cx: &Context, call: &ActiveCall) -> u32 {
        let function = cx.functions.get(call.function);
        let wanted = function.map_or(0, |function| function.interface.gpus);
        let object = call.run.object.and_then(|worker| self.workers.get(worker));
        match object {
            Some(worker) if wanted > 0 => worker.gpus.count(),
            _ => wanted,
        }
    }

    /// Gives a call that may start its GPUs, if it wants any. Returns whether it has all of them.
    /// Only those of an object can be in use. No other call takes them first, because the call is
    /// asked before those that may start later.
    pub(super) fn takes_gpus(&self, cx: &mut Context, key: CallKey) -> bool {
        let call = &cx.calls[key];
        let wanted = self.wanted_gpus(cx, call);
        if call.run.gpus.count() == wanted {
            return true;
        }
        let used = self.used_gpus(cx);
        let object = call.run.object.and_then(|worker| self.workers.get(worker));
        let chosen = match object {
            Some(worker) => worker.gpus,
            None => self.choose_gpus(cx, key, wanted, used),
        };
        let is_free = !chosen.meets(used) && chosen.count() == wanted;
        if is_free {
            cx.calls[key].run.gpus = chosen;
        }
        is_free
    }

    /// The GPUs of all calls that may start or run.
    fn used_gpus(&self, cx: &Context) -> Gpus {
        if has(Flaw::SharesGpus) {
            return Gpus::default();
        }
        let calls = self
            .queue
            .running()
            .map(|start| CallKey::of_number(start.id));
        let calls = calls.filter_map(|call| cx.calls.get(call));
        calls.fold(Gpus::default(), |used, call| used.with(call.run.gpus))
    }

    /// Free GPUs for a call: those of an idle worker that may run it, or those to which the fewest
    /// workers are bound.
    fn choose_gpus(&self, cx: &Context, key: CallKey, wanted: u32, used: Gpus) -> Gpus {
        let call = &cx.calls[key];
        let idle = self.workers.values().filter(|worker| {
            let is_wanted = worker.gpus.count() == wanted && !worker.gpus.meets(used);
            let function = cx.functions.get(call.function);
            is_wanted
                && worker.is_idle()
                && function.is_ok_and(|function| {
                    worker.serves(&Need {
                        gpus: worker.gpus,
                        ..super::dispatch::need(call, function)
                    })
                })
        });
        let idle = idle.max_by_key(|worker| worker.user.is_some());
        idle.map_or_else(|| self.least_bound_gpus(wanted, used), |worker| worker.gpus)
    }

    /// So many GPUs outside of `used` to which the fewest workers are bound.
    pub(crate) fn least_bound_gpus(&self, wanted: u32, used: Gpus) -> Gpus {
        let all = self.queue.settings().gpus;
        let workers = || self.workers.values();
        Gpus::choose(wanted, all, used, |one| {
            workers().filter(|worker| worker.gpus.meets(one)).count()
        })
    }
}
