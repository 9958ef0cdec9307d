//! What the log says of connections that the system refuses to accept, mostly for lack of
//! descriptors. A service tries again all the time, and the log must not say so each time.

use std::io;

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
