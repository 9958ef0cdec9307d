//! Dimension and cost expressions.
//!
//! An expression is a short list of operations in postfix order. Evaluation needs no recursion and
//! a stack of fixed size. A malicious text can therefore neither overflow the stack nor use much
//! memory. Dimensions are evaluated in checked 64-bit integers and costs in binary64, because a
//! cost such as `2/3*n^3` must not be 0.

use crate::Scalar;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Longest expression, in operations.
pub const MAX_OPS: usize = 256;
/// Deepest evaluation stack that an expression can need.
pub const MAX_DEPTH: usize = 32;
/// A stack that is enough for most expressions.
const SHALLOW: usize = 4;

/// One operation. Values push; the others take their operands from the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// A whole number, not negative. [`Op::Neg`] expresses a negative one.
    Const(i64),
    /// A finite number with a fraction or an exponent, not negative. Only in costs.
    Real(f64),
    /// The code of a printable ASCII character, written `'A'`.
    Char(u8),
    /// The scalar with this index in the list of parameters.
    Param(u16),
    /// The element with this index in [`crate::Interface::element_refs`].
    Element(u16),
    /// `-a`
    Neg,
    /// `!a`
    Not,
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, truncated in dimensions.
    Div,
    /// `a % b`
    Rem,
    /// `a ^ b`, the power.
    Pow,
    /// `a < b`, 1 or 0.
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a && b`
    And,
    /// `a || b`
    Or,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
    /// `c ? a : b`. An error in the operand that is not chosen is ignored.
    Select,
}

impl Op {
    /// Number of values that the operation takes from the stack.
    pub fn operands(self) -> usize {
        match self {
            Op::Const(_) | Op::Real(_) | Op::Char(_) | Op::Param(_) | Op::Element(_) => 0,
            Op::Neg | Op::Not => 1,
            Op::Select => 3,
            _ => 2,
        }
    }
}

/// A checked expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    ops: Box<[Op]>,
    /// Largest number of values on the stack.
    depth: u8,
}

/// The reason why a list of operations is not an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// More than [`MAX_OPS`] operations.
    #[error("the expression has more than {MAX_OPS} operations")]
    TooLong,
    /// Needs more than [`MAX_DEPTH`] values on the stack.
    #[error("the expression needs more than {MAX_DEPTH} values at once")]
    TooDeep,
    /// Operands are missing or left over, or a constant has no written form.
    #[error("the expression is not complete")]
    Malformed,
}

/// The reason why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The result does not fit in 64 bits.
    #[error("does not fit in 64 bits")]
    Overflow,
    /// Division or remainder by zero.
    #[error("divides by zero")]
    DivisionByZero,
    /// A negative power of a whole number.
    #[error("raises to a negative power")]
    NegativePower,
    /// A constant with a fraction where whole numbers are needed.
    #[error("is not a whole number")]
    NotWhole,
    /// The scalar with this index is missing or not a number.
    #[error("needs argument {0}, which is not a number")]
    Scalar(u16),
    /// The element with this index is missing.
    #[error("needs array element {0}")]
    Element(u16),
}

/// The values of the names in an expression in one call.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Scalars by index of the parameter. Arrays are `None`.
    pub scalars: &'a [Option<Scalar>],
    /// Elements by index of the reference.
    pub elements: &'a [i64],
}

impl Expr {
    /// Checks that the operations leave exactly one value and stay within the bounds.
    pub fn new(ops: Vec<Op>) -> Result<Expr, ExprError> {
        if ops.len() > MAX_OPS {
            return Err(ExprError::TooLong);
        }
        let (mut depth, mut deepest) = (0usize, 0);
        for op in &ops {
            match op {
                Op::Const(value) if *value < 0 => return Err(ExprError::Malformed),
                Op::Real(value) if !value.is_finite() || value.is_sign_negative() => {
                    return Err(ExprError::Malformed);
                }
                Op::Char(code) if !matches!(code, b' '..=b'~') => return Err(ExprError::Malformed),
                _ => {}
            }
            depth = depth
                .checked_sub(op.operands())
                .ok_or(ExprError::Malformed)?
                + 1;
            deepest = depth.max(deepest);
        }
        if deepest > MAX_DEPTH {
            return Err(ExprError::TooDeep);
        }
        if depth != 1 {
            return Err(ExprError::Malformed);
        }
        Ok(Expr {
            ops: ops.into_boxed_slice(),
            depth: deepest as u8,
        })
    }

    /// The expression of a whole number. A negative one becomes a negation.
    pub fn constant(value: i64) -> Expr {
        let magnitude = Op::Const(value.checked_abs().unwrap_or(i64::MAX));
        if value < 0 {
            Expr {
                ops: Box::new([magnitude, Op::Neg]),
                depth: 1,
            }
        } else {
            Expr {
                ops: Box::new([magnitude]),
                depth: 1,
            }
        }
    }

    /// The expression of the scalar with this index.
    pub fn param(index: u16) -> Expr {
        Expr {
            ops: Box::new([Op::Param(index)]),
            depth: 1,
        }
    }

    /// The operations in postfix order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The value in checked 64-bit integers.
    pub fn integer(&self, values: Values<'_>) -> Result<i64, EvalError> {
        if let [op] = *self.ops {
            return integer_operand(op, values);
        }
        // Most expressions are small, and clearing a large stack takes longer than evaluating them.
        if usize::from(self.depth) <= SHALLOW {
            self.integer_on(&mut [Ok(0); SHALLOW], values)
        } else {
            self.integer_on(&mut [Ok(0); MAX_DEPTH], values)
        }
    }

    fn integer_on(
        &self,
        stack: &mut [Result<i64, EvalError>],
        values: Values<'_>,
    ) -> Result<i64, EvalError> {
        let mut top = 0;
        for &op in &self.ops {
            top -= op.operands();
            stack[top] = match op.operands() {
                0 => integer_operand(op, values),
                1 => stack[top].and_then(|a| integer_unary(op, a)),
                2 => match (stack[top], stack[top + 1]) {
                    (Ok(a), _) if op == Op::And && a == 0 => Ok(0),
                    (Ok(a), _) if op == Op::Or && a != 0 => Ok(1),
                    (Ok(a), Ok(b)) => integer_binary(op, a, b),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                },
                _ => stack[top].and_then(|c| stack[top + if c != 0 { 1 } else { 2 }]),
            };
            top += 1;
        }
        stack[0]
    }

    /// The value in binary64. Division by zero gives an infinity.
    pub fn real(&self, values: Values<'_>) -> Result<f64, EvalError> {
        if usize::from(self.depth) <= SHALLOW {
            self.real_on(&mut [Ok(0.0); SHALLOW], values)
        } else {
            self.real_on(&mut [Ok(0.0); MAX_DEPTH], values)
        }
    }

    fn real_on(
        &self,
        stack: &mut [Result<f64, EvalError>],
        values: Values<'_>,
    ) -> Result<f64, EvalError> {
        let mut top = 0;
        for &op in &self.ops {
            top -= op.operands();
            stack[top] = match op.operands() {
                0 => real_operand(op, values),
                1 => stack[top].map(|a| if op == Op::Neg { -a } else { truth(a == 0.0) }),
                2 => match (stack[top], stack[top + 1]) {
                    (Ok(a), _) if op == Op::And && a == 0.0 => Ok(0.0),
                    (Ok(a), _) if op == Op::Or && a != 0.0 => Ok(1.0),
                    (Ok(a), Ok(b)) => Ok(real_binary(op, a, b)),
                    (Err(error), _) | (_, Err(error)) => Err(error),
                },
                _ => stack[top].and_then(|c| stack[top + if c != 0.0 { 1 } else { 2 }]),
            };
            top += 1;
        }
        stack[0]
    }
}

fn integer_operand(op: Op, values: Values<'_>) -> Result<i64, EvalError> {
    match op {
        Op::Const(value) => Ok(value),
        Op::Char(code) => Ok(i64::from(code)),
        Op::Param(index) => match values.scalars.get(usize::from(index)) {
            Some(Some(scalar)) => scalar.as_integer().ok_or(EvalError::Scalar(index)),
            _ => Err(EvalError::Scalar(index)),
        },
        Op::Element(index) => values
            .elements
            .get(usize::from(index))
            .copied()
            .ok_or(EvalError::Element(index)),
        _ => Err(EvalError::NotWhole),
    }
}

fn integer_unary(op: Op, a: i64) -> Result<i64, EvalError> {
    if op == Op::Neg {
        a.checked_neg().ok_or(EvalError::Overflow)
    } else {
        Ok(i64::from(a == 0))
    }
}

fn integer_binary(op: Op, a: i64, b: i64) -> Result<i64, EvalError> {
    let value = match op {
        Op::Add => a.checked_add(b),
        Op::Sub => a.checked_sub(b),
        Op::Mul => a.checked_mul(b),
        Op::Div | Op::Rem if b == 0 => return Err(EvalError::DivisionByZero),
        Op::Div => a.checked_div(b),
        Op::Rem => a.checked_rem(b),
        Op::Pow => return integer_power(a, b),
        Op::Less => Some(i64::from(a < b)),
        Op::LessEqual => Some(i64::from(a <= b)),
        Op::Greater => Some(i64::from(a > b)),
        Op::GreaterEqual => Some(i64::from(a >= b)),
        Op::Equal => Some(i64::from(a == b)),
        Op::NotEqual => Some(i64::from(a != b)),
        Op::And => Some(i64::from(a != 0 && b != 0)),
        Op::Or => Some(i64::from(a != 0 || b != 0)),
        Op::Min => Some(a.min(b)),
        _ => Some(a.max(b)),
    };
    value.ok_or(EvalError::Overflow)
}

fn integer_power(base: i64, exponent: i64) -> Result<i64, EvalError> {
    match base {
        _ if exponent < 0 => Err(EvalError::NegativePower),
        0 | 1 if exponent > 0 => Ok(base),
        -1 => Ok(if exponent % 2 == 0 { 1 } else { -1 }),
        _ => match u32::try_from(exponent) {
            Ok(exponent) => base.checked_pow(exponent).ok_or(EvalError::Overflow),
            Err(_) => Err(EvalError::Overflow),
        },
    }
}

fn real_operand(op: Op, values: Values<'_>) -> Result<f64, EvalError> {
    match op {
        Op::Real(value) => Ok(value),
        Op::Param(index) => match values.scalars.get(usize::from(index)) {
            Some(Some(scalar)) => scalar.as_number().ok_or(EvalError::Scalar(index)),
            _ => Err(EvalError::Scalar(index)),
        },
        other => integer_operand(other, values).map(|value| value as f64),
    }
}

fn real_binary(op: Op, a: f64, b: f64) -> f64 {
    match op {
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::Div => a / b,
        Op::Rem => a % b,
        Op::Pow => real_power(a, b),
        Op::Less => truth(a < b),
        Op::LessEqual => truth(a <= b),
        Op::Greater => truth(a > b),
        Op::GreaterEqual => truth(a >= b),
        Op::Equal => truth(a == b),
        Op::NotEqual => truth(a != b),
        Op::And => truth(a != 0.0 && b != 0.0),
        Op::Or => truth(a != 0.0 || b != 0.0),
        Op::Min => a.min(b),
        _ => a.max(b),
    }
}

/// Power with a fast path for squares and cubes, the most frequent cases in costs.
fn real_power(base: f64, exponent: f64) -> f64 {
    match exponent {
        2.0 => base * base,
        3.0 => base * base * base,
        _ => libm::pow(base, exponent),
    }
}

fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests;
