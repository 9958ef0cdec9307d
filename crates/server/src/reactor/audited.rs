//! What is told to the audit, where there is one.

use super::Reactor;
use crate::audit::Entry;
use crate::job::Task;

impl Reactor {
    /// A call has ended, one way or another.
    pub(super) fn audit_job(&mut self, key: usize, outcome: &str) {
        let (Some(audit), Some(job)) = (&mut self.audit, self.jobs.get(key)) else {
            return;
        };
        if !matches!(job.task, Task::Call) {
            return;
        }
        let connection = job.connection.and_then(|key| self.connections.get(key));
        let peer = connection.map(|connection| connection.peer.as_str());
        let function = self.functions.get(job.function);
        let name = function.map(|function| function.interface.qualified_name());
        let name = name.unwrap_or_else(|_| "?".into());
        let bytes = [job.layout.sent_bytes(), job.layout.returned_bytes()];
        let entry = Entry::new(&job.user, peer, &name, outcome);
        audit.write(&entry.with(bytes[0], bytes[1], job.times.exec));
    }

    /// A client was refused something.
    pub(super) fn audit_refusal(&mut self, key: usize, what: &str) {
        if let Some(audit) = &mut self.audit {
            let connection = &self.connections[key];
            let peer = Some(connection.peer.as_str());
            audit.write(&Entry::new(&connection.user, peer, what, "refused"));
        }
    }
}
