//! Questions how calls fare. An answer must be possible at any time, must name no other user, and
//! must order its times. What it predicts need not come true here: calls crash and servers end.

use super::{Client, Purpose, Scene};
use crate::interfaces::user_name;
use farcall_rpc_proto::{CallName, CallStatus, Expected};

impl Client {
    /// Asks about an open request or a durable call, or about a request that it never made.
    pub(super) fn ask_status(&mut self, scene: &mut Scene<'_>) {
        let open = self.open.keys().map(|id| CallName::Open(*id));
        let kept = self.kept.keys().map(|id| CallName::Durable(*id));
        let names: Vec<CallName> = open.chain(kept).chain([CallName::Open(0)]).collect();
        let name = names[scene.random.below(names.len() as u64) as usize];
        if let Some(connection) = &mut self.connection {
            let made = connection.ask_call(name);
            self.asked(made, Purpose::Status, Vec::new(), scene.now);
        }
    }

    pub(super) fn told_status(&self, status: &CallStatus, scene: &mut Scene<'_>) {
        let is_ordered = |expected: &Expected| {
            expected.low <= expected.likely && expected.likely <= expected.high
        };
        let mut times = status.starts.iter().chain(&status.ends);
        if status.reason.is_empty() || !times.all(is_ordered) {
            scene
                .checker
                .fail(format!("the status of a call makes no sense: {status:?}"));
        }
        let others = (0..=u8::MAX).filter(|user| *user != self.user);
        for name in others.map(user_name) {
            if status.reason.contains(&name) {
                scene
                    .checker
                    .fail(format!("user {} reads of {name}: {status:?}", self.user));
            }
        }
    }
}
