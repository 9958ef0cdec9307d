//! Turns tokens into declarations whose names are not resolved yet.
//!
//! Recursion is bounded. After an error the parser continues at the next declaration, so that one
//! run reports the errors of the whole file.

use crate::diagnostic::{Diagnostic, Findings};
use crate::lexer::{Kind, Token, tokens};
use crate::{Code, Constant, Convention, Mode, Op, Param, Type};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

mod declaration;
mod expression;
mod function;
mod parameter;

pub(crate) use declaration::Declaration;

/// A byte range of the text.
pub(crate) type Span = Range<usize>;

/// A name or string and its position.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// A function or method: `Define` or `DefMethod`.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Name,
    /// From the name to the end of the body.
    pub(crate) span: Span,
    pub(crate) params: Vec<Parameter>,
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) options: Options,
    pub(crate) body: Body,
}

/// The options between the parameters and the body.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) description: Option<String>,
    pub(crate) required: Vec<String>,
    pub(crate) backend: Option<String>,
    pub(crate) shrink: Option<bool>,
    pub(crate) language: Option<String>,
    pub(crate) repeatable: Option<bool>,
    pub(crate) release: Option<String>,
    pub(crate) calc_order: Option<Expression>,
    pub(crate) comm_order: Option<Expression>,
    pub(crate) processor_elements: Option<Expression>,
    pub(crate) fewest_elements: Option<Expression>,
    pub(crate) gpus: Option<u32>,
}

#[derive(Debug)]
pub(crate) enum Body {
    Calls {
        convention: Convention,
        function: Name,
        args: Vec<Passed>,
        returns: Option<Name>,
    },
    Code(Code),
}

/// What `Calls` passes: a name, or a constant.
#[derive(Debug)]
pub(crate) enum Passed {
    Name(Name),
    Constant(Constant),
}

#[derive(Debug)]
pub(crate) struct Callback {
    pub(crate) name: Name,
    pub(crate) params: Vec<Parameter>,
    /// What the library passes: a parameter, or `None` for `void *user`.
    pub(crate) args: Vec<Option<usize>>,
    /// The parameter for the value.
    pub(crate) returns: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) span: Span,
    pub(crate) mode: Option<Mode>,
    pub(crate) allocate: bool,
    pub(crate) broadcast: bool,
    pub(crate) ty: Option<Type>,
    /// Dimensions. For `string[length]`, the last one is the length.
    pub(crate) dims: Vec<Dimension>,
}

#[derive(Debug)]
pub(crate) struct Dimension {
    pub(crate) span: Span,
    /// Size; `None` for `*` and `[]`.
    pub(crate) size: Option<Expression>,
    /// Start, end, step.
    pub(crate) range: Option<Bounds>,
    /// Whether it is written as `[]` and not as `*`.
    pub(crate) brackets: bool,
}

impl Parameter {
    /// A scalar whose value comes from a parameter of the function around a callback.
    pub(crate) fn hidden(param: &Param) -> Parameter {
        Parameter {
            name: Name {
                text: param.name.clone(),
                span: 0..0,
            },
            span: 0..0,
            mode: Some(Mode::Work),
            allocate: false,
            broadcast: false,
            ty: Some(param.ty),
            dims: Vec::new(),
        }
    }
}

impl Dimension {
    /// A dimension of constant size.
    fn constant(size: i64, span: Span) -> Dimension {
        Dimension {
            size: Some(Expression {
                ops: alloc::vec![(Operation::Op(Op::Const(size)), span.clone())],
                span: span.clone(),
            }),
            span,
            range: None,
            brackets: true,
        }
    }

    /// The names in its expressions.
    pub(crate) fn names(&self) -> impl Iterator<Item = Span> {
        let range = self.range.iter().flat_map(|(start, end, step)| {
            [start.as_ref(), Some(end), step.as_ref()]
                .into_iter()
                .flatten()
        });
        let ops = self
            .size
            .iter()
            .chain(range)
            .flat_map(|expression| &expression.ops);
        ops.filter_map(|(operation, span)| match operation {
            Operation::Name => Some(span.clone()),
            Operation::Op(_) | Operation::Element(..) => None,
        })
    }
}

/// Start, end and step of a range.
pub(crate) type Bounds = (Option<Expression>, Expression, Option<Expression>);

/// An expression in postfix order.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) ops: Vec<(Operation, Span)>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Operation {
    Op(Op),
    Name,
    Element(Name, Expression),
}

/// An error that has been reported already.
#[derive(Debug)]
pub(crate) struct Reported;

pub(crate) type Parse<T> = Result<T, Reported>;

/// Deepest nesting of expressions and declarators.
const MAX_NESTING: usize = 48;
/// Largest number of parameters of a function.
const MAX_PARAMS: usize = 256;

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// Declarations that hold for the whole file: their keyword and text.
    whole: Vec<(&'a str, &'a str)>,
    pub(crate) findings: Findings,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Parser<'a> {
        let mut findings = Findings::default();
        let tokens = tokens(text, &mut findings);
        Parser {
            text,
            tokens,
            at: 0,
            depth: 0,
            whole: Vec::new(),
            findings,
        }
    }

    /// The token `ahead` places after the current one. After the end of the text it is always
    /// [`Kind::End`].
    fn token(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn span(&self) -> Span {
        self.token(0).span.clone()
    }

    /// The range from a position to the end of the previous token.
    fn span_from(&self, start: usize) -> Span {
        start..self.tokens[self.at.saturating_sub(1)].span.end.max(start)
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn at_end(&self) -> bool {
        self.token(0).kind == Kind::End
    }

    fn is(&self, symbol: &str) -> bool {
        self.is_ahead(0, symbol)
    }

    fn is_ahead(&self, ahead: usize, symbol: &str) -> bool {
        matches!(self.token(ahead).kind, Kind::Symbol(found) if found == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        if found {
            self.advance();
        }
        found
    }

    fn word_ahead(&self, ahead: usize) -> Option<&'a str> {
        let token = self.token(ahead);
        (token.kind == Kind::Word).then(|| &self.text[token.span.clone()])
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> Parse<T> {
        self.findings.push(diagnostic);
        Err(Reported)
    }

    /// The current token, for messages.
    fn found(&self) -> String {
        match self.token(0).kind {
            Kind::End => "the end of the file".to_string(),
            Kind::Code => "a block".to_string(),
            Kind::Text => "a string".to_string(),
            _ => ["`", &self.text[self.span()], "`"].concat(),
        }
    }

    fn expected<T>(&mut self, what: &str) -> Parse<T> {
        let message = ["expected ", what, ", found ", &self.found()].concat();
        let diagnostic = Diagnostic::error(self.span(), message);
        self.fail(diagnostic)
    }

    fn expect(&mut self, symbol: &str) -> Parse<()> {
        if self.take(symbol) {
            Ok(())
        } else {
            self.expected(&["`", symbol, "`"].concat())
        }
    }

    fn name(&mut self, what: &str) -> Parse<Name> {
        let Some(word) = self.word_ahead(0) else {
            return self.expected(what);
        };
        let name = Name {
            text: word.to_string(),
            span: self.span(),
        };
        self.advance();
        Ok(name)
    }

    fn is_text(&self) -> bool {
        self.token(0).kind == Kind::Text
    }

    /// A string. Several strings in a row are one, as in C.
    fn text(&mut self, what: &str) -> Parse<Name> {
        if !self.is_text() {
            return self.expected(what);
        }
        let start = self.span().start;
        let mut text = String::new();
        while self.is_text() {
            unescape(&self.text[self.span()], &mut text);
            self.advance();
        }
        Ok(Name {
            text,
            span: self.span_from(start),
        })
    }

    fn code(&mut self) -> Option<Code> {
        if self.token(0).kind != Kind::Code {
            return None;
        }
        let span = self.span();
        self.advance();
        Some(Code {
            text: self.text[span.start + 1..span.end - 1].to_string(),
            start: span.start,
        })
    }

    /// Parses with one more level of nesting, or fails if there are too many levels.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= MAX_NESTING {
            let diagnostic = Diagnostic::error(self.span(), "this is nested too deeply");
            return self.fail(diagnostic);
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }
}

/// Appends the text of a literal. The lexer has checked its quotes and escapes.
fn unescape(literal: &str, text: &mut String) {
    let inner = literal.strip_prefix('"').unwrap_or(literal);
    let mut characters = inner.strip_suffix('"').unwrap_or(inner).chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        });
    }
}
