//! Drives a token bucket in virtual time, at random intervals. In no interval may more bytes pass
//! than its rate and one burst, and a sender that uses every permission reaches the rate.

use farcall_random::SplitMix64;
use farcall_schedule::TokenBucket;
use farcall_schedule::queue::Nanos;

const SEEDS: u64 = 200;
const SECOND: u128 = 1_000_000_000;

#[test]
fn in_any_time_no_more_than_the_rate_and_a_burst_passes() {
    for seed in 0..SEEDS {
        let mut random = SplitMix64::new(seed);
        let mut below = |most: u64| random.next_u64() % most;
        let (rate, burst) = (
            1 + below(1 << (1 + seed % 40)),
            1 + below(1 << (1 + seed % 25)),
        );
        let mut now: Nanos = below(1 << 40);
        let mut bucket = TokenBucket::new(rate, burst, now);
        // When bytes have passed, and how many until then.
        let mut passed: Vec<(Nanos, u128)> = vec![(now, 0)];
        for _ in 0..150 {
            now += match below(3) {
                0 => below(1_000),
                1 => below(50_000_000),
                _ => bucket.when(now, 1 + below(2 * burst)) - now,
            };
            let most = bucket.room(now);
            let bytes = most.min(below(2 * burst));
            bucket.spend(bytes);
            passed.push((now, passed[passed.len() - 1].1 + u128::from(bytes)));
        }
        for from in 0..passed.len() - 1 {
            for until in from + 1..passed.len() {
                let bytes = passed[until].1 - passed[from].1;
                // Of what has passed at the first moment itself nothing counts here.
                let time = u128::from(passed[until].0 - passed[from].0);
                let bound = u128::from(rate) * time / SECOND + u128::from(burst);
                assert!(bytes <= bound, "seed {seed}: {bytes} bytes in {time} ns");
            }
        }
    }
}

#[test]
fn a_sender_that_uses_every_permission_reaches_the_rate() {
    for seed in 0..SEEDS {
        let mut random = SplitMix64::new(seed);
        let mut below = |most: u64| random.next_u64() % most;
        let rate = 1_000 + below(1 << (11 + seed % 28));
        let mut bucket = TokenBucket::of_rate(rate, 0);
        let first = bucket.room(0);
        bucket.spend(first);
        let (mut now, mut bytes) = (0, 0u128);
        for _ in 0..300 {
            let wanted = 1 + below(bucket.burst());
            now = bucket.when(now, wanted);
            let room = bucket.room(now);
            assert!(room >= wanted, "seed {seed}: {room} of {wanted} bytes");
            bucket.spend(room);
            bytes += u128::from(room);
        }
        let due = u128::from(rate) * u128::from(now) / SECOND;
        assert!(due - bytes <= 1, "seed {seed}: {bytes} of {due} bytes");
    }
}
