//! Clients that register libraries while the server runs, and call their functions. Only one user
//! is allowed to register. A registration by another user, or of a library that cannot be bound,
//! must fail.

use super::{Client, Purpose, Scene};
use crate::interfaces;
use farcall_rpc_proto::{Failure, FailureKind};

/// The user who is allowed to register libraries.
pub(crate) const OPERATOR: u8 = 1;

/// What is asked about libraries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// To register the library of that number; none is one that cannot be bound.
    Register(Option<u64>),
    /// To describe its function.
    Describe,
}

impl Client {
    pub(super) fn register(&mut self, scene: &mut Scene<'_>) {
        if !self.extra.is_empty() && scene.random.chance(0.7) {
            return self.call_extra(scene);
        }
        let number = scene.random.chance(0.8).then(|| scene.random.below(4));
        let text = match number {
            Some(number) => interfaces::library(number),
            None => "Module".to_string(),
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.register("extra.idl", &text);
            let purpose = Purpose::Library(Asked::Register(number));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// A library was registered.
    pub(super) fn registered(&mut self, asked: Asked, scene: &mut Scene<'_>) {
        if self.user != OPERATOR {
            let text = format!("user {} has registered a library", self.user);
            scene.checker.fail(text);
        }
        let Asked::Register(number) = asked else {
            return;
        };
        let Some(number) = number else {
            let text = "a library is registered that cannot be bound".to_string();
            return scene.checker.fail(text);
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.describe(&format!("extra{number}/again{number}"));
            let purpose = Purpose::Library(Asked::Describe);
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    fn call_extra(&mut self, scene: &mut Scene<'_>) {
        let index = scene.random.below(self.extra.len() as u64) as usize;
        let count = Client::size(scene.random);
        let (mut made, mut call) = self.new_call(scene, interfaces::AGAIN, count);
        let sends = self.contents(scene, count).bytes();
        made.expected = self.expected(interfaces::AGAIN, count, &sends);
        call.function = self.extra[index];
        call.data_bytes = count;
        self.make(scene, (made, call), sends, count);
    }

    /// A request about libraries has failed. Returns whether this failure is allowed.
    pub(super) fn library_failed(
        &mut self,
        asked: Asked,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let faults = &scene.options.faults;
        match (asked, failure.kind) {
            (Asked::Register(_), FailureKind::NotAllowed) => self.user != OPERATOR,
            (Asked::Register(_), FailureKind::Busy) => true,
            (Asked::Register(None), FailureKind::BadArgument) => true,
            (Asked::Register(Some(_)), FailureKind::BadArgument) => {
                failure.message.contains("is registered") || faults.worker_starts_badly
            }
            (Asked::Describe, FailureKind::UnknownFunction) => faults.kills || faults.ends,
            _ => false,
        }
    }
}
