//! Parses parameters: modes and types in any order, then a declarator as in C. `check` decides
//! which combinations are allowed. A word that is unknown is reported once.

use super::{Dimension, Name, Parameter, Parse, Parser, Span};
use crate::diagnostic::Diagnostic;
use crate::{MAX_RANK, Mode, Type};
use alloc::vec::Vec;

/// Words for the direction, in upper or lower case.
const MODES: [(&str, Mode); 8] = [
    ("IN", Mode::In),
    ("OUT", Mode::Out),
    ("INOUT", Mode::InOut),
    ("WORK", Mode::Work),
    ("mode_in", Mode::In),
    ("mode_out", Mode::Out),
    ("mode_inout", Mode::InOut),
    ("mode_work", Mode::Work),
];

/// Words of which types consist.
const TYPES: [&str; 15] = [
    "char",
    "short",
    "int",
    "long",
    "longlong",
    "unsigned",
    "float",
    "double",
    "string",
    "scomplex",
    "dcomplex",
    "filename",
    "filepointer",
    "void",
    "signed",
];

/// The words before a declarator.
#[derive(Default)]
struct Specifiers<'a> {
    mode: Option<Mode>,
    allocate: bool,
    broadcast: bool,
    types: Vec<&'a str>,
    /// The length in `string[length]`.
    length: Option<Dimension>,
    /// Whether a word was unknown. The parser then does not also report what is missing.
    unknown: bool,
}

fn mode_word(word: &str) -> Option<Mode> {
    MODES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(word))
        .map(|(_, mode)| *mode)
}

fn is_specifier(word: &str) -> bool {
    mode_word(word).is_some() || TYPES.contains(&word) || is_flag(word)
}

fn is_flag(word: &str) -> bool {
    word == "allocate" || word == "broadcast"
}

impl<'a> Parser<'a> {
    /// Whether a callback follows: a name and a list of parameters.
    pub(super) fn is_callback(&self) -> bool {
        self.word_ahead(0).is_some_and(|word| !is_specifier(word)) && self.is_ahead(1, "(")
    }

    pub(super) fn parameter(&mut self) -> Parse<Parameter> {
        let start = self.span().start;
        let mut specifiers = self.specifiers()?;
        let types = self.span_from(start);
        let (name, mut dims) = self.declarator()?;
        if TYPES.contains(&name.text.as_str()) || MODES.iter().any(|(mode, _)| *mode == name.text) {
            let message = "this parameter has no name";
            return self.fail(Diagnostic::error(name.span, message).help("write `IN int n`"));
        }
        let mut ty = self.combined(&specifiers.types, types)?;
        if let Some(length) = specifiers.length.take() {
            dims.push(length);
            ty = ty.map(|_| Type::FixedString);
        }
        if dims.len() > MAX_RANK {
            let span = dims[MAX_RANK].span.clone();
            return self.fail(Diagnostic::error(
                span,
                "an array has at most 16 dimensions",
            ));
        }
        Ok(Parameter {
            name,
            span: self.span_from(start),
            mode: specifiers.mode.or(specifiers.unknown.then_some(Mode::In)),
            allocate: specifiers.allocate,
            broadcast: specifiers.broadcast,
            ty: ty.or(specifiers.unknown.then_some(Type::Int)),
            dims,
        })
    }

    /// The words before the declarator. A word belongs to them if another word, `*` or `(` follows
    /// it.
    fn specifiers(&mut self) -> Parse<Specifiers<'a>> {
        let mut specifiers = Specifiers::default();
        while let Some(word) = self.word_ahead(0) {
            let has_length = word == "string" && self.is_ahead(1, "[");
            let has_declarator = self.is_ahead(1, "*") || self.is_ahead(1, "(");
            let follows = self.word_ahead(1).is_some() || has_declarator || has_length;
            if !follows {
                break;
            }
            let span = self.span();
            self.advance();
            if let Some(mode) = mode_word(word) {
                if specifiers.mode.replace(mode).is_some() {
                    let message = "a parameter has one mode";
                    let help = "for data that travel in both directions write INOUT";
                    return self.fail(Diagnostic::error(span, message).help(help));
                }
            } else if is_flag(word) {
                specifiers.allocate |= word == "allocate";
                specifiers.broadcast |= word == "broadcast";
            } else if TYPES.contains(&word) {
                if specifiers.types.len() >= 4 {
                    return self.fail(Diagnostic::error(span, "too many words for a type"));
                }
                specifiers.types.push(word);
                if has_length {
                    specifiers.length = Some(self.dimension()?);
                }
            } else {
                let message = ["`", word, "` is neither a mode nor a type"].concat();
                let known = MODES.iter().map(|(mode, _)| *mode).chain(TYPES);
                let known = known.chain(["allocate", "broadcast"]);
                self.findings
                    .push(Diagnostic::error(span, message).suggest(word, known));
                specifiers.unknown = true;
            }
        }
        Ok(specifiers)
    }

    /// The type that words such as `unsigned long int` form together. `None` if there are no words.
    fn combined(&mut self, words: &[&str], span: Span) -> Parse<Option<Type>> {
        let unsigned = words.contains(&"unsigned");
        let mut base: Vec<&str> = words
            .iter()
            .copied()
            .filter(|word| !matches!(*word, "unsigned" | "signed"))
            .collect();
        base.sort_unstable();
        let ty = match (base.as_slice(), unsigned) {
            ([], true) | (["int"], true) => Type::UnsignedInt,
            ([], false) if words.is_empty() => return Ok(None),
            ([], false) | (["int"], false) => Type::Int,
            (["char"], false) => Type::Char,
            (["char"], true) => Type::UnsignedChar,
            (["short"] | ["int", "short"], false) => Type::Short,
            (["short"] | ["int", "short"], true) => Type::UnsignedShort,
            (["long"] | ["int", "long"], false) => Type::Long,
            (["long"] | ["int", "long"], true) => Type::UnsignedLong,
            (["longlong"] | ["long", "long"] | ["int", "long", "long"], false) => Type::LongLong,
            (["longlong"] | ["long", "long"] | ["int", "long", "long"], true) => {
                Type::UnsignedLongLong
            }
            (["float"], false) => Type::Float,
            (["double"], false) => Type::Double,
            (["scomplex"], false) => Type::SComplex,
            (["dcomplex"], false) => Type::DComplex,
            (["string"], false) => Type::String,
            (["filename"], false) => Type::Filename,
            (["filepointer"], false) => Type::FilePointer,
            (["void"], false) => {
                let diagnostic = Diagnostic::error(span, "a parameter cannot be void");
                return self.fail(diagnostic.help("for bytes without a type write `char`"));
            }
            _ => {
                let message = ["`", &words.join(" "), "` is not a type"].concat();
                return self.fail(Diagnostic::error(span, message));
            }
        };
        Ok(Some(ty))
    }

    /// Name and dimensions, outermost first. Brackets bind more tightly than `*`, as in C.
    fn declarator(&mut self) -> Parse<(Name, Vec<Dimension>)> {
        self.nested(|parser| {
            if parser.is("*") {
                let span = parser.span();
                parser.advance();
                let (name, mut dims) = parser.declarator()?;
                dims.push(Dimension {
                    span,
                    size: None,
                    range: None,
                    brackets: false,
                });
                return Ok((name, dims));
            }
            let (name, mut dims) = if parser.take("(") {
                let inner = parser.declarator()?;
                parser.expect(")")?;
                inner
            } else {
                (parser.name("the name of a parameter")?, Vec::new())
            };
            while parser.is("[") {
                dims.push(parser.dimension()?);
            }
            Ok((name, dims))
        })
    }

    fn dimension(&mut self) -> Parse<Dimension> {
        let start = self.span().start;
        self.expect("[")?;
        let size = match self.is("]") || self.is(":") {
            true => None,
            false => Some(self.expression()?),
        };
        let range = match self.take(":") {
            false => None,
            true => {
                let first = self.expression()?;
                let second = if self.take(",") {
                    Some(self.expression()?)
                } else {
                    None
                };
                let third = if self.take(",") {
                    Some(self.expression()?)
                } else {
                    None
                };
                Some(match second {
                    None => (None, first, None),
                    Some(end) => (Some(first), end, third),
                })
            }
        };
        self.expect("]")?;
        Ok(Dimension {
            span: self.span_from(start),
            size,
            range,
            brackets: true,
        })
    }
}
