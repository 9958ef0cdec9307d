//! Splits text into tokens.
//!
//! `{` opens a block of C, which is one token up to its matching `}`. Only after `DefClass` it
//! opens a list of declarations. Comments and the line markers of the C preprocessor are skipped.

use crate::diagnostic::{Diagnostic, Findings, line_marker};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

/// The kind of a token. The parser reads words, strings and blocks from the text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Word,
    Integer(i64),
    Real(f64),
    Char(u8),
    Text,
    Code,
    Symbol(&'static str),
    End,
}

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Range<usize>,
}

/// The symbols, longest first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 26] = [
    "&&", "||", "<=", ">=", "==", "!=", "(", ")", "[", "]", "{", "}", ",", ";", ":", "?", "*", "+",
    "-", "/", "%", "^", "<", ">", "!", "=",
];

/// Longest name, in characters.
const MAX_WORD: usize = 128;

/// All tokens, followed by one [`Kind::End`].
pub(crate) fn tokens(text: &str, findings: &mut Findings) -> Vec<Token> {
    let mut lexer = Lexer {
        text,
        at: 0,
        findings,
        class_header: false,
    };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next() {
        tokens.push(token);
    }
    tokens.push(Token {
        kind: Kind::End,
        span: text.len()..text.len(),
    });
    tokens
}

struct Lexer<'a, 'f> {
    text: &'a str,
    at: usize,
    findings: &'f mut Findings,
    /// Whether the lexer is between `DefClass` and its `{`.
    class_header: bool,
}

impl<'a> Lexer<'a, '_> {
    fn next(&mut self) -> Option<Token> {
        while !self.findings.is_full() {
            self.skip_blank();
            let start = self.at;
            let first = *self.text.as_bytes().get(start)?;
            let kind = match first {
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.word(),
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) => self.number(),
                b'"' => self.string(),
                b'\'' => self.character(),
                b'{' => self.brace(),
                _ => self.symbol(),
            };
            if let Some(kind) = kind {
                return Some(Token {
                    kind,
                    span: start..self.at,
                });
            }
        }
        None
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn error(&mut self, span: Range<usize>, message: &str, help: &str) {
        self.findings
            .push(Diagnostic::error(span, message).help(help));
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let at_line_start = self.at == 0 || self.text.as_bytes()[self.at - 1] == b'\n';
            let line = || rest.find('\n').unwrap_or(rest.len());
            match rest.as_bytes().first() {
                Some(byte) if byte.is_ascii_whitespace() => self.at += 1,
                Some(b'#') if at_line_start => {
                    let line = line();
                    let known = line_marker(&rest[..line]).is_some()
                        || rest[1..].trim_start().starts_with("pragma");
                    if !known {
                        self.error(
                            self.at..self.at + line,
                            "a preprocessor directive is left in the text",
                            "pass the file through the C preprocessor first (`cc -E -P -x c`)",
                        );
                    }
                    self.at += line;
                }
                Some(b'/') if rest.starts_with("//") => self.at += line(),
                Some(b'/') if rest.starts_with("/*") => match rest[2..].find("*/") {
                    Some(length) => self.at += length + 4,
                    None => {
                        let span = self.at..self.at + 2;
                        self.error(span, "this comment does not end", "close it with `*/`");
                        self.at = self.text.len();
                    }
                },
                _ => return,
            }
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.peek(0).is_some_and(&accept) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn word(&mut self) -> Option<Kind> {
        let start = self.at;
        let word = self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (length, class) = (word.len(), word == "DefClass");
        self.class_header |= class;
        if length > MAX_WORD {
            let message = format!("a name has at most {MAX_WORD} characters");
            self.findings
                .push(Diagnostic::error(start..self.at, message));
        }
        Some(Kind::Word)
    }

    fn number(&mut self) -> Option<Kind> {
        let start = self.at;
        let digit = |byte: u8| byte.is_ascii_digit();
        self.take_while(digit);
        let mut real = false;
        if self.peek(0) == Some(b'.') {
            real = true;
            self.at += 1;
            self.take_while(digit);
        }
        let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
        if matches!(self.peek(0), Some(b'e' | b'E')) && self.peek(1 + sign).is_some_and(digit) {
            real = true;
            self.at += 1 + sign;
            self.take_while(digit);
        }
        let end = self.at;
        let tail = self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !tail.is_empty() {
            let help = format!("write `{} * {tail}` for a product", &self.text[start..end]);
            self.error(start..self.at, "a number is followed by letters", &help);
            return Some(Kind::Integer(1));
        }
        let digits = &self.text[start..end];
        if real {
            if let Some(value) = digits.parse::<f64>().ok().filter(|value| value.is_finite()) {
                return Some(Kind::Real(value));
            }
        } else if let Ok(value) = digits.parse() {
            return Some(Kind::Integer(value));
        }
        self.error(
            start..end,
            "this number does not fit in 64 bits",
            "the greatest is 2^63 - 1",
        );
        Some(Kind::Integer(1))
    }

    fn string(&mut self) -> Option<Kind> {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'"' => {
                    self.at += 1;
                    return Some(Kind::Text);
                }
                b'\n' => break,
                b'\\' => {
                    if !matches!(self.peek(1), Some(b'"' | b'\\' | b'n' | b't' | b'r')) {
                        let span = self.at..self.at + 1;
                        self.error(span, "unknown escape", "known are \\\" \\\\ \\n \\t \\r");
                        self.at += 1;
                    } else {
                        self.at += 2;
                    }
                }
                byte if byte.is_ascii_control() => {
                    let span = self.at..self.at + 1;
                    self.error(span, "a control character in a string", "leave it out");
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        let help = "close it with `\"` on the same line";
        self.error(start..self.at, "this string does not end", help);
        Some(Kind::Text)
    }

    fn character(&mut self) -> Option<Kind> {
        let start = self.at;
        let (code, length) = match (self.peek(1), self.peek(2), self.peek(3)) {
            (Some(b'\\'), Some(code @ (b'\'' | b'\\')), Some(b'\'')) => (code, 4),
            (Some(code @ b' '..=b'~'), Some(b'\''), _) if code != b'\\' => (code, 3),
            _ => {
                self.at += 1;
                let help = "write one printable character between quotes: 'N'";
                self.error(start..start + 1, "no character constant", help);
                return None;
            }
        };
        self.at += length;
        Some(Kind::Char(code))
    }

    fn brace(&mut self) -> Option<Kind> {
        if self.class_header {
            self.class_header = false;
            self.at += 1;
            return Some(Kind::Symbol("{"));
        }
        match block_length(self.rest()) {
            Some(length) => {
                self.at += length;
                Some(Kind::Code)
            }
            None => {
                let span = self.at..self.at + 1;
                self.error(span, "this block does not end", "close it with `}`");
                self.at = self.text.len();
                None
            }
        }
    }

    fn symbol(&mut self) -> Option<Kind> {
        let rest = self.rest();
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            self.at += symbol.len();
            return Some(Kind::Symbol(symbol));
        }
        let length = rest.chars().next().map_or(1, char::len_utf8);
        let span = self.at..self.at + length;
        self.at += length;
        let message = "this character has no meaning here";
        self.findings.push(Diagnostic::error(span, message));
        None
    }
}

/// Length of a block of C from its `{` to the matching `}`. Braces in strings, characters and
/// comments do not count.
fn block_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    // Up to where there is no closing apostrophe, and no closing quote. A text from a peer can have
    // one that is not closed in every place.
    let mut open = [0; 2];
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            quote @ (b'"' | b'\'') if at >= open[usize::from(quote == b'"')] => {
                match quoted_length(&bytes[at + 1..], quote) {
                    Ok(length) => at += length,
                    Err(length) => open[usize::from(quote == b'"')] = at + 1 + length,
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => at += text[at + 2..].find("*/")? + 3,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n')?;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Number of bytes up to and including the closing quote.
///
/// # Errors
/// The line ends before it, after so many bytes. All such quotes up to there are behind a
/// backslash, so none of them has a closing one either.
fn quoted_length(bytes: &[u8], quote: u8) -> Result<usize, usize> {
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            b'\n' => return Err(at),
            b'\\' => at += 1,
            byte if byte == quote => return Ok(at + 1),
            _ => {}
        }
        at += 1;
    }
    Err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> (Vec<Kind>, usize) {
        let mut findings = Findings::default();
        let kinds = tokens(text, &mut findings)
            .into_iter()
            .map(|token| token.kind)
            .collect();
        (kinds, findings.errors())
    }

    #[test]
    fn tokens_of_every_kind() {
        let text = "a1 12 1.5 2e3 'N' \"s\\\"\" <= { } ^";
        let (found, errors) = kinds(text);
        assert_eq!(errors, 0);
        let expected = [
            Kind::Word,
            Kind::Integer(12),
            Kind::Real(1.5),
            Kind::Real(2000.0),
            Kind::Char(b'N'),
            Kind::Text,
            Kind::Symbol("<="),
            Kind::Code,
            Kind::Symbol("^"),
            Kind::End,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn braces_inside_c_do_not_count() {
        let code = "{ char c = '}'; /* } */ s = \"}\\\"}\"; // }\n if (x) { y; } }";
        assert_eq!(kinds(code), (alloc::vec![Kind::Code, Kind::End], 0));
        assert_eq!(block_length("{ it's }"), Some(8));
        assert_eq!(block_length("{ \"}"), Some(4));
        assert_eq!(block_length(r"{ '\' x }"), Some(9));
        assert_eq!(block_length("{ '\n '}' }"), Some(10));
        assert_eq!(block_length("{ '\\\n' } }"), Some(8));
        assert_eq!(block_length("{ {} "), None);
    }

    #[test]
    fn line_markers_and_comments_are_skipped() {
        let (found, errors) = kinds("# 12 \"f.idl\" 2\nx // y\n/* z */ #pragma\n");
        assert_eq!((found.len(), errors), (3, 1));
        assert_eq!(
            kinds("#pragma once\n#line 3\n# 4 \"f\"\n"),
            (alloc::vec![Kind::End], 0)
        );
        assert_eq!(kinds("#include <a>\n").1, 1);
    }

    #[test]
    fn an_unterminated_token_is_an_error() {
        for text in [
            "\"abc",
            "/* x",
            "{ x",
            "'ab'",
            "'",
            "@",
            "3n",
            "99999999999999999999",
        ] {
            assert!(kinds(text).1 > 0, "{text}");
        }
    }
}
