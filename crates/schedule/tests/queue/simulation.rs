//! A machine and its users in virtual time, for the tests of the queue. It keeps processor elements
//! by number and panics if one is given away twice.

use farcall_random::SplitMix64;
use farcall_schedule::queue::{Nanos, Queue, Request, Start};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The jobs that users submit.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub seed: u64,
    pub pes: u32,
    pub jobs: usize,
    pub users: u64,
    /// The arriving work, relative to the capacity of the machine.
    pub pressure: f64,
    /// Jobs want different numbers of processor elements.
    pub widths: bool,
    /// Jobs can run on fewer processor elements than they want.
    pub moldable: bool,
    pub priorities: bool,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub request: Request,
    pub pes: u32,
    pub came: f64,
    pub started: f64,
    pub ended: f64,
    /// In the order of the starts, from 0.
    pub start: u64,
}

pub struct Run {
    pub ended: Vec<Ended>,
    pub most_running: usize,
    /// When the last job arrived.
    pub last_came: f64,
}

fn exponential(random: &mut SplitMix64, mean: f64) -> f64 {
    -mean * (1.0 - random.unit()).ln()
}

fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// Jobs with their times of arrival. Run times are spread over two orders of magnitude.
fn jobs(load: &Load) -> VecDeque<(f64, Request)> {
    let mut random = SplitMix64::new(load.seed);
    let mut now = 0.0;
    let mut jobs = VecDeque::new();
    for id in 0..load.jobs as u64 {
        let width = match load.widths {
            true => 1 + (f64::from(load.pes) * random.unit().powi(2)) as u32,
            false => 1,
        };
        let seconds = 0.1 * (100f64.ln() * random.unit()).exp();
        let (mean_width, mean_seconds) = match load.widths {
            true => (1.0 + f64::from(load.pes) / 3.0, 2.15),
            false => (1.0, 2.15),
        };
        let work = mean_width * mean_seconds / f64::from(load.pes);
        now += exponential(&mut random, work / load.pressure);
        let request = Request {
            id,
            user: random.below(load.users),
            fewest: if load.moldable { 1 } else { width },
            most: width,
            gpus: 0,
            seconds: Some(seconds),
            priority: if load.priorities {
                random.below(3) as i32
            } else {
                0
            },
            reservation: None,
        };
        jobs.push_back((now, request));
    }
    jobs
}

/// The processor elements by number, and the job that has each.
struct Machine {
    free: BTreeSet<u32>,
    held: BTreeMap<u64, Vec<u32>>,
}

impl Machine {
    fn take(&mut self, start: &Start) {
        let taken: Vec<u32> = self.free.iter().copied().take(start.pes as usize).collect();
        assert_eq!(
            taken.len(),
            start.pes as usize,
            "more processor elements than there are"
        );
        assert!(start.pes > 0, "a job without processor elements");
        for element in &taken {
            self.free.remove(element);
        }
        assert!(self.held.insert(start.id, taken).is_none(), "started twice");
    }

    fn give_back(&mut self, id: u64) {
        self.free.extend(self.held.remove(&id).expect("it runs"));
    }
}

/// Runs a load until every job has ended.
pub fn run(load: &Load, mut queue: Queue) -> Run {
    let mut coming = jobs(load);
    let last_came = coming.back().map_or(0.0, |(time, _)| *time);
    let mut known: BTreeMap<u64, (f64, Request)> = BTreeMap::new();
    let mut machine = Machine {
        free: (0..load.pes).collect(),
        held: BTreeMap::new(),
    };
    // By time of the end in nanoseconds.
    let mut ends: BTreeSet<(Nanos, u64)> = BTreeSet::new();
    let mut running: BTreeMap<u64, Ended> = BTreeMap::new();
    let (mut ended, mut most_running, mut starts) = (Vec::new(), 0, 0);
    loop {
        let next_end = ends.first().map(|(end, _)| *end);
        let next_arrival = coming.front().map(|(time, _)| nanos(*time));
        let (now, first) = match (next_end, next_arrival) {
            (Some(end), arrival) if arrival.is_none_or(|arrival| end <= arrival) => {
                let (_, id) = ends.pop_first().expect("looked at");
                machine.give_back(id);
                queue.remove(id, end);
                ended.push(running.remove(&id).expect("it runs"));
                (end, None)
            }
            (_, Some(arrival)) => {
                let (time, request) = coming.pop_front().expect("looked at");
                known.insert(request.id, (time, request));
                (arrival, queue.push(request, arrival))
            }
            _ => break,
        };
        let mut start = first.or_else(|| queue.next(now));
        while let Some(decision) = start {
            machine.take(&decision);
            let (came, request) = known[&decision.id];
            let started = now as f64 * 1e-9;
            let seconds = request.seconds.expect("known");
            let speed = f64::from(decision.pes) / f64::from(request.most.max(request.fewest));
            let end = started + seconds / speed.min(1.0);
            ends.insert((nanos(end), decision.id));
            let job = Ended {
                request,
                pes: decision.pes,
                came,
                started,
                ended: end,
                start: starts,
            };
            starts += 1;
            running.insert(decision.id, job);
            most_running = most_running.max(running.len());
            start = queue.next(now);
        }
        assert_eq!(queue.free() as usize, machine.free.len());
    }
    assert!(queue.is_empty() && queue.running().len() == 0);
    Run {
        ended,
        most_running,
        last_came,
    }
}

impl Run {
    pub fn mean_response(&self) -> f64 {
        let responses = self.ended.iter().map(|job| job.ended - job.came);
        responses.sum::<f64>() / self.ended.len() as f64
    }

    /// The share of the processor elements that compute while jobs still arrive.
    pub fn utilisation(&self, pes: u32) -> f64 {
        let window = self.last_came;
        let busy = self.ended.iter().map(|job| {
            let seconds = (job.ended.min(window) - job.started.min(window)).max(0.0);
            seconds * f64::from(job.pes)
        });
        busy.sum::<f64>() / (window * f64::from(pes))
    }

    pub fn longest_run(&self) -> f64 {
        let runs = self.ended.iter().map(|job| job.ended - job.started);
        runs.fold(0.0, f64::max)
    }

    /// The longest time for which a job was the oldest waiting job.
    pub fn worst_oldest_wait(&self) -> f64 {
        let mut by_arrival = self.ended.clone();
        by_arrival.sort_by_key(|job| job.request.id);
        let (mut worst, mut since) = (0.0f64, 0.0f64);
        for job in &by_arrival {
            // It is the oldest after all earlier jobs have started.
            worst = worst.max(job.started - since.max(job.came));
            since = since.max(job.started);
        }
        worst
    }

    /// The largest number of jobs that started while the same job was the oldest.
    pub fn most_passes(&self) -> u64 {
        let mut by_arrival = self.ended.clone();
        by_arrival.sort_by_key(|job| job.request.id);
        let mut oldest_since = 0;
        let mut most = 0;
        for job in &by_arrival {
            let came = self
                .ended
                .iter()
                .filter(|other| other.started < job.came)
                .count() as u64;
            let since = oldest_since.max(came);
            most = most.max(job.start.saturating_sub(since));
            oldest_since = oldest_since.max(job.start + 1);
        }
        most
    }
}

/// Users who always have waiting jobs of these lengths. Returns how long each has computed in the
/// end.
pub fn saturate(queue: &mut Queue, lengths: &[f64], until: f64, seed: u64) -> Vec<f64> {
    let mut random = SplitMix64::new(seed);
    let mut used = vec![0.0; lengths.len()];
    let mut ends: BTreeSet<(Nanos, u64)> = BTreeSet::new();
    let mut jobs: BTreeMap<u64, (usize, f64, u32)> = BTreeMap::new();
    let (mut now, mut id) = (0, 0);
    let mut wanted: Vec<usize> = (0..lengths.len()).flat_map(|user| [user; 5]).collect();
    loop {
        let mut starts = Vec::new();
        for user in wanted.drain(..) {
            let seconds = lengths[user] * (0.5 + random.unit());
            let request = Request {
                id,
                user: user as u64,
                fewest: 1,
                most: 1,
                gpus: 0,
                seconds: (user % 2 == 0).then_some(seconds),
                priority: 0,
                reservation: None,
            };
            jobs.insert(id, (user, seconds, 0));
            starts.extend(queue.push(request, now));
            id += 1;
        }
        while let Some(start) = queue.next(now) {
            starts.push(start);
        }
        for start in starts {
            let job = jobs.get_mut(&start.id).expect("known");
            job.2 = start.pes;
            ends.insert((now + nanos(job.1), start.id));
        }
        let (end, ended) = ends.pop_first().expect("some job runs");
        if end as f64 * 1e-9 > until {
            return used;
        }
        now = end;
        queue.remove(ended, now);
        let (user, seconds, pes) = jobs[&ended];
        used[user] += seconds * f64::from(pes);
        wanted.push(user);
    }
}
