//! Penalties for wrong credentials.
//!
//! Each further failure from a source doubles the time for which its credentials are not looked at.
//! A token that was accepted before is not affected, so that somebody who guesses does not lock out
//! the others behind the same address. The number of log lines is bounded too. Nothing here reads a
//! clock.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Failures without a penalty, because people mistype, and log lines without a pause.
const FREE: u32 = 3;
/// Longest penalty.
const LONGEST: Duration = Duration::from_secs(60);
/// A source without failures for this time begins anew.
const FORGIVEN: Duration = Duration::from_secs(600);
/// Time between two log lines about a source that goes on.
const LOGGED: Duration = Duration::from_secs(60);
/// Most sources that are remembered.
const MOST: usize = 4096;

/// The sources of wrong credentials.
#[derive(Debug, Default)]
pub(crate) struct Penalties(HashMap<IpAddr, Source>);

#[derive(Debug)]
struct Source {
    failures: u32,
    last: Instant,
    /// Until when its credentials are not looked at.
    until: Instant,
    logged: Instant,
    lines: u32,
    /// Failures that were not logged.
    unlogged: u32,
}

impl Source {
    fn new(now: Instant) -> Source {
        Source {
            failures: 0,
            last: now,
            until: now,
            logged: now,
            lines: 0,
            unlogged: 0,
        }
    }
}

/// What to log about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// Nothing, because the log tells of this source already.
    Nothing,
    /// This failure, and the number of those before it that were not logged.
    With(u32),
}

/// The network of a host: a host has a whole IPv6 network of 64 bits.
fn network(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(_) => host,
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => IpAddr::V4(ip),
            None => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        },
    }
}

impl Penalties {
    /// How long the credentials of a host are not looked at.
    pub(crate) fn wait(&self, host: IpAddr, now: Instant) -> Option<Duration> {
        let left = self
            .0
            .get(&network(host))?
            .until
            .checked_duration_since(now);
        left.filter(|left| !left.is_zero())
    }

    /// Counts a failure. It adds to the penalty if it was a guess outside a penalty.
    pub(crate) fn fail(&mut self, host: IpAddr, is_guess: bool, now: Instant) -> Logged {
        let host = network(host);
        self.make_room(host, now);
        let source = self.0.entry(host).or_insert(Source::new(now));
        if now - source.last >= FORGIVEN {
            *source = Source::new(now);
        }
        source.last = now;
        if is_guess && source.until <= now {
            source.failures = source.failures.saturating_add(1);
            if let Some(doublings) = source.failures.checked_sub(FREE) {
                let seconds = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
                source.until = now + LONGEST.min(Duration::from_secs(seconds));
            }
        }
        if source.lines >= FREE && now - source.logged < LOGGED {
            source.unlogged = source.unlogged.saturating_add(1);
            return Logged::Nothing;
        }
        (source.logged, source.lines) = (now, source.lines + 1);
        Logged::With(std::mem::take(&mut source.unlogged))
    }

    /// Makes room for a new source, if there is none: forgets those that have been quiet, or else
    /// the one that has been quiet longest.
    fn make_room(&mut self, host: IpAddr, now: Instant) {
        if self.0.len() < MOST || self.0.contains_key(&host) {
            return;
        }
        self.0.retain(|_, source| now - source.last < FORGIVEN);
        if self.0.len() < MOST {
            return;
        }
        let oldest = self.0.iter().min_by_key(|(_, source)| source.last);
        if let Some(host) = oldest.map(|(host, _)| *host) {
            self.0.remove(&host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    #[test]
    fn who_guesses_gets_few_looks_and_few_lines() {
        let mut penalties = Penalties::default();
        let start = Instant::now();
        let (mut looks, mut lines, mut told) = (0, 0, 0);
        // A thousand guesses a second, for ten minutes.
        for millisecond in 0..600_000 {
            let now = start + Duration::from_millis(millisecond);
            looks += u32::from(penalties.wait(HOST, now).is_none());
            if let Logged::With(others) = penalties.fail(HOST, true, now) {
                lines += 1;
                told += 1 + others;
            }
        }
        assert!((10..30).contains(&looks), "{looks} looks");
        assert!((10..20).contains(&lines), "{lines} lines");
        assert!(told > 500_000, "{told} told");
        // It is forgiven later.
        let later = start + Duration::from_secs(600 + 700);
        assert_eq!(penalties.wait(HOST, later), None);
        assert_eq!(penalties.fail(HOST, true, later), Logged::With(0));
        assert_eq!(penalties.wait(HOST, later), None);
    }

    #[test]
    fn who_shows_nothing_is_logged_a_few_times_and_not_punished() {
        let (mut penalties, now) = (Penalties::default(), Instant::now());
        let lines = (0..100).filter(|_| penalties.fail(HOST, false, now) != Logged::Nothing);
        assert_eq!(lines.count(), 3);
        assert_eq!(penalties.wait(HOST, now), None);
    }

    #[test]
    fn other_hosts_are_not_affected_and_the_number_of_sources_is_bounded() {
        let mut penalties = Penalties::default();
        let now = Instant::now();
        (0..10).for_each(|_| {
            let _ = penalties.fail(HOST, true, now);
        });
        assert!(penalties.wait(HOST, now).is_some());
        assert_eq!(penalties.wait("192.0.2.8".parse().unwrap(), now), None);
        let of = |text: &str| -> IpAddr { text.parse().unwrap() };
        (0..10).for_each(|_| {
            let _ = penalties.fail(of("2001:db8::1"), true, now);
        });
        assert!(penalties.wait(of("2001:db8::2"), now).is_some(), "one host");
        assert_eq!(penalties.wait(of("2001:db8:0:1::2"), now), None);
        assert!(penalties.wait(of("::ffff:192.0.2.7"), now).is_some());
        for number in 0..10_000 {
            penalties.fail(IpAddr::from(u32::to_be_bytes(number)), true, now);
        }
        assert!(penalties.0.len() <= MOST);
    }
}
