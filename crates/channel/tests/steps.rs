//! Tests programs in steps, whose processes are threads of this process. A daemon of the test lets
//! them rest, takes their state, and begins them again in other segments, on one node or on two.
//! Messages that nobody has received yet are in the state.

use farcall_channel::{Channel, ChannelError, Command, Engine, Segment, Shape};
use farcall_channel_proto::Freeze;
use farcall_channel_proto::saved::{Saved, normalise};
use farcall_gang_proto::rest::Phase;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(20);
const SIZE: u16 = 3;
const STEPS: u64 = 40;
/// Steps for which a message stays in its channel.
const LATE: u64 = 4;

fn segment(locals: std::ops::Range<u16>, is_restored: bool) -> Arc<Segment> {
    let shape = Shape {
        job: 9,
        size: SIZE,
        locals: locals.collect(),
        channels: 1,
        partitions: vec![0; SIZE.into()],
        send: Shape::SEND,
        receive: Shape::RECEIVE,
        spin: false,
        is_restored,
    };
    Arc::new(Segment::create(shape).expect("memory"))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

/// The segments and engines of the nodes, each with this many of the ranks.
fn nodes(counts: &[u16], is_restored: bool) -> (Vec<Arc<Segment>>, Vec<Engine>) {
    let mut first = 0;
    let mut segments = Vec::new();
    for count in counts {
        segments.push(segment(first..first + count, is_restored));
        first += count;
    }
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let engine = |_: &u16| Engine::start(loopback).expect("an engine");
    let engines = counts.iter().map(engine).collect();
    (segments, engines)
}

fn attach(segments: &[Arc<Segment>], engines: &[Engine]) {
    let node_of = |rank: u16| {
        let mut all = segments.iter();
        all.position(|segment| segment.shape().locals.contains(&rank))
    };
    for (here, segment) in segments.iter().enumerate() {
        let peer = |rank: u16| {
            let node = node_of(rank).expect("each rank is somewhere");
            (node != here).then(|| engines[node].address())
        };
        let peers: Vec<_> = (0..SIZE).map(peer).collect();
        engines[here].attach(segment.clone(), &peers, 1);
    }
}

/// The program of one rank: in each step it sends a number, and receives one that was sent some
/// steps before. `slow` lets rank 1 fall behind in the middle of a step.
fn program(channel: &mut Channel, slow: &Mutex<()>) -> Result<(bool, u64), ChannelError> {
    let (rank, size) = (channel.rank(), channel.size());
    let mut state = ([rank as u64 + 1], vec![0u8; 10_000]);
    let is_restored = channel.register(&mut state)?;
    channel.run(&mut state, |channel, (number, noise), step| {
        let long = vec![number[0] as u8; 3000];
        channel.send((rank + 1) % size, &number[0].to_le_bytes())?;
        channel.send((rank + 1) % size, &long)?;
        if rank == 1 && step == 10 {
            drop(slow.lock());
        }
        if step >= LATE {
            let before = (rank + size - 1) % size;
            let mut bytes = [0; 8];
            channel.receive(Some(before), &mut bytes)?;
            let (_, long) = channel.receive_vec(Some(before))?;
            number[0] = number[0].rotate_left(9) ^ u64::from_le_bytes(bytes);
            number[0] = number[0].wrapping_mul(31).wrapping_add(u64::from(long[1]));
            noise[step as usize] = number[0] as u8;
        }
        channel.barrier()?;
        Ok::<bool, ChannelError>(step + 1 < STEPS)
    })?;
    Ok((is_restored, number_of(&state)))
}

fn number_of((number, noise): &([u64; 1], Vec<u8>)) -> u64 {
    let noise = noise.iter().map(|byte| u64::from(*byte));
    noise.fold(number[0], |sum, byte| sum.rotate_left(3) ^ byte)
}

/// Runs the program on these nodes to its end. `daemon` acts beside it.
fn run(
    segments: &[Arc<Segment>],
    slow: &Mutex<()>,
    daemon: impl FnOnce(&[Arc<Segment>]),
) -> Vec<(bool, u64)> {
    let results = Mutex::new(vec![(false, 0); SIZE.into()]);
    std::thread::scope(|scope| {
        for segment in segments {
            for rank in &segment.shape().locals {
                let bell = segment.bell().expect("a bell");
                let bell = bell.try_clone_to_owned().expect("a bell");
                let rank = usize::from(*rank);
                let opened = Channel::attach(segment.clone(), Some(bell), rank);
                let mut channel = opened.expect("a rank");
                let results = &results;
                scope.spawn(move || {
                    // One that the daemon ends leaves no result.
                    if let Ok(result) = program(&mut channel, slow) {
                        results.lock().expect("sound")[rank] = result;
                    }
                });
            }
        }
        daemon(segments);
    });
    results.into_inner().expect("sound")
}

fn phases(segments: &[Arc<Segment>]) -> Vec<(Phase, u64)> {
    let places = segments.iter().flat_map(|segment| segment.places());
    places.map(|place| (place.phase, place.steps)).collect()
}

/// Lets all processes rest. One that rests does another step as long as others are within one. The
/// rule of the real daemon is more exact.
fn rest(segments: &[Arc<Segment>]) {
    segments
        .iter()
        .for_each(|segment| segment.ask_to_rest(true));
    wait_until("all rest", || {
        let all = phases(segments);
        let most = all
            .iter()
            .map(|(phase, steps)| steps + u64::from(*phase == Phase::InStep));
        let most = most.max().expect("ranks");
        for place in segments.iter().flat_map(|segment| segment.places()) {
            if place.phase == Phase::Resting && place.steps < most {
                segments
                    .iter()
                    .for_each(|segment| segment.command(place.rank, Command::Step));
            }
        }
        all.iter().all(|one| *one == (Phase::Resting, most))
    });
}

/// The state of all ranks: messages, and the program's.
fn take(segments: &[Arc<Segment>], engines: &[Engine]) -> Vec<(Saved, Vec<u8>)> {
    let ranks = 0..SIZE;
    ranks.clone().for_each(|rank| {
        segments
            .iter()
            .for_each(|segment| segment.command(rank, Command::Save));
    });
    wait_until("all are saved", || {
        phases(segments)
            .iter()
            .all(|(phase, _)| *phase == Phase::Saved)
    });
    let (mut saved, mut programs) = (Vec::new(), Vec::new());
    for (segment, engine) in segments.iter().zip(engines) {
        engine.freeze(9, Freeze::Epoch);
        for (rank, messages) in segment.collect(&engine.contexts(9)).expect("sound") {
            let mut bytes = Vec::new();
            messages.encode(&mut bytes);
            saved.push(Saved::decode(&bytes).expect("as written"));
            let mut program = vec![0; segment.state_bytes(rank) as usize];
            segment
                .read_state(rank, 0, &mut program)
                .expect("it is there");
            programs.push(program);
        }
    }
    normalise(&mut saved).expect("sound");
    saved.into_iter().zip(programs).collect()
}

fn restore(states: &[(Saved, Vec<u8>)], segments: &[Arc<Segment>]) {
    for segment in segments {
        let ranks = segment.shape().locals.iter();
        let messages = ranks.map(|rank| (*rank, states[usize::from(*rank)].0.clone()));
        segment.fill(&messages.collect::<Vec<_>>()).expect("space");
        for rank in &segment.shape().locals {
            let program = &states[usize::from(*rank)].1;
            segment.write_state(*rank, 0, program).expect("memory");
            segment.set_state_bytes(*rank, program.len() as u64);
        }
    }
}

fn messages(states: &[(Saved, Vec<u8>)]) -> usize {
    let queues = states
        .iter()
        .flat_map(|(saved, _)| saved.received.iter().chain(&saved.unsent));
    queues.map(|queue| queue.records.len()).sum()
}

/// What a run without a checkpoint returns.
fn control() -> Vec<u64> {
    let (segments, engines) = nodes(&[3], false);
    attach(&segments, &engines);
    let results = run(&segments, &Mutex::new(()), |_| {});
    results.into_iter().map(|(_, number)| number).collect()
}

/// Takes the state in the middle on some nodes, and begins again from it on others.
fn moved(from: &[u16], to: &[u16]) {
    let (segments, engines) = nodes(from, false);
    attach(&segments, &engines);
    let slow = Mutex::new(());
    let mut states = Vec::new();
    let whole = run(&segments, &slow, |segments| {
        let held = slow.lock().expect("sound");
        wait_until("rank 1 is in the middle of a step", || {
            phases(segments)[1].1 >= 10
        });
        segments
            .iter()
            .for_each(|segment| segment.ask_to_rest(true));
        drop(held);
        rest(segments);
        states = take(segments, &engines);
        segments.iter().for_each(|segment| segment.forget_states());
        // The processes of the checkpoint go on to their end too.
        for (segment, engine) in segments.iter().zip(&engines) {
            engine.thaw(9, 2);
            segment.ask_to_rest(false);
        }
    });
    assert!(messages(&states) > 3000, "messages are on their way");
    let control = control();
    let results = |all: Vec<(bool, u64)>, was: bool| -> Vec<u64> {
        assert!(all.iter().all(|(is_restored, _)| *is_restored == was));
        all.into_iter().map(|(_, number)| number).collect()
    };
    assert_eq!(results(whole, false), control);
    let (segments, engines) = nodes(to, true);
    restore(&states, &segments);
    attach(&segments, &engines);
    let again = run(&segments, &slow, |_| {});
    assert_eq!(results(again, true), control);
}

#[test]
fn a_job_goes_on_from_its_state_on_the_same_node() {
    moved(&[3], &[3]);
}

#[test]
fn a_job_goes_on_from_its_state_between_nodes() {
    moved(&[2, 1], &[3]);
    moved(&[3], &[1, 2]);
    moved(&[1, 1, 1], &[2, 1]);
}

#[test]
fn wrong_use_is_told() {
    let shared = segment(0..3, false);
    let open = || Channel::attach(shared.clone(), None, 0).expect("a rank");
    let mut channel = open();
    let none = channel.run(&mut [0.0], |_, _, _| Ok::<bool, ChannelError>(false));
    assert!(matches!(none, Err(ChannelError::Unregistered)));
    channel.register(&mut [0.0]).expect("the first");
    let again = channel.register(&mut [0.0]);
    assert!(matches!(again, Err(ChannelError::Registered)));
    let mut late = Channel::attach(shared.clone(), None, 1).expect("a rank");
    late.send(2, b"early").expect("sent");
    let late = late.register(&mut [0.0]).expect_err("too late");
    assert!(late.to_string().contains("before"), "{late}");
}

#[test]
fn a_state_of_other_arrays_is_refused() {
    let shared = segment(0..3, true);
    let mut head = b"FCARRAY1".to_vec();
    head.extend([&[7, 0, 0, 0, 0, 0, 0, 0][..], &[0; 4], &[1, 0, 0, 0]].concat());
    head.extend(16u64.to_le_bytes());
    shared.write_state(0, 0, &head).expect("memory");
    shared.set_state_bytes(0, head.len() as u64 + 16);
    shared
        .write_state(1, 0, b"something else that is long")
        .expect("memory");
    let open = |rank| Channel::attach(shared.clone(), None, rank).expect("a rank");
    let other = open(0).register(&mut [0.0; 3]).expect_err("24 bytes");
    assert!(other.to_string().contains("[16] bytes") && other.to_string().contains("[24]"));
    shared.set_state_bytes(0, head.len() as u64);
    let cut = open(0).register(&mut [0.0; 2]).expect_err("no contents");
    assert!(cut.to_string().contains("cut off"), "{cut}");
    let foreign = open(1).register(&mut [0.0; 2]).expect_err("foreign");
    assert!(foreign.to_string().contains("damaged"), "{foreign}");
}
