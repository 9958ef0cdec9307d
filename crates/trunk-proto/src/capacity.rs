//! Rates that a receiver cannot read off its interfaces: of slower switches in between, of other
//! traffic, of interfaces that do not know their speed. Found by losses, as TCP does, and held as
//! an extra bound of the grants.

/// Frames lost in a tick, and their share, from which on a queue is taken to have overflowed.
const LOST: u64 = 4;
const LOST_SHARE: u64 = 50;
/// What is handed out after that, as part of what arrived: queues drain.
const CUT: f64 = 0.95;
/// Growth in each tick while it is made use of.
const GROWTH: f64 = 1.005;
const USED: f64 = 0.8;

/// Whether the frames of a tick speak of an overflow.
pub(crate) fn overflowed(lost: u64, received: u64) -> bool {
    lost >= LOST && lost * LOST_SHARE > lost + received
}

/// A rate found by trial, never above the line's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    rate: f64,
    line: f64,
}

impl Capacity {
    pub(crate) fn new(line: f64) -> Capacity {
        Capacity { rate: line, line }
    }

    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// A queue overflowed while so much arrived.
    pub(crate) fn cut(&mut self, arrived: f64) {
        self.rate = (arrived * CUT).clamp(self.line * 1e-3, self.rate);
    }

    /// A tick without overflow in which so much arrived.
    pub(crate) fn grow(&mut self, arrived: f64) {
        if arrived > USED * self.rate {
            self.rate = (self.rate * GROWTH).min(self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_losses_are_no_overflow() {
        assert!(!overflowed(3, 5));
        assert!(!overflowed(4, 800));
        assert!(overflowed(4, 80));
    }

    #[test]
    fn a_hidden_rate_is_found_and_forgotten_when_it_grows() {
        let mut capacity = Capacity::new(100.0);
        capacity.cut(50.0);
        assert_eq!(capacity.rate(), 47.5);
        capacity.grow(1.0);
        assert_eq!(capacity.rate(), 47.5);
        for _ in 0..1000 {
            capacity.grow(capacity.rate());
        }
        assert_eq!(capacity.rate(), 100.0);
    }
}
