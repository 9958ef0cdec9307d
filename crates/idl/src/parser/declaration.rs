//! Parses the declarations of a file. It checks only the syntax; `check` decides whether a
//! declaration makes sense. After a syntax error the parser skips to the next declaration, so that
//! one run reports all errors.

use super::{Function, Name, Options, Parse, Parser, Span};
use crate::diagnostic::Diagnostic;
use crate::lexer::Kind;
use crate::{Code, Library, StringLengths};
use alloc::string::String;
use alloc::vec::Vec;

/// One declaration of a file.
#[derive(Debug)]
pub(crate) enum Declaration {
    Module(Name),
    Library(Library),
    Globals(Code),
    Compiler(String),
    CompileOptions(String),
    Linker(String),
    FortranFormat(String),
    StringLengths(StringLengths),
    Define(Function),
    Class {
        name: Name,
        options: Options,
        state: Option<Code>,
        methods: Vec<Function>,
    },
}

/// Words that start a declaration.
const KEYWORDS: [&str; 11] = [
    "Module",
    "Define",
    "Globals",
    "Library",
    "LibFile",
    "CompileOptions",
    "Compiler",
    "Linker",
    "FortranFormat",
    "FortranStringConvention",
    "DefClass",
];

/// Those that hold for all functions of the file, wherever they stand.
const WHOLE: [&str; 4] = [
    "Compiler",
    "Linker",
    "FortranFormat",
    "FortranStringConvention",
];

impl<'a> Parser<'a> {
    /// All declarations that could be read.
    pub(crate) fn document(&mut self) -> Vec<Declaration> {
        let mut declarations = Vec::new();
        while !self.at_end() && !self.findings.is_full() {
            if self.take(";") {
                continue;
            }
            let start = self.at;
            self.depth = 0;
            match self.declaration() {
                Ok(declaration) => declarations.push(declaration),
                Err(_) => self.recover(start, &KEYWORDS),
            }
        }
        declarations
    }

    /// Skips to the token after the next `;` or block, or to the next word that starts a
    /// declaration.
    fn recover(&mut self, start: usize, keywords: &[&str]) {
        if self.at == start {
            self.advance();
        }
        while !self.at_end() {
            if self
                .word_ahead(0)
                .is_some_and(|word| keywords.contains(&word))
                || self.is("}")
            {
                return;
            }
            let ends = self.is(";") || self.token(0).kind == Kind::Code;
            self.advance();
            if ends {
                return;
            }
        }
    }

    fn declaration(&mut self) -> Parse<Declaration> {
        let Some(keyword) = self.word_ahead(0) else {
            return self.expected("a declaration such as `Define`");
        };
        let span = self.span();
        self.advance();
        let declaration = match keyword {
            "Define" => return self.function().map(Declaration::Define),
            "DefClass" => return self.class(),
            "Globals" => {
                let Some(code) = self.code() else {
                    return self.expected("`{ C text }`");
                };
                return Ok(Declaration::Globals(code));
            }
            "Module" => Declaration::Module(self.name("the name of the module")?),
            "Library" => Declaration::Library(Library::Library(self.text("\"the library\"")?.text)),
            "LibFile" => Declaration::Library(Library::File(self.text("\"the file\"")?.text)),
            "CompileOptions" => Declaration::CompileOptions(self.text("\"the options\"")?.text),
            "Compiler" => Declaration::Compiler(self.text("\"the compiler\"")?.text),
            "Linker" => Declaration::Linker(self.text("\"the linker\"")?.text),
            "FortranFormat" => Declaration::FortranFormat(self.fortran_format()?),
            "FortranStringConvention" => Declaration::StringLengths(self.string_lengths()?),
            other => {
                let message = ["`", other, "` does not start a declaration"].concat();
                return self.fail(Diagnostic::error(span, message).suggest(other, KEYWORDS));
            }
        };
        self.holds_for_the_file(keyword, self.span_from(span.start));
        self.end_of_declaration(keyword)?;
        Ok(declaration)
    }

    /// Refuses a second declaration that says something else about the whole file.
    fn holds_for_the_file(&mut self, keyword: &'a str, span: Span) {
        if !WHOLE.contains(&keyword) {
            return;
        }
        let text = &self.text[span.clone()];
        let first = self.whole.iter().find(|(known, _)| *known == keyword);
        match first {
            None => self.whole.push((keyword, text)),
            Some((_, first)) if *first == text => {}
            Some(_) => {
                let message = [
                    "`",
                    keyword,
                    "` holds for the whole file and is given twice",
                ];
                let diagnostic = Diagnostic::error(span, message.concat());
                self.findings.push(diagnostic.help("use two files"));
            }
        }
    }

    pub(super) fn end_of_declaration(&mut self, keyword: &str) -> Parse<()> {
        if self.take(";") {
            return Ok(());
        }
        let end = self.tokens[self.at.saturating_sub(1)].span.end;
        let message = ["expected `;`, found ", &self.found()].concat();
        let help = ["`", keyword, "` ends with `;`"].concat();
        // If the next declaration follows directly, nothing else is lost.
        let diagnostic = Diagnostic::error(end..end, message).help(help);
        self.findings.push(diagnostic);
        let follows = self.word_ahead(0).is_some_and(|word| {
            KEYWORDS.contains(&word) || matches!(word, "DefMethod" | "DefState")
        });
        if follows || self.at_end() {
            Ok(())
        } else {
            Err(super::Reported)
        }
    }

    fn fortran_format(&mut self) -> Parse<String> {
        let format = self.text("\"a format such as %s_\"")?;
        let names = ["%s", "%l", "%u"].map(|verb| format.text.matches(verb).count());
        if names.iter().sum::<usize>() != 1 || format.text.matches('%').count() != 1 {
            let message = "a Fortran format has the name once: %s, %l (lower case), %u (upper)";
            let help = "gfortran's is \"%l_\"";
            return self.fail(Diagnostic::error(format.span, message).help(help));
        }
        Ok(format.text)
    }

    fn string_lengths(&mut self) -> Parse<StringLengths> {
        let word = self.name("`last` or `justAfter`")?;
        if word.text.eq_ignore_ascii_case("last") {
            return Ok(StringLengths::Last);
        }
        if word.text.eq_ignore_ascii_case("justAfter") {
            return Ok(StringLengths::JustAfter);
        }
        let message = ["`", &word.text, "` is not a string convention"].concat();
        let diagnostic = Diagnostic::error(word.span, message).help("write `last` or `justAfter`");
        self.fail(diagnostic)
    }

    fn class(&mut self) -> Parse<Declaration> {
        let name = self.name("the name of the class")?;
        let options = self.options()?;
        self.expect("{")?;
        let (mut state, mut methods) = (None, Vec::new());
        while !self.is("}") && !self.at_end() && !self.findings.is_full() {
            if self.take(";") {
                continue;
            }
            let start = self.at;
            if self.member(&mut state, &mut methods).is_err() {
                self.recover(start, &["DefMethod", "DefState", "DefClass", "Define"]);
                if self
                    .word_ahead(0)
                    .is_some_and(|word| KEYWORDS.contains(&word))
                {
                    return Err(super::Reported);
                }
            }
        }
        self.expect("}")?;
        self.take(";");
        Ok(Declaration::Class {
            name,
            options,
            state,
            methods,
        })
    }

    fn member(&mut self, state: &mut Option<Code>, methods: &mut Vec<Function>) -> Parse<()> {
        let span = self.span();
        match self.word_ahead(0) {
            Some("DefState") => {
                self.advance();
                let Some(code) = self.code() else {
                    return self.expected("`{ C declarations }`");
                };
                if state.replace(code).is_some() {
                    let message = "a class has one DefState";
                    return self.fail(Diagnostic::error(span, message));
                }
                Ok(())
            }
            Some("DefMethod") => {
                self.advance();
                methods.push(self.function()?);
                Ok(())
            }
            Some(word) => {
                let message = ["`", word, "` cannot be used in a class"].concat();
                let diagnostic = Diagnostic::error(span, message);
                self.fail(diagnostic.suggest(word, ["DefMethod", "DefState"]))
            }
            None => self.expected("`DefMethod` or `DefState`"),
        }
    }
}
