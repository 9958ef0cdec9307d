//! Programs in steps, which can be moved and restarted: EP and BAR of the paper, and one whose
//! messages stay in the channels for several steps. Each prints a number at its end that depends on
//! everything it has computed and received.
//!
//!     farcall gang run -n 4 movable ep 500
//!     farcall gang run -n 4 movable bar 500
//!     farcall gang run -n 4 movable late 500

use farcall_channel::{Channel, ChannelError, Reduction};

/// Steps for which a message stays in its channel.
const LATE: u64 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_else(|| "ep".to_string());
    let steps: u64 = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let mut channel = Channel::open()?;
    let mut state = (vec![channel.rank() as u64 + 1; 1000], [0u64]);
    let is_restored = channel.register(&mut state)?;
    channel.run(&mut state, |channel, (numbers, sum), step| {
        match program.as_str() {
            "ep" => compute(numbers),
            "bar" => meet(channel, numbers, step)?,
            _ => pass_on(channel, numbers, step)?,
        }
        sum[0] = sum[0]
            .wrapping_mul(31)
            .wrapping_add(numbers[step as usize % numbers.len()]);
        Ok::<bool, ChannelError>(step + 1 < steps)
    })?;
    let rank = channel.rank();
    println!(
        "rank {rank} of {program}: {:016x}",
        sum_of(&state.0) ^ state.1[0]
    );
    if is_restored {
        eprintln!("rank {rank} was restored");
    }
    Ok(())
}

fn sum_of(numbers: &[u64]) -> u64 {
    let sums = numbers.iter();
    sums.fold(0, |sum: u64, number| sum.rotate_left(5) ^ number)
}

/// About a millisecond of computing.
fn compute(numbers: &mut [u64]) {
    for _ in 0..100 {
        for number in numbers.iter_mut() {
            *number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
    }
}

/// Barriers, a sum over all, and some computing.
fn meet(channel: &mut Channel, numbers: &mut [u64], step: u64) -> Result<(), ChannelError> {
    compute(numbers);
    for _ in 0..10 {
        channel.barrier()?;
    }
    let place = step as usize % numbers.len();
    let mut sum = [numbers[place] as i64 ^ step as i64];
    channel.all_reduce(Reduction::Sum, &mut sum)?;
    numbers[place] = numbers[place].rotate_left(7) ^ sum[0] as u64;
    Ok(())
}

/// Sends a number to the next rank, which receives it [`LATE`] steps later. So the channels always
/// hold messages that nobody has received. Rank 0 sends the most, and some messages are long.
fn pass_on(channel: &mut Channel, numbers: &mut [u64], step: u64) -> Result<(), ChannelError> {
    let (rank, size) = (channel.rank(), channel.size());
    let length = if step.is_multiple_of(5) { 500 } else { 1 };
    let bytes = |numbers: &[u64]| -> Vec<u8> {
        let numbers = numbers[..length].iter();
        numbers.flat_map(|number| number.to_le_bytes()).collect()
    };
    channel.send((rank + 1) % size, &bytes(numbers))?;
    if step >= LATE {
        let (_, arrived) = channel.receive_vec(Some((rank + size - 1) % size))?;
        for (number, bytes) in numbers.iter_mut().zip(arrived.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            *number = number.rotate_left(3) ^ u64::from_le_bytes(word).wrapping_add(step);
        }
    }
    Ok(())
}
