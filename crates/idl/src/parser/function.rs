//! Parses a function: name, parameters, options, body. `check` decides what they mean. After an
//! unknown option, the parser continues with the next one.

use super::{Body, Function, MAX_PARAMS, Options, Parse, Parser, Passed, Span};
use crate::diagnostic::Diagnostic;
use crate::lexer::Kind;
use crate::{Constant, Convention, MOST_GPUS};
use alloc::string::String;
use alloc::vec::Vec;

/// Words that start an option or a body.
const OPTIONS: [&str; 12] = [
    "Required",
    "Backend",
    "Shrink",
    "CalcOrder",
    "CommOrder",
    "Language",
    "ProcessorElements",
    "Gpus",
    "Repeatable",
    "Release",
    "Calls",
    "Define",
];

/// The help if a calling convention is none.
const CONVENTIONS: &str = "known are \"C\", \"C++\", \"FORTRAN\" and \"Python\"";
/// The help if a function has no body.
const BODY: &str = "a function ends with `Calls \"C\" name(arguments);` or `{ C text }`";

impl Parser<'_> {
    /// Parses the text after `Define` or `DefMethod`.
    pub(super) fn function(&mut self) -> Parse<Function> {
        let name = self.name("the name of the function")?;
        self.expect("(")?;
        let (mut params, mut callbacks) = (Vec::new(), Vec::new());
        if !self.takes_void_list() {
            loop {
                if self.is_callback() {
                    callbacks.push(self.callback()?);
                } else {
                    let param = self.parameter()?;
                    if !callbacks.is_empty() {
                        let message = "parameters come before callbacks";
                        return self.fail(Diagnostic::error(param.span, message));
                    }
                    params.push(param);
                }
                self.bounded(params.len() + callbacks.len())?;
                if !self.take(",") {
                    break;
                }
            }
            self.expect_end_of_list()?;
        }
        let options = self.options()?;
        let body = self.body()?;
        let span = self.span_from(name.span.start);
        self.take(";");
        Ok(Function {
            span,
            name,
            params,
            callbacks,
            options,
            body,
        })
    }

    /// Whether the list has no parameters: `)` or `void)`.
    pub(super) fn takes_void_list(&mut self) -> bool {
        if self.word_ahead(0) == Some("void") && self.is_ahead(1, ")") {
            self.advance();
        }
        self.take(")")
    }

    pub(super) fn expect_end_of_list(&mut self) -> Parse<()> {
        if self.take(")") {
            return Ok(());
        }
        let message = ["expected `,` or `)`, found ", &self.found()].concat();
        let diagnostic = Diagnostic::error(self.span(), message);
        self.fail(diagnostic)
    }

    pub(super) fn bounded(&mut self, count: usize) -> Parse<()> {
        if count <= MAX_PARAMS {
            return Ok(());
        }
        let diagnostic = Diagnostic::error(self.span(), "too many parameters");
        self.fail(diagnostic)
    }

    /// Options in any order. The description is a string without a word before it.
    pub(super) fn options(&mut self) -> Parse<Options> {
        let mut options = Options::default();
        loop {
            let span = self.span();
            if self.is_text() {
                let text = self.text("a description")?.text;
                self.once(&mut options.description, text, "the description", span)?;
                continue;
            }
            let Some(word) = self.word_ahead(0) else {
                return Ok(options);
            };
            if word == "Calls" {
                return Ok(options);
            }
            self.advance();
            self.option(word, span, &mut options)?;
        }
    }

    fn option(&mut self, word: &str, span: Span, options: &mut Options) -> Parse<()> {
        match word {
            "Required" => options.required.push(self.text("\"a file\"")?.text),
            "Backend" => {
                let text = self.text("\"a backend\"")?.text;
                self.once(&mut options.backend, text, word, span)?;
            }
            "Language" => {
                let text = self.text("\"a language\"")?.text;
                self.once(&mut options.language, text, word, span)?;
            }
            "Shrink" => {
                let answer = self.yes_or_no()?;
                self.once(&mut options.shrink, answer, word, span)?;
            }
            "Repeatable" => {
                let answer = self.yes_or_no()?;
                self.once(&mut options.repeatable, answer, word, span)?;
            }
            "Release" => {
                let function = self.text("\"a function of the library\"")?.text;
                self.once(&mut options.release, function, word, span)?;
            }
            "CalcOrder" | "CommOrder" => {
                let expression = self.expression()?;
                let option = match word {
                    "CalcOrder" => &mut options.calc_order,
                    _ => &mut options.comm_order,
                };
                self.once(option, expression, word, span)?;
            }
            "ProcessorElements" => {
                let mut expression = self.expression()?;
                if self.is(",") {
                    self.advance();
                    let most = self.expression()?;
                    options.fewest_elements = Some(core::mem::replace(&mut expression, most));
                }
                self.once(&mut options.processor_elements, expression, word, span)?;
            }
            "Gpus" => {
                let gpus = self.gpus()?;
                self.once(&mut options.gpus, gpus, word, span)?;
            }
            other => return self.unknown_option(other, span),
        }
        Ok(())
    }

    fn gpus(&mut self) -> Parse<u32> {
        let number = match self.token(0).kind {
            Kind::Integer(number) => u32::try_from(number).ok(),
            _ => None,
        };
        let Some(number) = number.filter(|number| (1..=MOST_GPUS).contains(number)) else {
            return self.expected("a number of GPUs from 1 to 64");
        };
        self.advance();
        Ok(number)
    }

    /// Reports the word and continues at the next option.
    fn unknown_option(&mut self, word: &str, span: Span) -> Parse<()> {
        let message = ["`", word, "` is not an option of a function"].concat();
        if word == "Define" || word == "DefMethod" {
            self.at = self.at.saturating_sub(1);
            return self.fail(Diagnostic::error(span, "a body is missing").help(BODY));
        }
        self.findings
            .push(Diagnostic::error(span, message).suggest(word, OPTIONS));
        loop {
            let code = self.token(0).kind == Kind::Code;
            let option = self
                .word_ahead(0)
                .is_some_and(|word| OPTIONS.contains(&word));
            if code || option || self.at_end() || self.is_text() || self.is(";") {
                return Ok(());
            }
            self.advance();
        }
    }

    fn once<T>(&mut self, slot: &mut Option<T>, value: T, what: &str, span: Span) -> Parse<()> {
        if slot.replace(value).is_none() {
            return Ok(());
        }
        let message = [what, " is given twice"].concat();
        self.findings
            .push(Diagnostic::error(span, message).help("leave one out"));
        Ok(())
    }

    fn yes_or_no(&mut self) -> Parse<bool> {
        let answer = self.text("\"yes\" or \"no\"")?;
        match answer.text.as_str() {
            yes if yes.eq_ignore_ascii_case("yes") => Ok(true),
            no if no.eq_ignore_ascii_case("no") => Ok(false),
            _ => {
                let message = "the answer is \"yes\" or \"no\"";
                self.fail(Diagnostic::error(answer.span, message))
            }
        }
    }

    fn body(&mut self) -> Parse<Body> {
        if let Some(code) = self.code() {
            return Ok(Body::Code(code));
        }
        if self.word_ahead(0) != Some("Calls") {
            let message = ["expected a body, found ", &self.found()].concat();
            let diagnostic = Diagnostic::error(self.span(), message).help(BODY);
            return self.fail(diagnostic);
        }
        self.advance();
        let convention = self.convention()?;
        let mut function = self.name("the name of a function")?;
        let mut returns = None;
        if self.take("=") {
            let value = core::mem::replace(&mut function, self.name("the name of a function")?);
            returns = Some(value);
        }
        self.expect("(")?;
        let mut args = Vec::new();
        if !self.take(")") {
            loop {
                args.push(match self.constant()? {
                    Some(constant) => Passed::Constant(constant),
                    None => Passed::Name(self.name("the name of a parameter, or a constant")?),
                });
                self.bounded(args.len())?;
                if !self.take(",") {
                    break;
                }
            }
            self.expect_end_of_list()?;
        }
        self.end_of_declaration("Calls")?;
        Ok(Body::Calls {
            convention,
            function,
            args,
            returns,
        })
    }

    /// A constant argument: a number, a character, a text or `NULL`.
    fn constant(&mut self) -> Parse<Option<Constant>> {
        if self.takes_null() {
            return Ok(Some(Constant::Null));
        }
        let negative = self.is("-");
        let constant = match (&self.token(usize::from(negative)).kind, negative) {
            (Kind::Integer(value), false) => Constant::Integer(*value),
            (Kind::Integer(value), true) => Constant::Integer(value.saturating_neg()),
            (Kind::Real(value), false) => Constant::Real(*value),
            (Kind::Real(value), true) => Constant::Real(-value),
            (Kind::Char(value), false) => Constant::Character(*value),
            (Kind::Text, false) => return Ok(Some(Constant::Text(self.text("a text")?.text))),
            _ => return Ok(None),
        };
        if negative {
            self.advance();
        }
        self.advance();
        Ok(Some(constant))
    }

    /// Takes `NULL`, or what the preprocessor makes of it: `((void *)0)`.
    fn takes_null(&mut self) -> bool {
        let is_word = self.word_ahead(0) == Some("NULL");
        let is_cast = self.is("(")
            && self.is_ahead(1, "(")
            && self.word_ahead(2) == Some("void")
            && self.is_ahead(3, "*")
            && self.is_ahead(4, ")")
            && self.token(5).kind == Kind::Integer(0)
            && self.is_ahead(6, ")");
        let tokens = if is_cast { 7 } else { usize::from(is_word) };
        for _ in 0..tokens {
            self.advance();
        }
        is_word || is_cast
    }

    fn convention(&mut self) -> Parse<Convention> {
        if !self.is_text() {
            let is_unquoted = self.word_ahead(1).is_some() || self.is_ahead(1, "+");
            if is_unquoted && self.word_ahead(0).is_some() {
                let unquoted = self.found();
                let message = ["the calling convention ", &unquoted, " is not in quotes"].concat();
                return self.fail(Diagnostic::error(self.span(), message).help(CONVENTIONS));
            }
            return Ok(Convention::C);
        }
        let convention = self.text("a convention")?;
        let upper: String = convention.text.to_ascii_uppercase();
        match upper.as_str() {
            "C" => Ok(Convention::C),
            "C++" => Ok(Convention::Cpp),
            "FORTRAN" => Ok(Convention::Fortran),
            "PYTHON" => Ok(Convention::Python),
            _ => {
                let message = ["\"", &convention.text, "\" is not a calling convention"].concat();
                self.fail(Diagnostic::error(convention.span, message).help(CONVENTIONS))
            }
        }
    }
}
