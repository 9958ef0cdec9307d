//! Tests the rule by which processes come to rest, in virtual time: processes of random programs,
//! whose steps send and receive, are looked at now and then. Programs whose steps of the same
//! number belong together always come to rest, and nobody does more steps than the rule allows.

use farcall_gang_proto::rest::{Next, Phase, Standing, next};
use farcall_gang_proto::{Process, Waits};
use farcall_random::SplitMix64;
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, Debug)]
enum Act {
    Send(usize),
    Receive(usize),
}

/// What a step sends, with the step that receives it, and from whom it receives.
type Planned = (Vec<(usize, usize)>, Vec<usize>);

/// A process: its steps, where it is in them, and whether it may begin the next one.
struct Rank {
    steps: Vec<Vec<Act>>,
    done: usize,
    act: usize,
    phase: Phase,
    waits: Option<usize>,
    /// What it has received: who has sent it, and its number.
    received: Vec<(usize, u64)>,
}

struct World {
    random: SplitMix64,
    ranks: Vec<Rank>,
    /// Messages on their way, by sender and receiver: their numbers.
    queues: BTreeMap<(usize, usize), VecDeque<u64>>,
    sent: BTreeMap<(usize, usize), u64>,
    is_asked: bool,
}

impl World {
    /// Programs in which a message is received at most `late` steps after it was sent, and never in
    /// an earlier step.
    fn new(seed: u64, late: u64) -> World {
        let mut random = SplitMix64::new(seed);
        let size = 2 + random.below(6) as usize;
        let count = 20 + random.below(20) as usize;
        let mut programs = vec![vec![(Vec::new(), Vec::new()); count]; size];
        for _ in 0..random.below(200) {
            let from = random.below(size as u64) as usize;
            let to = (from + 1 + random.below(size as u64 - 1) as usize) % size;
            let step = random.below(count as u64) as usize;
            let then = step + random.below(late + 1) as usize;
            if then < count {
                programs[from][step].0.push((to, then));
                programs[to][then].1.push(from);
            }
        }
        let step = |(sends, receives): Planned| {
            // All is sent before something is received: within a step nobody waits in a circle.
            let sends = sends.into_iter().map(|(to, _)| Act::Send(to));
            sends
                .chain(receives.into_iter().map(Act::Receive))
                .collect()
        };
        let rank = |steps: Vec<Planned>| Rank {
            steps: steps.into_iter().map(step).collect(),
            done: 0,
            act: 0,
            phase: Phase::InStep,
            waits: None,
            received: Vec::new(),
        };
        World {
            random,
            ranks: programs.into_iter().map(rank).collect(),
            queues: BTreeMap::new(),
            sent: BTreeMap::new(),
            is_asked: false,
        }
    }

    /// Lets one process do something, if it can.
    fn act(&mut self, index: usize) {
        let rank = &mut self.ranks[index];
        if rank.phase != Phase::InStep {
            return;
        }
        let Some(step) = rank.steps.get(rank.done) else {
            return;
        };
        match step.get(rank.act).copied() {
            Some(Act::Send(to)) => {
                let number = self.sent.entry((index, to)).or_default();
                *number += 1;
                let queue = self.queues.entry((index, to)).or_default();
                queue.push_back(*number);
                rank.act += 1;
            }
            Some(Act::Receive(from)) => {
                let queue = self.queues.entry((from, index)).or_default();
                let Some(number) = queue.pop_front() else {
                    rank.waits = Some(from);
                    return;
                };
                rank.waits = None;
                rank.received.push((from, number));
                rank.act += 1;
            }
            None => {
                rank.done += 1;
                rank.act = 0;
                if self.is_asked {
                    rank.phase = Phase::Resting;
                }
            }
        }
    }

    fn run(&mut self, acts: u64) {
        for _ in 0..self.random.below(acts) {
            let index = self.random.below(self.ranks.len() as u64) as usize;
            self.act(index);
        }
    }

    fn standings(&self) -> Vec<Standing> {
        let pending = |index: usize| {
            let full = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
            let mine = full.filter(|((_, to), _)| *to == index);
            mine.map(|((from, _), _)| *from as u16).collect()
        };
        let ranks = self.ranks.iter().enumerate();
        let standing = |(index, rank): (usize, &Rank)| Standing {
            phase: rank.phase,
            steps: rank.done as u64,
            process: Process {
                waits: rank
                    .waits
                    .map_or(Waits::No, |from| Waits::From(from as u16)),
                pending: pending(index),
                room: Vec::new(),
            },
        };
        ranks.map(standing).collect()
    }

    /// The number of steps that no process may exceed: that of the furthest step that one is in.
    fn limit(&self) -> usize {
        self.ranks
            .iter()
            .map(|rank| rank.done + 1)
            .max()
            .unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.done == rank.steps.len())
    }
}

/// Asks at a random moment, and looks until all rest. Returns the looks.
fn catch(world: &mut World, seed: u64) -> usize {
    world.run(400);
    world.is_asked = true;
    let limit = world.limit();
    for looks in 1..10_000 {
        // One that has done all its steps rests, as in the real barrier at the end.
        for rank in world
            .ranks
            .iter_mut()
            .filter(|rank| rank.done == rank.steps.len())
        {
            rank.phase = Phase::Resting;
        }
        match next(&world.standings()) {
            Next::Save => {
                let most = world.ranks.iter().map(|rank| rank.done).max();
                assert!(
                    most <= Some(limit),
                    "seed {seed}: {most:?} of {limit} steps"
                );
                return looks;
            }
            Next::Step(ranks) => {
                for rank in ranks {
                    world.ranks[usize::from(rank)].phase = Phase::InStep;
                }
            }
            Next::Wait => {}
            other => panic!("seed {seed}: {other:?}"),
        }
        world.run(60);
    }
    panic!("seed {seed}: they never rest");
}

#[test]
fn programs_of_steps_that_belong_together_always_come_to_rest() {
    for seed in 0..2000 {
        let late = seed % 5;
        let mut world = World::new(seed, late);
        let mut total = 0;
        for _ in 0..4 {
            total += catch(&mut world, seed);
            world.is_asked = false;
            for rank in &mut world.ranks {
                rank.phase = Phase::InStep;
            }
        }
        assert!(total >= 4);
        let mut acts = 0;
        while !world.is_over() {
            world.run(400);
            acts += 1;
            assert!(acts < 100_000, "seed {seed}: they do not end");
        }
        // Each message has arrived once and in order.
        let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (to, rank) in world.ranks.iter().enumerate() {
            for (from, number) in &rank.received {
                let count = counts.entry((*from, to)).or_default();
                *count += 1;
                assert_eq!(number, count, "seed {seed}");
            }
        }
    }
}

/// A master that does three steps for each step of its worker: not of the form for which the rule
/// promises an end, and it comes to rest all the same.
#[test]
fn a_master_and_its_slow_worker_come_to_rest() {
    for seed in 0..200 {
        let mut world = World::new(seed, 0);
        world.ranks.truncate(2);
        world.ranks[0].steps = vec![vec![Act::Send(1)]; 90];
        world.ranks[1].steps = vec![vec![Act::Receive(0); 3]; 30];
        world.run(100);
        world.is_asked = true;
        let mut looks = 0;
        while next(&world.standings()) != Next::Save {
            looks += 1;
            assert!(looks < 1000, "seed {seed}");
            if let Next::Step(ranks) = next(&world.standings()) {
                assert_eq!(ranks, [0], "only the master is awaited");
                world.ranks[0].phase = Phase::InStep;
            }
            world.run(20);
        }
    }
}
