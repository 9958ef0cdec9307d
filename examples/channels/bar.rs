//! BAR of the paper: nothing but barriers, for some seconds. Prints how many there were.
//!
//!     farcall gang run -n 2 bar 10

use farcall_channel::{Channel, Reduction};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(1.0), |text| text.parse())?;
    let mut channel = Channel::open()?;
    channel.barrier()?;
    let start = Instant::now();
    let mut barriers = 0u64;
    let mut ends = [0i64];
    // Every so often all agree whether to go on: their clocks differ by what a slice does.
    while ends[0] == 0 {
        for _ in 0..500 {
            channel.barrier()?;
        }
        barriers += 500;
        ends[0] = i64::from(start.elapsed() >= Duration::from_secs_f64(seconds));
        channel.all_reduce(Reduction::Maximum, &mut ends)?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    println!(
        "rank {} elapsed {elapsed:.6} barriers {barriers} each {:.3} us",
        channel.rank(),
        elapsed / barriers as f64 * 1e6
    );
    Ok(())
}
