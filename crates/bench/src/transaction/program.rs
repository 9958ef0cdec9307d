//! Programs of calls on arrays, run one call after the other or as a transaction. Both ways give
//! the final contents of the arrays, so that the benchmark can compare them. The matrices are
//! random, with fixed seeds.

use crate::failure::Failure;
use farcall_client::{Argument, ArgumentOptions, Function, Report, Scalar, Server, Transaction};
use farcall_idl::Mode;
use std::collections::HashMap;

/// A parameter of a call.
#[derive(Clone, Copy)]
enum Word {
    Letter(&'static str),
    Int(usize),
    Real(f64),
    /// The array with this number.
    Array(usize),
}

/// A call of a program.
struct Call {
    function: &'static str,
    words: Vec<Word>,
}

/// Calls in their order, and the arrays that they use.
pub(super) struct Program {
    calls: Vec<Call>,
    memory: Vec<Vec<u8>>,
    /// Arrays that only pass data from one call to the next.
    between: Vec<usize>,
}

impl Program {
    /// The LU factors of a random matrix of `count` by `count` square blocks, in place. The
    /// diagonal is so large that no pivots are needed.
    pub(super) fn blocked_lu(count: usize, size: usize) -> Program {
        let mut program = Program::empty();
        let mut random = Random(1);
        let mut blocks = Vec::new();
        for place in 0..count * count {
            let mut block = random.matrix(size);
            if place / count == place % count {
                let diagonal = block.iter_mut().step_by(size + 1);
                diagonal.for_each(|value| *value += 2.0 * (count * size) as f64);
            }
            blocks.push(program.array(&block));
        }
        let block = |row: usize, column: usize| blocks[row * count + column];
        for k in 0..count {
            program.factor(block(k, k), size);
            for j in k + 1..count {
                program.solve(["L", "L", "N", "U"], block(k, k), block(k, j), size);
                program.solve(["R", "U", "N", "N"], block(k, k), block(j, k), size);
            }
            for i in k + 1..count {
                for j in k + 1..count {
                    let factors = [block(i, k), block(k, j)];
                    program.multiply(-1.0, factors, 1.0, block(i, j), size);
                }
            }
        }
        program
    }

    /// A product of `count` random matrices with a first one, from the left, alternating between
    /// two arrays.
    pub(super) fn products(count: usize, size: usize) -> Program {
        let mut program = Program::empty();
        let mut random = Random(2);
        let mut left = program.array(&random.matrix(size));
        let turns = [0; 2].map(|_| program.array(&vec![0.0; size * size]));
        for product in 0..count {
            let right = program.array(&random.matrix(size));
            let result = turns[product % 2];
            program.multiply(1.0 / size as f64, [left, right], 0.0, result, size);
            left = result;
        }
        program.between.push(turns[count % 2]);
        program
    }

    fn empty() -> Program {
        Program {
            calls: Vec::new(),
            memory: Vec::new(),
            between: Vec::new(),
        }
    }

    fn array(&mut self, values: &[f64]) -> usize {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes());
        self.memory.push(bytes.collect());
        self.memory.len() - 1
    }

    fn integers(&mut self, count: usize) -> usize {
        self.memory.push(vec![0; 4 * count]);
        self.memory.len() - 1
    }

    fn factor(&mut self, block: usize, size: usize) {
        let (pivots, info) = (self.integers(size), self.integers(1));
        let n = Word::Int(size);
        let arrays = [block, pivots, info].map(Word::Array);
        let [block, pivots, info] = arrays;
        self.calls.push(Call {
            function: "lapack/dgetrf",
            words: vec![n, n, block, n, pivots, info],
        });
    }

    fn solve(&mut self, letters: [&'static str; 4], factor: usize, block: usize, size: usize) {
        let n = Word::Int(size);
        let mut words: Vec<Word> = letters.map(Word::Letter).into();
        words.extend([n, n, Word::Real(1.0)]);
        words.extend([Word::Array(factor), n, Word::Array(block), n]);
        self.calls.push(Call {
            function: "blas/dtrsm",
            words,
        });
    }

    /// result = alpha left right + beta result.
    fn multiply(&mut self, alpha: f64, factors: [usize; 2], beta: f64, result: usize, size: usize) {
        let n = Word::Int(size);
        let [left, right] = factors.map(Word::Array);
        let mut words = vec![Word::Letter("N"), Word::Letter("N"), n, n, n];
        words.extend([Word::Real(alpha), left, n, right, n]);
        words.extend([Word::Real(beta), Word::Array(result), n]);
        self.calls.push(Call {
            function: "blas/dgemm",
            words,
        });
    }

    /// The functions of the calls at a server.
    pub(super) fn functions(&self, server: &Server) -> Result<Functions, Failure> {
        let mut functions = HashMap::new();
        for call in &self.calls {
            if !functions.contains_key(call.function) {
                functions.insert(call.function, server.function(call.function)?);
            }
        }
        Ok(functions)
    }

    /// Bytes of arrays sent to servers and back if each call is made on its own.
    pub(super) fn bytes(&self, functions: &Functions) -> u64 {
        let mut bytes = 0;
        for call in &self.calls {
            let params = &functions[call.function].interface().params;
            for (word, param) in call.words.iter().zip(params) {
                let Word::Array(array) = word else { continue };
                let ways = match param.mode {
                    Mode::InOut => 2,
                    _ => 1,
                };
                bytes += ways * self.memory[*array].len() as u64;
            }
        }
        bytes
    }

    /// Makes one call after the other. Returns the final contents of the arrays.
    pub(super) fn call_by_call(&self, functions: &Functions) -> Result<Vec<Vec<u8>>, Failure> {
        let mut memory = self.memory.clone();
        for call in &self.calls {
            let function = &functions[call.function];
            // SAFETY: `memory` is this call's alone until it has ended.
            let mut arguments = unsafe { call.arguments(function, &mut memory) };
            function.call(&mut arguments)?;
        }
        self.results(memory)
    }

    /// Makes all calls as a transaction on these servers.
    pub(super) fn transaction(
        &self,
        functions: &Functions,
        servers: &[Server],
    ) -> Result<(Report, Vec<Vec<u8>>), Failure> {
        let mut memory = self.memory.clone();
        let mut transaction = Transaction::new();
        for call in &self.calls {
            let function = &functions[call.function];
            // SAFETY: nobody uses `memory` before the transaction has run, and it stays where it
            // is.
            unsafe {
                let mut arguments = call.arguments(function, &mut memory);
                transaction.add(function, &mut arguments, &ArgumentOptions::default())?;
            }
        }
        for array in &self.between {
            let bytes = memory[*array].as_ptr_range();
            transaction.discard(bytes.start as usize..bytes.end as usize);
        }
        let report = transaction.run(servers)?;
        Ok((report, self.results(memory)?))
    }

    /// The results: the arrays without those that only pass data between calls.
    fn results(&self, memory: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Failure> {
        let arrays = memory.into_iter().zip(&self.memory).enumerate();
        let is_result = |(place, _): &(usize, (Vec<u8>, _))| !self.between.contains(place);
        let arrays: Vec<_> = arrays.filter(is_result).map(|(_, array)| array).collect();
        match arrays.iter().all(|(after, before)| after == *before) {
            true => Err(Failure::failed("the calls have computed nothing")),
            false => Ok(arrays.into_iter().map(|(after, _)| after).collect()),
        }
    }
}

/// Functions by their names.
pub(super) type Functions = HashMap<&'static str, Function>;

impl Call {
    /// # Safety
    /// As long as the arguments live, the arrays stay where they are and nobody else uses them.
    unsafe fn arguments<'a>(
        &self,
        function: &Function,
        memory: &mut [Vec<u8>],
    ) -> Vec<Argument<'a>> {
        let words = self.words.iter().zip(&function.interface().params);
        let argument = |(word, param): (&Word, &farcall_idl::Param)| match *word {
            Word::Letter(letter) => Argument::Scalar(Scalar::Text(letter.into())),
            Word::Int(value) => Argument::Scalar(Scalar::Int(value as i64)),
            Word::Real(value) => Argument::Scalar(Scalar::Float(value)),
            Word::Array(array) => {
                let bytes = &mut memory[array];
                let (start, len) = (bytes.as_mut_ptr(), bytes.len());
                match param.mode {
                    // SAFETY: the array is there, as the caller promises; no call of a program
                    // names an array twice.
                    Mode::In => Argument::In(unsafe { std::slice::from_raw_parts(start, len) }),
                    // SAFETY: the same as above.
                    _ => Argument::Out(unsafe { std::slice::from_raw_parts_mut(start, len) }),
                }
            }
        };
        words.map(argument).collect()
    }
}

/// A linear congruential generator: values from -0.5 to 0.5.
struct Random(u64);

impl Random {
    fn matrix(&mut self, size: usize) -> Vec<f64> {
        let mut next = || {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) as f64 / f64::from(1u32 << 31) - 0.5
        };
        (0..size * size).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_compute_nothing_are_no_results() {
        for program in [Program::blocked_lu(2, 8), Program::products(2, 8)] {
            let mut memory = program.memory.clone();
            assert!(program.results(memory.clone()).is_err());
            // Neither are arrays that only pass data between calls.
            if let Some(between) = program.between.first() {
                memory[*between].fill(7);
                assert!(program.results(memory.clone()).is_err());
            }
            memory.iter_mut().for_each(|array| array.fill(7));
            let results = program.results(memory).unwrap();
            assert_eq!(results.len(), program.memory.len() - program.between.len());
        }
    }
}
