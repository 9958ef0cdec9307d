//! A link that loses, delays, duplicates and reorders frames at random, for tests and figures. It
//! wraps any [`LinkDevice`] and affects only frames that are sent. The same seed and the same
//! frames give the same faults, and the number of delayed frames is bounded.

use crate::{LinkDevice, Received};
use farcall_random::SplitMix64;
use farcall_trunk_proto::{Nanos, Transmit};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

/// The faults of frames that are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Share of frames lost, 0 to 1.
    pub loss: f64,
    /// Share of frames sent twice, 0 to 1.
    pub duplication: f64,
    /// Share of frames sent after the next one, 0 to 1.
    pub reordering: f64,
    /// Additional delay of every frame in nanoseconds.
    pub delay: Nanos,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The largest number of delayed frames; further frames are lost.
const DELAYED: usize = 16_384;

/// Wraps a link and applies faults to the frames that are sent on it.
#[derive(Debug)]
pub struct FaultInjector<D> {
    device: D,
    plan: FaultPlan,
    random: SplitMix64,
    delayed: VecDeque<(Nanos, Transmit)>,
    due: Vec<Transmit>,
}

impl<D: LinkDevice> FaultInjector<D> {
    /// Wraps a link with the faults of a plan.
    pub fn new(device: D, plan: FaultPlan) -> FaultInjector<D> {
        let (delayed, due) = (VecDeque::new(), Vec::new());
        FaultInjector {
            device,
            plan,
            random: SplitMix64::new(plan.seed),
            delayed,
            due,
        }
    }

    fn spoil(&mut self, now: Nanos, frame: Transmit) {
        if self.random.chance(self.plan.loss) || self.delayed.len() >= DELAYED {
            return;
        }
        let at = now + self.plan.delay;
        if self.random.chance(self.plan.duplication) {
            self.delayed.push_back((at, frame.clone()));
        }
        self.delayed.push_back((at, frame));
        let last = self.delayed.len() - 1;
        if last > 0 && self.random.chance(self.plan.reordering) {
            self.delayed.swap(last, last - 1);
        }
    }

    fn release(&mut self, now: Nanos) -> io::Result<bool> {
        while self.delayed.front().is_some_and(|(at, _)| *at <= now) {
            self.due
                .extend(self.delayed.pop_front().map(|(_, frame)| frame));
        }
        self.device.send(now, &mut self.due)
    }
}

impl<D: LinkDevice> LinkDevice for FaultInjector<D> {
    fn descriptor(&self) -> &OwnedFd {
        self.device.descriptor()
    }

    fn send(&mut self, now: Nanos, frames: &mut Vec<Transmit>) -> io::Result<bool> {
        for frame in frames.drain(..) {
            self.spoil(now, frame);
        }
        self.release(now)
    }

    fn receive(&mut self, now: Nanos, take: &mut dyn FnMut(Received)) -> io::Result<usize> {
        self.release(now)?;
        self.device.receive(now, take)
    }

    fn deadline(&self) -> Option<Nanos> {
        self.delayed.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use farcall_trunk_proto::Mac;

    /// A link that records the frames that are sent.
    struct Memory {
        sent: Vec<u64>,
        descriptor: OwnedFd,
    }

    impl LinkDevice for Memory {
        fn descriptor(&self) -> &OwnedFd {
            &self.descriptor
        }

        fn send(&mut self, _: Nanos, frames: &mut Vec<Transmit>) -> io::Result<bool> {
            let number = |frame: Transmit| u64::from_be_bytes(*frame.body.first_chunk().unwrap());
            self.sent.extend(frames.drain(..).map(number));
            Ok(true)
        }

        fn receive(&mut self, _: Nanos, _: &mut dyn FnMut(Received)) -> io::Result<usize> {
            Ok(0)
        }
    }

    fn sent(plan: FaultPlan) -> Vec<u64> {
        let descriptor = std::fs::File::open("/dev/null").unwrap().into();
        let mut link = FaultInjector::new(
            Memory {
                sent: Vec::new(),
                descriptor,
            },
            plan,
        );
        for number in 0..10_000_u64 {
            let body = Bytes::copy_from_slice(&number.to_be_bytes());
            let destination = Mac::BROADCAST;
            let frame = Transmit {
                link: 0,
                destination,
                header: [0; 12],
                body,
            };
            link.send(number, &mut vec![frame]).unwrap();
        }
        link.receive(1 << 40, &mut |_| {}).unwrap();
        assert_eq!(link.deadline(), None);
        link.device.sent
    }

    #[test]
    fn the_plan_is_kept() {
        let whole: Vec<u64> = (0..10_000).collect();
        assert_eq!(
            sent(FaultPlan {
                delay: 50,
                ..FaultPlan::default()
            }),
            whole
        );
        let lost = sent(FaultPlan {
            loss: 0.1,
            ..FaultPlan::default()
        });
        assert!((8800..9200).contains(&lost.len()), "{}", lost.len());
        let twice = sent(FaultPlan {
            duplication: 0.1,
            ..FaultPlan::default()
        });
        assert!((10_800..11_200).contains(&twice.len()), "{}", twice.len());
        let mut moved = sent(FaultPlan {
            reordering: 0.1,
            delay: 5,
            ..FaultPlan::default()
        });
        assert!(!moved.is_sorted());
        moved.sort_unstable();
        assert_eq!(moved, whole);
    }
}
