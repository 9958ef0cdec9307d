//! The connectors of a server, which read sources. They take their time, and some fail. Each array
//! that a connector has found must be taken or left.

use super::hosts::ToLife;
use super::{MS, World};
use crate::checker::{SOURCES, contents, says_version};
use farcall_rpc_proto::{ArrayForm, Failure, FailureKind};
use farcall_server_proto::source::{SourceFound, SourceRequest};
use farcall_server_proto::{Event, MemoryKey};

/// The longest that a connector takes.
const LONGEST: u64 = 300 * MS;

impl World {
    /// A connector opens a source, which may change just before.
    pub(super) fn open_source(&mut self, host: usize, number: u64, wanted: &SourceRequest) {
        let source = wanted.address.strip_prefix("source:");
        let source: u64 = source.and_then(|source| source.parse().ok()).unwrap_or(0);
        if self.random.chance(0.3) {
            let changed = self.random.below(SOURCES);
            self.checker.sources.changes(changed, self.now);
        }
        let version = self.checker.sources.version(source);
        let said = says_version(source).then(|| version.to_string());
        let found = match self.random.below(12) {
            0 => Err(unreachable()),
            _ if said.is_some() && said == wanted.version => Ok(SourceFound::Unchanged),
            _ => {
                let form = ArrayForm {
                    element: "char".to_string(),
                    shape: vec![contents(source, version).len() as u64],
                    column_major: false,
                };
                if let Some(machine) = self.machine(host) {
                    machine.opened.insert(number, (source, version));
                }
                Ok(SourceFound::Array {
                    form,
                    version: said,
                })
            }
        };
        self.soon(host, Event::SourceFound(number, found));
    }

    /// A connector sends the array that it has found.
    pub(super) fn take_source(&mut self, host: usize, number: u64, into: MemoryKey) {
        let fails = self.random.below(12) == 0;
        let Some(machine) = self.machine(host) else {
            return;
        };
        let opened = machine.opened.remove(&number);
        let read = match (opened, machine.memories.get(&into)) {
            (Some((source, version)), Some(memory)) if !fails => {
                let bytes = contents(source, version);
                memory.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
                Ok(())
            }
            (None, _) => {
                let text = format!("the source {number} is taken, and no connector has found it");
                return self.checker.fail(text);
            }
            _ => Err(unreachable()),
        };
        self.soon(host, Event::Pulled(number, read));
    }

    fn soon(&mut self, host: usize, event: Event) {
        let delay = self.random.below(LONGEST);
        self.after(host, delay, ToLife::Later(Box::new(event)));
    }
}

fn unreachable() -> Failure {
    Failure::new(FailureKind::Unreachable, "the source does not answer")
}
