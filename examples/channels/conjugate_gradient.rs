//! Conjugate gradients for the Laplacian of a chain, whose rows the elements share: neighbours
//! exchange their edge values, and sums go over all. Prints steps and error against the solution.
//! The vectors are registered, so the job can be moved and restarted.
//!
//!     farcall gang run -n 4 conjugate_gradient 2000

use farcall_channel::{Channel, ChannelError, Reduction};

/// The vectors x, residual and direction, the square of the residual's norm, and the steps.
type State = (Vec<f64>, Vec<f64>, Vec<f64>, [f64; 1], [u64; 1]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: usize = std::env::args()
        .nth(1)
        .map_or(Ok(1000), |text| text.parse())?;
    let mut channel = Channel::open()?;
    let (rank, size) = (channel.rank(), channel.size());
    let (first, last) = (rank * rows / size, (rank + 1) * rows / size);
    let exact: Vec<f64> = (first..last).map(|row| (row as f64 * 0.37).sin()).collect();
    let zeros = || vec![0.0; last - first];
    let mut state: State = (zeros(), zeros(), zeros(), [0.0], [0]);
    channel.register(&mut state)?;
    channel.run(&mut state, |channel, state, step| {
        if step == 0 {
            begin(channel, state, &exact)?;
        } else {
            improve(channel, state)?;
        }
        state.4[0] = step;
        Ok::<bool, ChannelError>(state.3[0] > 1e-24 && step < 2 * rows as u64)
    })?;
    let errors = state.0.iter().zip(&exact);
    let errors = errors.map(|(x, exact)| (x - exact).abs());
    let mut error = [errors.fold(0.0, f64::max)];
    channel.all_reduce(Reduction::Maximum, &mut error)?;
    if rank == 0 {
        println!("{} steps, largest error {:.3e}", state.4[0], error[0]);
    }
    if error[0] < 1e-6 {
        Ok(())
    } else {
        Err("the solution is wrong".into())
    }
}

/// The residual of x = 0 is the right-hand side.
fn begin(channel: &mut Channel, state: &mut State, exact: &[f64]) -> Result<(), ChannelError> {
    let (_, residual, direction, norm, _) = state;
    *residual = apply(channel, exact)?;
    direction.clone_from(residual);
    norm[0] = dot(channel, residual, residual)?;
    Ok(())
}

fn improve(channel: &mut Channel, state: &mut State) -> Result<(), ChannelError> {
    let (x, residual, direction, norm, _) = state;
    let image = apply(channel, direction)?;
    let length = norm[0] / dot(channel, direction, &image)?;
    for row in 0..x.len() {
        x[row] += length * direction[row];
        residual[row] -= length * image[row];
    }
    let next = dot(channel, residual, residual)?;
    for row in 0..x.len() {
        direction[row] = residual[row] + next / norm[0] * direction[row];
    }
    norm[0] = next;
    Ok(())
}

/// The matrix with 2.1 on its diagonal and -1 beside it.
fn apply(channel: &mut Channel, vector: &[f64]) -> Result<Vec<f64>, ChannelError> {
    let (rank, size) = (channel.rank(), channel.size());
    let ends = [vector[0], vector[vector.len() - 1]];
    let (mut below, mut above) = ([0; 8], [0; 8]);
    if rank > 0 {
        channel.send(rank - 1, &ends[0].to_ne_bytes())?;
    }
    if rank + 1 < size {
        channel.send(rank + 1, &ends[1].to_ne_bytes())?;
        channel.receive(Some(rank + 1), &mut above)?;
    }
    if rank > 0 {
        channel.receive(Some(rank - 1), &mut below)?;
    }
    let at = |row: usize| vector.get(row).copied();
    let beside = |row: usize| {
        let left = match row {
            0 => f64::from_ne_bytes(below),
            _ => vector[row - 1],
        };
        left + at(row + 1).unwrap_or(f64::from_ne_bytes(above))
    };
    Ok((0..vector.len())
        .map(|row| 2.1 * vector[row] - beside(row))
        .collect())
}

fn dot(channel: &mut Channel, one: &[f64], other: &[f64]) -> Result<f64, ChannelError> {
    let products = one.iter().zip(other).map(|(one, other)| one * other);
    let mut sum = [products.sum()];
    channel.all_reduce(Reduction::Sum, &mut sum)?;
    Ok(sum[0])
}
