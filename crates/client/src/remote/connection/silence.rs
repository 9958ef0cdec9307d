//! Finds out that a server is gone although its connection is open: the server is stopped, or the
//! network in between has ended.
//!
//! While requests are open, a quiet server is asked for a sign of life. It answers at once, however
//! long its calls take. A process that was stopped itself for a while counts that as one moment, so
//! it does not blame the server.

use std::time::{Duration, Instant};

/// A server counts as lost after this many quiet moments. It is asked after the first one.
const MOMENTS: u32 = 3;

/// What to do about a server that may be quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Ask for a sign of life.
    Ask,
    /// The server is lost.
    Lost,
}

/// How long a server has been quiet.
#[derive(Debug)]
pub(super) struct Silence {
    /// Length of a moment. `None` waits for ever.
    moment: Option<Duration>,
    /// Whether there was a sign of life since the last look.
    heard: bool,
    quiet: u32,
    /// End of the current moment.
    until: Option<Instant>,
    /// Bytes that the peer's system has not accepted yet.
    unsent: Option<usize>,
}

impl Silence {
    /// A server counts as lost after this time. `None` waits for ever.
    pub(super) fn new(limit: Option<Duration>) -> Silence {
        Silence {
            moment: limit.map(|limit| limit / MOMENTS),
            heard: true,
            quiet: 0,
            until: None,
            unsent: None,
        }
    }

    /// Notes a sign of life.
    pub(super) fn hear(&mut self) {
        self.heard = true;
    }

    /// Looks at the time. Bytes that leave a slow link are a sign of life: `unsent` counts those
    /// that wait in the system.
    pub(super) fn look(&mut self, now: Instant, unsent: impl FnOnce() -> Option<usize>) -> Verdict {
        let Some(moment) = self.moment else {
            return Verdict::Fine;
        };
        if std::mem::take(&mut self.heard) {
            (self.quiet, self.until) = (0, Some(now + moment));
            return Verdict::Fine;
        }
        if self.until.is_some_and(|until| now < until) {
            return Verdict::Fine;
        }
        self.until = Some(now + moment);
        let unsent = unsent();
        if std::mem::replace(&mut self.unsent, unsent) != unsent && self.quiet > 0 {
            self.quiet = 1;
            return Verdict::Fine;
        }
        self.quiet += 1;
        match self.quiet {
            1 => Verdict::Ask,
            MOMENTS.. => Verdict::Lost,
            _ => Verdict::Fine,
        }
    }

    /// After which time a silent server is lost.
    pub(super) fn limit(&self) -> Duration {
        self.moment.unwrap_or_default() * MOMENTS
    }

    /// When to look again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(15);

    /// Looks once a second. Returns the seconds of the question and of the loss.
    fn watch(silence: &mut Silence, start: Instant, unsent: impl Fn(u64) -> usize) -> [u64; 2] {
        let mut seconds = [0; 2];
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            match silence.look(now, || Some(unsent(second))) {
                Verdict::Fine => {}
                Verdict::Ask => seconds[0] = second,
                Verdict::Lost => {
                    seconds[1] = second;
                    break;
                }
            }
        }
        seconds
    }

    #[test]
    fn a_quiet_server_is_asked_and_then_lost() {
        let mut silence = Silence::new(Some(LIMIT));
        assert_eq!(watch(&mut silence, Instant::now(), |_| 0), [5, 15]);
    }

    #[test]
    fn an_answer_and_bytes_that_leave_are_signs_of_life() {
        let start = Instant::now();
        let mut silence = Silence::new(Some(LIMIT));
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            if silence.look(now, || None) == Verdict::Ask {
                silence.hear();
            }
        }
        // A link that takes a kilobyte a second, until the bytes stay where they are.
        let mut silence = Silence::new(Some(LIMIT));
        let leaves = |second: u64| 100_000 - 1000 * second.min(40) as usize;
        let [asked, lost] = watch(&mut silence, start, leaves);
        assert!(asked <= 10 && (50..=60).contains(&lost), "{asked} {lost}");
    }

    #[test]
    fn a_process_that_was_stopped_does_not_blame_the_server() {
        let start = Instant::now();
        let mut silence = Silence::new(Some(LIMIT));
        assert_eq!(silence.look(start, || None), Verdict::Fine);
        let hour = start + Duration::from_secs(3600);
        assert_eq!(silence.look(hour, || None), Verdict::Ask);
        assert_eq!(
            silence.look(hour + Duration::from_secs(1), || None),
            Verdict::Fine
        );
        assert_eq!(Silence::new(None).look(hour, || None), Verdict::Fine);
    }
}
