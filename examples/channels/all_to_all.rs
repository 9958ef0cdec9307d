//! Every process sends every other one different bytes in each round, and checks what it receives.
//! Each process prints a hash of what it received, which is the same in every run.
//!
//!     farcall gang run -n 4 all_to_all 50 20000

use farcall_channel::Channel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let bytes: usize = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let mut channel = Channel::open()?;
    let (rank, size) = (channel.rank(), channel.size());
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut buffer = vec![0; bytes];
    for round in 0..rounds {
        for step in 1..size {
            let (target, source) = ((rank + step) % size, (rank + size - step) % size);
            let sent = pattern(rank, target, round, bytes);
            channel.exchange(target, &sent, source, &mut buffer)?;
            if buffer != pattern(source, rank, round, bytes) {
                return Err(format!("round {round}: wrong bytes from rank {source}").into());
            }
            for byte in &buffer {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    println!(
        "rank {rank} received {} messages, hash {hash:016x}",
        rounds * (size - 1)
    );
    Ok(())
}

fn pattern(source: usize, target: usize, round: usize, bytes: usize) -> Vec<u8> {
    let mut number = (source << 40 ^ target << 20 ^ round) as u64 | 1;
    let mut next = || {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number as u8
    };
    (0..bytes).map(|_| next()).collect()
}
