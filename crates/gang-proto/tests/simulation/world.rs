//! The simulated daemons, the network between them, their processes and their front ends. After
//! each event it checks that at most one gang job runs on a processor. At the end it checks that
//! each gang job that ended well has done all its work.

mod fronts;
mod moves;

use farcall_gang_proto::rest::Phase;
use farcall_gang_proto::{
    Action, Ended, Form, JobId, JobSpec, Lengths, Message, Nanos, Order, Place, Placement, Report,
    Rest, Root, Round, Settings, Step, Switch,
};
use farcall_random::SplitMix64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
/// Front ends and faults act only in this period.
const BUSY: Nanos = 60 * SECOND;
/// All gang jobs must have ended by this time.
const LIMIT: Nanos = 4 * 3600 * SECOND;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub nodes: usize,
    pub jobs: usize,
    /// Number of daemons that are lost or fall silent.
    pub losses: usize,
    /// Share of messages and steps that take seconds.
    pub slow: f64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            nodes: 7,
            jobs: 30,
            losses: 0,
            slow: 0.0,
        }
    }
}

/// A process on its node.
struct Process {
    rank: u16,
    slot: (usize, u16),
    /// Remaining work, as time; none if it waits for a message forever.
    left: Option<Nanos>,
    /// Since when it runs, if it does.
    since: Option<Nanos>,
    has_ended: bool,
    /// Where it stands for a checkpoint; it does not work while it rests.
    phase: Phase,
}

/// A gang job on one node.
struct Local {
    processes: Vec<Process>,
    is_running: bool,
}

struct Daemon {
    switch: Switch,
    parent: Option<usize>,
    /// The daemons that are linked to it.
    children: Vec<u64>,
    /// When it gives up those that have not answered.
    gives_up: Nanos,
    /// The number that the root assigned.
    number: Option<u16>,
    is_alive: bool,
    jobs: BTreeMap<JobId, Local>,
}

/// What the front ends know about a gang job.
#[derive(Debug, Default)]
struct KnownJob {
    front: u64,
    user: u32,
    ended: Option<Ended>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message arrives at a daemon from above, or from a child.
    Down(usize, u64),
    Up(usize, usize, u64),
    /// A daemon has done its part of a step.
    Done(usize, Step2, u64),
    /// A process may have finished its work.
    Finish(usize, JobId, u16),
    Tick,
    /// A daemon may have waited long enough for an answer.
    GiveUp(usize),
    Join(usize),
    Lose(usize),
    /// The parent notices that a daemon is gone.
    Notice(usize),
    /// A front end does something.
    Front,
}

/// A step, in an order.
type Step2 = u8;

pub struct World {
    faults: Faults,
    random: SplitMix64,
    now: Nanos,
    tie: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    messages: BTreeMap<u64, Message>,
    /// When the last message of each link arrives; messages of a link keep their order.
    links: BTreeMap<(usize, usize), Nanos>,
    daemons: Vec<Daemon>,
    root: Root,
    /// Jobs by their numbers, from 1.
    told: BTreeMap<JobId, KnownJob>,
    started: JobId,
    last_front: u64,
    switched_at: Nanos,
    next_tick: Nanos,
    /// Work that each process has to do, by job and rank.
    work: BTreeMap<(JobId, u16), Option<Nanos>>,
    done: BTreeMap<(JobId, u16), Nanos>,
    killed: BTreeSet<JobId>,
    looked: BTreeMap<u64, JobId>,
    /// The moves that front ends perform, and how many have succeeded.
    moves: BTreeMap<u64, moves::Move>,
    moved: usize,
}

impl World {
    pub fn new(seed: u64, faults: Faults) -> World {
        let mut random = SplitMix64::new(seed);
        let form = [Form::Seven, Form::Two][random.below(2) as usize];
        let fan = 1 + random.below(3) as usize;
        let settings = Settings {
            memory: 64,
            epoch: 1,
            slice: 100 * MS,
            watch: 500 * MS,
            switch_alone: random.below(4) == 0,
            receive: 1 << 16,
            share: 25,
        };
        let daemon = |index: usize| Daemon {
            switch: Switch::new(form, false, index == 0),
            parent: (index > 0).then(|| (index - 1) / fan),
            children: Vec::new(),
            gives_up: 0,
            number: None,
            is_alive: true,
            jobs: BTreeMap::new(),
        };
        let mut world = World {
            faults,
            random,
            now: 0,
            tie: 0,
            events: BinaryHeap::new(),
            messages: BTreeMap::new(),
            links: BTreeMap::new(),
            daemons: (0..faults.nodes).map(daemon).collect(),
            root: Root::new(settings, 0),
            told: BTreeMap::new(),
            started: 0,
            last_front: 0,
            switched_at: 0,
            next_tick: 0,
            work: BTreeMap::new(),
            done: BTreeMap::new(),
            killed: BTreeSet::new(),
            looked: BTreeMap::new(),
            moves: BTreeMap::new(),
            moved: 0,
        };
        world.join(0);
        for index in 1..faults.nodes {
            let at = match world.random.below(3) {
                0 => world.random.below(BUSY / 2),
                _ => index as u64,
            };
            world.at(at, Event::Join(index));
        }
        for _ in 0..faults.losses.min(faults.nodes - 1) {
            let at = world.random.below(BUSY);
            let index = 1 + world.below(faults.nodes - 1);
            world.at(at, Event::Lose(index));
        }
        for _ in 0..faults.jobs * 3 {
            let at = world.random.below(BUSY);
            world.at(at, Event::Front);
        }
        // After this time all stopped gang jobs continue.
        world.at(BUSY + 1, Event::Front);
        world
    }

    fn below(&mut self, most: usize) -> usize {
        self.random.below(most as u64) as usize
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.tie += 1;
        self.events.push(Reverse((time, self.tie, event)));
    }

    fn delay(&mut self) -> Nanos {
        match self.random.chance(self.faults.slow) {
            true => self.random.below(5 * SECOND),
            false => 10_000 + self.random.below(MS),
        }
    }

    /// Runs until nothing happens any more. Returns the number of gang jobs that were moved.
    pub fn run(mut self) -> usize {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            assert!(time < LIMIT, "jobs do not end: {:?}", self.root.rows(0));
            self.now = time;
            self.step(event);
            self.drive_root();
            self.check();
            if self.now > BUSY && self.events.is_empty() || self.is_over() {
                break;
            }
        }
        assert!(self.root.is_idle(), "{:?}", self.root.rows(0));
        for (id, told) in &self.told {
            let ended = told.ended.as_ref();
            let is_told = ended.is_some() || told.front == u64::MAX;
            assert!(is_told, "job {id}: its front end was told nothing");
            if ended.is_some_and(|ended| ended.status == 0) && !self.killed.contains(id) {
                self.check_work(*id);
            }
        }
        let open: Vec<_> = self.looked.values().collect();
        assert!(open.is_empty(), "nobody answers about {open:?}");
        let open: Vec<_> = self.moves.values().map(|one| one.job).collect();
        assert!(
            open.is_empty(),
            "nobody tells how the moves of {open:?} ended"
        );
        self.moved
    }

    fn is_over(&self) -> bool {
        let is_told = self.looked.is_empty() && self.moves.is_empty();
        self.now > 2 * BUSY && self.root.is_idle() && is_told
    }

    /// Checks that a gang job that ended well has finished all its work.
    fn check_work(&self, id: JobId) {
        for ((job, rank), work) in self.work.range((id, 0)..=(id, u16::MAX)) {
            if let Some(work) = work {
                assert_eq!(self.done.get(&(*job, *rank)), Some(work), "{job} {rank}");
            }
        }
    }

    /// Checks that at most one gang job runs on a processor.
    fn check(&self) {
        let mut runs = BTreeMap::new();
        for daemon in &self.daemons {
            for (id, job) in &daemon.jobs {
                for process in job.processes.iter().filter(|one| one.since.is_some()) {
                    let other = *runs.entry(process.slot).or_insert(*id);
                    assert_eq!(other, *id, "two jobs run at {:?}", process.slot);
                }
            }
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Down(to, message) => self.handle_down(to, message),
            Event::Up(to, from, message) => self.handle_up(to, from, message),
            Event::Done(index, step, round) => {
                let daemon = &mut self.daemons[index];
                let step = [Step::Freeze, Step::Save, Step::Restore, Step::Run][usize::from(step)];
                if daemon.is_alive && daemon.switch.round().number == round {
                    let actions = daemon.switch.handle_done(step, &[]);
                    self.act(index, actions);
                }
            }
            Event::Finish(index, job, rank) => self.finish(index, job, rank),
            Event::Tick => {}
            Event::GiveUp(index) => {
                let daemon = &mut self.daemons[index];
                let is_due = daemon.switch.step().is_some() && daemon.gives_up == self.now;
                if daemon.is_alive && is_due {
                    let actions = daemon.switch.handle_timeout();
                    self.act(index, actions);
                }
            }
            Event::Join(index) => self.join(index),
            Event::Lose(index) => self.lose(index),
            Event::Notice(index) => self.notice(index),
            Event::Front => self.act_as_front(),
        }
    }

    /// What the root's daemon does after each event.
    fn drive_root(&mut self) {
        self.settle();
        self.root.handle_timeout(self.now);
        self.settle();
        if let Some(turn) = self.root.poll_switch(self.now) {
            self.switched_at = self.now;
            let actions = self.daemons[0].switch.start(turn);
            self.act(0, actions);
            self.settle();
        }
        if let Some(due) = self.root.next_deadline()
            && due != self.next_tick
        {
            self.next_tick = due;
            self.at(due.max(self.now), Event::Tick);
        }
    }

    fn settle(&mut self) {
        while let Some(order) = self.root.poll_order() {
            match order {
                Order::Nodes(message) => self.broadcast(0, message),
                Order::Node(node, message) => self.pass(0, node, message),
                Order::Front(front, message) => self.tell(front, message),
            }
        }
    }

    fn broadcast(&mut self, index: usize, message: Message) {
        for child in self.daemons[index].children.clone() {
            self.send_down(index, child as usize, message.clone());
        }
        self.do_here(index, message);
    }

    fn keep(&mut self, message: Message) -> u64 {
        self.tie += 1;
        self.messages.insert(self.tie, message);
        self.tie
    }

    /// When a message that is sent now arrives.
    fn arrival(&mut self, from: usize, to: usize) -> Nanos {
        let time = self.now + self.delay();
        let last = self.links.entry((from, to)).or_default();
        *last = time.max(*last);
        *last
    }

    fn send_down(&mut self, from: usize, to: usize, message: Message) {
        let (time, message) = (self.arrival(from, to), self.keep(message));
        self.at(time, Event::Down(to, message));
    }

    /// Handles a message up the tree when it reaches the root.
    fn report(&mut self, index: usize, message: Message) {
        if let Some(parent) = self.daemons[index].parent {
            let (time, message) = (self.arrival(index, parent), self.keep(message));
            return self.at(time, Event::Up(parent, index, message));
        }
        match message {
            Message::ProcessEnded(job, rank, ended) => {
                self.root.handle_process_ended(job, rank, ended);
            }
            Message::Inspected(job, node, report) => self.root.handle_inspected(job, node, report),
            Message::Lost(node, why) => self.root.handle_lost(node, &why.expect("a reason")),
            Message::Back(nodes) => self.root.handle_back(&nodes),
            Message::Fetched(job, piece) => self.root.handle_fetched(job, piece),
            Message::Filled(job, rank, offset, lengths) => {
                self.root.handle_filled(job, rank, offset, lengths);
            }
            other => panic!("{other:?} at the root"),
        }
    }

    fn handle_down(&mut self, to: usize, message: u64) {
        let message = self.messages.remove(&message).expect("it is kept");
        if !self.daemons[to].is_alive {
            return;
        }
        match message {
            Message::Down(round, step) => {
                let daemon = &mut self.daemons[to];
                let actions = daemon.switch.handle_down(round, step);
                self.act(to, actions);
            }
            Message::Fetch(node, ..) | Message::Fill(node, ..) => self.pass(to, node, message),
            other => self.broadcast(to, other),
        }
    }

    fn handle_up(&mut self, to: usize, from: usize, message: u64) {
        let message = self.messages.remove(&message).expect("it is kept");
        let daemon = &mut self.daemons[to];
        if !daemon.is_alive || !daemon.children.contains(&(from as u64)) {
            return;
        }
        match message {
            Message::Up(number, step, behind) => {
                let switch = &mut daemon.switch;
                let actions = switch.handle_up(from as u64, number, step, behind);
                self.act(to, actions);
            }
            Message::Back(nodes) => {
                let actions = daemon.switch.handle_back(nodes);
                self.act(to, actions);
            }
            other => self.report(to, other),
        }
    }

    fn act(&mut self, index: usize, actions: Vec<Action>) {
        for action in actions {
            let round = self.daemons[index].switch.round().clone();
            match action {
                Action::Down(step, children) => {
                    let order = self.daemons[index].switch.order();
                    for child in children {
                        let message = Message::Down(order.clone(), step);
                        self.send_down(index, child as usize, message);
                    }
                }
                Action::Here(step) => {
                    let patience = u64::from(round.patience) * MS;
                    self.daemons[index].gives_up = self.now + patience;
                    self.at(self.now + patience, Event::GiveUp(index));
                    self.act_here(index, step, &round);
                }
                Action::Up(number, step, behind) => {
                    self.report(index, Message::Up(number, step, behind));
                }
                Action::Behind(behind) => self.root.handle_behind(&behind),
                Action::Back(nodes) => self.report(index, Message::Back(nodes)),
                Action::Finished => {
                    let took = self.now - self.switched_at;
                    let jobs = (&round.out[..], &round.into[..]);
                    self.root.handle_switched(jobs, took, self.now);
                }
            }
        }
    }

    fn act_here(&mut self, index: usize, step: Step, round: &Round) {
        let order = match step {
            Step::Freeze => {
                round.out.iter().for_each(|id| self.stop(index, *id));
                0
            }
            Step::Save => 1,
            Step::Restore => 2,
            Step::Run => return round.into.iter().for_each(|id| self.go_on(index, *id)),
        };
        let time = self.now + self.delay();
        self.at(time, Event::Done(index, order, round.number));
    }

    fn stop(&mut self, index: usize, id: JobId) {
        let (now, number) = (self.now, self.user_number(id));
        let Some(job) = self.daemons[index].jobs.get_mut(&id) else {
            return;
        };
        job.is_running = false;
        for process in &mut job.processes {
            if let Some(since) = process.since.take()
                && let Some(left) = &mut process.left
            {
                *self.done.entry((number, process.rank)).or_default() += now - since;
                *left -= now - since;
            }
        }
    }

    fn go_on(&mut self, index: usize, id: JobId) {
        let now = self.now;
        let mut ends = Vec::new();
        if let Some(job) = self.daemons[index].jobs.get_mut(&id) {
            job.is_running = true;
            let works = |one: &&mut Process| !one.has_ended && one.phase == Phase::InStep;
            for process in job.processes.iter_mut().filter(works) {
                process.since.get_or_insert(now);
                ends.extend(process.left.map(|left| (now + left, process.rank)));
            }
        }
        for (time, rank) in ends {
            self.at(time, Event::Finish(index, id, rank));
        }
    }

    fn finish(&mut self, index: usize, id: JobId, rank: u16) {
        let now = self.now;
        let daemon = &mut self.daemons[index];
        let job = daemon.jobs.get_mut(&id).filter(|_| daemon.is_alive);
        let mut processes = job.into_iter().flat_map(|job| &mut job.processes);
        let Some(process) = processes.find(|one| one.rank == rank) else {
            return;
        };
        // A process that was stopped in between has work left.
        let is_done = |since: Nanos| process.left == Some(now - since);
        if !process.since.is_some_and(is_done) {
            return;
        }
        process.since = None;
        process.has_ended = true;
        let left = process.left.unwrap_or_default();
        let number = self.user_number(id);
        *self.done.entry((number, rank)).or_default() += left;
        let ended = Message::ProcessEnded(id, rank, Ended::default());
        self.report(index, ended);
    }

    fn do_here(&mut self, index: usize, message: Message) {
        match message {
            Message::Prepare(spec, placement) => self.prepare(index, &spec, &placement),
            Message::Deliver(job, signal) => self.deliver(index, job, signal),
            Message::Forget(job) => drop(self.daemons[index].jobs.remove(&job)),
            Message::Inspect(job) => self.inspect(index, job),
            Message::Rest(job, rest) => self.rest(index, job, &rest),
            Message::Fetch(_, job, rank, offset) => self.fetch(index, job, rank, offset),
            Message::Fill(_, job, piece) => self.fill(index, job, &piece),
            _ => {}
        }
    }

    fn prepare(&mut self, index: usize, spec: &JobSpec, placement: &Placement) {
        let daemon = &mut self.daemons[index];
        let places = placement.nodes.iter().zip(&placement.processors).zip(0..);
        let here = places.filter(|((node, _), _)| daemon.number == Some(**node));
        let processes: Vec<Process> = here
            .map(|((_, processor), rank)| Process {
                rank,
                slot: (index, *processor),
                left: match spec.restored {
                    // Its state says how much is left.
                    Some(true) => None,
                    _ => self.work[&(placement.job, rank)],
                },
                since: None,
                has_ended: false,
                phase: Phase::InStep,
            })
            .collect();
        assert_eq!(spec.processes as usize, placement.nodes.len());
        if !processes.is_empty() {
            let job = Local {
                processes,
                is_running: false,
            };
            daemon.jobs.insert(placement.job, job);
        }
    }

    fn deliver(&mut self, index: usize, id: JobId, signal: i32) {
        assert_eq!(signal, SIGKILL);
        let job = self.daemons[index].jobs.get_mut(&id);
        let mut ended = Vec::new();
        for process in job.into_iter().flat_map(|job| &mut job.processes) {
            process.since = None;
            if !std::mem::replace(&mut process.has_ended, true) {
                ended.push(process.rank);
            }
        }
        for rank in ended {
            let killed = Ended {
                status: 137,
                cause: Some("was killed".to_string()),
                ..Ended::default()
            };
            self.report(index, Message::ProcessEnded(id, rank, killed));
        }
    }

    /// Reports that processes without an end wait for any message, and that others run.
    fn inspect(&mut self, index: usize, id: JobId) {
        let daemon = &self.daemons[index];
        let Some(number) = daemon.number else {
            return;
        };
        let mut report = Report::default();
        for process in daemon
            .jobs
            .get(&id)
            .into_iter()
            .flat_map(|job| &job.processes)
        {
            assert!(
                process.since.is_none(),
                "job {id} is looked at while it runs"
            );
            report.places.push(Place {
                rank: process.rank,
                phase: process.phase,
                steps: 0,
            });
            match (process.has_ended, process.left) {
                (true, _) => report.ended.push(process.rank),
                (false, None) if process.phase != Phase::InStep => {}
                (false, None) => report.waits.push((process.rank, 0, 1, 0, 0)),
                (false, Some(_)) => {}
            }
        }
        self.report(index, Message::Inspected(id, number, report));
    }

    fn join(&mut self, index: usize) {
        let parent = self.daemons[index].parent;
        let is_there = |at: usize| self.daemons[at].is_alive && self.daemons[at].number.is_some();
        if !self.daemons[index].is_alive || !parent.is_none_or(is_there) {
            return;
        }
        let processors = (0..1 + self.random.below(3) as u16).collect();
        let number = self
            .root
            .handle_join(&format!("node{index}"), processors, String::new(), 0);
        self.daemons[index].number = Some(number);
        let mut child = index;
        while let Some(above) = self.daemons[child].parent {
            let switch = &mut self.daemons[above].switch;
            switch.handle_joined(number, child as u64);
            child = above;
        }
        if let Some(parent) = parent {
            self.daemons[parent].children.push(index as u64);
        }
    }

    /// Ends a daemon, or lets it be silent for so long that it counts as lost. It and all daemons
    /// below end their processes, at once or when they notice.
    fn lose(&mut self, index: usize) {
        let is_silent = self.random.below(2) == 0;
        let notice = self.now + self.random.below(3 * SECOND);
        self.at(notice, Event::Notice(index));
        if !is_silent {
            self.end(index);
        }
    }

    fn end(&mut self, index: usize) {
        let mut all = vec![index];
        while let Some(index) = all.pop() {
            let daemon = &mut self.daemons[index];
            daemon.is_alive = false;
            daemon.jobs.clear();
            all.extend((0..self.faults.nodes).filter(|at| self.daemons[*at].parent == Some(index)));
        }
    }

    fn notice(&mut self, index: usize) {
        let parent = self.daemons[index].parent.expect("never the root");
        let below = (0..self.faults.nodes).filter(|at| self.is_below(*at, index));
        let below: Vec<u16> = below.filter_map(|at| self.daemons[at].number).collect();
        self.end(index);
        let child = index as u64;
        if !self.daemons[parent].is_alive || !self.daemons[parent].children.contains(&child) {
            return;
        }
        self.daemons[parent]
            .children
            .retain(|other| *other != child);
        for node in below {
            self.report(
                parent,
                Message::Lost(node, Some("it was killed".to_string())),
            );
        }
        let actions = self.daemons[parent].switch.handle_lost(child);
        self.act(parent, actions);
    }

    fn is_below(&self, mut index: usize, top: usize) -> bool {
        while index != top {
            match self.daemons[index].parent {
                Some(parent) => index = parent,
                None => return false,
            }
        }
        true
    }
}
