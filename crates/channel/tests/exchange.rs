//! Channels of one job in threads of this process, on one node and over two engines.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall_channel::{
    Channel, ChannelError, Engine, Fifo, Reduction, SavedContext, Segment, Shape, Waiting,
};
use farcall_channel_proto::Freeze;

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
                let engine = engines.get(index);
                let bell = engine.map(|engine| engine.bell().try_clone_to_owned().expect("a bell"));
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

/// Every rank to every other, messages from nothing to several times the FIFO.
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
        // A job comes to an engine that sleeps already.
        wait_until_asleep(engine);
        engine.attach(segments[index].clone(), &peers(index), 0);
    }
    run(&segments, &engines, all_to_all);
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

#[test]
fn a_scribbled_segment_is_an_error_and_no_crash() {
    let segment = segment(shape(3, 0..3));
    let fd = segment.fd().expect("the maker has it");
    let bytes = segment.bytes();
    let mapping = farcall_channel::raw::Mapping::new(fd, bytes).expect("mapped");
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
    for how in [Freeze::Drain, Freeze::Epoch] {
        let engines = [loopback(), loopback()];
        let segments = [segment(shape(2, 0..1)), segment(shape(2, 1..2))];
        let addresses = [Some(engines[0].address()), Some(engines[1].address())];
        engines[0].attach(segments[0].clone(), &[None, addresses[1]], 0);
        engines[1].attach(segments[1].clone(), &[addresses[0], None], 0);
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut epoch = 0;
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    epoch += 1;
                    switch(&engines, how, epoch);
                }
                assert!(epoch > 5, "{epoch} switches");
            });
            run(&segments, &engines, |mut channel| {
                let (rank, other) = (channel.rank(), 1 - channel.rank());
                for round in 0..300 {
                    let sent = pattern(rank, round, 5000);
                    let mut buffer = [0; 5000];
                    channel
                        .exchange(other, &sent, other, &mut buffer)
                        .expect("exchanged");
                    assert_eq!(buffer[..], pattern(other, round, 5000));
                }
            });
            ends.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

/// Out and in again, with the engines told one after the other.
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
    // A slice, as short as it can be: until something has been carried in it.
    let before = engines[0].traffic().received;
    let end = Instant::now() + Duration::from_millis(20);
    while engines[0].traffic().received < before + 8 && Instant::now() < end {
        std::thread::yield_now();
    }
}
