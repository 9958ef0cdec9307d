//! Writes expressions in the interface language, with as few parentheses as possible. The text
//! parses back to the same expression.

use crate::{ElementRef, Expr, Op, Param};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

/// The names of the indices in an expression.
pub(super) struct Scope<'a> {
    pub(super) params: &'a [Param],
    pub(super) elements: &'a [ElementRef],
}

/// Precedence of an atom, which is the highest.
const ATOM: u8 = 10;
const POWER: u8 = 9;
const UNARY: u8 = 8;
const SELECT: u8 = 1;

impl Scope<'_> {
    pub(super) fn write(&self, f: &mut impl Write, expr: &Expr) -> fmt::Result {
        f.write_str(&self.text(expr))
    }

    fn text(&self, expr: &Expr) -> String {
        let mut stack: Vec<(String, u8)> = Vec::new();
        for &op in expr.ops() {
            // `Expr::new` has checked that the operands exist.
            let mut take = |least: u8| match stack.pop() {
                Some((text, binding)) if binding >= least => text,
                Some((text, _)) => format!("({text})"),
                None => String::new(),
            };
            let entry = match op {
                Op::Const(value) => (value.to_string(), ATOM),
                Op::Real(value) => (format!("{value:?}"), ATOM),
                Op::Char(code @ (b'\'' | b'\\')) => (format!("'\\{}'", char::from(code)), ATOM),
                Op::Char(code) => (format!("'{}'", char::from(code)), ATOM),
                Op::Param(index) => (self.name(usize::from(index)).to_string(), ATOM),
                Op::Element(index) => (self.element(usize::from(index)), ATOM),
                Op::Neg => (format!("-{}", take(UNARY)), UNARY),
                Op::Not => (format!("!{}", take(UNARY)), UNARY),
                Op::Min | Op::Max => {
                    let (b, a) = (take(0), take(0));
                    let name = if op == Op::Min { "min" } else { "max" };
                    (format!("{name}({a}, {b})"), ATOM)
                }
                Op::Select => {
                    let (b, a, c) = (take(SELECT), take(SELECT), take(SELECT + 1));
                    (format!("{c} ? {a} : {b}"), SELECT)
                }
                // The base must be an atom; the exponent can be a power or a negation.
                Op::Pow => {
                    let (b, a) = (take(UNARY), take(ATOM));
                    (format!("{a}^{b}"), POWER)
                }
                _ => {
                    let (symbol, binding) = binary(op);
                    let (b, a) = (take(binding + 1), take(binding));
                    (format!("{a} {symbol} {b}"), binding)
                }
            };
            stack.push(entry);
        }
        stack.pop().map(|(text, _)| text).unwrap_or_default()
    }

    fn name(&self, index: usize) -> &str {
        self.params
            .get(index)
            .map_or("?", |param| param.name.as_str())
    }

    fn element(&self, index: usize) -> String {
        match self.elements.get(index) {
            Some(reference) => {
                // The index of an element cannot contain elements.
                let scope = Scope {
                    params: self.params,
                    elements: &[],
                };
                format!(
                    "{}[{}]",
                    self.name(reference.param),
                    scope.text(&reference.index)
                )
            }
            None => "?".to_string(),
        }
    }
}

fn binary(op: Op) -> (&'static str, u8) {
    match op {
        Op::Or => ("||", 2),
        Op::And => ("&&", 3),
        Op::Equal => ("==", 4),
        Op::NotEqual => ("!=", 4),
        Op::Less => ("<", 5),
        Op::LessEqual => ("<=", 5),
        Op::Greater => (">", 5),
        Op::GreaterEqual => (">=", 5),
        Op::Add => ("+", 6),
        Op::Sub => ("-", 6),
        Op::Mul => ("*", 7),
        Op::Div => ("/", 7),
        _ => ("%", 7),
    }
}
