//! EP of the paper: every element computes by itself for some seconds of processor time, and sends
//! nothing. Prints elapsed and processor time.
//!
//!     farcall gang run -n 2 ep 10

use farcall_channel::Channel;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(1.0), |text| text.parse())?;
    let mut channel = Channel::open()?;
    channel.barrier()?;
    let (start, begin) = (Instant::now(), processor_time());
    let end = begin + Duration::from_secs_f64(seconds);
    let mut number = 1u64;
    while processor_time() < end {
        for _ in 0..100_000 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
        }
        std::hint::black_box(number);
    }
    let (elapsed, used) = (start.elapsed(), processor_time() - begin);
    println!(
        "rank {} elapsed {:.6} processor {:.6}",
        channel.rank(),
        elapsed.as_secs_f64(),
        used.as_secs_f64()
    );
    Ok(())
}

/// Processor time of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
