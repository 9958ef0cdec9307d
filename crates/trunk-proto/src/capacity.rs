//! Learns the rate that a link or a path really carries. A receiver cannot read it from its
//! interfaces if a slower switch is in between, if there is other traffic, or if the interface does
//! not know its speed. The rate is an additional bound on the grants.
//!
//! Frames that wait reveal a queue. During that time the arrival rate equals the capacity, so the
//! learned rate follows the arrivals and is set so that a short queue remains. Losses without a
//! queue are ambiguous. The rate is then cut for a trial: if the losses fall with the rate, a
//! buffer overflowed; if they do not, they are random.

use crate::distributor::{CREDIT_SHARED, CREDIT_WHOLE};
use crate::{MILLISECOND, Nanos};

/// The queue to keep, as waiting time: just long enough that the link is never idle.
const TARGET: Nanos = 2 * MILLISECOND;
/// A waiting time at or below this might be chance and does not count as a queue.
const QUEUED: Nanos = MILLISECOND;
/// Before a lower rate is believed, a queue must be longer than this. A sender that was late
/// catches up with its credit, and what it then sends at once waits at its own link. The second
/// value applies if at least the share `NEARLY` of the line rate arrives: such a sender may have
/// the whole link, and then it catches up with more.
const SUSPECT: Nanos = CREDIT_SHARED + MILLISECOND;
const SUSPECT_WHOLE: Nanos = CREDIT_WHOLE + MILLISECOND;
const NEARLY: f64 = 0.9;
/// Time in which a queue above the target drains, approximately.
const DRAIN: f64 = 100.0 * MILLISECOND as f64;
/// The smallest and the largest factor applied to the rate to reach the target queue.
const DRAINING: (f64, f64) = (0.7, 1.02);
/// Arrivals below this share of the line rate cannot be the cause of a queue.
const FAINT: f64 = 0.005;
/// Ticks with a queue before the rate is believed to be lower than the line rate. The first value
/// applies if the peers on a link agree, the second if a single peer reports it.
pub(crate) const SURE: u32 = 2;
pub(crate) const SURE_ALONE: u32 = 5;
/// The weight of the newest arrivals when the rate follows them, and the largest factor by which
/// they may differ from it.
const FOLLOW: f64 = 0.25;
const FAR: f64 = 1.5;
/// Number of ticks over which the largest arrival counts, because a sender may be held up for a few
/// ticks.
const RECENT: usize = 10;
/// If the queue is longer than this, it might overflow soon, and fewer ticks count.
const LONG: Nanos = 8 * MILLISECOND;
const RECENT_LONG: usize = 4;
/// Growth per tick without a queue while the rate is used, at first and after `LATER` such ticks.
const GROWTH: f64 = 0.005;
const GROWTH_LATER: f64 = 0.03;
const LATER: u32 = 40;
/// An unused learned rate grows after this many ticks without a queue, by `GROWTH_UNUSED` per tick.
const UNUSED: u32 = 100;
const GROWTH_UNUSED: f64 = 0.01;
/// Growth in a tick that gives no information.
const CREEP: f64 = 0.0005;
const USED: f64 = 0.8;

/// Ticks over which losses are counted, and the fewest frames that suffice.
const SPAN: u32 = 10;
const SPAN_FRAMES: u64 = 50;
/// The share of losses that starts a trial.
pub(crate) const LOSSY: f64 = 0.02;
/// The share of losses that starts a trial after fewer frames (`FLOOD_FRAMES`).
const FLOOD: f64 = 0.25;
const FLOOD_FRAMES: u64 = 20;
/// The rate of a trial, as a share of the arrival rate.
const TRIAL: f64 = 0.95;
/// Factor by which the known share of random losses decays in each span.
const FORGET: f64 = 0.98;

/// The measurements of one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tick {
    /// Wire bytes a second that arrived.
    pub(crate) arrived: f64,
    /// How long frames waited, or none if it is unknown.
    pub(crate) queue: Option<Nanos>,
    pub(crate) lost: u64,
    pub(crate) frames: u64,
}

impl Tick {
    pub(crate) fn is_queued(&self) -> bool {
        self.queue.is_some_and(|queue| queue > QUEUED)
    }
}

/// The learned rate of a link or a path, never above the line rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    rate: f64,
    line: f64,
    sure: u32,
    queue: Nanos,
    queued_ticks: u32,
    free_ticks: u32,
    /// Arrival rates in the last ticks, newest first.
    recent: [f64; RECENT],
    losses: Losses,
}

impl Capacity {
    /// Creates a capacity equal to the line rate. `sure` is the number of ticks with a queue before
    /// a lower rate is believed.
    pub(crate) fn new(line: f64, sure: u32) -> Capacity {
        Capacity {
            rate: line,
            line,
            sure,
            queue: 0,
            queued_ticks: 0,
            free_ticks: 0,
            recent: [0.0; RECENT],
            losses: Losses::default(),
        }
    }

    /// The learned rate.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// The rate to hand out now, so that the queue reaches its target.
    pub(crate) fn usable(&self) -> f64 {
        if !self.is_learned() {
            return self.line;
        }
        let excess = self.queue as f64 - TARGET as f64;
        self.rate * (1.0 - excess / DRAIN).clamp(DRAINING.0, DRAINING.1)
    }

    /// Whether a rate below the line rate has been learned.
    pub(crate) fn is_learned(&self) -> bool {
        self.rate < self.line
    }

    /// Updates the rate with the measurements of a tick.
    pub(crate) fn update(&mut self, tick: &Tick) {
        self.recent.rotate_right(1);
        self.recent[0] = tick.arrived;
        if let Some(queue) = tick.queue {
            self.queue = queue;
            if self.is_full(queue, tick.arrived) {
                self.losses.forget();
                self.queued_ticks += 1;
                self.free_ticks = 0;
                if self.is_learned() || self.queued_ticks >= self.sure {
                    self.follow(queue);
                }
                return;
            }
            self.queued_ticks = 0;
        }
        self.rate = self.losses.judge(tick, self.rate).max(self.least());
        if self.losses.trial.is_none() {
            self.grow(tick.arrived);
        }
    }

    /// Whether the arrivals filled the queue. Before a rate is learned, a longer queue and a
    /// minimum of arrivals are required.
    fn is_full(&self, queue: Nanos, arrived: f64) -> bool {
        if self.is_learned() {
            return queue > QUEUED;
        }
        let suspect = match self.carried(RECENT_LONG) < NEARLY * self.line {
            true => SUSPECT,
            false => SUSPECT_WHOLE,
        };
        queue > suspect && arrived > FAINT * self.line
    }

    /// Lets the rate grow slowly in a tick without information, because the capacity may have
    /// increased.
    pub(crate) fn creep(&mut self) {
        self.rate = (self.rate * (1.0 + CREEP)).min(self.line);
    }

    fn least(&self) -> f64 {
        self.line * 1e-3
    }

    /// The largest rate of arrivals in so many ticks. Frames that are late for one tick are counted
    /// in the next, so two ticks are averaged.
    fn carried(&self, ticks: usize) -> f64 {
        let pairs = self.recent[..ticks].windows(2);
        pairs
            .map(|pair| (pair[0] + pair[1]) / 2.0)
            .fold(0.0, f64::max)
    }

    fn follow(&mut self, queue: Nanos) {
        let arrived = self.carried(if queue > LONG { RECENT_LONG } else { RECENT });
        let far = self.rate > FAR * arrived || FAR * self.rate < arrived;
        let weight = if far { 1.0 } else { FOLLOW };
        let rate = self.rate + (arrived - self.rate) * weight;
        self.rate = rate.clamp(self.least(), self.line);
    }

    fn grow(&mut self, arrived: f64) {
        if !self.is_learned() || arrived <= 0.0 {
            return;
        }
        self.free_ticks += 1;
        let growth = match (arrived > USED * self.rate, self.free_ticks) {
            (true, 0..LATER) => GROWTH,
            (true, _) => GROWTH_LATER,
            (false, 0..UNUSED) => 0.0,
            (false, _) => GROWTH_UNUSED,
        };
        self.rate = (self.rate * (1.0 + growth)).min(self.line);
    }
}

/// Counts losses without a queue, and runs trials.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    lost: u64,
    frames: u64,
    ticks: u32,
    /// Sum of the arrival rates of the ticks counted.
    arrived: f64,
    /// The share of losses that is known to be random: it does not fall with the rate.
    chance: f64,
    trial: Option<Trial>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rate before the trial.
    rate: f64,
    /// The share of losses before the trial.
    share: f64,
    /// Whether the first span is over, which still contains frames from before the trial.
    settled: bool,
}

impl Losses {
    fn forget(&mut self) {
        let chance = self.chance;
        *self = Losses {
            chance,
            ..Losses::default()
        };
    }

    /// Returns the rate after this tick.
    fn judge(&mut self, tick: &Tick, rate: f64) -> f64 {
        self.lost += tick.lost;
        self.frames += tick.lost + tick.frames;
        self.arrived += tick.arrived;
        self.ticks += 1;
        let share = self.lost as f64 / self.frames.max(1) as f64;
        let flood = self.lost >= FLOOD_FRAMES && share > FLOOD && self.trial.is_none();
        if !flood && self.ticks < SPAN {
            return rate;
        }
        if self.frames < SPAN_FRAMES {
            // There are too few frames to decide.
            let trial = self.trial;
            self.forget();
            self.trial = trial;
            return rate;
        }
        let arrived = self.arrived / f64::from(self.ticks);
        let trial = self.trial;
        self.forget();
        match trial {
            None if share > LOSSY && share > 2.0 * self.chance => {
                self.trial = Some(Trial {
                    rate,
                    share,
                    settled: false,
                });
                rate.min(arrived * TRIAL)
            }
            None => {
                self.chance *= FORGET;
                rate
            }
            Some(trial) if !trial.settled => {
                self.trial = Some(Trial {
                    settled: true,
                    ..trial
                });
                rate
            }
            Some(trial) if share <= trial.share / 2.0 => rate,
            Some(trial) => {
                self.chance = share;
                trial.rate
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks of a link that carries `real` of a line of 1000, whose queue holds `holds` of time;
    /// senders use what they are handed out, and `chance` of the frames are lost. The share of
    /// what was carried over the last half, and the longest queue there.
    fn run(
        capacity: &mut Capacity,
        ticks: usize,
        real: f64,
        holds: Nanos,
        chance: f64,
    ) -> (f64, Nanos) {
        const TICK: Nanos = 10 * MILLISECOND;
        let (mut queue, mut carried, mut longest) = (0.0, 0.0, 0.0_f64);
        for tick in 0..ticks {
            let offered = capacity.usable() * 0.995 * TICK as f64;
            let holds = holds as f64 * real;
            let left = (queue + offered).min(real * TICK as f64);
            let over = (queue + offered - left - holds).max(0.0);
            queue = queue + offered - left - over;
            // A frame is a thousandth of what the link carries in a tick.
            let frame = real * TICK as f64 / 1000.0;
            let lost = over / frame + chance * left / frame;
            let frames = left / frame * (1.0 - chance);
            capacity.update(&Tick {
                arrived: left * (1.0 - chance) / TICK as f64,
                queue: Some((queue / real) as Nanos),
                lost: lost as u64,
                frames: frames as u64,
            });
            if tick >= ticks / 2 {
                carried += left / TICK as f64 / real / (ticks - ticks / 2) as f64;
                longest = longest.max(queue / real);
            }
        }
        (carried, longest as Nanos)
    }

    /// Frames that a sender sends at once after a pause wait at its own link. Their rate says
    /// nothing about the link: the sender has little to send yet, or the link is full.
    #[test]
    fn what_waits_after_a_pause_of_the_sender_proves_nothing() {
        let mut capacity = Capacity::new(1000.0, SURE_ALONE);
        for tick in 0..100 {
            capacity.update(&Tick {
                arrived: 10.0 * f64::from(tick),
                queue: Some(CREDIT_SHARED),
                lost: 0,
                frames: 100,
            });
            assert!(!capacity.is_learned(), "{tick}");
        }
        for tick in 0..100 {
            capacity.update(&Tick {
                arrived: 950.0,
                queue: Some(CREDIT_WHOLE),
                lost: 0,
                frames: 100,
            });
            assert!(!capacity.is_learned(), "{tick}");
        }
    }

    #[test]
    fn a_hidden_rate_is_found_by_its_queue() {
        for real in [500.0, 95.0, 10.0] {
            let mut capacity = Capacity::new(1000.0, SURE);
            let (carried, longest) = run(&mut capacity, 400, real, 10 * MILLISECOND, 0.0);
            assert!(carried > 0.99, "{real}: {carried}");
            assert!(longest < 4 * MILLISECOND, "{real}: {longest}");
            assert!((capacity.rate() / real - 1.0).abs() < 0.03, "{capacity:?}");
        }
    }

    #[test]
    fn a_hidden_rate_without_a_queue_is_found_by_losses() {
        let mut capacity = Capacity::new(1000.0, SURE);
        let (carried, _) = run(&mut capacity, 1000, 500.0, 0, 0.0);
        assert!(carried > 0.93, "{carried}");
        assert!(capacity.rate() < 700.0, "{capacity:?}");
    }

    #[test]
    fn random_losses_do_not_reduce_the_rate() {
        for chance in [0.005, 0.05] {
            let mut capacity = Capacity::new(1000.0, SURE);
            let (carried, _) = run(&mut capacity, 1000, 1000.0, 10 * MILLISECOND, chance);
            assert!(carried > 0.98, "{chance}: {carried}");
        }
    }

    #[test]
    fn a_rate_that_grows_is_made_use_of() {
        let mut capacity = Capacity::new(1000.0, SURE);
        run(&mut capacity, 200, 100.0, 10 * MILLISECOND, 0.0);
        let (carried, _) = run(&mut capacity, 400, 1000.0, 10 * MILLISECOND, 0.0);
        assert!(carried > 0.98, "{carried}, {capacity:?}");
    }
}
