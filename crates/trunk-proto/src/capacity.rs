//! Rates that a receiver cannot read off its interfaces: of slower switches in between, of other
//! traffic, of interfaces that do not know their speed. Held as an extra bound of the grants.
//!
//! A queue shows itself by the time that frames wait in it. While they do, the most that arrives is
//! what the link carries, so that the rate follows it, and is set so that a short queue stands.
//! Losses without a queue say nothing yet: a rate is cut for trial, and only losses that fall with
//! it were an overflow. Losses by chance do not.

use crate::{MILLISECOND, Nanos};

/// The queue that is left standing, as time: enough that the link is never idle.
const TARGET: Nanos = 2 * MILLISECOND;
/// A shorter one may be chance.
const QUEUED: Nanos = MILLISECOND;
/// A queue longer than the target is drained in about this time.
const DRAIN: f64 = 100.0 * MILLISECOND as f64;
/// The least part of the rate handed out meanwhile, and the most.
const DRAINING: (f64, f64) = (0.7, 1.02);
/// Less than this part of the line's rate is not what fills a queue.
const FAINT: f64 = 0.005;
/// Ticks with a queue before a rate is believed to be less than the line's: where the peers on a
/// link agree, and where only one has it.
pub(crate) const SURE: u32 = 2;
pub(crate) const SURE_ALONE: u32 = 5;
/// Weight of what arrives now in the rate that follows it, and how far that may be off.
const FOLLOW: f64 = 0.25;
const FAR: f64 = 1.5;
/// A sender may be held up for some ticks: the most that arrived in so many counts.
const RECENT: usize = 10;
/// But fewer where the queue is about to overflow.
const LONG: Nanos = 8 * MILLISECOND;
const RECENT_LONG: usize = 4;
/// Growth in each tick without a queue while the rate is made use of; after long growth.
const GROWTH: f64 = 0.005;
const GROWTH_LATER: f64 = 0.03;
const LATER: u32 = 40;
/// What is not made use of is forgotten after so many ticks without a queue, by so much in each.
const UNUSED: u32 = 100;
const GROWTH_UNUSED: f64 = 0.01;
/// In a tick of which nothing is known.
const CREEP: f64 = 0.0005;
const USED: f64 = 0.8;

/// Ticks over which losses are counted, and frames at least.
const SPAN: u32 = 10;
const SPAN_FRAMES: u64 = 50;
/// A share of losses that is worth a trial.
pub(crate) const LOSSY: f64 = 0.02;
/// One that need not be counted for long.
const FLOOD: f64 = 0.25;
const FLOOD_FRAMES: u64 = 20;
/// The rate of a trial, as part of what arrived.
const TRIAL: f64 = 0.95;
/// Losses by chance are forgotten by so much with each span.
const FORGET: f64 = 0.98;

/// What one tick showed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tick {
    /// Wire bytes a second that arrived.
    pub(crate) arrived: f64,
    /// How long frames waited; none where nothing tells.
    pub(crate) queue: Option<Nanos>,
    pub(crate) lost: u64,
    pub(crate) frames: u64,
}

impl Tick {
    pub(crate) fn is_queued(&self) -> bool {
        self.queue.is_some_and(|queue| queue > QUEUED)
    }
}

/// A rate found by trial, never above the line's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    rate: f64,
    line: f64,
    sure: u32,
    queue: Nanos,
    queued_ticks: u32,
    free_ticks: u32,
    /// What arrived in the last ticks, the newest first.
    recent: [f64; RECENT],
    losses: Losses,
}

impl Capacity {
    /// `sure`: ticks with a queue that are needed before less than the line is believed.
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

    /// What it carries.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// What is to be handed out, so that the queue comes to its target.
    pub(crate) fn usable(&self) -> f64 {
        if !self.is_learned() {
            return self.line;
        }
        let excess = self.queue as f64 - TARGET as f64;
        self.rate * (1.0 - excess / DRAIN).clamp(DRAINING.0, DRAINING.1)
    }

    /// It carries less than the line.
    pub(crate) fn is_learned(&self) -> bool {
        self.rate < self.line
    }

    /// Takes what a tick showed.
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

    /// Whether what arrived filled the queue. Before anything is learned, more of both is needed.
    fn is_full(&self, queue: Nanos, arrived: f64) -> bool {
        match self.is_learned() {
            true => queue > QUEUED,
            false => queue > TARGET && arrived > FAINT * self.line,
        }
    }

    /// A tick that says nothing about it: it may be more than was learned once.
    pub(crate) fn creep(&mut self) {
        self.rate = (self.rate * (1.0 + CREEP)).min(self.line);
    }

    fn least(&self) -> f64 {
        self.line * 1e-3
    }

    fn follow(&mut self, queue: Nanos) {
        let ticks = if queue > LONG { RECENT_LONG } else { RECENT };
        // What one tick misses, the next has too much.
        let pairs = self.recent[..ticks].windows(2);
        let arrived = pairs
            .map(|pair| (pair[0] + pair[1]) / 2.0)
            .fold(0.0, f64::max);
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

/// Losses without a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    lost: u64,
    frames: u64,
    ticks: u32,
    /// Sum of the rates.
    arrived: f64,
    /// A share known not to fall with the rate.
    chance: f64,
    trial: Option<Trial>,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rate before.
    rate: f64,
    /// The share of losses before.
    share: f64,
    /// The first span still has frames from before.
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

    /// The rate after this tick.
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
            // Too few to tell.
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
    fn losses_by_chance_cost_nothing() {
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
