//! Parses expressions into postfix order by precedence climbing. Names remain texts;
//! `check::resolve` looks them up. The depth and the length of an expression are bounded.

use super::{Expression, Operation, Parse, Parser, Span};
use crate::diagnostic::Diagnostic;
use crate::lexer::Kind;
use crate::{MAX_OPS, Op};
use alloc::vec::Vec;

type Ops = Vec<(Operation, Span)>;

/// Binary operators and their precedence. All of them are left-associative.
const BINARY: [(&str, u8, Op); 13] = [
    ("||", 2, Op::Or),
    ("&&", 3, Op::And),
    ("==", 4, Op::Equal),
    ("!=", 4, Op::NotEqual),
    ("<", 5, Op::Less),
    ("<=", 5, Op::LessEqual),
    (">", 5, Op::Greater),
    (">=", 5, Op::GreaterEqual),
    ("+", 6, Op::Add),
    ("-", 6, Op::Sub),
    ("*", 7, Op::Mul),
    ("/", 7, Op::Div),
    ("%", 7, Op::Rem),
];

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parse<Expression> {
        let start = self.span().start;
        let mut ops = Vec::new();
        self.select(&mut ops)?;
        Ok(Expression {
            ops,
            span: self.span_from(start),
        })
    }

    fn emit(&mut self, ops: &mut Ops, operation: Operation, span: Span) -> Parse<()> {
        if ops.len() >= MAX_OPS {
            let message = "this expression is too long";
            return self.fail(Diagnostic::error(span, message).help("at most 256 operations"));
        }
        ops.push((operation, span));
        Ok(())
    }

    fn select(&mut self, ops: &mut Ops) -> Parse<()> {
        self.nested(|parser| {
            parser.binary(ops, 2)?;
            let span = parser.span();
            if parser.take("?") {
                parser.select(ops)?;
                parser.expect(":")?;
                parser.select(ops)?;
                parser.emit(ops, Operation::Op(Op::Select), span)?;
            }
            Ok(())
        })
    }

    fn binary(&mut self, ops: &mut Ops, least: u8) -> Parse<()> {
        self.unary(ops)?;
        loop {
            let operator = BINARY.iter().find(|(symbol, _, _)| self.is(symbol));
            let Some(&(_, binding, op)) = operator.filter(|(_, binding, _)| *binding >= least)
            else {
                return Ok(());
            };
            let span = self.span();
            self.advance();
            self.binary(ops, binding + 1)?;
            self.emit(ops, Operation::Op(op), span)?;
        }
    }

    fn unary(&mut self, ops: &mut Ops) -> Parse<()> {
        self.nested(|parser| {
            let span = parser.span();
            if parser.take("-") {
                parser.unary(ops)?;
                return parser.emit(ops, Operation::Op(Op::Neg), span);
            }
            if parser.take("!") {
                parser.unary(ops)?;
                return parser.emit(ops, Operation::Op(Op::Not), span);
            }
            parser.primary(ops)?;
            let span = parser.span();
            if parser.take("^") {
                parser.unary(ops)?;
                parser.emit(ops, Operation::Op(Op::Pow), span)?;
            }
            Ok(())
        })
    }

    fn primary(&mut self, ops: &mut Ops) -> Parse<()> {
        let span = self.span();
        let constant = match self.token(0).kind {
            Kind::Integer(value) => Op::Const(value),
            Kind::Real(value) => Op::Real(value),
            Kind::Char(code) => Op::Char(code),
            Kind::Word => return self.named(ops),
            Kind::Symbol("(") => {
                self.advance();
                self.select(ops)?;
                return self.expect(")");
            }
            _ => return self.expected("an expression"),
        };
        self.advance();
        self.emit(ops, Operation::Op(constant), span)
    }

    /// A scalar, an element of an array, or `min` and `max` of two values.
    fn named(&mut self, ops: &mut Ops) -> Parse<()> {
        let name = self.name("a name")?;
        let span = name.span.clone();
        if self.take("[") {
            let start = self.span().start;
            let mut index = Vec::new();
            self.select(&mut index)?;
            let index = Expression {
                ops: index,
                span: self.span_from(start),
            };
            self.expect("]")?;
            let span = self.span_from(span.start);
            return self.emit(ops, Operation::Element(name, index), span);
        }
        if !self.is("(") {
            return self.emit(ops, Operation::Name, span);
        }
        let op = match name.text.as_str() {
            "min" => Op::Min,
            "max" => Op::Max,
            other => {
                let message = ["`", other, "` is not a function for expressions"].concat();
                let diagnostic = Diagnostic::error(span, message).help("there are min and max");
                return self.fail(diagnostic);
            }
        };
        self.expect("(")?;
        self.select(ops)?;
        self.expect(",")?;
        self.select(ops)?;
        self.expect(")")?;
        self.emit(ops, Operation::Op(op), span)
    }
}
