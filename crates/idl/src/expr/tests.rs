//! Tests of the evaluation of expressions: sizes are whole numbers, and costs are not truncated.
//! Arithmetic that overflows and lists of operations that are malformed are errors and never
//! panics.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

fn integer(ops: Vec<Op>) -> Result<i64, EvalError> {
    let scalars = [Some(Scalar::Int(7)), None, Some(Scalar::Text("A".into()))];
    Expr::new(ops).unwrap().integer(Values {
        scalars: &scalars,
        elements: &[9],
    })
}

fn real(ops: Vec<Op>) -> f64 {
    let scalars = [Some(Scalar::Int(3))];
    Expr::new(ops)
        .unwrap()
        .real(Values {
            scalars: &scalars,
            elements: &[],
        })
        .unwrap()
}

#[test]
fn a_cost_is_not_truncated() {
    let cost = vec![
        Op::Const(2),
        Op::Const(3),
        Op::Div,
        Op::Param(0),
        Op::Const(3),
        Op::Pow,
        Op::Mul,
    ];
    assert!((real(cost.clone()) - 18.0).abs() < 1e-12);
    assert_eq!(integer(cost), Ok(0));
}

#[test]
fn operands_are_scalars_elements_and_characters() {
    assert_eq!(integer(vec![Op::Param(0)]), Ok(7));
    assert_eq!(integer(vec![Op::Element(0), Op::Param(0), Op::Sub]), Ok(2));
    assert_eq!(integer(vec![Op::Param(2), Op::Const(65), Op::Equal]), Ok(1));
    assert_eq!(integer(vec![Op::Param(1)]), Err(EvalError::Scalar(1)));
    assert_eq!(integer(vec![Op::Param(9)]), Err(EvalError::Scalar(9)));
    assert_eq!(integer(vec![Op::Element(1)]), Err(EvalError::Element(1)));
}

#[test]
fn arithmetic_is_checked() {
    let max = Op::Const(i64::MAX);
    assert_eq!(
        integer(vec![max, Op::Const(1), Op::Add]),
        Err(EvalError::Overflow)
    );
    assert_eq!(
        integer(vec![max, Op::Const(2), Op::Mul]),
        Err(EvalError::Overflow)
    );
    assert_eq!(
        integer(vec![Op::Const(1), Op::Const(0), Op::Div]),
        Err(EvalError::DivisionByZero)
    );
    assert_eq!(
        integer(vec![Op::Const(1), Op::Const(0), Op::Rem]),
        Err(EvalError::DivisionByZero)
    );
    assert_eq!(
        integer(vec![Op::Const(10), Op::Const(19), Op::Pow]),
        Err(EvalError::Overflow)
    );
    assert_eq!(
        integer(vec![Op::Const(2), Op::Const(1), Op::Neg, Op::Pow]),
        Err(EvalError::NegativePower)
    );
    assert_eq!(integer(vec![Op::Const(1), max, Op::Pow]), Ok(1));
    assert_eq!(integer(vec![Op::Const(0), Op::Const(0), Op::Pow]), Ok(1));
    assert_eq!(integer(vec![Op::Const(1), Op::Neg, max, Op::Pow]), Ok(-1));
    let least = [max, Op::Neg, Op::Const(1), Op::Sub];
    let mut quotient = least.to_vec();
    quotient.extend([Op::Const(1), Op::Neg, Op::Div]);
    assert_eq!(integer(quotient), Err(EvalError::Overflow));
}

#[test]
fn an_error_in_the_operand_not_chosen_is_ignored() {
    let guarded = |n: i64| {
        vec![
            Op::Const(n),
            Op::Const(8),
            Op::Const(n),
            Op::Div,
            Op::Const(1),
            Op::Select,
        ]
    };
    assert_eq!(integer(guarded(0)), Ok(1));
    assert_eq!(integer(guarded(2)), Ok(4));
    let fault = [Op::Const(1), Op::Const(0), Op::Div];
    let mut and = vec![Op::Const(0)];
    and.extend(fault);
    and.push(Op::And);
    assert_eq!(integer(and), Ok(0));
}

#[test]
fn malformed_lists_are_refused() {
    assert_eq!(Expr::new(vec![]), Err(ExprError::Malformed));
    assert_eq!(Expr::new(vec![Op::Add]), Err(ExprError::Malformed));
    assert_eq!(
        Expr::new(vec![Op::Const(1), Op::Const(1)]),
        Err(ExprError::Malformed)
    );
    assert_eq!(Expr::new(vec![Op::Const(-1)]), Err(ExprError::Malformed));
    assert_eq!(
        Expr::new(vec![Op::Real(f64::NAN)]),
        Err(ExprError::Malformed)
    );
    assert_eq!(
        Expr::new(vec![Op::Const(1); MAX_DEPTH + 1]),
        Err(ExprError::TooDeep)
    );
    let mut long = vec![Op::Const(1)];
    long.extend(core::iter::repeat_n(Op::Neg, MAX_OPS));
    assert_eq!(Expr::new(long), Err(ExprError::TooLong));
}
