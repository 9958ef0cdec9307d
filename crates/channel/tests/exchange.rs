//! Tests channels of one gang job in threads of this process, on one node and over two engines.
//! They check that each message arrives once and in order, also over a bad network and across gang
//! switches, and that a corrupt segment causes an error and no crash.

use farcall_channel::{
    Channel, ChannelError, Engine, Faults, Fifo, Polling, Reduction, SavedContext, Segment, Shape,
    Waiting, Wanted,
};
use farcall_channel_proto::Freeze;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(20);

fn shape(size: u16, locals: std::ops::Range<u16>) -> Shape {
    Shape {
        job: 7,
        size,
        locals: locals.collect(),
        channels: 1,
        partitions: vec![0; size.into()],
        send: Shape::SEND,
        receive: Shape::RECEIVE,
        spin: false,
        is_restored: false,
    }
}

fn segment(shape: Shape) -> Arc<Segment> {
    Arc::new(Segment::create(shape).expect("memory for a segment"))
}

/// Runs each rank of the segments in a thread of its own.
fn run(segments: &[Arc<Segment>], engines: &[Engine], body: impl Fn(Channel) + Sync) {
    std::thread::scope(|scope| {
        for (index, segment) in segments.iter().enumerate() {
            for rank in &segment.shape().locals {
                let bell = segment.bell().filter(|_| index < engines.len());
                let bell = bell.map(|bell| bell.try_clone_to_owned().expect("a bell"));
                let channel =
                    Channel::attach(segment.clone(), bell, (*rank).into()).expect("a rank");
                let body = &body;
                scope.spawn(move || body(channel));
            }
        }
    });
}

fn pattern(source: usize, target: usize, bytes: usize) -> Vec<u8> {
    let seed = source * 31 + target * 17 + bytes;
    (0..bytes).map(|index| (seed + index * 7) as u8).collect()
}

/// Sends from every rank to every other, with messages from nothing to several times the FIFO.
fn all_to_all(mut channel: Channel) {
    let (rank, size) = (channel.rank(), channel.size());
    for bytes in [0, 1, 8, 8176, 8184, 50_000, 300_001] {
        for step in 0..size {
            let (target, source) = ((rank + step) % size, (rank + size - step) % size);
            let mut buffer = vec![0; bytes];
            let sent = pattern(rank, target, bytes);
            let message = channel
                .exchange(target, &sent, source, &mut buffer)
                .expect("exchanged");
            assert_eq!((message.source, message.bytes), (source, bytes));
            assert_eq!(buffer, pattern(source, rank, bytes));
        }
        channel.barrier().expect("a barrier");
    }
}

#[test]
fn all_to_all_on_one_node() {
    run(&[segment(shape(5, 0..5))], &[], all_to_all);
}

fn loopback() -> Engine {
    Engine::start(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("an engine on the loopback")
}

fn wait_until_asleep(engine: &Engine) {
    let end = Instant::now() + BOUND;
    loop {
        let stat = format!("/proc/self/task/{}/stat", engine.thread_id());
        let stat = std::fs::read_to_string(stat).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if engine.thread_id() != 0 && state == Some('S') {
            return;
        }
        assert!(Instant::now() < end, "the engine does not sleep");
        std::thread::yield_now();
    }
}

#[test]
fn all_to_all_over_two_engines() {
    let engines = [loopback(), loopback()];
    let segments = [segment(shape(4, 0..2)), segment(shape(4, 2..4))];
    let peers = |own: usize| -> Vec<_> {
        let owner = |rank| usize::from(rank >= 2);
        let peer = |rank| (owner(rank) != own).then(|| engines[owner(rank)].address());
        (0..4).map(peer).collect()
    };
    for (index, engine) in engines.iter().enumerate() {
        // The gang job arrives at an engine that already sleeps.
        wait_until_asleep(engine);
        engine.attach(segments[index].clone(), &peers(index), 0);
    }
    run(&segments, &engines, all_to_all);
}

#[test]
fn an_engine_that_sleeps_keeps_no_memory_of_a_job_that_is_over() {
    let engine = loopback();
    let memory = segment(shape(2, 0..1));
    engine.attach(memory.clone(), &[None, Some(engine.address())], 0);
    // It sleeps in the knowledge of the job as soon as it asks the processes to ring.
    let end = Instant::now() + BOUND;
    while Arc::strong_count(&memory) < 3 {
        assert!(Instant::now() < end, "the engine does not sleep");
        std::thread::yield_now();
    }
    wait_until_asleep(&engine);
    engine.detach(7);
    while Arc::strong_count(&memory) > 1 {
        assert!(Instant::now() < end, "the engine keeps the memory");
        std::thread::yield_now();
    }
}

#[test]
fn collectives_agree() {
    for size in 1..8 {
        run(&[segment(shape(size, 0..size))], &[], |mut channel| {
            let (rank, size) = (channel.rank(), channel.size());
            for root in 0..size {
                let mut bytes = [if rank == root { 77 } else { 0 }; 9000];
                channel.broadcast(root, &mut bytes).expect("broadcast");
                assert_eq!(bytes, [77; 9000]);
                let mut numbers = [rank as i64, -(rank as i64)];
                let how = Reduction::Maximum;
                channel.reduce(root, how, &mut numbers).expect("reduced");
                if rank == root {
                    assert_eq!(numbers, [size as i64 - 1, 0]);
                }
            }
            let mut sum = [rank as f64 + 0.5];
            channel.all_reduce(Reduction::Sum, &mut sum).expect("sum");
            assert_eq!(sum[0], (size * size) as f64 / 2.0);
        });
    }
}

#[test]
fn the_minimum_of_what_is_no_number_is_none() {
    run(&[segment(shape(2, 0..2))], &[], |mut channel| {
        for how in [Reduction::Minimum, Reduction::Maximum] {
            let mut numbers = [1.0, if channel.rank() == 1 { f64::NAN } else { 2.0 }];
            channel.reduce(0, how, &mut numbers).unwrap();
            assert!(channel.rank() == 1 || (numbers[0] == 1.0 && numbers[1].is_nan()));
        }
    });
}

#[test]
fn numbers_of_different_kinds_and_counts_are_not_combined() {
    let unequal = |done| matches!(done, Err(ChannelError::Unequal(1)));
    // None follows one that failed, so each has a job of its own.
    let each = |body: &(dyn Fn(&mut Channel, bool) -> Result<(), ChannelError> + Sync)| {
        run(&[segment(shape(2, 0..2))], &[], |mut channel| {
            let is_root = channel.rank() == 0;
            assert_eq!(is_root, unequal(body(&mut channel, is_root)));
            if is_root {
                assert!(matches!(channel.barrier(), Err(ChannelError::Cut)));
            }
        });
    };
    each(&|channel, is_root| match is_root {
        true => channel.reduce(0, Reduction::Sum, &mut [0.5, 1.5]),
        false => channel.reduce(0, Reduction::Sum, &mut [1i64, 2]),
    });
    each(&|channel, is_root| {
        let mut numbers = vec![1.0; if is_root { 5 } else { 3 }];
        channel.reduce(0, Reduction::Sum, &mut numbers)
    });
    each(&|channel, is_root| {
        let mut bytes = vec![0; if is_root { 5 } else { 3 }];
        channel.broadcast(1, &mut bytes)
    });
}

/// After a failed collective operation, messages of others may be left over. A later operation must
/// not take them for its own.
#[test]
fn after_a_collective_operation_that_failed_no_other_takes_what_is_left_of_it() {
    let step = std::sync::Barrier::new(4);
    run(&[segment(shape(4, 0..4))], &[], |mut channel| {
        let rank = channel.rank();
        let mut first = vec![100 + rank as i64; if rank == 1 { 2 } else { 1 }];
        let failed = channel.reduce(0, Reduction::Sum, &mut first).is_err();
        assert_eq!(failed, rank == 0);
        step.wait();
        let again = channel.reduce(0, Reduction::Sum, &mut [1]);
        assert_eq!(again.is_err(), rank == 0, "{again:?}");
        // Other messages pass nevertheless.
        channel.send(0, &[rank as u8]).expect("sent");
        if rank == 0 {
            (0..4).for_each(|source| {
                let mut byte = [0];
                channel.receive(Some(source), &mut byte).expect("received");
                assert_eq!(usize::from(byte[0]), source);
            });
        }
        step.wait();
        let mut bytes = vec![rank as u8; if rank == 3 { 1 } else { 2 }];
        if rank >= 2 {
            let failed = channel.broadcast(2, &mut bytes).is_err();
            assert_eq!(failed, rank == 3);
            bytes.resize(2, 9);
            let again = channel.broadcast(2, &mut bytes);
            assert_eq!(again.is_err(), rank == 3, "{again:?} {bytes:?}");
        }
    });
}

#[test]
fn messages_from_one_source_keep_their_order() {
    run(&[segment(shape(4, 0..4))], &[], |mut channel| {
        let size = channel.size();
        if channel.rank() > 0 {
            for number in 0..2000u32 {
                channel.send(0, &number.to_le_bytes()).expect("sent");
            }
            return;
        }
        let mut next = vec![0u32; size];
        for _ in 0..2000 * (size - 1) {
            let mut word = [0; 4];
            let message = channel.receive(None, &mut word).expect("received");
            assert_eq!(u32::from_le_bytes(word), next[message.source]);
            next[message.source] += 1;
        }
    });
}

#[test]
fn a_full_receiver_does_not_block_another() {
    let segment = segment(shape(3, 0..3));
    let mut sender = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut other = Channel::attach(segment.clone(), None, 2).expect("a rank");
    let mut count = 0;
    while sender.try_send(1, &[1; 1000]).expect("sound") {
        count += 1;
    }
    assert_eq!(count, (64 << 10) / 1008);
    assert!(sender.try_send(2, &[2; 1000]).expect("sound"));
    assert_eq!(
        other.receive_vec(None).expect("received"),
        (0, vec![2; 1000])
    );
    let view = segment.view().expect("sound");
    let full = view.iter().find(|view| (view.rank, view.channel) == (1, 0));
    let full = full.expect("rank 1");
    assert_eq!(full.inbound, [(0, count)]);
    assert_eq!(full.waiting, Waiting::No);
}

#[test]
fn a_rank_that_always_has_messages_does_not_keep_others_waiting() {
    let segment = segment(shape(3, 0..3));
    let attach = |rank| Channel::attach(segment.clone(), None, rank).expect("a rank");
    let (mut busy, mut receiver, mut other) = (attach(0), attach(1), attach(2));
    busy.send(1, &[0]).expect("sent");
    let receive = |receiver: &mut Channel| receiver.receive_vec(None).expect("received").0;
    assert_eq!(receive(&mut receiver), 0);
    other.send(1, &[2]).expect("sent");
    let before = (0..1000).position(|_| {
        busy.send(1, &[0]).expect("sent");
        let next = receiver.poll(None).expect("sound").expect("a message");
        let source = receive(&mut receiver);
        assert_eq!(source, next.source, "the polled message is received next");
        source == 2
    });
    assert!(before.is_some_and(|count| count <= 64), "{before:?}");
}

/// Each process speaks for itself on each of its channels.
#[test]
fn what_a_process_says_of_itself_is_in_the_view() {
    let segment = segment(shape(3, 0..3));
    let wanted = [Wanted::Receive {
        target: 2,
        tag: Some(7),
    }];
    let mut channel = Channel::attach(segment.clone(), None, 1).expect("a rank");
    channel.say_wanted(&wanted, true);
    channel.say_polls(1 << 40);
    let expected = Polling {
        polls: 1 << 40,
        version: 1,
        wanted: wanted.to_vec(),
        has_others: true,
    };
    for view in segment.view().expect("sound") {
        let expected = match (view.rank, view.channel) {
            (1, 0) => expected.clone(),
            _ => Polling::default(),
        };
        assert_eq!(view.polling, expected, "{view:?}");
    }
}

#[test]
fn receiving_frees_space_at_once() {
    let segment = segment(shape(2, 0..2));
    let mut sender = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut receiver = Channel::attach(segment, None, 1).expect("a rank");
    while sender.try_send(1, &[1; 1000]).expect("sound") {}
    receiver.receive_vec(None).expect("received");
    // The receiver does something else now, or has ended.
    assert!(sender.try_send(1, &[1; 1000]).expect("sound"));
    assert!(!sender.try_send(1, &[1; 1000]).expect("sound"));
}

/// A process that sleeps in a barrier occupies no space on the other channel.
#[test]
fn a_sender_goes_on_while_its_receiver_waits_in_a_barrier() {
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run(&[segment(shape(2, 0..2))], &[], |mut channel| {
            let count = (64 << 10) / 1008;
            if channel.rank() == 0 {
                for _ in 0..count + 8 {
                    channel.send(1, &[1; 1000]).expect("sent");
                }
                channel.barrier().expect("a barrier");
            } else {
                for _ in 0..8 {
                    channel.receive_vec(Some(0)).expect("received");
                }
                channel.barrier().expect("a barrier");
                for _ in 0..count {
                    channel.receive_vec(Some(0)).expect("received");
                }
            }
        });
        told.send(()).expect("the test waits");
    });
    tells.recv_timeout(BOUND).expect("both are done in time");
}

/// A process whose bell was rung does not count as waiting, because it is about to check again.
#[test]
fn a_process_whose_bell_was_rung_does_not_count_as_waiting() {
    let segment = segment(shape(2, 0..2));
    let waits = |rank: usize| segment.view().expect("sound")[rank].waiting;
    let mut sender = Channel::attach(segment.clone(), None, 0).expect("a rank");
    std::thread::scope(|scope| {
        let mut receiver = Channel::attach(segment.clone(), None, 1).expect("a rank");
        scope.spawn(move || receiver.receive_vec(Some(0)).expect("received"));
        let end = Instant::now() + BOUND;
        while waits(1) != Waiting::Receive(0) {
            assert!(Instant::now() < end, "it does not wait");
            std::thread::yield_now();
        }
        sender.send(1, &[1]).expect("sent");
        assert_eq!(waits(1), Waiting::No);
    });
}

#[test]
fn the_number_of_messages_is_bounded_too() {
    let mut shape = shape(2, 0..2);
    shape.receive = Fifo {
        bytes: 64 << 10,
        messages: 16,
    };
    let segment = segment(shape);
    let mut sender = Channel::attach(segment.clone(), None, 0).expect("a rank");
    for _ in 0..16 {
        assert!(sender.try_send(1, &[]).expect("sound"));
    }
    assert!(!sender.try_send(1, &[]).expect("sound"));
}

#[test]
fn a_context_is_copied_out_and_back() {
    let segment = segment(shape(2, 0..2));
    let mut sender = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut receiver = Channel::attach(segment.clone(), None, 1).expect("a rank");
    for number in 0..20u8 {
        sender.send(1, &[number; 3000]).expect("sent");
        if number < 10 {
            receiver.receive_vec(None).expect("received");
        }
    }
    let mut saved = SavedContext::default();
    segment.save(&mut saved).expect("sound");
    assert!(saved.bytes() >= 10 * 3000);
    segment.restore(&saved);
    for number in 10..20u8 {
        let (_, bytes) = receiver.receive_vec(None).expect("received");
        assert_eq!(bytes, [number; 3000]);
    }
}

#[test]
fn wrong_use_is_an_error() {
    let mut shape = shape(3, 0..3);
    shape.partitions = vec![0, 0, 1];
    let segment = segment(shape);
    let mut one = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut two = Channel::attach(segment, None, 1).expect("a rank");
    assert!(matches!(one.send(3, &[]), Err(ChannelError::Rank { .. })));
    assert!(matches!(one.send(2, &[]), Err(ChannelError::Partition(2))));
    assert!(matches!(one.barrier(), Err(ChannelError::Partition(2))));
    let all = two.all_reduce(Reduction::Sum, &mut [1.5]);
    assert!(matches!(all, Err(ChannelError::Partition(2))));
    let long = vec![0; one.eager_bytes() + 1];
    assert!(matches!(
        one.try_send(1, &long),
        Err(ChannelError::TooLong { .. })
    ));
    one.send(1, &[1, 2, 3]).expect("sent");
    let small = two.receive(None, &mut [0; 2]);
    assert!(matches!(
        small,
        Err(ChannelError::TooLong { bytes: 3, room: 2 })
    ));
    assert_eq!(two.receive_vec(None).expect("still there").1, [1, 2, 3]);
    assert!(matches!(Channel::open(), Err(ChannelError::NoJob(_))));
}

/// The exchange has moved one of its two messages, so doing it again would move that one twice.
#[test]
fn an_exchange_that_is_interrupted_after_an_empty_message_is_cut() {
    let begin = || {
        let segment = segment(shape(2, 0..2));
        let mut channel = Channel::attach(segment.clone(), None, 0).expect("a rank");
        channel.set_interrupt(|| true);
        let other = Channel::attach(segment, None, 1).expect("a rank");
        (channel, other)
    };
    let interrupted_once = |channel: &mut Channel| {
        let mut exchange = || channel.exchange(1, &[], 1, &mut [0; 8]);
        assert!(matches!(exchange(), Err(ChannelError::Interrupted)));
        assert!(matches!(exchange(), Err(ChannelError::Cut)));
    };

    let (mut sender, mut other) = begin();
    interrupted_once(&mut sender);
    assert!(other.poll(None).expect("whole").is_some());
    other.receive(None, &mut []).expect("a message");
    assert!(other.poll(None).expect("whole").is_none());

    let (mut receiver, mut other) = begin();
    while receiver.try_send(1, &[]).expect("whole") {}
    other.send(0, &[]).expect("sent");
    interrupted_once(&mut receiver);
}

#[test]
fn a_corrupt_segment_causes_an_error_and_no_crash() {
    let segment = segment(shape(3, 0..3));
    let fd = segment.fd().expect("the maker has it");
    let bytes = segment.bytes();
    let mapping = farcall_channel::raw::Mapping::new(fd, bytes, false).expect("mapped");
    let mut channel = Channel::attach(segment.clone(), None, 0).expect("a rank");
    channel.send(1, &[5; 100]).expect("sent");
    let mut reader = Channel::attach(segment.clone(), None, 1).expect("a rank");
    for (seed, skip) in [(0xffu8, 256usize), (0x5a, 256), (0x01, 0)] {
        // SAFETY: the mapping is that long; the header is left alone, as it is read only once.
        unsafe {
            mapping
                .start()
                .as_ptr()
                .add(skip)
                .write_bytes(seed, (bytes - skip).min(1 << 20));
        }
        assert!(reader.try_receive(Some(0), &mut [0; 100]).is_err());
        let _ = segment.view();
        let _ = segment.save(&mut SavedContext::default());
    }
}

#[test]
fn preempted_over_and_over_nothing_is_lost() {
    const SWITCHES: usize = 10;
    for how in [Freeze::Drain, Freeze::Epoch] {
        let (engines, segments) = two_nodes();
        let switches = AtomicUsize::new(0);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let past = switches.fetch_add(1, Ordering::Relaxed);
                    switch(&engines, how, past as u32 + 1);
                }
            });
            run(&segments, &engines, |mut channel| {
                let (rank, other) = (channel.rank(), 1 - channel.rank());
                let mut buffer = [0; 5000];
                for round in 0.. {
                    // Both end after the same round: each tells the other what it has seen.
                    let has_seen = round >= 300 && switches.load(Ordering::Relaxed) > SWITCHES;
                    let mut sent = pattern(rank, round, 5000);
                    sent[0] = has_seen.into();
                    channel
                        .exchange(other, &sent, other, &mut buffer)
                        .expect("exchanged");
                    assert_eq!(buffer[1..], pattern(other, round, 5000)[1..]);
                    if has_seen && buffer[0] == 1 {
                        break;
                    }
                }
            });
            ends.store(true, Ordering::Relaxed);
        });
    }
}

/// Two nodes with one process each.
fn two_nodes() -> ([Engine; 2], [Arc<Segment>; 2]) {
    let engines = [loopback(), loopback()];
    let segments = [segment(shape(2, 0..1)), segment(shape(2, 1..2))];
    let addresses = [Some(engines[0].address()), Some(engines[1].address())];
    engines[0].attach(segments[0].clone(), &[None, addresses[1]], 0);
    engines[1].attach(segments[1].clone(), &[addresses[0], None], 0);
    (engines, segments)
}

/// A network that loses 1 % and repeats 0.5 % of the datagrams, so that fewer arrive than are sent.
#[test]
fn over_a_bad_network_each_message_comes_once_and_in_order() {
    let (engines, segments) = two_nodes();
    for (engine, seed) in engines.iter().zip(1..) {
        engine.set_faults(Faults {
            lost: 10_000,
            repeated: 5_000,
            seed,
        });
    }
    run(&segments, &engines, |mut channel| {
        for number in 0..3000usize {
            let bytes = number * 37 % 9000;
            if channel.rank() == 0 {
                channel.send(1, &pattern(0, number, bytes)).expect("sent");
            } else {
                let (_, received) = channel.receive_vec(Some(0)).expect("received");
                assert!(received == pattern(0, number, bytes), "message {number}");
            }
        }
        channel.barrier().expect("a barrier");
    });
    assert!(engines[0].traffic().sent > engines[1].traffic().received);
}

/// The seven steps: contexts are copied out and back during the arrival of answers of the past
/// epoch.
#[test]
fn contexts_copied_under_traffic_lose_no_credit() {
    let (engines, segments) = two_nodes();
    let ends = AtomicBool::new(false);
    // The thread that switches stops the processes first.
    let running = std::sync::RwLock::new(());
    // Messages travel during more than ten switches, however many there are until then.
    let (count, switches) = (4000, AtomicUsize::new(0));
    let last = AtomicUsize::new(usize::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut saved = [SavedContext::default(), SavedContext::default()];
            let mut epoch = 0;
            while !ends.load(Ordering::Relaxed) {
                {
                    let _stopped = running.write().expect("not poisoned");
                    engines.iter().for_each(|engine| {
                        assert!(engine.freeze(7, Freeze::Epoch));
                    });
                    for (segment, saved) in segments.iter().zip(&mut saved) {
                        segment.save(saved).expect("sound");
                    }
                    // Leave time for messages in the network to arrive.
                    std::thread::sleep(Duration::from_micros(300));
                    for (segment, saved) in segments.iter().zip(&saved) {
                        segment.restore(saved);
                    }
                    epoch += 1;
                    engines.iter().for_each(|engine| engine.thaw(7, epoch));
                    switches.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_micros(700));
            }
        });
        run(&segments, &engines, |mut channel| {
            let end = Instant::now() + BOUND;
            let mut number = 0;
            while number < last.load(Ordering::Relaxed) {
                assert!(Instant::now() < end, "message {number} does not get on");
                let _running = running.read().expect("not poisoned");
                let bytes = pattern(0, number, 900);
                if channel.rank() == 0 {
                    number += usize::from(channel.try_send(1, &bytes).expect("sound"));
                    if number >= count && switches.load(Ordering::Relaxed) > 10 {
                        last.store(number, Ordering::Relaxed);
                    }
                    continue;
                }
                let mut buffer = [0; 900];
                if channel
                    .try_receive(Some(0), &mut buffer)
                    .expect("sound")
                    .is_some()
                {
                    assert!(buffer[..] == bytes, "message {number}");
                    number += 1;
                }
            }
        });
        ends.store(true, Ordering::Relaxed);
    });
    let end = Instant::now() + BOUND;
    while segments[0].view().expect("sound")[0].sent_bytes > 0 {
        assert!(Instant::now() < end, "room of the send FIFO is lost");
        std::thread::yield_now();
    }
}

/// A process that forges the table of partitions in its segment sends nothing, and does not keep
/// the engine busy.
#[test]
fn records_forced_into_another_partition_are_not_sent() {
    let engines = [loopback(), loopback()];
    let shape = Shape {
        partitions: vec![0, 1],
        ..shape(2, 0..1)
    };
    let own = segment(shape);
    engines[0].attach(own.clone(), &[None, Some(engines[1].address())], 0);
    let fd = own.fd().expect("the maker has it");
    let mapping = farcall_channel::raw::Mapping::new(fd, own.bytes(), false).expect("mapped");
    // SAFETY: the header of 256 bytes is followed by two tables of two numbers of 16 bits.
    unsafe { mapping.start().as_ptr().add(256 + 4).write_bytes(0, 4) };
    let forged = Arc::new(Segment::open(fd).expect("still a segment"));
    let bell = own.bell().expect("its own");
    let bell = bell.try_clone_to_owned().expect("a bell");
    let mut channel = Channel::attach(forged, Some(bell), 0).expect("a rank");
    assert!(
        channel
            .try_send(1, &[1; 100])
            .expect("it believes its table")
    );
    wait_until_asleep(&engines[0]);
    assert_eq!(engines[0].traffic().sent, 0);
}

/// Switches the gang job out and in again; the engines are told one after the other.
fn switch(engines: &[Engine], how: Freeze, epoch: u32) {
    for engine in engines {
        engine.freeze(7, how);
    }
    let end = Instant::now() + BOUND;
    for engine in engines {
        while !engine.is_at_rest(7) {
            assert!(
                Instant::now() < end,
                "the network does not become stationary"
            );
            std::thread::yield_now();
        }
    }
    for engine in engines {
        engine.close(7);
    }
    for engine in engines {
        engine.thaw(7, epoch);
    }
    // The shortest possible slice: until something was carried in it.
    let before = engines[0].traffic().received;
    let end = Instant::now() + Duration::from_millis(20);
    while engines[0].traffic().received < before + 8 && Instant::now() < end {
        std::thread::yield_now();
    }
}

#[test]
fn a_message_of_two_parts_arrives_as_one() {
    let segment = segment(shape(2, 0..2));
    let mut one = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut other = Channel::attach(segment, None, 1).expect("a rank");
    assert!(one.is_local(1) && !one.is_local(2));
    let most = one.eager_bytes();
    for (head, bytes) in [
        (0, 0),
        (24, 0),
        (24, 9),
        (64, 8184),
        (3, 20_000),
        (64, most - 64),
    ] {
        let (head, bytes) = (pattern(0, 1, head), pattern(1, 0, bytes));
        assert!(one.try_send_parts(1, &head, &bytes).expect("sound"));
        let mut seen = vec![0; head.len()];
        let message = other
            .peek(None, &mut seen)
            .expect("sound")
            .expect("a message");
        assert_eq!(
            (message.source, message.bytes),
            (0, head.len() + bytes.len())
        );
        assert_eq!(seen, head);
        seen.fill(0);
        let mut received = vec![0; bytes.len()];
        let message = other.receive_parts(0, &mut seen, &mut received);
        assert_eq!(message.expect("sound").bytes, head.len() + bytes.len());
        assert!(seen == head && received == bytes);
    }
    assert!(one.try_send(1, &pattern(0, 1, 9000)).expect("sound"));
    // The first bytes of an ordinary message are its head too, and a longer one stays.
    let (mut head, mut buffer) = ([0; 64], vec![0; 9000 - 64]);
    let error = other.receive_parts(0, &mut head, &mut buffer[1..]);
    assert!(matches!(error, Err(ChannelError::TooLong { .. })));
    other
        .receive_parts(0, &mut head, &mut buffer)
        .expect("sound");
    assert_eq!([&head[..], &buffer].concat(), pattern(0, 1, 9000));
    assert!(other.peek(None, &mut head).expect("sound").is_none());
    let error = one.try_send_parts(1, &[0; 65], &[]);
    assert!(matches!(error, Err(ChannelError::TooLong { .. })));
}

/// Two processes that send as one rank would overwrite each other's messages.
#[test]
fn a_forked_child_cannot_use_the_channels_of_its_parent() {
    let segment = segment(shape(2, 0..2));
    let mut channel = Channel::attach(segment.clone(), None, 0).expect("a rank");
    let mut other = Channel::attach(segment, None, 1).expect("a rank");
    // SAFETY: the child makes only operations that must fail before they do anything, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = [
            channel.send(1, b"of the child").err(),
            channel.try_send(1, b"of the child").err(),
            channel.try_receive(None, &mut [0; 8]).err(),
            channel.barrier().err(),
        ];
        let all = forked
            .iter()
            .all(|error| matches!(error, Some(ChannelError::Forked)));
        // SAFETY: a plain system call.
        unsafe { libc::_exit(i32::from(!all)) };
    }
    let mut status = -1;
    // SAFETY: plain system calls on a child of this process and a value of this frame.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child could use a channel");
    channel.send(1, b"of the parent").expect("it goes on");
    let (source, bytes) = other.receive_vec(None).expect("a message");
    assert_eq!((source, &bytes[..]), (0, &b"of the parent"[..]));
}
