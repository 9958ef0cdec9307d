//! Drives a pool in virtual time: a batch system that starts, ends and kills jobs at random times,
//! and work that comes and goes. Each failure names its seed.

use farcall_random::SplitMix64;
use farcall_schedule::pool::{Action, Member, Others, Pool, Rules, State};

const SEEDS: u64 = 60;

/// A job in the simulated batch system.
#[derive(Clone, Debug)]
struct Job {
    number: u64,
    starts_at: f64,
    ends_at: f64,
    drains: bool,
    backlog_s: f64,
}

/// A batch system, a server outside of it, and their calls.
struct World {
    random: SplitMix64,
    now: f64,
    jobs: Vec<Job>,
    outside_s: f64,
    /// Seconds of work that come each second.
    load: f64,
    limit_s: f64,
    start_s: f64,
    next: u64,
    asked: u32,
    let_go: u32,
    /// Work that was at a server when its time ended.
    cut_s: f64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: SplitMix64::new(seed),
            now: 0.0,
            jobs: Vec::new(),
            outside_s: 0.0,
            load: 0.0,
            limit_s: f64::INFINITY,
            start_s: 20.0,
            next: 1,
            asked: 0,
            let_go: 0,
            cut_s: 0.0,
        }
    }

    fn serves(&self, job: &Job) -> bool {
        self.now >= job.starts_at && !job.drains
    }

    fn is_served(&self) -> bool {
        self.jobs.iter().any(|job| self.serves(job))
    }

    fn members(&self) -> Vec<Member> {
        let member = |job: &Job| Member {
            job: job.number,
            state: match (job.drains, self.now >= job.starts_at) {
                (true, _) => State::Leaving,
                (false, true) => State::Serving,
                (false, false) => State::Asked,
            },
            backlog_s: job.backlog_s,
            calls: u32::from(job.backlog_s > 0.0),
            left_s: job.ends_at - self.now,
            limit_s: self.limit_s,
        };
        self.jobs.iter().map(member).collect()
    }

    fn act(&mut self, pool: &mut Pool, action: Action) {
        match action {
            Action::Ask => {
                pool.asked(self.next);
                let starts_at = self.now + self.random.unit() * self.start_s;
                self.jobs.push(Job {
                    number: self.next,
                    starts_at,
                    ends_at: starts_at + self.limit_s,
                    drains: false,
                    backlog_s: 0.0,
                });
                self.next += 1;
                self.asked += 1;
            }
            Action::Drain(number) => {
                self.let_go += 1;
                let job = self.jobs.iter_mut().find(|job| job.number == number);
                job.expect("a job").drains = true;
            }
            Action::Cancel(number) => {
                self.let_go += 1;
                self.jobs.retain(|job| job.number != number);
            }
        }
    }

    /// One second: work comes to the server with the shortest backlog, the pool decides, and each
    /// server works.
    fn step(&mut self, pool: &mut Pool) -> Vec<Action> {
        self.now += 1.0;
        let now = self.now;
        let ended = self.jobs.iter().filter(|job| now >= job.ends_at);
        self.cut_s += ended.map(|job| job.backlog_s).sum::<f64>();
        self.jobs.retain(|job| now < job.ends_at);
        self.distribute();
        let others = Others {
            servers: 1,
            backlog_s: self.outside_s,
        };
        let actions = pool.decide(now, others, &self.members());
        actions.iter().for_each(|action| self.act(pool, *action));
        self.outside_s = (self.outside_s - 1.0).max(0.0);
        for job in &mut self.jobs {
            job.backlog_s = (job.backlog_s - 1.0).max(0.0);
        }
        self.jobs.retain(|job| !job.drains || job.backlog_s > 0.0);
        actions
    }

    fn distribute(&mut self) {
        let mut work = self.load;
        while work > 0.0 {
            let part = work.min(0.5);
            work -= part;
            let serving: Vec<usize> = (0..self.jobs.len())
                .filter(|at| self.serves(&self.jobs[*at]))
                .collect();
            let least = serving
                .into_iter()
                .min_by(|one, other| {
                    self.jobs[*one]
                        .backlog_s
                        .total_cmp(&self.jobs[*other].backlog_s)
                })
                .filter(|at| self.jobs[*at].backlog_s <= self.outside_s);
            match least {
                Some(at) => self.jobs[at].backlog_s += part,
                None => self.outside_s += part,
            }
        }
    }
}

fn rules(seed: u64) -> Rules {
    Rules {
        fewest: (seed % 3) as usize,
        most: 3 + (seed % 9) as usize,
        ..Rules::default()
    }
}

#[test]
fn the_bounds_hold_whatever_the_batch_system_does() {
    for seed in 0..SEEDS {
        let (rules, mut world) = (rules(seed), World::new(seed));
        let mut pool = Pool::new(rules.clone());
        if seed % 2 == 1 {
            world.limit_s = 200.0 + world.random.unit() * 400.0;
        }
        for _ in 0..2_000 {
            if world.random.chance(0.02) {
                world.load = world.random.unit() * 20.0;
            }
            if world.random.chance(0.02) && !world.jobs.is_empty() {
                let at = world.random.below(world.jobs.len() as u64) as usize;
                world.jobs.remove(at);
            }
            let before = world.members();
            let actions = world.step(&mut pool);
            assert!(
                world.jobs.len() <= rules.most,
                "seed {seed}: {:?}",
                world.jobs
            );
            for action in actions {
                let Action::Drain(job) = action else { continue };
                let known = before.iter().find(|one| one.job == job);
                // What has come in this second counts, too.
                let ends = known.is_some_and(|one| one.left_s < 61.0 + one.backlog_s + world.load);
                if ends {
                    continue;
                }
                let idle = known;
                assert!(
                    idle.is_none_or(|one| one.calls == 0),
                    "seed {seed}: {job} has calls"
                );
            }
        }
    }
}

#[test]
fn a_lasting_load_gets_its_servers_and_keeps_them() {
    for seed in 0..SEEDS {
        let (rules, mut world) = (rules(seed), World::new(seed));
        let mut pool = Pool::new(rules.clone());
        // What three servers and the one outside can just do.
        world.load = 4.0_f64.min(rules.most as f64 + 1.0);
        for _ in 0..600 {
            world.step(&mut pool);
        }
        let (asked, let_go) = (world.asked, world.let_go);
        for _ in 0..600 {
            world.step(&mut pool);
        }
        assert!(world.jobs.len() >= 3, "seed {seed}: {:?}", world.jobs);
        assert!(
            world.asked - asked <= 1 && world.let_go - let_go <= 1,
            "seed {seed}: {} asked and {} let go under the same load",
            world.asked - asked,
            world.let_go - let_go
        );
    }
}

#[test]
fn a_short_burst_asks_for_nothing() {
    let (mut pool, mut world) = (Pool::new(Rules::default()), World::new(1));
    world.outside_s = 33.0;
    for _ in 0..100 {
        world.step(&mut pool);
    }
    assert_eq!(world.asked, 0);
    world.outside_s = 100.0;
    for _ in 0..6 {
        world.step(&mut pool);
    }
    assert_eq!(world.asked, 3, "the need lasts");
}

#[test]
fn an_unused_pool_returns_to_the_fewest() {
    for seed in 0..SEEDS {
        let (rules, mut world) = (rules(seed), World::new(seed));
        let mut pool = Pool::new(rules.clone());
        world.load = 20.0;
        for _ in 0..100 {
            world.step(&mut pool);
        }
        assert!(world.jobs.len() > rules.fewest, "seed {seed}");
        world.load = 0.0;
        world.outside_s = 0.0;
        let longest = world
            .jobs
            .iter()
            .map(|job| job.backlog_s)
            .fold(0.0, f64::max);
        for _ in 0..(longest as u64 + 300) {
            world.step(&mut pool);
        }
        assert_eq!(world.jobs.len(), rules.fewest, "seed {seed}");
    }
}

#[test]
fn servers_drain_before_their_time_ends_and_others_come() {
    for seed in 0..SEEDS {
        let rules = Rules {
            fewest: 2,
            most: 8,
            ..Rules::default()
        };
        let (mut pool, mut world) = (Pool::new(rules), World::new(seed));
        world.limit_s = 400.0 + world.random.unit() * 400.0;
        let mut alone = 0;
        for second in 0..4_000 {
            // What comes in one second is up to 50 s of work for a server.
            world.load = if second % 97 == 0 { 100.0 } else { 1.5 };
            world.step(&mut pool);
            alone += u32::from(!world.is_served());
        }
        assert_eq!(world.cut_s, 0.0, "seed {seed}: calls were cut off");
        assert!(alone < 40, "seed {seed}: no server for {alone} s");
    }
}

#[test]
fn a_time_limit_below_two_leads_needs_one_successor_at_a_time() {
    for seed in 0..SEEDS {
        let rules = Rules {
            fewest: 1,
            most: 8,
            ..Rules::default()
        };
        let (mut pool, mut world) = (Pool::new(rules), World::new(seed));
        (world.limit_s, world.start_s) = (90.0 + world.random.unit() * 30.0, 10.0);
        let mut alone = 0;
        for _ in 0..2_000 {
            world.step(&mut pool);
            assert!(world.jobs.len() <= 2, "seed {seed}: {:?}", world.jobs);
            alone += u32::from(!world.is_served());
        }
        // Only the first one is waited for.
        assert!(alone <= 10, "seed {seed}: no server for {alone} s");
    }
}

#[test]
fn jobs_that_end_at_once_are_asked_for_more_and_more_seldom() {
    let rules = Rules {
        fewest: 5,
        ..Rules::default()
    };
    let (mut pool, mut world) = (Pool::new(rules), World::new(3));
    for _ in 0..3_600 {
        world.step(&mut pool);
        world.jobs.clear();
    }
    assert!(
        (8..=25).contains(&world.asked),
        "{} asked in an hour",
        world.asked
    );
    assert!(pool.paused_until().is_some());
    // When one serves, the pool goes on as before.
    for _ in 0..700 {
        world.step(&mut pool);
    }
    assert_eq!(world.jobs.len(), 5);
    assert!(pool.paused_until().is_none());
}

#[test]
fn a_successor_stays_while_the_server_before_works() {
    let member = |job, state, calls, left_s| Member {
        job,
        state,
        backlog_s: 0.0,
        calls,
        left_s,
        limit_s: 300.0,
    };
    let rules = Rules {
        fewest: 1,
        most: 4,
        ..Rules::default()
    };
    for state in [State::Asked, State::Serving] {
        let ends_soon = rules.lead_s + 10.0;
        let mut pool = Pool::new(rules.clone());
        let mut members = [
            member(1, State::Serving, 1, ends_soon),
            member(2, state, 0, 300.0),
        ];
        for second in 0..1_000 {
            let actions = pool.decide(f64::from(second), Others::default(), &members);
            assert_eq!(actions, [], "{state:?} at {second} s");
        }
        // The one whose time ends soon may go when it is unused.
        members[0].calls = 0;
        let mut actions = (1_000..2_000)
            .map(|second| pool.decide(f64::from(second), Others::default(), &members));
        let first = actions.find(|actions| !actions.is_empty());
        assert_eq!(first, Some(vec![Action::Drain(1)]));
    }
}
