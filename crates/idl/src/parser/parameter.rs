//! Parses parameters: modes and types in any order, then a declarator as in C. `check` decides
//! which combinations are allowed. A word that is unknown is reported once.

use super::{Callback, Dimension, Name, Parameter, Parse, Parser, Span};
use crate::diagnostic::Diagnostic;
use crate::{MAX_RANK, Mode, Type};
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of each text that a function returns, if its interface states no length, as those of
/// Ninf-G do not.
const LONGEST_TEXT: i64 = 4096;

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

/// Names of C and Fortran for types that have another name here. A `bool` is 0 or 1.
const OTHER_NAMES: [(&str, &[&str]); 17] = [
    ("int8_t", &["signed", "char"]),
    ("uint8_t", &["unsigned", "char"]),
    ("int16_t", &["short"]),
    ("uint16_t", &["unsigned", "short"]),
    ("int32_t", &["int"]),
    ("uint32_t", &["unsigned", "int"]),
    ("int64_t", &["long"]),
    ("uint64_t", &["unsigned", "long"]),
    ("size_t", &["unsigned", "long"]),
    ("ssize_t", &["long"]),
    ("ptrdiff_t", &["long"]),
    ("intptr_t", &["long"]),
    ("uintptr_t", &["unsigned", "long"]),
    ("bool", &["unsigned", "char"]),
    ("_Bool", &["unsigned", "char"]),
    ("logical", &["int"]),
    ("LOGICAL", &["int"]),
];

/// Words of other languages that are no types here, and what is meant.
const FOREIGN: [(&str, &str); 14] = [
    ("integer", "int"),
    ("INTEGER", "int"),
    ("real", "float"),
    ("REAL", "float"),
    ("complex", "scomplex"),
    ("COMPLEX", "scomplex"),
    ("complex16", "dcomplex"),
    ("complex64", "scomplex"),
    ("complex128", "dcomplex"),
    ("float32", "float"),
    ("float64", "double"),
    ("boolean", "bool"),
    ("byte", "char"),
    ("str", "string"),
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
    mode_word(word).is_some() || is_type(word) || is_flag(word) || word == "const"
}

/// Whether the word is a type or a part of one.
fn is_type(word: &str) -> bool {
    TYPES.contains(&word) || other_name(word).is_some()
}

fn other_name(word: &str) -> Option<&'static [&'static str]> {
    let mut names = OTHER_NAMES.iter();
    names
        .find(|(name, _)| *name == word)
        .map(|(_, words)| *words)
}

/// The name of the parameter for the value of a callback: `value`, or one like it.
fn value_name(params: &[Parameter]) -> String {
    let mut name = String::from("value");
    while params.iter().any(|param| param.name.text == name) {
        name.push('_');
    }
    name
}

fn is_flag(word: &str) -> bool {
    word == "allocate" || word == "broadcast"
}

impl<'a> Parser<'a> {
    /// Whether a callback follows: the type of its value, if it has one, a name and a list of
    /// parameters.
    pub(super) fn is_callback(&self) -> bool {
        let is_type = |ahead: &usize| self.word_ahead(*ahead).is_some_and(is_type);
        let words = (0..4).take_while(is_type).count();
        let name = self.word_ahead(words);
        name.is_some_and(|word| !is_specifier(word)) && self.is_ahead(words + 1, "(")
    }

    /// A callback. Its value is an OUT array of one element, after the other parameters.
    pub(super) fn callback(&mut self) -> Parse<Callback> {
        let start = self.span().start;
        let mut words = Vec::new();
        while !self.is_ahead(1, "(") {
            let word = self.word_ahead(0).unwrap_or_default();
            match other_name(word) {
                Some(others) => words.extend(others),
                None => words.push(word),
            }
            self.advance();
        }
        let span = self.span_from(start);
        let ty = match words.as_slice() {
            ["void"] => None,
            _ => self.combined(&words, span.clone())?,
        };
        let name = self.name("the name of the callback")?;
        self.expect("(")?;
        let (mut params, mut args) = (Vec::new(), Vec::new());
        if !self.takes_void_list() {
            loop {
                if self.takes_user_pointer()? {
                    args.push(None);
                } else {
                    args.push(Some(params.len()));
                    params.push(self.parameter()?);
                }
                self.bounded(args.len())?;
                if !self.take(",") {
                    break;
                }
            }
            self.expect_end_of_list()?;
        }
        let is_number = ty.is_none_or(|ty| ty.size().is_some() && ty != Type::FixedString);
        if !is_number {
            let message = "the value of a callback is a number";
            return self.fail(Diagnostic::error(span, message));
        }
        let returns = ty.map(|ty| {
            params.push(Parameter {
                name: Name {
                    text: value_name(&params),
                    span: span.clone(),
                },
                span: span.clone(),
                mode: Some(Mode::Out),
                allocate: false,
                broadcast: false,
                ty: Some(ty),
                dims: alloc::vec![Dimension {
                    span: span.clone(),
                    size: None,
                    range: None,
                    brackets: false,
                }],
            });
            params.len() - 1
        });
        Ok(Callback {
            name,
            params,
            args,
            returns,
        })
    }

    /// Takes `void *user`, a pointer that the library passes on and the caller does not see.
    fn takes_user_pointer(&mut self) -> Parse<bool> {
        let first = usize::from(self.word_ahead(0) == Some("const"));
        if self.word_ahead(first) != Some("void") || !self.is_ahead(first + 1, "*") {
            return Ok(false);
        }
        for _ in 0..first + 2 {
            self.advance();
        }
        if self.word_ahead(0).is_some() {
            self.advance();
        }
        Ok(true)
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
        let is_returned = specifiers.mode.is_some_and(Mode::is_returned);
        if ty == Some(Type::String) && is_returned && !dims.is_empty() {
            let length = Dimension::constant(LONGEST_TEXT, name.span.clone());
            specifiers.length.get_or_insert(length);
        }
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
            } else if word == "const" {
                // What a function does not write is IN: the mode says it.
            } else if let Some(words) = other_name(word) {
                specifiers.types.extend(words);
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
                let known = known.chain(["allocate", "broadcast", "const"]);
                let known = known.chain(OTHER_NAMES.iter().map(|(name, _)| *name));
                let foreign = FOREIGN.iter().find(|(name, _)| *name == word);
                let meant = foreign.map_or(word, |(_, meant)| meant);
                self.findings
                    .push(Diagnostic::error(span, message).suggest(meant, known));
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
            (["char"], false) if words.contains(&"signed") => Type::SignedChar,
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
