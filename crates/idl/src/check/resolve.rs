//! Resolves the names in expressions to indices, and element values to references. `parser` has
//! read the expressions; `layout` evaluates them for a call. A name that cannot be used in an
//! expression is reported with its place in the file. The number of references to array elements in
//! an interface is bounded.

use super::Checker;
use super::function::quoted;
use crate::diagnostic::Diagnostic;
use crate::parser::{Bounds, Dimension, Expression, Name, Operation, Parameter, Span};
use crate::{Dim, ElementRef, Expr, Mode, Op, Param, Range, Type, Values};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// The purpose of an expression.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sizes: whole numbers.
    Integer,
    /// Costs: numbers.
    Real,
}

/// The kind of a parameter, as far as expressions need it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Scalar,
    /// An array of one dimension without a range.
    Plain,
    Array,
}

impl Shape {
    pub(super) fn of(parameter: &Parameter) -> Shape {
        match parameter.dims.as_slice() {
            [] => Shape::Scalar,
            _ if parameter.ty == Some(Type::FixedString) => Shape::Array,
            [dim] if dim.range.is_none() => Shape::Plain,
            _ => Shape::Array,
        }
    }
}

/// Largest number of references to array elements in one interface.
const MAX_ELEMENTS: usize = 64;

pub(super) struct Resolver<'c, 'a, 'p> {
    pub(super) checker: &'c mut Checker<'a>,
    pub(super) params: &'p [Param],
    pub(super) shapes: &'p [Shape],
    /// `None` in expressions that must not use elements of arrays.
    pub(super) elements: Option<&'p mut Vec<ElementRef>>,
}

impl Resolver<'_, '_, '_> {
    /// The dimensions, and the argument that counts the elements of an allocated result.
    pub(super) fn dimensions(&mut self, parameter: &Parameter) -> (Vec<Dim>, Option<usize>) {
        let count = self.count(parameter);
        let dims = parameter.dims.iter().enumerate();
        let dims = dims.filter_map(|(position, dim)| {
            let range = dim.range.as_ref();
            self.dimension(
                parameter,
                dim,
                range.filter(|_| position > 0 || count.is_none()),
            )
        });
        (dims.collect(), count)
    }

    /// The OUT argument that is the end of the range of an allocated result.
    fn count(&self, parameter: &Parameter) -> Option<usize> {
        let Some((None, end, None)) = &parameter.dims.first()?.range else {
            return None;
        };
        let [(Operation::Name, span)] = end.ops.as_slice() else {
            return None;
        };
        let name = &self.checker.text[span.clone()];
        let index = self.params.iter().position(|param| param.name == name)?;
        let is_count = self.shapes[index] == Shape::Plain
            && self.params[index].mode.is_returned()
            && self.params[index].ty.is_integer();
        (parameter.allocate && is_count).then_some(index)
    }

    fn dimension(
        &mut self,
        parameter: &Parameter,
        dim: &Dimension,
        declared: Option<&Bounds>,
    ) -> Option<Dim> {
        let range = match declared {
            None => None,
            Some((start, end, step)) => Some(Range {
                start: self.optional(start.as_ref())?,
                end: self.expression(end, Kind::Integer)?,
                step: self.optional(step.as_ref())?,
            }),
        };
        if let (Some(range), Some((_, end, step))) = (&range, declared) {
            self.warn_of_zeros(range, &end.span, step.as_ref().map(|step| &step.span));
        }
        let size = match (&dim.size, &range) {
            (Some(size), _) => self.expression(size, Kind::Integer)?,
            (None, Some(range)) => range.end.clone(),
            (None, None) => {
                if dim.brackets {
                    let name = &parameter.name.text;
                    let message = format!("array `{name}` has no size and is taken as one element");
                    let help = format!("write the size, as in `{name}[n]`");
                    self.checker.warn(&dim.span, message, &help);
                }
                Expr::constant(1)
            }
        };
        self.check_constant(&size, &dim.span);
        Some(Dim { size, range })
    }

    fn optional(&mut self, expression: Option<&Expression>) -> Option<Option<Expr>> {
        match expression {
            None => Some(None),
            Some(expression) => self.expression(expression, Kind::Integer).map(Some),
        }
    }

    fn warn_of_zeros(&mut self, range: &Range, end: &Span, step: Option<&Span>) {
        if constant(&range.end) == Some(0) {
            let message = "an end of 0 means the size, so everything travels";
            self.checker.warn(
                end,
                message,
                "leave the range out, or write the end you mean",
            );
        }
        if let (Some(expr), Some(span)) = (&range.step, step) {
            match constant(expr) {
                Some(0) => {
                    let message = "a step of 0 means 1, so every element travels";
                    self.checker.warn(
                        span,
                        message,
                        "leave the step out, or write the one you mean",
                    );
                }
                Some(value) if value < 0 => {
                    self.checker
                        .error(span, format!("the step is {value}, below 1"));
                }
                _ => {}
            }
        }
    }

    fn check_constant(&mut self, size: &Expr, span: &Span) {
        if let Some(value) = constant(size).filter(|value| *value < 0) {
            self.checker.error(span, format!("the size is {value}"));
        }
    }

    /// The expression with indices for names, or `None` if an error was reported.
    pub(super) fn expression(&mut self, expression: &Expression, kind: Kind) -> Option<Expr> {
        let mut ops = Vec::with_capacity(expression.ops.len());
        let mut complete = true;
        for (operation, span) in &expression.ops {
            let op = match operation {
                Operation::Op(Op::Real(_)) if kind == Kind::Integer => {
                    self.checker.error(span, "a size is a whole number");
                    None
                }
                Operation::Op(op) => Some(*op),
                Operation::Name => self.name(span, kind),
                Operation::Element(name, index) => self.element(name, index, span),
            };
            complete &= op.is_some();
            ops.extend(op);
        }
        if !complete {
            return None;
        }
        match Expr::new(ops) {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.checker.error(&expression.span, error.to_string());
                None
            }
        }
    }

    fn find(&mut self, text: &str, span: &Span) -> Option<usize> {
        let found = self.params.iter().position(|param| param.name == text);
        if found.is_none() {
            let names = self.params.iter().map(|param| param.name.as_str());
            self.checker.findings.not_a_parameter(text, span, names);
        }
        found
    }

    fn name(&mut self, span: &Span, kind: Kind) -> Option<Op> {
        let text = &self.checker.text[span.clone()];
        let index = self.find(text, span)?;
        let param = &self.params[index];
        let message = match (kind, param.ty) {
            _ if self.shapes[index] != Shape::Scalar => {
                format!("`{text}` is an array, but a number is needed here")
            }
            _ if param.mode == Mode::Work && self.elements.is_some() => {
                format!("`{text}` is WORK and has no value that a size can use")
            }
            (_, ty) if ty.is_integer() => return u16::try_from(index).ok().map(Op::Param),
            (Kind::Real, Type::Float | Type::Double) => {
                return u16::try_from(index).ok().map(Op::Param);
            }
            (Kind::Integer, ty) => {
                format!("`{text}` is {} but a size is a whole number", ty.name())
            }
            (Kind::Real, ty) => format!("`{text}` is {} but a cost is a number", ty.name()),
        };
        self.checker.error(span, message);
        None
    }

    fn element(&mut self, name: &Name, index: &Expression, span: &Span) -> Option<Op> {
        let param = self.find(&name.text, &name.span)?;
        let nested = index
            .ops
            .iter()
            .any(|(op, _)| matches!(op, Operation::Element(..)));
        if nested || self.elements.is_none() {
            self.checker
                .error(span, "an element of an array cannot be used here");
            return None;
        }
        if !self.is_plain_array(param, &name.span) {
            return None;
        }
        let index = self.expression(index, Kind::Integer)?;
        let reference = ElementRef { param, index };
        let elements = self.elements.as_deref_mut()?;
        let position = elements.iter().position(|known| *known == reference);
        let position = position.unwrap_or(elements.len());
        if position >= MAX_ELEMENTS {
            self.checker
                .error(span, "too many elements of arrays are used in expressions");
            return None;
        }
        if position == elements.len() {
            elements.push(reference);
        }
        u16::try_from(position).ok().map(Op::Element)
    }

    /// Whether expressions can use elements of the parameter: an IN array of integers with one
    /// dimension and no range.
    fn is_plain_array(&mut self, param: usize, span: &Span) -> bool {
        let Param { mode, ty, .. } = &self.params[param];
        let plain = matches!(mode, Mode::In | Mode::InOut) && ty.is_integer();
        if plain && self.shapes[param] == Shape::Plain {
            return true;
        }
        let message = format!(
            "an element of {} cannot be used here",
            quoted(&self.params[param].name)
        );
        let help = "it must be an IN array of integers with one dimension and no range";
        self.checker
            .findings
            .push(Diagnostic::error(span.clone(), message).help(help));
        false
    }
}

/// The value of an expression without names.
fn constant(expr: &Expr) -> Option<i64> {
    expr.integer(Values {
        scalars: &[],
        elements: &[],
    })
    .ok()
}
