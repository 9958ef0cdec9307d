//! Measures the cost of a channel compared with a bare ring in shared memory. Both ends run in
//! threads on separate cores, so the figures contain no gang switch. `lost` measures the switches.

use super::rows::{Bar, Row};
use crate::failure::Failure;
use farcall_channel::raw::{CONTROL_BYTES, Consumer, Mapping, Producer, Record, sealed_memory};
use farcall_channel::{Channel, SavedContext, Segment, Shape};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the ring of a channel with the default FIFOs.
const RING: usize = 64 << 10;
/// The longest part of a message that a channel sends at once.
pub(super) const PART: usize = (8 << 10) - 8;
pub(super) const ROUNDS: usize = 7;

pub(super) fn rows() -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let (mut ours, mut raw) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        ours.push(channel_latency(20_000)?);
        raw.push(raw_latency(20_000)?);
    }
    let latency = Row::new("channel, 8 bytes one way", median(ours), "us");
    rows.push(
        latency
            .beside("raw ring", median(raw))
            .bar(Bar::MostOfPeer(2.0)),
    );
    for bytes in [64 << 10, 1 << 20] {
        let count = (256 << 20) / bytes;
        let (mut ours, mut raw) = (vec![], vec![]);
        for _ in 0..ROUNDS {
            ours.push(channel_bandwidth(bytes, count)?);
            raw.push(raw_bandwidth(bytes, count)?);
        }
        let name = format!("channel, {} KB messages", bytes >> 10);
        let row = Row::new(name, median(ours), "MB/s").higher();
        rows.push(
            row.beside("raw ring", median(raw))
                .bar(Bar::LeastOfPeer(0.9)),
        );
    }
    rows.extend(table_three()?);
    Ok(rows)
}

pub(super) fn median(values: Vec<f64>) -> f64 {
    crate::table::median(&values)
}

fn segment(size: u16, locals: std::ops::Range<u16>) -> Result<Arc<Segment>, Failure> {
    Ok(Arc::new(Segment::create(shape(size, locals))?))
}

pub(super) fn shape(size: u16, locals: std::ops::Range<u16>) -> Shape {
    Shape {
        job: 1,
        size,
        locals: locals.collect(),
        channels: 1,
        partitions: vec![0; size.into()],
        send: Shape::SEND,
        receive: Shape::RECEIVE,
        spin: true,
        is_restored: false,
    }
}

/// Two channels in two threads, each on its own core.
fn pair(
    one: impl FnOnce(Channel) -> bool + Send,
    other: impl FnOnce(Channel) -> bool + Send,
) -> Result<f64, Failure> {
    let segment = segment(2, 0..2)?;
    let open = |rank| Channel::attach(segment.clone(), None, rank).map_err(Failure::failed);
    let (first, second) = (open(0)?, open(1)?);
    let start = Instant::now();
    let worked = both(|| one(first), || other(second));
    let seconds = start.elapsed().as_secs_f64();
    match worked {
        [true, true] => Ok(seconds),
        // Without this, a channel that fails at once would be the fastest.
        _ => Err(Failure::failed("a channel lost a message")),
    }
}

fn both<T: Send>(one: impl FnOnce() -> T + Send, other: impl FnOnce() -> T + Send) -> [T; 2] {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin(1);
            other()
        });
        let one = scope.spawn(|| {
            pin(0);
            one()
        });
        [one, other].map(|end| end.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Does something so many times. Returns whether it always worked; the other end waits for all.
fn all(count: usize, mut once: impl FnMut(usize) -> bool) -> bool {
    (0..count).fold(true, |worked, number| worked & once(number))
}

fn pin(processor: usize) {
    // SAFETY: a plain system call on a set of this frame.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// One-way latency in microseconds.
pub(super) fn channel_latency(count: usize) -> Result<f64, Failure> {
    let seconds = pair(
        |mut channel| {
            all(count, |number| {
                let (sent, mut word) = (number.to_ne_bytes(), [0; 8]);
                channel.send(1, &sent).is_ok() & channel.receive(Some(1), &mut word).is_ok()
                    && word == sent
            })
        },
        |mut channel| {
            let mut word = [0; 8];
            all(count, |_| {
                channel.receive(Some(0), &mut word).is_ok() & channel.send(0, &word).is_ok()
            })
        },
    )?;
    Ok(seconds / count as f64 / 2.0 * 1e6)
}

/// Bandwidth in megabytes per second.
pub(super) fn channel_bandwidth(bytes: usize, count: usize) -> Result<f64, Failure> {
    let seconds = pair(
        |mut channel| {
            let message = vec![1; bytes];
            all(count, |_| channel.send(1, &message).is_ok())
        },
        |mut channel| {
            let mut buffer = vec![0; bytes];
            all(count, |_| {
                let received = channel.receive(Some(0), &mut buffer);
                received.is_ok_and(|message| message.bytes == bytes)
            })
        },
    )?;
    Ok((bytes * count) as f64 / seconds / 1e6)
}

/// A bare ring in shared memory.
struct RawRing {
    mapping: Mapping,
}

impl RawRing {
    fn new() -> Result<RawRing, Failure> {
        let fd = sealed_memory("farcall-bench", CONTROL_BYTES + RING)?;
        let mapping = Mapping::new(fd.as_fd(), CONTROL_BYTES + RING, false)?;
        Ok(RawRing { mapping })
    }

    fn ends(&self) -> (Producer, Consumer) {
        let control = self.mapping.start();
        // SAFETY: the mapping has room for both and outlives the threads that use them; these are
        // the ring's only ends.
        unsafe {
            let data = control.add(CONTROL_BYTES);
            (
                Producer::new(control, data, RING),
                Consumer::new(control, data, RING),
            )
        }
    }
}

fn put(producer: &mut Producer, bytes: &[u8], rest: usize) {
    let record = Record {
        bytes: bytes.len() as u32,
        rest: rest as u32,
    };
    while producer.fits(record.bytes) != Ok(true) {
        std::hint::spin_loop();
    }
    producer.write(record, bytes);
    producer.publish();
}

fn take(consumer: &mut Consumer, target: &mut [u8]) {
    loop {
        if let Ok(Some(record)) = consumer.peek() {
            consumer.read(record, target);
            return consumer.release();
        }
        std::hint::spin_loop();
    }
}

fn raw_latency(count: usize) -> Result<f64, Failure> {
    let (there, back) = (RawRing::new()?, RawRing::new()?);
    let ((mut one, mut two), (mut three, mut four)) = (there.ends(), back.ends());
    let start = Instant::now();
    both(
        move || {
            for _ in 0..count {
                put(&mut one, &[1; 8], 0);
                take(&mut four, &mut [0; 8]);
            }
        },
        move || {
            for _ in 0..count {
                take(&mut two, &mut [0; 8]);
                put(&mut three, &[1; 8], 0);
            }
        },
    );
    Ok(start.elapsed().as_secs_f64() / count as f64 / 2.0 * 1e6)
}

fn raw_bandwidth(bytes: usize, count: usize) -> Result<f64, Failure> {
    let ring = RawRing::new()?;
    let (mut producer, mut consumer) = ring.ends();
    let start = Instant::now();
    both(
        move || {
            let message = vec![1; bytes];
            for _ in 0..count {
                for part in message.chunks(PART) {
                    put(&mut producer, part, 0);
                }
            }
        },
        move || {
            let mut buffer = vec![0; bytes];
            for _ in 0..count {
                for part in buffer.chunks_mut(PART) {
                    take(&mut consumer, part);
                }
            }
        },
    );
    Ok((bytes * count) as f64 / start.elapsed().as_secs_f64() / 1e6)
}

/// Table 3 of the paper: saving and restoring the context of a channel whose FIFOs are empty or
/// full.
fn table_three() -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let paper = [
        ("empty", "empty", 0.94, 0.37),
        ("full", "empty", 2.40, 1.84),
        ("empty", "full", 4.66, 2.96),
        ("full", "full", 6.12, 4.43),
    ];
    for (send, receive, save, restore) in paper {
        // Ranks 0 and 1 are in this segment and rank 2 is not, so messages to rank 2 remain in the
        // send FIFO.
        let segment = segment(3, 0..2)?;
        let open = |rank| Channel::attach(segment.clone(), None, rank).map_err(Failure::failed);
        let (mut own, mut other) = (open(0)?, open(1)?);
        let message = [1; 96];
        while send == "full" && own.try_send(2, &message).map_err(Failure::failed)? {}
        while receive == "full" && other.try_send(0, &message).map_err(Failure::failed)? {}
        let mut saved = SavedContext::default();
        let (mut out, mut back) = (vec![], vec![]);
        for _ in 0..200 {
            let start = Instant::now();
            segment.save(&mut saved).map_err(Failure::failed)?;
            out.push(start.elapsed().as_secs_f64() * 1e6);
            let start = Instant::now();
            segment.restore(&saved);
            back.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let name = format!("send FIFO {send}, receive FIFO {receive}");
        let row = Row::new(format!("save, {name}"), median(out), "us");
        rows.push(row.beside("PM 1998", save * 1e3));
        let row = Row::new(format!("restore, {name}"), median(back), "us");
        rows.push(row.beside("PM 1998", restore * 1e3));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_lost_is_no_figure() {
        assert!(pair(|_| false, |_| true).is_err());
        assert!(pair(|_| true, |_| all(3, |number| number != 1)).is_err());
        assert!(channel_latency(10).unwrap() > 0.0);
        assert!(channel_bandwidth(64 << 10, 4).unwrap() > 0.0);
    }
}
