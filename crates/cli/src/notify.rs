//! Tells systemd how a daemon is doing (`Type=notify`). Without systemd, nothing happens.

use crate::failure::Failure;
use sd_notify::NotifyState;
use std::fmt;
use std::io::{Write, stdout};

/// Says on standard output that the daemon accepts work, and tells systemd.
pub(crate) fn says_ready(line: impl fmt::Display) -> Result<(), Failure> {
    let mut out = stdout().lock();
    writeln!(out, "{line}").map_err(Failure::unsaid)?;
    out.flush().map_err(Failure::unsaid)?;
    ready();
    Ok(())
}

/// Tells systemd that the daemon accepts work.
pub(crate) fn ready() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!("systemd was not told that the daemon is ready: {error}");
    }
}
