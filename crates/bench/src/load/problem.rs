//! The functions that the clients call, and their arrays. Every call is checked: a wrong solution
//! ends the benchmark. All clients share one input, so memory grows only with the arrays of their
//! calls.

use crate::failure::Failure;
use farcall_client::{Argument, Function, Outcome, Scalar};
use std::f64::consts::FRAC_PI_4;

/// A function and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// LAPACK's dgesv of this order. The factors also come back.
    Dgesv(usize),
    /// The papers' Linpack, of this order.
    Linpack(usize),
    /// The same as [`Problem::Linpack`], but column by column instead of in blocks.
    Unblocked(usize),
    /// NAS EP with 2^m trials.
    Ep(usize),
    /// ScaLAPACK's solver for positive definite systems of this order, with one right-hand side.
    Posv(usize),
    /// ScaLAPACK's solver for all eigenvalues and eigenvectors of a symmetric matrix of this order.
    Syev(usize),
}

impl Problem {
    pub(crate) fn size(self) -> usize {
        match self {
            Problem::Dgesv(size) | Problem::Linpack(size) | Problem::Ep(size) => size,
            Problem::Unblocked(size) => size,
            Problem::Posv(size) | Problem::Syev(size) => size,
        }
    }

    /// The interface file that defines the function.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Problem::Dgesv(_) => "lapack.idl",
            Problem::Linpack(_) | Problem::Unblocked(_) => "linpack.idl",
            Problem::Ep(_) => "ep.idl",
            Problem::Posv(_) | Problem::Syev(_) => "scalapack.idl",
        }
    }

    pub(crate) fn function(self) -> &'static str {
        match self {
            Problem::Dgesv(_) => "lapack/dgesv",
            Problem::Linpack(_) => "linpack/linpack",
            Problem::Unblocked(_) => "linpack/unblocked",
            Problem::Ep(_) => "ep/ep",
            Problem::Posv(_) => "scalapack/pdposv",
            Problem::Syev(_) => "scalapack/pdsyev",
        }
    }

    /// Number of operations, as the papers count them.
    pub(crate) fn operations(self) -> f64 {
        match self {
            Problem::Dgesv(n) | Problem::Linpack(n) | Problem::Unblocked(n) => {
                let n = n as f64;
                2.0 / 3.0 * n.powi(3) + 2.0 * n.powi(2)
            }
            Problem::Ep(m) => 2f64.powi(m as i32 + 1),
            Problem::Posv(n) => (n as f64).powi(3) / 3.0 + 2.0 * (n as f64).powi(2),
            Problem::Syev(n) => 9.0 * (n as f64).powi(3),
        }
    }

    /// Bytes of arrays to the server and from it.
    pub(crate) fn ways(self) -> [f64; 2] {
        let [up, down] = match self {
            Problem::Dgesv(n) => [8 * n * n + 8 * n, 8 * n * n + 12 * n + 4],
            Problem::Linpack(n) | Problem::Unblocked(n) => [8 * n * n + 8 * n, 12 * n + 4],
            Problem::Ep(_) => [0, 96],
            Problem::Posv(n) => [8 * n * n + 8 * n, 8 * n * n + 8 * n + 4],
            Problem::Syev(n) => [8 * n * n, 16 * n * n + 8 * n + 4],
        };
        [up as f64, down as f64]
    }

    /// Bytes of arrays, in both directions.
    pub(crate) fn bytes(self) -> f64 {
        self.ways().iter().sum()
    }

    /// Whether the matrix must be symmetric.
    fn is_symmetric(self) -> bool {
        matches!(self, Problem::Posv(_) | Problem::Syev(_))
    }
}

/// The system that all clients solve, whose solution is 1 everywhere. They share it, so that the
/// memory of a client is that of the arrays of its calls.
pub(crate) struct System {
    pub(crate) problem: Problem,
    matrix: Vec<u8>,
    right: Vec<u8>,
}

impl System {
    pub(crate) fn new(problem: Problem) -> System {
        let n = match problem {
            Problem::Ep(_) => 0,
            other => other.size(),
        };
        let mut state = n as u64;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        let mut matrix: Vec<f64> = (0..n * n).map(|_| next()).collect();
        if problem.is_symmetric() {
            make_symmetric(&mut matrix, n);
        }
        let mut right = vec![0.0; n];
        for column in matrix.chunks(n.max(1)) {
            right
                .iter_mut()
                .zip(column)
                .for_each(|(sum, value)| *sum += value);
        }
        let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        System {
            problem,
            matrix: bytes(&matrix),
            right: bytes(&right),
        }
    }

    fn is_eigen(&self) -> bool {
        matches!(self.problem, Problem::Syev(_))
    }
}

fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    let value = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_ne_bytes);
    bytes.chunks_exact(8).map(value)
}

fn wrong_solution() -> Failure {
    Failure::failed("a client got a wrong solution")
}

/// Whether these are the counts of EP with 2^m trials. A trial is a point in a square, and those in
/// the circle within it count: a part of pi / 4.
fn are_deviates(m: usize, counts: &[u8]) -> bool {
    let part = doubles(counts).sum::<f64>() / 2f64.powi(m as i32);
    (part - FRAC_PI_4).abs() < 0.01
}

/// Whether two values differ by more than rounding explains, or one of them is not a number.
fn is_far(one: f64, other: f64) -> bool {
    let off = (one - other).abs();
    off.is_nan() || off > 1e-6
}

/// Copies the lower triangle to the upper one, and makes the matrix positive definite.
fn make_symmetric(matrix: &mut [f64], n: usize) {
    for column in 0..n {
        matrix[column * n + column] = n as f64;
        for row in column + 1..n {
            matrix[row * n + column] = matrix[column * n + row];
        }
    }
}

/// The arrays of one client.
pub(crate) struct Arrays<'s> {
    system: &'s System,
    a: Vec<u8>,
    b: Vec<u8>,
    pivots: Vec<u8>,
    info: Vec<u8>,
    /// Eigenvalues and eigenvectors.
    values: Vec<u8>,
    vectors: Vec<u8>,
}

impl Arrays<'_> {
    pub(crate) fn new(system: &System) -> Arrays<'_> {
        Arrays {
            system,
            a: system.matrix.clone(),
            b: system.right.clone(),
            pivots: vec![0; system.right.len() / 2],
            info: vec![0; 4],
            values: vec![
                0;
                if system.is_eigen() {
                    system.right.len()
                } else {
                    0
                }
            ],
            vectors: vec![
                0;
                if system.is_eigen() {
                    system.matrix.len()
                } else {
                    0
                }
            ],
        }
    }

    /// Restores the arrays that the previous call has overwritten.
    pub(crate) fn refill(&mut self) {
        let stays = matches!(
            self.system.problem,
            Problem::Linpack(_) | Problem::Unblocked(_)
        );
        if !stays {
            self.a.copy_from_slice(&self.system.matrix);
        }
        self.b.copy_from_slice(&self.system.right);
    }

    /// Calls the function and checks the solution.
    pub(crate) fn call(&mut self, function: &Function) -> Result<Outcome, Failure> {
        let problem = self.system.problem;
        let size = Scalar::Int(problem.size() as i64);
        let int = |value: i64| Argument::Scalar(Scalar::Int(value));
        let text = |letter: &str| Argument::Scalar(Scalar::Text(letter.into()));
        let n = || Argument::Scalar(size.clone());
        let outcome = match problem {
            Problem::Dgesv(_) => function.call(&mut [
                n(),
                int(1),
                Argument::Out(&mut self.a),
                n(),
                Argument::Out(&mut self.pivots),
                Argument::Out(&mut self.b),
                n(),
                Argument::Out(&mut self.info),
            ])?,
            Problem::Linpack(_) | Problem::Unblocked(_) => function.call(&mut [
                n(),
                Argument::In(&self.a),
                Argument::Out(&mut self.b),
                Argument::Out(&mut self.pivots),
                Argument::Out(&mut self.info),
                Argument::Skip,
            ])?,
            Problem::Ep(m) => {
                let (mut sums, mut counts) = ([0; 16], [0; 80]);
                let outcome = function.call(&mut [
                    n(),
                    Argument::Out(&mut sums),
                    Argument::Out(&mut counts),
                ])?;
                if !are_deviates(m, &counts) {
                    return Err(wrong_solution());
                }
                outcome
            }
            Problem::Posv(_) => function.call(&mut [
                text("L"),
                n(),
                int(1),
                Argument::Out(&mut self.a),
                n(),
                Argument::Out(&mut self.b),
                n(),
                Argument::Out(&mut self.info),
            ])?,
            Problem::Syev(_) => function.call(&mut [
                text("V"),
                text("L"),
                n(),
                Argument::Out(&mut self.a),
                n(),
                Argument::Out(&mut self.values),
                Argument::Out(&mut self.vectors),
                n(),
                Argument::Out(&mut self.info),
            ])?,
        };
        self.check()?;
        Ok(outcome)
    }

    fn check(&self) -> Result<(), Failure> {
        let wrong = match self.system.is_eigen() {
            true => !self.is_eigenvector(),
            false => doubles(&self.b).any(|value| is_far(value, 1.0)),
        };
        match self.info != [0; 4] || wrong {
            true => Err(wrong_solution()),
            false => Ok(()),
        }
    }

    /// Whether the last eigenvector satisfies A v = w v.
    fn is_eigenvector(&self) -> bool {
        let n = self.system.problem.size();
        let (Some(value), from) = (doubles(&self.values).last(), 8 * n * (n - 1)) else {
            return false;
        };
        let vector: Vec<f64> = doubles(&self.vectors[from..]).collect();
        let rows = self.system.matrix.chunks_exact(8 * n).zip(&vector);
        let mut all = rows.map(|(row, element)| {
            let product: f64 = doubles(row).zip(&vector).map(|(a, v)| a * v).sum();
            !is_far(product, value * element)
        });
        // A vector of zeros is not an eigenvector.
        all.all(|near| near) && vector.iter().any(|element| element.abs() > 1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_were_not_drawn_are_no_solution() {
        // Class S of the NAS benchmarks.
        let counts = [6140517.0f64, 5865300.0, 1100361.0, 68546.0, 1648.0, 17.0];
        let counts: Vec<u8> = counts.into_iter().flat_map(f64::to_ne_bytes).collect();
        assert!(are_deviates(24, &counts));
        assert!(!are_deviates(25, &counts));
        assert!(!are_deviates(24, &[0; 80]));
        let no_numbers = f64::NAN.to_ne_bytes().repeat(10);
        assert!(!are_deviates(24, &no_numbers));
    }
}
