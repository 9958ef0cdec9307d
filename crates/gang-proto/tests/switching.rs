//! Tests the protocol of a gang switch on trees of 1 to 1,024 daemons. Messages between different
//! daemons arrive in any order, and daemons are lost.

use farcall_gang_proto::{Action, Form, JobId, Round, Step, Switch};
use farcall_random::SplitMix64;

struct Daemon {
    switch: Switch,
    parent: Option<usize>,
    children: Vec<u64>,
    is_lost: bool,
    /// Steps done at this daemon, in order.
    done: Vec<Step>,
}

#[derive(Debug)]
enum Event {
    Down(usize, Round, Step),
    Done(usize, Step),
    Up(usize, usize, u64, Step),
}

struct World {
    daemons: Vec<Daemon>,
    /// Messages in transit, by link; messages of one link keep their order.
    events: Vec<Event>,
    random: SplitMix64,
    finished: u64,
}

impl World {
    fn new(size: usize, fan: usize, form: Form, seed: u64) -> World {
        let daemons = (0..size).map(|index| Daemon {
            switch: Switch::new(form, false, index == 0),
            parent: (index > 0).then(|| (index - 1) / fan),
            children: (index * fan + 1..=index * fan + fan)
                .filter(|child| *child < size)
                .map(|child| child as u64)
                .collect(),
            is_lost: false,
            done: Vec::new(),
        });
        World {
            daemons: daemons.collect(),
            events: Vec::new(),
            random: SplitMix64::new(seed),
            finished: 0,
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn act(&mut self, index: usize, actions: Vec<Action>) {
        for action in actions {
            let daemon = &mut self.daemons[index];
            let round = daemon.switch.round().clone();
            match action {
                Action::Down(step) => {
                    for child in daemon.children.clone() {
                        self.events
                            .push(Event::Down(child as usize, round.clone(), step));
                    }
                }
                Action::Here(step) => {
                    daemon.done.push(step);
                    if step != Step::Run {
                        self.events.push(Event::Done(index, step));
                    }
                }
                Action::Up(step) => {
                    let parent = daemon.parent.expect("only the root has none");
                    self.events
                        .push(Event::Up(parent, index, round.number, step));
                }
                Action::Finished => self.finished += 1,
            }
        }
    }

    /// No daemon does a step before all have done the one before it.
    fn check(&self, step: Step, order: &[Step]) {
        let place = order
            .iter()
            .position(|other| *other == step)
            .expect("a step");
        for daemon in self.daemons.iter().filter(|daemon| !daemon.is_lost) {
            let before = place.min(order.len());
            assert!(
                daemon.done.len() >= before,
                "{step:?} too early: {:?}",
                daemon.done
            );
        }
    }

    fn step(&mut self, order: &[Step]) {
        let index = self.draw(self.events.len());
        match self.events.swap_remove(index) {
            Event::Down(to, round, step) => {
                if self.daemons[to].is_lost {
                    return;
                }
                self.check(step, order);
                let children = self.daemons[to].children.clone();
                let actions = self.daemons[to].switch.handle_down(round, step, &children);
                self.act(to, actions);
            }
            Event::Done(to, step) => {
                if self.daemons[to].is_lost {
                    return;
                }
                let children = self.daemons[to].children.clone();
                let actions = self.daemons[to].switch.handle_done(step, &children);
                self.act(to, actions);
            }
            Event::Up(to, from, number, step) => {
                if self.daemons[to].is_lost {
                    return;
                }
                let children = self.daemons[to].children.clone();
                let switch = &mut self.daemons[to].switch;
                let actions = switch.handle_up(from as u64, number, step, &children);
                self.act(to, actions);
            }
        }
    }

    fn lose(&mut self, index: usize) {
        let mut lost = vec![index];
        while let Some(index) = lost.pop() {
            self.daemons[index].is_lost = true;
            let children = std::mem::take(&mut self.daemons[index].children);
            lost.extend(children.into_iter().map(|child| child as usize));
        }
        let parent = self.daemons[index].parent.expect("never the root");
        let children = &mut self.daemons[parent].children;
        children.retain(|child| *child != index as u64);
        let children = children.clone();
        let switch = &mut self.daemons[parent].switch;
        let actions = switch.handle_lost(index as u64, &children);
        self.act(parent, actions);
    }

    fn switch_once(&mut self, order: &[Step], lose: Option<usize>) {
        for daemon in &mut self.daemons {
            daemon.done.clear();
        }
        let before = self.finished;
        let jobs: (Vec<JobId>, Vec<JobId>) = (vec![1], vec![2]);
        let children = self.daemons[0].children.clone();
        let actions = self.daemons[0].switch.start(jobs.0, jobs.1, &children);
        self.act(0, actions);
        let mut steps = 0;
        while !self.events.is_empty() {
            steps += 1;
            if let Some(index) = lose
                && steps == 1 + index
                && !self.daemons[index].is_lost
            {
                self.lose(index);
            }
            self.step(order);
        }
        assert_eq!(self.finished, before + 1);
        for daemon in self.daemons.iter().filter(|daemon| !daemon.is_lost) {
            assert_eq!(daemon.done, order);
        }
    }
}

const SEVEN: [Step; 4] = [Step::Freeze, Step::Save, Step::Restore, Step::Run];
const TWO: [Step; 2] = [Step::Freeze, Step::Run];

#[test]
fn all_daemons_do_all_steps_in_order() {
    for size in [1, 2, 3, 32, 1024] {
        for fan in [1, 2, 8] {
            if size / fan > 128 {
                continue;
            }
            for seed in 0..4 {
                let mut world = World::new(size, fan, Form::Seven, seed);
                let mut other = World::new(size, fan, Form::Two, seed);
                for _ in 0..3 {
                    world.switch_once(&SEVEN, None);
                    other.switch_once(&TWO, None);
                }
            }
        }
    }
}

#[test]
fn a_lost_daemon_does_not_stop_the_others() {
    for seed in 0..32 {
        for (form, order) in [(Form::Seven, &SEVEN[..]), (Form::Two, &TWO[..])] {
            let mut world = World::new(32, 2, form, seed);
            world.switch_once(order, Some(1 + seed as usize % 31));
            world.switch_once(order, None);
        }
    }
}
