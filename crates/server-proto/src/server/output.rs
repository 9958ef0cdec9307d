//! What libraries print, for clients that want it.

use super::Server;
use crate::job::Printing;
use crate::keys::{CallKey, WorkerKey};

impl Server {
    /// The name of the function that a worker ran last, for the log.
    pub fn runs(&self, key: WorkerKey) -> Option<String> {
        let number = self.workers.get(key)?.function?;
        let function = self.functions.get(number).ok()?;
        Some(function.interface.qualified_name().into_owned())
    }

    /// Whether a worker runs a call whose client wants what it prints: that is to be told before
    /// the call ends.
    pub fn prints(&self, key: WorkerKey) -> bool {
        let worker = self.workers.get(key);
        let call = worker.and_then(|worker| self.calls.get(worker.call()?));
        call.is_some_and(|job| job.printing.is_some())
    }

    /// A worker has printed something: its client is sent that, if it wants it.
    pub(super) fn printed(&mut self, key: WorkerKey, mut printed: Vec<u8>) {
        let now = self.now();
        let worker = self.workers.get(key);
        let Some(call) = worker.and_then(|worker| worker.call()) else {
            return;
        };
        let job = &mut self.calls[call];
        let (Some(printing), Some(connection)) = (&mut job.printing, job.connection) else {
            return;
        };
        let proto = &mut self.connections[connection].proto;
        let reads = !proto.is_congested();
        printed.truncate(printing.allow(printed.len(), reads, now));
        if !printed.is_empty() {
            proto.print(job.call, printed);
            self.answered(connection);
        }
    }

    /// A call is about to end: what was left out of its function's output is said before.
    pub(super) fn finish_printing(&mut self, call: CallKey) {
        let Some(job) = self.calls.get(call) else {
            return;
        };
        let remark = job.printing.as_ref().and_then(Printing::remark);
        if let (Some(remark), Some(connection)) = (remark, job.connection) {
            let proto = &mut self.connections[connection].proto;
            proto.print(job.call, remark.into_bytes());
        }
    }
}
