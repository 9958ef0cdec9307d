//! Everybody sends to the next rank and nobody receives: a flow-control stall, on purpose.
//!
//! `farcall gang run -n 3 --detect-termination stall` ends it and names the full channels.

use farcall_channel::{Channel, ChannelError};

fn main() -> Result<(), ChannelError> {
    let mut channel = Channel::open()?;
    let next = (channel.rank() + 1) % channel.size();
    loop {
        channel.send(next, &[0; 4000])?;
    }
}
