//! Tells systemd how a daemon is doing (`Type=notify`). Without systemd, nothing happens.

use sd_notify::NotifyState;

/// Tells systemd that the daemon accepts work.
pub(crate) fn ready() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!("systemd was not told that the daemon is ready: {error}");
    }
}
