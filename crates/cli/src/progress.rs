//! The bar of a call that takes more than a moment: its bytes, and how the call fares while it
//! waits or computes. It is drawn on standard error, and only at a terminal.

use crate::failure::Failure;
use farcall_client::{Error, Pending, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Waits for the end of a call, and shows a bar when it takes more than a moment.
pub(crate) fn show(pending: &Pending) -> Result<(), Failure> {
    const MOMENT: Duration = Duration::from_millis(500);
    const PERIOD: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);
    let style = "{bar:30} {bytes}/{total_bytes}, {elapsed}, {msg}";
    let style = ProgressStyle::with_template(style).map_err(Failure::failed)?;
    let mut bar = None;
    let mut asked: Option<Instant> = None;
    loop {
        let period = if bar.is_none() { MOMENT } else { PERIOD };
        match pending.wait_timeout(period) {
            Err(Error::Timeout { .. }) => {}
            other => break other?,
        }
        let is_late = pending.deadline().is_some_and(|end| end <= Instant::now());
        let Some(progress) = pending.progress().filter(|_| !is_late) else {
            break;
        };
        let total = progress.to_send + progress.to_receive;
        let bar = bar.get_or_insert_with(|| {
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
                .with_style(style.clone())
        });
        bar.set_position(progress.sent + progress.received);
        match progress {
            Progress { sent, to_send, .. } if sent < to_send => bar.set_message("sending"),
            Progress { received: 0, .. } if asked.is_none_or(|at| at.elapsed() >= SECOND) => {
                asked = Some(Instant::now());
                // The call itself ends with any error of its connection.
                let status = pending.status().map(|status| status.to_string());
                bar.set_message(status.unwrap_or_default());
            }
            Progress { received: 0, .. } => {}
            _ => bar.set_message("receiving"),
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(())
}
