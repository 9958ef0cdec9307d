//! What is told to the audit, where there is one.

use super::Server;
use crate::action::{Action, Audit};
use crate::job::Task;
use crate::keys::{CallKey, ConnectionKey};

impl Server {
    /// A call has ended, one way or another.
    pub(super) fn audit_job(&mut self, key: CallKey, outcome: &str) {
        if !self.settings.audits {
            return;
        }
        let Some(job) = self.calls.get(key) else {
            return;
        };
        if !matches!(job.task, Task::Call) {
            return;
        }
        let connection = job.connection.and_then(|key| self.connections.get(key));
        let function = self.functions.get(job.function);
        let name = function.map(|function| function.interface.qualified_name());
        let bytes = [job.layout.sent_bytes(), job.layout.returned_bytes()];
        let audit = Audit {
            user: job.user.clone(),
            peer: connection.map(|connection| connection.peer.name.clone()),
            what: name.map_or_else(|_| "?".to_string(), |name| name.into_owned()),
            outcome: outcome.to_string(),
            call: Some((bytes, job.times.exec)),
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }

    /// A client was refused something.
    pub(super) fn audit_refusal(&mut self, key: ConnectionKey, what: &str) {
        if !self.settings.audits {
            return;
        }
        let connection = &self.connections[key];
        let audit = Audit {
            user: connection.user.clone(),
            peer: Some(connection.peer.name.clone()),
            what: what.to_string(),
            outcome: "refused".to_string(),
            call: None,
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }
}
