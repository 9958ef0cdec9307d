//! What one user may have at a time. Limits that the operator has not set cost nothing.

use super::Server;
use crate::keys::ConnectionKey;
use farcall_idl::Layout;
use farcall_rpc_proto::{Failure, FailureKind, User};

impl Server {
    /// Why a user may not have one more connection.
    pub(super) fn too_many_connections(&self, user: &User) -> Option<String> {
        let most = self.settings.limits.connections_per_user;
        let known = self.connections.values();
        let open = known.filter(|known| known.connected && known.user == *user);
        (most > 0 && open.count() >= most)
            .then(|| format!("{user} has {most} connections, as many as one user may have"))
    }

    /// Why a connection's user may not have one more call.
    pub(super) fn beyond_limits(&self, key: ConnectionKey, layout: &Layout) -> Result<(), Failure> {
        let user = &self.connections[key].user;
        let limits = &self.settings.limits;
        let (most_calls, most_bytes) = (limits.calls_per_user, limits.memory_per_user);
        if most_calls == 0 && most_bytes == 0 {
            return Ok(());
        }
        let (mut calls, mut bytes) = (1, layout.bytes);
        for job in self.calls.values().filter(|job| job.user == *user) {
            calls += 1;
            bytes = bytes.saturating_add(job.layout.bytes);
        }
        let exceeded = |text: String| Err(Failure::new(FailureKind::QuotaExceeded, text));
        if most_calls > 0 && calls > most_calls {
            return exceeded(format!(
                "{user} has {most_calls} calls under way, as many as one user may have \
                 (limits.calls_per_user)"
            ));
        }
        if most_bytes > 0 && bytes > most_bytes {
            return exceeded(format!(
                "the calls of {user} would take {bytes} bytes of memory, and one user may have \
                 {most_bytes} (limits.memory_per_user)"
            ));
        }
        Ok(())
    }
}
