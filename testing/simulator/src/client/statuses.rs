//! Questions how calls fare, and for snapshots. An answer must be possible at any time, must name
//! no other user, and must order its times. What it predicts need not come true here: calls crash
//! and servers end.

use super::{Client, Purpose, Scene};
use crate::interfaces::user_name;
use farcall_rpc_proto::{AskSnapshot, CallName, CallStatus, Expected};
use farcall_snapshot::{Data, List, Snapshot};

impl Client {
    /// Asks about an open request or a durable call, or about a request that it never made.
    pub(super) fn ask_status(&mut self, scene: &mut Scene<'_>) {
        let open = self.open.keys().map(|id| CallName::Open(*id));
        let kept = self.kept.keys().map(|id| CallName::Durable(*id));
        let names: Vec<CallName> = open.chain(kept).chain([CallName::Open(0)]).collect();
        let name = names[scene.random.below(names.len() as u64) as usize];
        if let Some(connection) = &mut self.connection {
            let made = match scene.now.is_multiple_of(4) {
                true => connection.ask_snapshot(&AskSnapshot {
                    most: 100,
                    ..AskSnapshot::default()
                }),
                false => connection.ask_call(name),
            };
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
        self.reads(&status.reason, scene);
    }

    pub(super) fn told_snapshot(&self, text: &str, scene: &mut Scene<'_>) {
        let mut snapshot = match Snapshot::parse(text) {
            Ok(snapshot) => snapshot,
            Err(error) => return scene.checker.fail(error),
        };
        if snapshot.viewer.operator {
            return;
        }
        let data = std::mem::take(&mut snapshot.data);
        self.reads(&snapshot.to_json(), scene);
        // Others may share theirs.
        let rows = data.rows.into_iter().filter(|one| !one.shared);
        let data: List<Data> = List::of(rows, usize::MAX, |one| one);
        let private = Snapshot {
            data,
            ..Snapshot::default()
        };
        self.reads(&private.to_json(), scene);
    }

    /// Checks that a text names no other user.
    fn reads(&self, text: &str, scene: &mut Scene<'_>) {
        // The quotation mark distinguishes user 1 from user 10.
        let names = |user: u8| {
            [
                format!("{}\"", user_name(user)),
                format!("{} ", user_name(user)),
            ]
        };
        let others = (0..=u8::MAX).filter(|user| *user != self.user);
        if let Some(name) = others.flat_map(names).find(|name| text.contains(name)) {
            let text = format!("user {} reads of {name}: {text}", self.user);
            scene.checker.fail(text);
        }
    }
}
