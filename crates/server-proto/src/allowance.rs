//! Allowances: how many bytes a connection may move in one direction until it is granted more.
//! `lanes` makes the grants. A part of each grant is for small messages, so that a large transfer
//! does not hold them up.

/// Pending bytes up to which a message counts as small: control messages, and calls of a few
/// numbers. Small messages may go before larger ones.
const SMALL: u64 = 4 << 10;

/// Bytes that a connection may move in one direction. There is no limit if its bandwidth is not
/// controlled.
#[derive(Debug, Default)]
pub struct Allowance {
    limit: Option<Limit>,
    /// Whether more bytes wait than may be moved now.
    is_used_up: bool,
    /// Whether the connection is in the queue of its lane.
    pub is_queued: bool,
}

#[derive(Debug)]
struct Limit {
    bytes: u64,
    /// The part of these bytes that is for small messages only.
    kept: u64,
}

impl Allowance {
    /// Grants bytes, of which `kept` are for small messages only.
    pub fn grant(&mut self, bytes: u64, kept: u64) {
        self.limit = Some(Limit { bytes, kept });
        self.is_used_up = false;
    }

    /// Whether the bandwidth of the connection is controlled.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Granted bytes that are left.
    pub fn left(&self) -> u64 {
        self.limit.as_ref().map_or(u64::MAX, |limit| limit.bytes)
    }

    /// How many of the pending bytes may be moved. Remembers it if none may.
    pub fn of(&mut self, pending: u64) -> u64 {
        let Some(limit) = &self.limit else {
            return u64::MAX;
        };
        let most = match pending <= SMALL {
            true => limit.bytes,
            false => limit.bytes.saturating_sub(limit.kept),
        };
        self.is_used_up |= most == 0;
        most
    }

    /// Records that bytes were moved.
    pub fn spend(&mut self, bytes: u64) {
        if let Some(limit) = &mut self.limit {
            limit.bytes = limit.bytes.saturating_sub(bytes);
        }
    }

    /// Whether the connection waits for a grant.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_is_not_paced_has_no_bound() {
        let mut allowance = Allowance::default();
        allowance.spend(u64::MAX);
        assert_eq!(allowance.of(u64::MAX), u64::MAX);
        assert!(!allowance.is_used_up() && !allowance.is_limited());
    }

    #[test]
    fn small_messages_have_a_part_of_their_own() {
        let mut allowance = Allowance::default();
        allowance.grant(10_000, 4_000);
        assert_eq!(allowance.of(1 << 20), 6_000);
        allowance.spend(6_000);
        assert!(!allowance.is_used_up());
        assert_eq!((allowance.of(1 << 20), allowance.is_used_up()), (0, true));
        assert_eq!(allowance.of(SMALL), 4_000);
        allowance.spend(4_000);
        assert_eq!((allowance.of(1), allowance.left()), (0, 0));
        allowance.grant(1, 0);
        assert!(!allowance.is_used_up());
    }
}
