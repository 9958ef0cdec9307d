//! Tests the protocol of a gang switch on trees of 1 to 1,024 daemons. Messages between different
//! daemons arrive in any order, and daemons are lost.

use farcall_gang_proto::{Action, Behind, Form, JobId, Round, Step, Switch, Turn};
use farcall_random::SplitMix64;
use std::collections::BTreeMap;

struct Daemon {
    switch: Switch,
    parent: Option<usize>,
    is_lost: bool,
    /// Whether it handles nothing until it goes on.
    is_stopped: bool,
    /// Steps done at this daemon, in order.
    done: Vec<Step>,
}

#[derive(Debug)]
enum Event {
    Down(usize, Round, Step),
    Done(usize, Step),
    Up(usize, usize, u64, Step, Behind),
    Back(usize, Vec<u16>),
}

struct World {
    daemons: Vec<Daemon>,
    /// Messages in transit, by link; messages of one link keep their order.
    events: Vec<Event>,
    random: SplitMix64,
    finished: u64,
    /// What the root was told, and the gang jobs that it let run.
    behind: Vec<Behind>,
    back: Vec<u16>,
    ran: Vec<JobId>,
}

impl World {
    fn new(size: usize, fan: usize, form: Form, seed: u64) -> World {
        let parent = |index: usize| (index > 0).then(|| (index - 1) / fan);
        let daemon = |index: usize| Daemon {
            switch: Switch::new(form, false, index == 0),
            parent: parent(index),
            is_lost: false,
            is_stopped: false,
            done: Vec::new(),
        };
        let mut daemons: Vec<Daemon> = (0..size).map(daemon).collect();
        for node in 1..size {
            let mut child = node;
            while let Some(above) = parent(child) {
                daemons[above]
                    .switch
                    .handle_joined(node as u16, child as u64);
                child = above;
            }
        }
        World {
            daemons,
            events: Vec::new(),
            random: SplitMix64::new(seed),
            finished: 0,
            behind: Vec::new(),
            back: Vec::new(),
            ran: Vec::new(),
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random.below(below as u64) as usize
    }

    fn act(&mut self, index: usize, actions: Vec<Action>) {
        for action in actions {
            let daemon = &mut self.daemons[index];
            match action {
                Action::Down(step, children) => {
                    let round = daemon.switch.order();
                    let down = |child: u64| Event::Down(child as usize, round.clone(), step);
                    self.events.extend(children.into_iter().map(down));
                }
                Action::Here(step) => {
                    daemon.done.push(step);
                    if step != Step::Run {
                        self.events.push(Event::Done(index, step));
                    } else if index == 0 {
                        self.ran.clone_from(&daemon.switch.round().into);
                    }
                }
                Action::Up(number, step, behind) => {
                    let parent = daemon.parent.expect("only the root has none");
                    let up = Event::Up(parent, index, number, step, behind);
                    self.events.push(up);
                }
                Action::Behind(behind) => self.behind.push(behind),
                Action::Back(nodes) => self.report_back(index, nodes),
                Action::Finished => self.finished += 1,
            }
        }
    }

    fn report_back(&mut self, index: usize, nodes: Vec<u16>) {
        match self.daemons[index].parent {
            Some(parent) => self.events.push(Event::Back(parent, nodes)),
            None => self.back.extend(nodes),
        }
    }

    /// No daemon does a step before all have done the one before it.
    fn check(&self, step: Step, order: &[Step]) {
        let Some(place) = order.iter().position(|other| *other == step) else {
            return;
        };
        for daemon in self.daemons.iter().filter(|daemon| !daemon.is_lost) {
            let before = place.min(order.len());
            assert!(
                daemon.done.len() >= before,
                "{step:?} too early: {:?}",
                daemon.done
            );
        }
    }

    /// Handles an event of a daemon that is not stopped. Messages of one link keep their order.
    /// Returns false if there is none.
    fn step(&mut self, order: &[Step]) -> bool {
        let to = |event: &Event| match event {
            Event::Down(to, ..) | Event::Done(to, _) | Event::Up(to, ..) | Event::Back(to, _) => {
                *to
            }
        };
        let link = |event: &Event| match event {
            Event::Down(to, ..) => Some((*to, None)),
            Event::Up(to, from, ..) => Some((*to, Some(*from))),
            _ => None,
        };
        let is_ready = |world: &World, event: &Event| !world.daemons[to(event)].is_stopped;
        if !self.events.iter().any(|event| is_ready(self, event)) {
            return false;
        }
        let mut place = self.draw(self.events.len());
        while !is_ready(self, &self.events[place]) {
            place = self.draw(self.events.len());
        }
        let mut events = self.events.iter();
        let own = link(&self.events[place]);
        if let Some(first) = events.position(|other| own.is_some() && link(other) == own) {
            place = first;
        }
        let event = self.events.remove(place);
        if self.daemons[to(&event)].is_lost {
            return true;
        }
        let to = to(&event);
        let actions = match event {
            Event::Down(_, round, step) => {
                self.check(step, order);
                self.daemons[to].switch.handle_down(round, step)
            }
            Event::Done(_, step) => self.daemons[to].switch.handle_done(step, &[]),
            Event::Up(_, from, number, step, behind) => {
                let switch = &mut self.daemons[to].switch;
                switch.handle_up(from as u64, number, step, behind)
            }
            Event::Back(_, nodes) => self.daemons[to].switch.handle_back(nodes),
        };
        self.act(to, actions);
        true
    }

    fn lose(&mut self, index: usize) {
        let mut lost = vec![index];
        while let Some(index) = lost.pop() {
            self.daemons[index].is_lost = true;
            let places = 0..self.daemons.len();
            lost.extend(places.filter(|at| self.daemons[*at].parent == Some(index)));
        }
        let parent = self.daemons[index].parent.expect("never the root");
        let switch = &mut self.daemons[parent].switch;
        let actions = switch.handle_lost(index as u64);
        self.act(parent, actions);
    }

    /// Starts a gang switch of gang jobs on nodes.
    fn start(&mut self, out: &[(JobId, &[u16])], into: &[(JobId, &[u16])]) {
        let ids = |jobs: &[(JobId, &[u16])]| jobs.iter().map(|(id, _)| *id).collect();
        let nodes = out.iter().chain(into).map(|(id, at)| (*id, at.to_vec()));
        let turn = Turn {
            out: ids(out),
            into: ids(into),
            nodes: nodes.collect::<BTreeMap<_, _>>(),
        };
        let actions = self.daemons[0].switch.start(turn);
        self.act(0, actions);
    }

    /// Handles all events. Daemons that wait for others wait no longer than they may.
    fn settle(&mut self) {
        loop {
            while self.step(&[]) {}
            let waits = |daemon: &Daemon| daemon.switch.step().is_some() && !daemon.is_stopped;
            let waiting = (0..self.daemons.len()).filter(|at| waits(&self.daemons[*at]));
            let patience = |at: &usize| self.daemons[*at].switch.patience();
            let Some(first) = waiting.min_by_key(patience) else {
                return;
            };
            let actions = self.daemons[first].switch.handle_timeout();
            self.act(first, actions);
        }
    }

    fn switch_once(&mut self, order: &[Step], lose: Option<usize>) {
        for daemon in &mut self.daemons {
            daemon.done.clear();
        }
        let before = self.finished;
        let all: Vec<u16> = (0..self.daemons.len() as u16).collect();
        self.start(&[(1, &all)], &[(2, &all)]);
        let mut steps = 0;
        loop {
            steps += 1;
            if let Some(index) = lose
                && steps == 1 + index
                && !self.daemons[index].is_lost
            {
                self.lose(index);
            }
            if !self.step(order) {
                break;
            }
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

/// A daemon that does not answer delays the gang jobs on its nodes, and nobody else waits for it.
#[test]
fn a_stopped_daemon_delays_only_its_own_jobs() {
    for seed in 0..32 {
        for form in [Form::Seven, Form::Two] {
            // Nodes 1 and 2 are below the root, 3 and 4 below 1, 5 and 6 below 2.
            let mut world = World::new(7, 2, form, seed);
            world.start(&[], &[(1, &[0, 3]), (2, &[4, 5])]);
            world.settle();
            assert_eq!((&world.ran[..], &world.behind[..]), (&[1, 2][..], &[][..]));
            world.daemons[3].is_stopped = true;
            // Nothing of these gang jobs is on node 3: nobody is late, and no time is lost.
            world.start(&[(2, &[4, 5])], &[(3, &[4, 6])]);
            while world.step(&[]) {}
            assert_eq!((&world.ran[..], world.finished), (&[3][..], 2));
            // One goes that is on node 3, one that is there comes, and others come as well.
            world.start(&[(1, &[0, 3])], &[(4, &[0]), (5, &[2, 3])]);
            world.settle();
            assert_eq!((&world.ran[..], world.finished), (&[4][..], 3));
            let behind = Behind {
                jobs: Vec::new(),
                nodes: vec![3],
            };
            assert_eq!(world.behind, [behind]);
            world.start(&[(4, &[0])], &[(6, &[0, 2])]);
            while world.step(&[]) {}
            assert_eq!((&world.ran[..], world.finished), (&[6][..], 4));
            assert_eq!(world.back, []);
            world.daemons[3].is_stopped = false;
            world.settle();
            assert_eq!(world.back, [3], "{form:?} {seed}");
            world.start(&[(6, &[0, 2])], &[(5, &[2, 3])]);
            while world.step(&[]) {}
            assert_eq!((&world.ran[..], world.finished), (&[5][..], 5));
        }
    }
}

/// If the daemon in between is stopped, all nodes below it are behind, until it goes on.
#[test]
fn all_nodes_below_a_stopped_daemon_are_behind() {
    for seed in 0..32 {
        let mut world = World::new(7, 2, Form::Two, seed);
        world.daemons[1].is_stopped = true;
        world.start(&[], &[(1, &[3]), (2, &[5])]);
        world.settle();
        assert_eq!(world.ran, [2]);
        assert_eq!(world.behind[0].nodes, [1, 3, 4]);
        world.daemons[1].is_stopped = false;
        world.settle();
        let mut back = world.back.clone();
        back.sort_unstable();
        back.dedup();
        assert_eq!(back, [1, 3, 4], "{seed}");
    }
}

/// A node below a daemon is lost, and joins again elsewhere. The loss of the daemon that it was
/// below before is not its own.
#[test]
fn a_node_that_has_joined_elsewhere_is_not_below_its_former_daemon() {
    let mut switch = Switch::new(Form::Two, false, false);
    let (former, other, node) = (1, 2, 7);
    switch.handle_joined(3, former);
    switch.handle_joined(node, former);
    assert!(switch.handle_node_lost(former, node));
    assert_eq!(switch.nodes_below(former), [3]);
    switch.handle_joined(node, other);
    assert!(!switch.handle_node_lost(former, node), "it is not there");
    assert_eq!(switch.child(node), Some(other));
}
