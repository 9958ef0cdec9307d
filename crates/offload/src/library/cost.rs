//! Expressions of interfaces as expressions of C, in `double`. Their values are those of
//! `farcall_idl::Expr::real`.

use farcall_idl::{Expr, Interface, Op};
use std::collections::BTreeSet;

/// The expression in C. The parameter `n` is the variable `v_n`. `Err` says what C cannot compute.
pub(super) fn in_c(interface: &Interface, expr: &Expr) -> Result<String, String> {
    let mut stack: Vec<String> = Vec::new();
    for &op in expr.ops() {
        let at = stack.len() - op.operands();
        let operands = stack.split_off(at);
        stack.push(match (op, &operands[..]) {
            (Op::Const(value), _) => format!("{value}.0"),
            (Op::Real(value), _) => format!("{value:?}"),
            (Op::Char(code), _) => format!("{code}.0"),
            (Op::Param(index), _) => variable(interface, usize::from(index)),
            (Op::Element(_), _) => return Err("its cost depends on elements".to_string()),
            (Op::Neg, [a]) => format!("(-{a})"),
            (Op::Not, [a]) => format!("({a} == 0)"),
            (Op::Min, [a, b]) => format!("least({a}, {b})"),
            (Op::Max, [a, b]) => format!("greatest({a}, {b})"),
            (Op::Rem, [a, b]) => format!("fmod({a}, {b})"),
            (Op::Pow, [a, b]) if b == "2.0" => format!("square({a})"),
            (Op::Pow, [a, b]) if b == "3.0" => format!("cube({a})"),
            (Op::Pow, [a, b]) => format!("pow({a}, {b})"),
            (Op::Select, [c, a, b]) => format!("({c} ? {a} : {b})"),
            (_, [a, b]) => format!("({a} {} {b})", symbol(op)),
            _ => return Err("its cost is not complete".to_string()),
        });
    }
    stack
        .pop()
        .ok_or_else(|| "its cost is not complete".to_string())
}

/// The parameters that an expression uses.
pub(super) fn used(expr: &Expr) -> BTreeSet<usize> {
    let used = expr.ops().iter().filter_map(|op| match op {
        Op::Param(index) => Some(usize::from(*index)),
        _ => None,
    });
    used.collect()
}

/// The variable of C that has the value of a scalar.
pub(super) fn variable(interface: &Interface, param: usize) -> String {
    format!("v_{}", interface.params[param].name)
}

fn symbol(op: Op) -> &'static str {
    match op {
        Op::Or => "||",
        Op::And => "&&",
        Op::Equal => "==",
        Op::NotEqual => "!=",
        Op::Less => "<",
        Op::LessEqual => "<=",
        Op::Greater => ">",
        Op::GreaterEqual => ">=",
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        _ => "/",
    }
}
