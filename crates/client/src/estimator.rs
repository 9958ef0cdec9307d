//! Estimates of many calls of one function, with a question to the server only now and then.
//!
//! The server's answer for one call serves for calls of about the same number of operations. The
//! transfers are computed for each call from its own bytes.

use crate::call::LaidOut;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::function::Function;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An answer of the server serves at least for this time.
const AGE: Duration = Duration::from_secs(1);
/// An answer serves for this many round trips, so that questions take few of a slow line's.
const ROUND_TRIPS: f64 = 1000.0;
/// Each factor of 8 in the operations has an answer of its own; a matrix of twice the size has 8
/// times the operations.
const CLASSES: usize = 24;

/// Estimates of the calls of one function, from answers of the server that are a second old at
/// most, or as old as 1000 round trips.
#[derive(Debug)]
pub struct Estimator {
    function: Function,
    answers: Mutex<[Option<Answer>; CLASSES]>,
}

/// What the server answered for one call.
#[derive(Clone, Copy, Debug)]
struct Answer {
    when: Instant,
    estimate: Estimate,
}

impl Estimator {
    /// Estimates of this function's calls.
    pub fn new(function: Function) -> Estimator {
        Estimator {
            function,
            answers: Mutex::default(),
        }
    }

    /// The function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// The estimate of a call, as [`Function::estimate`]. Asks the server only if it has not
    /// answered lately for a call of this size.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn estimate(&self, laid_out: &LaidOut) -> Result<Estimate, Error> {
        let class = class(laid_out.layout().cost);
        let known = self.answers()[class];
        if let Some(answer) = known.filter(|answer| answer.when.elapsed() < answer.serves()) {
            return Ok(answer.estimate.for_layout(laid_out.layout()));
        }
        let estimate = self.function.estimate_laid_out(laid_out.clone())?;
        let when = Instant::now();
        self.answers()[class] = Some(Answer { when, estimate });
        Ok(estimate)
    }

    /// Forgets the answers: the next estimates ask the server. A caller uses it after the first
    /// call of a function, whose time the server now knows.
    pub fn forget(&self) {
        *self.answers() = Default::default();
    }

    fn answers(&self) -> MutexGuard<'_, [Option<Answer>; CLASSES]> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn serves(&self) -> Duration {
        AGE.max(Duration::from_secs_f64(
            (self.estimate.latency * ROUND_TRIPS).clamp(0.0, 60.0),
        ))
    }
}

/// The class of a number of operations.
fn class(operations: Option<f64>) -> usize {
    let operations = operations.unwrap_or(1.0).max(1.0);
    // A third of the binary exponent: 2^3 = 8.
    let exponent = (operations.to_bits() >> 52) as usize & 0x7ff;
    ((exponent.saturating_sub(1023)) / 3).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_of_8_is_another_class() {
        let classes = [1.0, 7.9, 8.0, 63.0, 64.0, 1e300].map(|cost| class(Some(cost)));
        assert_eq!(classes, [0, 0, 1, 1, 2, CLASSES - 1]);
        assert_eq!(
            [class(None), class(Some(-1.0)), class(Some(f64::NAN))],
            [0; 3]
        );
    }

    #[test]
    fn an_answer_over_a_slow_line_serves_longer() {
        let answer = |latency| {
            let estimate = Estimate {
                latency,
                ..Estimate::default()
            };
            let when = Instant::now();
            Answer { when, estimate }.serves()
        };
        assert_eq!(answer(1e-5), AGE);
        assert_eq!(answer(0.02), Duration::from_secs(20));
    }
}
