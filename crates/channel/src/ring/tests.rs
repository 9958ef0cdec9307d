//! Tests of the ring. With loom, they try every order of writer and reader that the memory model
//! allows: records arrive whole and in order, and no wake is lost. Without loom, they test the ends
//! of the ring and damaged indices.

use super::*;

#[cfg(loom)]
fn control() -> Box<Control> {
    Box::new(Control {
        tail: WriterLine {
            tail: AtomicU64::new(0),
            wants_room: AtomicU32::new(0),
        },
        head: ReaderLine {
            head: AtomicU64::new(0),
        },
    })
}

#[cfg(loom)]
fn byte() -> Byte {
    Byte::new(0)
}

#[cfg(not(loom))]
fn byte() -> Byte {
    0
}

/// A ring that lives for the rest of the test program.
fn ring(capacity: usize) -> (Producer, Consumer) {
    #[cfg(loom)]
    let control = control();
    #[cfg(not(loom))]
    // SAFETY: all zero is an empty ring.
    let control: Box<Control> = Box::new(unsafe { std::mem::zeroed() });
    let data: Vec<Byte> = (0..capacity).map(|_| byte()).collect();
    let control = NonNull::from(Box::leak(control)).cast();
    let data = NonNull::from(Box::leak(data.into_boxed_slice())).cast();
    #[cfg(not(loom))]
    plain::keep([control, data]);
    // SAFETY: the memory is leaked, and these are its only ends.
    unsafe {
        (
            Producer::new(control, data, capacity),
            Consumer::new(control, data, capacity),
        )
    }
}

fn record(bytes: &[u8]) -> Record {
    Record {
        bytes: bytes.len() as u32,
        rest: 0,
    }
}

/// Loom chooses the order of writer and reader: every interleaving that the orderings allow.
#[cfg(loom)]
#[test]
fn a_reader_sees_whole_records_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(32);
        let writer = loom::thread::spawn(move || {
            let mut written = 0u8;
            while written < 3 {
                if producer.fits(1).expect("sound") {
                    producer.write(record(&[written]), &[written]);
                    producer.publish();
                    written += 1;
                }
                loom::thread::yield_now();
            }
        });
        let mut next = 0;
        while next < 3 {
            if let Some(record) = consumer.peek().expect("sound") {
                let mut byte = [255];
                consumer.read(record, &mut byte);
                assert_eq!(byte, [next]);
                consumer.release();
                next += 1;
            }
            loom::thread::yield_now();
        }
        writer.join().expect("the writer ends");
    });
}

/// A sleeping process and the process that wakes it, in the channel's protocol: neither sleeps
/// forever.
#[cfg(loom)]
#[test]
fn a_wake_is_never_lost() {
    use loom::sync::Arc;
    use loom::sync::atomic::fence;
    loom::model(|| {
        let (mut producer, mut consumer) = ring(32);
        let bell = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let other = bell.clone();
        let writer = loom::thread::spawn(move || {
            producer.write(record(&[7]), &[7]);
            producer.publish();
            fence(Ordering::SeqCst);
            if other.0.load(Ordering::Relaxed) != 0 {
                other.1.fetch_add(1, Ordering::Relaxed);
            }
        });
        bell.0.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = consumer.peek().expect("sound").is_some();
        writer.join().expect("the writer ends");
        let rung = bell.1.load(Ordering::Relaxed) != 0;
        assert!(seen || rung, "the reader would sleep on a message");
    });
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicPtr;

    /// Keeps the memory of rings reachable; otherwise LeakSanitizer and Miri report it as lost.
    pub(super) fn keep(memory: [NonNull<u8>; 2]) {
        static KEPT: Mutex<Vec<AtomicPtr<u8>>> = Mutex::new(Vec::new());
        let mut kept = KEPT.lock().expect("no test panics here");
        kept.extend(memory.map(|part| AtomicPtr::new(part.as_ptr())));
    }

    #[test]
    fn records_wrap_around_the_end() {
        let (mut producer, mut consumer) = ring(64);
        for round in 0..100u8 {
            let bytes = vec![round; usize::from(round) % 23];
            assert_eq!(producer.fits(bytes.len() as u32), Ok(true));
            producer.write(record(&bytes), &bytes);
            assert_eq!(consumer.peek(), Ok(None), "not published");
            producer.publish();
            let shown = consumer.peek().expect("sound").expect("published");
            assert_eq!(shown, record(&bytes));
            let mut read = vec![0; bytes.len()];
            consumer.read(shown, &mut read);
            assert_eq!(read, bytes);
            consumer.release();
        }
    }

    #[test]
    fn a_full_ring_takes_no_more() {
        let (mut producer, mut consumer) = ring(64);
        for _ in 0..4 {
            assert_eq!(producer.fits(8), Ok(true));
            producer.write(record(&[1; 8]), &[1; 8]);
        }
        producer.publish();
        assert_eq!(producer.fits(0), Ok(false));
        let shown = consumer.peek().expect("sound").expect("published");
        consumer.read(shown, &mut [0; 8]);
        assert_eq!(producer.fits(0), Ok(false), "not released");
        consumer.release();
        assert_eq!(producer.fits(8), Ok(true));
    }

    #[test]
    fn corrupt_indices_and_lengths_are_detected() {
        for (head, tail) in [(0, 4096), (8, 0), (0, 12), (u64::MAX, 64), (3, 64)] {
            let (mut producer, mut consumer) = ring(64);
            set_indices(consumer.ring.control(), head, tail);
            let read = consumer.peek();
            let wrote = (producer.has_space(64), producer.has_space(65));
            assert!(
                read == Err(Corrupt) || wrote.1 == Err(Corrupt),
                "{head} {tail}"
            );
        }
        let (mut producer, mut consumer) = ring(64);
        producer.write(record(&[0; 8]), &[0; 8]);
        let long = Record {
            bytes: 1 << 30,
            rest: 0,
        };
        producer.ring.copy_in(0, &long.encode());
        producer.publish();
        assert_eq!(consumer.peek(), Err(Corrupt));
    }
}
