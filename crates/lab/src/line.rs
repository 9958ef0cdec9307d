//! A line with a delay: two TAP interfaces, one at either end, and a thread that holds every frame
//! for the delay. A shaper at each end limits the rate, so the queue forms before the line and not
//! in it.

use crate::LabError;
use bytes::Bytes;
use farcall_trunk_device::Tap;
use farcall_trunk_proto::Deliver;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest number of frames in transit in one direction; further frames are lost.
const UNDER_WAY: usize = 65_536;
/// How often an idle line checks whether it must end.
const LOOK: Duration = Duration::from_millis(50);

/// The frames in transit in one direction, the oldest first.
#[derive(Debug)]
struct DelayLine {
    delay: Duration,
    frames: VecDeque<(Instant, Bytes)>,
}

impl DelayLine {
    fn new(delay: Duration) -> DelayLine {
        DelayLine {
            delay,
            frames: VecDeque::new(),
        }
    }

    fn enter(&mut self, now: Instant, frame: Bytes) {
        if self.frames.len() < UNDER_WAY {
            self.frames.push_back((now + self.delay, frame));
        }
    }

    /// Takes out the next frame that has arrived.
    fn leave(&mut self, now: Instant) -> Option<Bytes> {
        self.frames.pop_front_if(|(at, _)| *at <= now)?.1.into()
    }

    /// When the next frame arrives.
    fn next(&self) -> Option<Instant> {
        self.frames.front().map(|(at, _)| *at)
    }
}

/// The thread of a line. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Line {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    /// Carries frames between two interfaces, each with this delay.
    pub(crate) fn start(ends: [Tap; 2], delay: Duration) -> Result<Line, LabError> {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("line".into())
            .spawn(move || {
                // An error means that an interface disappeared with its namespace; nobody waits for
                // more frames.
                let _ = carry(ends, delay, &ended);
            })?;
        Ok(Line {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(mut ends: [Tap; 2], delay: Duration, over: &AtomicBool) -> io::Result<()> {
    let mut ways = [DelayLine::new(delay), DelayLine::new(delay)];
    while !over.load(Ordering::Relaxed) {
        wait(&ends, &ways)?;
        for (end, way) in ends.iter_mut().zip(&mut ways) {
            let now = Instant::now();
            while end.receive(|frame| way.enter(now, frame))? {}
        }
        for (from, way) in ways.iter_mut().enumerate() {
            let now = Instant::now();
            let frames = std::iter::from_fn(|| way.leave(now));
            ends[1 - from].send(frames.filter_map(deliver))?;
        }
    }
    Ok(())
}

/// Waits until a frame arrives at an interface, or until the delay of a frame in transit is over.
fn wait(ends: &[Tap; 2], ways: &[DelayLine; 2]) -> io::Result<()> {
    let now = Instant::now();
    let next = ways.iter().filter_map(DelayLine::next).min();
    let left = next.map_or(LOOK, |next| next.saturating_duration_since(now).min(LOOK));
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: left.as_nanos() as _,
    };
    let mut fds = ends
        .each_ref()
        .map(|end| PollFd::new(end.descriptor(), PollFlags::IN));
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn deliver(frame: Bytes) -> Option<Deliver> {
    let header = *frame.first_chunk()?;
    let body = frame.slice(header.len()..);
    Some(Deliver { header, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_when_its_time_has_passed_and_in_order() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut line = DelayLine::new(Duration::from_millis(100));
        line.enter(after(0), Bytes::from_static(b"first"));
        line.enter(after(30), Bytes::from_static(b"second"));
        assert_eq!(line.next(), Some(after(100)));
        assert_eq!(line.leave(after(99)), None);
        assert_eq!(line.leave(after(130)).as_deref(), Some(&b"first"[..]));
        assert_eq!(line.leave(after(130)).as_deref(), Some(&b"second"[..]));
        assert_eq!((line.leave(after(999)), line.next()), (None, None));
    }

    #[test]
    fn frames_in_transit_are_bounded() {
        let now = Instant::now();
        let mut line = DelayLine::new(Duration::from_secs(1));
        for _ in 0..=UNDER_WAY {
            line.enter(now, Bytes::new());
        }
        assert_eq!(line.frames.len(), UNDER_WAY);
    }
}
