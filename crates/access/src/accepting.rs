//! How many connections the system allows, and what the log says of those that it refuses to
//! accept, mostly for lack of descriptors. A service tries again all the time, and the log must not
//! say so each time.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit on open files, because each connection is one. Returns how many of the wanted
/// connections there can be. `setting` asks for that many.
pub fn allow_connections(wanted: usize, setting: &str) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let open = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    };
    let possible = possible(wanted, open);
    if let Some(open) = open.filter(|_| possible < wanted) {
        tracing::warn!(
            "the system allows {open} open files, so {possible} clients can connect at once, and \
             not {wanted} ({setting}): allow more files (`ulimit -n`, or LimitNOFILE= of systemd)"
        );
    }
    possible
}

/// How many of the wanted connections there can be with so many open files.
fn possible(wanted: usize, open: Option<u64>) -> usize {
    /// Listeners, workers and other open files.
    const OTHERS: u64 = 200;
    let most = open.map(|open| open - OTHERS.min(open / 2));
    let most = most.and_then(|most| usize::try_from(most).ok());
    most.map_or(wanted, |most| most.min(wanted))
}

/// Whether the system has refused connections, and some may still wait.
#[derive(Debug, Default)]
pub struct Accepting {
    is_stuck: bool,
}

impl Accepting {
    /// What the log must say after the end of a series of connections, whose error `WouldBlock`
    /// means that nobody waits. It says once that the system refuses them, and once that this is
    /// over.
    pub fn news(&mut self, error: &io::Error) -> Option<String> {
        let is_stuck = error.kind() != io::ErrorKind::WouldBlock;
        let was_stuck = std::mem::replace(&mut self.is_stuck, is_stuck);
        match (was_stuck, is_stuck) {
            (false, true) => Some(format!(
                "cannot accept connections: {error}; those that wait are accepted when others close"
            )),
            (true, false) => Some("all connections are accepted again".to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_for_other_things() {
        assert_eq!(possible(1000, None), 1000);
        assert_eq!(possible(1000, Some(1200)), 1000);
        assert_eq!(possible(1000, Some(1199)), 999);
        assert_eq!(possible(1000, Some(256)), 128);
    }

    #[test]
    fn the_log_says_once_that_descriptors_lack_and_once_that_it_is_over() {
        let mut accepting = Accepting::default();
        let lack = io::Error::from(io::ErrorKind::Other);
        let nobody = io::Error::from(io::ErrorKind::WouldBlock);
        assert_eq!(accepting.news(&nobody), None);
        let text = accepting.news(&lack).unwrap();
        assert!(text.contains("cannot accept connections"), "{text}");
        assert_eq!(accepting.news(&lack), None);
        let text = accepting.news(&nobody).unwrap();
        assert!(text.contains("again"), "{text}");
        assert_eq!(accepting.news(&nobody), None);
        assert!(accepting.news(&lack).is_some());
    }
}
