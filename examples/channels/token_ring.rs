//! A token goes around a ring. With `lost`, nobody begins: a deadlock on purpose, which
//! `farcall gang state` shows with its cycle and `gang run --detect-termination` ends.
//!
//!     farcall gang run -n 4 token_ring 1000
//!     farcall gang run -n 4 --detect-termination token_ring lost

use farcall_channel::Channel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).unwrap_or("1000".to_string());
    let is_lost = argument == "lost";
    let rounds: u64 = if is_lost { 1 } else { argument.parse()? };
    let mut channel = Channel::open()?;
    let (rank, size) = (channel.rank(), channel.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut token = 0u64;
    for _ in 0..rounds {
        if rank == 0 && !is_lost {
            channel.send(next, &(token + 1).to_le_bytes())?;
        }
        let mut bytes = [0; 8];
        channel.receive(Some(previous), &mut bytes)?;
        token = u64::from_le_bytes(bytes);
        if rank != 0 {
            channel.send(next, &(token + 1).to_le_bytes())?;
        }
    }
    if rank == 0 {
        println!("the token went {rounds} times around {size} elements: {token}");
    }
    Ok(())
}
