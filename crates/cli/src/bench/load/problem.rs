//! What the clients ask for.

use crate::failure::Failure;
use farcall_client::{Argument, Function, Scalar, Times};

/// A function and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// LAPACK's, of this order: the factors come back as well.
    Dgesv(usize),
    /// The papers' Linpack, of this order.
    Linpack(usize),
    /// NAS EP with 2^m trials.
    Ep(usize),
}

impl Problem {
    pub(super) fn size(self) -> usize {
        let (Problem::Dgesv(size) | Problem::Linpack(size) | Problem::Ep(size)) = self;
        size
    }

    /// The file that defines it.
    pub(super) fn file(self) -> &'static str {
        match self {
            Problem::Dgesv(_) => "lapack.idl",
            Problem::Linpack(_) => "linpack.idl",
            Problem::Ep(_) => "ep.idl",
        }
    }

    pub(super) fn function(self) -> &'static str {
        match self {
            Problem::Dgesv(_) => "lapack/dgesv",
            Problem::Linpack(_) => "linpack/linpack",
            Problem::Ep(_) => "ep/ep",
        }
    }

    /// Operations, as the papers count them.
    pub(super) fn operations(self) -> f64 {
        match self {
            Problem::Dgesv(n) | Problem::Linpack(n) => {
                let n = n as f64;
                2.0 / 3.0 * n.powi(3) + 2.0 * n.powi(2)
            }
            Problem::Ep(m) => 2f64.powi(m as i32 + 1),
        }
    }

    /// Bytes of arrays, both ways.
    pub(super) fn bytes(self) -> f64 {
        match self {
            Problem::Dgesv(n) => (16 * n * n + 20 * n + 4) as f64,
            Problem::Linpack(n) => (8 * n * n + 20 * n + 4) as f64,
            Problem::Ep(_) => 96.0,
        }
    }
}

/// The system that all clients solve, whose solution is 1 everywhere. They share it, because what a
/// client keeps besides the arrays of its calls is not what is measured.
pub(super) struct System {
    pub(super) problem: Problem,
    matrix: Vec<u8>,
    right: Vec<u8>,
}

impl System {
    pub(super) fn new(problem: Problem) -> System {
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
        let matrix: Vec<f64> = (0..n * n).map(|_| next()).collect();
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
}

/// The arrays of one client.
pub(super) struct Arrays<'s> {
    system: &'s System,
    a: Vec<u8>,
    b: Vec<u8>,
    pivots: Vec<u8>,
    info: Vec<u8>,
}

impl Arrays<'_> {
    pub(super) fn new(system: &System) -> Arrays<'_> {
        Arrays {
            system,
            a: system.matrix.clone(),
            b: system.right.clone(),
            pivots: vec![0; system.right.len() / 2],
            info: vec![0; 4],
        }
    }

    /// Makes ready what the call before has overwritten.
    pub(super) fn refill(&mut self) {
        if matches!(self.system.problem, Problem::Dgesv(_)) {
            self.a.copy_from_slice(&self.system.matrix);
        }
        self.b.copy_from_slice(&self.system.right);
    }

    /// Calls the function and looks at the solution.
    pub(super) fn call(&mut self, function: &Function) -> Result<Times, Failure> {
        let problem = self.system.problem;
        let size = Scalar::Int(problem.size() as i64);
        let int = |value: i64| Argument::Scalar(Scalar::Int(value));
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
            Problem::Linpack(_) => function.call(&mut [
                n(),
                Argument::In(&self.a),
                Argument::Out(&mut self.b),
                Argument::Out(&mut self.pivots),
                Argument::Out(&mut self.info),
                Argument::Skip,
            ])?,
            Problem::Ep(_) => {
                let (mut sums, mut counts) = ([0; 16], [0; 80]);
                function.call(&mut [n(), Argument::Out(&mut sums), Argument::Out(&mut counts)])?
            }
        };
        self.check()?;
        Ok(outcome.times)
    }

    fn check(&self) -> Result<(), Failure> {
        let far = |value: &[u8]| {
            let value = value.try_into().map_or(f64::NAN, f64::from_ne_bytes);
            let off = (value - 1.0).abs();
            off.is_nan() || off > 1e-6
        };
        match self.info != [0; 4] || self.b.chunks_exact(8).any(far) {
            true => Err(Failure::failed("a client got a wrong solution")),
            false => Ok(()),
        }
    }
}
