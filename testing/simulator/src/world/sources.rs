//! The connectors of a server, which read sources. They take their time, and some fail. Each array
//! that a connector has found must be taken or left. They also write arrays to addresses, whose
//! memory must stay as it is meanwhile.

use super::hosts::ToLife;
use super::{MS, World};
use crate::checker::{SOURCES, contents, says_version};
use crate::interfaces::Contents;
use farcall_rpc_proto::{ArrayForm, Failure, FailureKind, Receipt};
use farcall_server_proto::source::{SourceFound, SourceRequest};
use farcall_server_proto::{CallKey, Event, MemoryKey};

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

    /// Another server sends an array, or does not answer. Its address has the contents.
    pub(super) fn pull_array(&mut self, host: usize, number: u64, address: &str, into: MemoryKey) {
        let numbers = address.split(':').skip(1).map(str::parse::<u64>);
        let numbers: Vec<u64> = numbers.filter_map(Result::ok).collect();
        let fails = self.random.below(12) == 0;
        let machine = self.machine(host);
        let memory = machine.and_then(|machine| machine.memories.get(&into));
        let read = match (<&[u64; 3]>::try_from(&numbers[..]), memory) {
            (Ok([user, first, count]), Some(memory)) if !fails => {
                let contents = Contents {
                    user: *user as u8,
                    first: *first as u8,
                    count: *count,
                };
                memory.borrow_mut()[..*count as usize].copy_from_slice(&contents.bytes());
                Ok(())
            }
            _ => Err(unreachable()),
        };
        self.soon(host, Event::Pulled(number, read));
    }

    /// A connector begins to write an array to an address.
    pub(super) fn write_source(
        &mut self,
        host: usize,
        call: CallKey,
        wanted: &SourceRequest,
        memory: MemoryKey,
    ) {
        let delay = self.random.below(LONGEST);
        let writes = ToLife::Writes(call, Box::new(wanted.clone()), memory);
        self.after(host, delay, writes);
    }

    /// A connector has written the array, or could not. Nothing half-written is at the address.
    pub(super) fn source_written(
        &mut self,
        host: usize,
        call: CallKey,
        wanted: &SourceRequest,
        memory: MemoryKey,
    ) {
        let fails = self.random.below(12) == 0;
        let length = wanted.form.bytes().unwrap_or(0) as usize;
        let Some(machine) = self.machine(host) else {
            return;
        };
        let bytes = machine.memories.get(&memory);
        let bytes = bytes.and_then(|memory| Some(memory.borrow().get(..length)?.to_vec()));
        let written = match bytes {
            None => {
                let text = "an array is gone while a connector writes it";
                return self.checker.fail(text.to_string());
            }
            Some(_) if fails => Err(unreachable()),
            Some(bytes) => {
                let receipt = Receipt {
                    address: wanted.address.clone(),
                    bytes: bytes.len() as u64,
                    sha256: "0".repeat(64),
                    version: None,
                };
                self.checker.sources.writes(wanted.address.clone(), bytes);
                Ok(receipt)
            }
        };
        self.tell(host, Event::SourceWritten(call, written));
    }

    fn soon(&mut self, host: usize, event: Event) {
        let delay = self.random.below(LONGEST);
        self.after(host, delay, ToLife::Later(Box::new(event)));
    }
}

fn unreachable() -> Failure {
    Failure::new(FailureKind::Unreachable, "the source does not answer")
}
