//! Measures latency and bandwidth between two processes, by message size. The first process prints
//! one line for each size.
//!
//!     farcall gang run -n 2 ping_pong

use farcall_channel::Channel;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut channel = Channel::open()?;
    let (rank, other) = (channel.rank(), 1 - channel.rank().min(1));
    for bytes in [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20] {
        let count = (16 << 20 >> 6) / (bytes / 64 + 16);
        let mut buffer = vec![1u8; bytes];
        let mut seconds = [0.0; 2];
        for stream in [false, true] {
            channel.barrier()?;
            let start = Instant::now();
            for _ in 0..count {
                if rank == 0 {
                    channel.send(other, &buffer)?;
                }
                if rank == 1 {
                    channel.receive(Some(0), &mut buffer)?;
                }
                if !stream && rank == 1 {
                    channel.send(0, &buffer)?;
                } else if !stream && rank == 0 {
                    channel.receive(Some(1), &mut buffer)?;
                }
            }
            channel.barrier()?;
            seconds[usize::from(stream)] = start.elapsed().as_secs_f64();
        }
        if rank == 0 {
            println!(
                "bytes {bytes} one_way_us {:.3} mb_per_s {:.1}",
                seconds[0] / count as f64 / 2.0 * 1e6,
                count as f64 * bytes as f64 / seconds[1] / 1e6
            );
        }
    }
    Ok(())
}
