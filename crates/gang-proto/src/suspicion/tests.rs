//! Tests when a deadlock of processes that poll is suspected: in small cases, and in random ones
//! against a game of events. What the daemon learns of the processes is given.

use super::*;
use alloc::vec;

fn process(waits: Waits) -> Process {
    Process {
        waits,
        pending: Vec::new(),
        room: Vec::new(),
    }
}

fn running(size: u16) -> Vec<Process> {
    (0..size).map(|_| process(Waits::No)).collect()
}

fn wants(all: &[Wanted]) -> Poller {
    Poller {
        wanted: all.to_vec(),
        has_others: false,
    }
}

fn from(source: u16) -> Poller {
    wants(&[Wanted::Message(Some(source), Some(7))])
}

fn pollers(all: Vec<(u16, Poller)>) -> Pollers {
    all.into_iter().collect()
}

/// Rank 0 waits for rank 3, which waits for rank 2, and so on.
fn ring() -> Pollers {
    pollers(vec![(0, from(3)), (1, from(0)), (2, from(1)), (3, from(2))])
}

#[test]
fn a_ring_of_receives_without_a_sender_is_suspected_with_its_circle() {
    assert_eq!(suspect(&running(4), &ring()), [0, 3, 2, 1]);
}

#[test]
fn two_sends_that_nobody_takes_are_suspected() {
    let send = |target| wants(&[Wanted::Receive(target, Some(1))]);
    let two = pollers(vec![(0, send(1)), (1, send(0))]);
    assert_eq!(suspect(&running(2), &two), [0, 1]);
}

#[test]
fn a_process_that_waits_for_itself_is_suspected() {
    assert_eq!(suspect(&running(1), &pollers(vec![(0, from(0))])), [0]);
}

#[test]
fn a_process_that_computes_may_send_to_all_that_wait_for_it() {
    let mut some = ring();
    some.remove(&2);
    assert_eq!(suspect(&running(4), &some), []);
}

#[test]
fn a_message_on_its_way_may_be_the_one() {
    let mut processes = running(4);
    processes[1].pending.push(3);
    assert_eq!(suspect(&processes, &ring()), []);
}

#[test]
fn each_of_several_things_lets_a_process_go_on() {
    let three = |more: Poller| {
        let both = wants(&[
            Wanted::Message(Some(1), None),
            Wanted::Message(Some(2), None),
        ]);
        pollers(vec![(0, both), (1, from(0)), (2, more)])
    };
    let mut one_computes = three(from(0));
    one_computes.remove(&2);
    assert_eq!(suspect(&running(3), &one_computes), []);
    assert_eq!(suspect(&running(3), &three(from(1))), [0, 1, 2]);
}

#[test]
fn a_message_from_anybody_may_come_from_all_that_can_run() {
    let any = wants(&[Wanted::Message(None, None)]);
    let mut all = pollers(vec![(0, any), (1, from(0)), (2, from(0))]);
    // Nobody sends: the process that waits for anybody is in no circle.
    assert_eq!(suspect(&running(3), &all), [0, 1, 2]);
    all.remove(&2);
    assert_eq!(suspect(&running(3), &all), []);
}

#[test]
fn what_is_not_known_may_come_from_anybody() {
    let mut two = pollers(vec![(0, from(1)), (1, from(0))]);
    if let Some(poller) = two.get_mut(&0) {
        poller.has_others = true;
    }
    assert_eq!(suspect(&running(3), &two), []);
    // The third has ended.
    let mut processes = running(3);
    processes[2].waits = Waits::Ended;
    assert_eq!(suspect(&processes, &two), [0, 1]);
    // One that looks for nothing waits for something else, such as the end of the job.
    two.insert(0, Poller::default());
    assert_eq!(suspect(&processes, &two), []);
}

#[test]
fn a_process_that_waits_for_one_that_has_ended_is_suspected() {
    let mut processes = running(2);
    processes[1].waits = Waits::Ended;
    assert_eq!(suspect(&processes, &pollers(vec![(0, from(1))])), [0]);
}

#[test]
fn a_deadlock_among_some_is_suspected_while_others_compute() {
    let two = pollers(vec![(1, from(2)), (2, from(1)), (3, from(1))]);
    assert_eq!(suspect(&running(4), &two), [1, 2, 3]);
}

/// A process can also wait on a channel of its own, where it sleeps.
#[test]
fn those_that_sleep_take_part() {
    let mut processes = running(2);
    processes[1].waits = Waits::From(0);
    let one = pollers(vec![(0, from(1))]);
    assert_eq!(suspect(&processes, &one), [0]);
    processes[1].pending.push(0);
    assert_eq!(suspect(&processes, &one), []);
}

/// What cannot be there according to the rule is not a fault of the rule.
#[test]
fn impossible_ranks_do_no_harm() {
    let strange = pollers(vec![(0, from(40_000)), (9, from(0))]);
    assert_eq!(suspect(&running(1), &strange), [0]);
}

/// Nobody is suspected whom an order of events lets go on: each process that can run sends to all,
/// again and again, and a process that got one of the things that it wants can run.
#[test]
fn random_jobs_are_suspected_exactly_if_no_order_of_events_helps() {
    let mut seed = 1u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    let (mut suspected, mut free) = (0, 0);
    for _ in 0..20_000 {
        let size = 1 + below(5) as u16;
        let mut processes = running(size);
        let mut all = Pollers::new();
        for rank in 0..size {
            match below(6) {
                0 => {}
                1 => processes[usize::from(rank)].waits = Waits::Ended,
                _ => {
                    let one = |below: &mut dyn FnMut(u64) -> u64| match below(8) {
                        0 => Wanted::Message(None, None),
                        1 | 2 => Wanted::Receive(below(size.into()) as u16, None),
                        _ => Wanted::Message(Some(below(size.into()) as u16), None),
                    };
                    let wanted = (0..1 + below(2)).map(|_| one(&mut below)).collect();
                    let has_others = below(10) == 0;
                    all.insert(rank, Poller { wanted, has_others });
                }
            }
        }
        let mut blocked = suspect(&processes, &all);
        blocked.sort_unstable();
        assert_eq!(blocked, never_run(&processes, &all));
        suspected += usize::from(!blocked.is_empty());
        free += usize::from(blocked.is_empty());
    }
    assert!(suspected > 1_000 && free > 1_000, "{suspected} {free}");
}

/// The processes that poll and never run, by playing the events.
fn never_run(processes: &[Process], all: &Pollers) -> Vec<u16> {
    let size = processes.len() as u16;
    let mut runs: Vec<bool> = (0..size)
        .map(|rank| !all.contains_key(&rank) && processes[usize::from(rank)].waits != Waits::Ended)
        .collect();
    for _ in 0..size {
        for sender in 0..size {
            if !runs[usize::from(sender)] {
                continue;
            }
            for (rank, poller) in all.iter().filter(|(rank, _)| **rank != sender) {
                let takes = |wanted: &Wanted| wanted.rank().is_none_or(|other| other == sender);
                runs[usize::from(*rank)] |= poller.has_others || poller.wanted.iter().any(takes);
            }
        }
    }
    let never = all.keys().filter(|rank| !runs[usize::from(**rank)]);
    never.copied().collect()
}
