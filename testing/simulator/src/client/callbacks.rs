//! Callbacks. The client answers at once, late, after a call of its own, or never.

use super::{Client, Purpose, Scene};
use crate::interfaces::{AGAIN, next};
use farcall_rpc_proto::{CallId, Callback, CallbackAnswer};

const S: u64 = 1_000_000_000;

/// An answer that is still to be given.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    call: CallId,
    due: Due,
    data: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    At(u64),
    /// When this call has ended.
    After(CallId),
}

impl Client {
    /// A running function asks for a callback.
    pub(super) fn called_back(&mut self, call: CallId, callback: Callback, scene: &mut Scene<'_>) {
        let Some(open) = self.open.get_mut(&call) else {
            return;
        };
        let Purpose::Call(made) = &mut open.purpose else {
            return;
        };
        scene.checker.received(self.user, &callback.data);
        let data: Vec<u8> = callback.data.into_iter().map(next).collect();
        let due = match scene.random.below(100) {
            0..=59 => Due::At(scene.now),
            60..=79 => Due::At(scene.now + scene.random.below(8 * S)),
            80..=91 => {
                let before: Option<CallId> = self.open.keys().next_back().copied();
                let (mut made, mut nested) = self.new_call(scene, AGAIN, 16);
                let sends = self.contents(scene, 16).bytes();
                made.expected = self.expected(AGAIN, 16, &sends);
                nested.data_bytes = 16;
                self.make(scene, (made, nested), sends, 16);
                match self.open.keys().next_back().copied() {
                    nested if nested == before => Due::At(scene.now),
                    Some(nested) => {
                        // The end of that call is unknown.
                        self.may_be_late(call);
                        Due::After(nested)
                    }
                    None => Due::At(scene.now),
                }
            }
            92..=94 => {
                made.is_unanswered = true;
                return;
            }
            95..=97 => return self.give_up(call, scene.checker),
            _ => {
                self.leaves = true;
                return;
            }
        };
        self.answers.push(Answer { call, due, data });
        self.answer_due(scene);
    }

    /// The answer to a call's callback might come too late.
    fn may_be_late(&mut self, call: CallId) {
        let open = self.open.get_mut(&call);
        if let Some(Purpose::Call(made)) = open.map(|open| &mut open.purpose) {
            made.is_unanswered = true;
        }
    }

    /// Gives the answers whose time has come.
    pub(super) fn answer_due(&mut self, scene: &Scene<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let open = &self.open;
        self.answers.retain_mut(|answer| {
            let is_due = match answer.due {
                Due::At(time) => time <= scene.now,
                Due::After(call) => !open.contains_key(&call),
            };
            if is_due {
                let answered = CallbackAnswer {
                    data: std::mem::take(&mut answer.data),
                    big_endian: false,
                };
                connection.answer(answer.call, &answered);
            }
            !is_due
        });
    }
}
