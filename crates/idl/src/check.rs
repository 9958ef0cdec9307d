//! Turns declarations into the checked model: resolves names and checks meaning. `parser` checks
//! the syntax. Every text, even one from a peer, gives a document and findings within fixed bounds,
//! and a function with an error is left out of the document.

use crate::diagnostic::{Diagnostic, Findings, Severity};
use crate::parser::{Declaration, Function, Name, Options, Parser, Span};
use crate::{Class, Code, Document, Interface, position};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

mod function;
mod parameter;
mod resolve;

/// Longest text of a file, after the preprocessor, in bytes.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// Longest text of one interface, in bytes.
pub const MAX_INTERFACE: usize = 256 << 10;

/// The contents of an interface file and the findings about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// All declarations that were understood. Functions with errors are left out.
    pub document: Document,
    /// Findings in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether a finding is an error, so that the file is not accepted.
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

/// The reason why the text of one interface is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceError(String);

impl core::fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for InterfaceError {}

/// Reads an interface file after the C preprocessor.
///
/// It never fails as a whole. The document holds all declarations that could be read; the
/// diagnostics hold all findings, up to a bound.
pub fn parse_document(text: &str) -> Parsed {
    if text.len() > MAX_DOCUMENT {
        let message = format!("the file is longer than {MAX_DOCUMENT} bytes");
        let diagnostics = [Diagnostic::error(0..0, message)].into();
        return Parsed {
            document: Document::default(),
            diagnostics,
        };
    }
    let mut parser = Parser::new(text);
    let declarations = parser.document();
    let mut checker = Checker {
        text,
        findings: parser.findings,
    };
    let document = checker.document(declarations);
    Parsed {
        document,
        diagnostics: checker.findings.into_sorted(),
    }
}

/// Reads the text of exactly one interface, in the form that [`Interface::text`] writes.
///
/// The text can come from a peer, so its length, its nesting and everything derived from it are
/// bounded.
pub fn parse_interface(text: &str) -> Result<Interface, InterfaceError> {
    if text.len() > MAX_INTERFACE {
        return Err(InterfaceError(format!(
            "the text is longer than {MAX_INTERFACE} bytes"
        )));
    }
    let Parsed {
        mut document,
        diagnostics,
    } = parse_document(text);
    let error = diagnostics
        .iter()
        .find(|diagnostic| diagnostic.severity == Severity::Error);
    if let Some(error) = error {
        let position = position(text, error.span.start);
        return Err(InterfaceError(format!("{position}: {}", error.message)));
    }
    let count = document.functions().count();
    let interface = match (document.interfaces.pop(), document.classes.pop()) {
        (Some(interface), None) if count == 1 => Some(interface),
        // The one method can be that of another class.
        (None, Some(mut class)) if count == 1 && class.state.is_none() => class.methods.pop(),
        _ => {
            return Err(InterfaceError(format!(
                "expected one interface, found {count}"
            )));
        }
    };
    let rest = Document {
        module: document.module.take(),
        ..Document::default()
    };
    document.module = rest.module.clone();
    interface.filter(|_| document == rest).ok_or_else(|| {
        let message = "expected one interface and its module, found other declarations";
        InterfaceError(message.into())
    })
}

struct Checker<'a> {
    text: &'a str,
    findings: Findings,
}

impl Checker<'_> {
    fn document(&mut self, declarations: Vec<Declaration>) -> Document {
        let mut document = Document::default();
        let mut functions = Vec::new();
        let mut classes = Vec::new();
        for declaration in declarations {
            match declaration {
                Declaration::Module(name) => self.set(&mut document.module, name),
                Declaration::Library(library) => document.libraries.push(library),
                Declaration::Globals(code) => document.globals.push(code),
                Declaration::Compiler(compiler) => document.compiler = Some(compiler),
                Declaration::CompileOptions(options) => document.compile_options.push(options),
                Declaration::Linker(linker) => document.linker = Some(linker),
                Declaration::FortranFormat(format) => document.fortran_format = Some(format),
                Declaration::StringLengths(lengths) => document.string_lengths = lengths,
                Declaration::Define(function) => functions.push(function),
                Declaration::Class {
                    name,
                    options,
                    state,
                    methods,
                } => {
                    classes.push((name, options, state, methods));
                }
            }
        }
        let module = document.module.clone();
        let mut names = BTreeSet::new();
        document.interfaces = self.functions(functions, (module.as_deref(), None), &mut names);
        for (name, options, state, methods) in classes {
            if !names.insert(name.text.clone()) {
                self.defined_twice(&name);
            }
            let class = self.class(name, options, state, methods, module.as_deref());
            document.classes.push(class);
        }
        document
    }

    fn set(&mut self, slot: &mut Option<String>, name: Name) {
        if slot.replace(name.text).is_some() {
            let message = "a file has one module";
            self.findings
                .push(Diagnostic::error(name.span, message).help("use two files"));
        }
    }

    fn functions(
        &mut self,
        functions: Vec<Function>,
        of: (Option<&str>, Option<&str>),
        names: &mut BTreeSet<String>,
    ) -> Vec<Interface> {
        let mut interfaces = Vec::with_capacity(functions.len());
        for function in functions {
            if !names.insert(function.name.text.clone()) {
                self.defined_twice(&function.name);
            }
            if let Some(interface) = self.function(function, of) {
                interfaces.push(interface);
            }
        }
        interfaces
    }

    fn defined_twice(&mut self, name: &Name) {
        let message = format!("`{}` is defined twice", name.text);
        self.findings
            .push(Diagnostic::error(name.span.clone(), message));
    }

    fn class(
        &mut self,
        name: Name,
        options: Options,
        state: Option<Code>,
        methods: Vec<Function>,
        module: Option<&str>,
    ) -> Class {
        let costs = [
            &options.calc_order,
            &options.comm_order,
            &options.processor_elements,
        ];
        for expression in costs.into_iter().flatten() {
            let message = "a class has no cost; its methods have";
            self.findings
                .push(Diagnostic::error(expression.span.clone(), message));
        }
        if options.release.is_some() {
            let message = "`Release` belongs to a method";
            self.findings
                .push(Diagnostic::error(name.span.clone(), message));
        }
        if options.repeatable.is_some() {
            let message = "a class cannot be repeatable: its methods change its state";
            self.findings
                .push(Diagnostic::error(name.span.clone(), message));
        }
        if options.gpus.is_some() {
            let message = "`Gpus` belongs to a method";
            self.findings
                .push(Diagnostic::error(name.span.clone(), message));
        }
        let of = (module, Some(name.text.as_str()));
        let mut methods = self.functions(methods, of, &mut BTreeSet::new());
        for method in &mut methods {
            method.shrink |= options.shrink.unwrap_or(false);
            let own = method.backend.take();
            method.backend = own.or_else(|| options.backend.clone());
            let own = method.language.take();
            method.language = own.or_else(|| options.language.clone());
        }
        Class {
            name: name.text,
            description: options.description,
            required: options.required,
            backend: options.backend,
            shrink: options.shrink.unwrap_or(false),
            language: options.language,
            state,
            methods,
        }
    }

    fn error(&mut self, span: &Span, message: impl Into<String>) {
        self.findings.push(Diagnostic::error(span.clone(), message));
    }

    fn warn(&mut self, span: &Span, message: impl Into<String>, help: &str) {
        self.findings
            .push(Diagnostic::warning(span.clone(), message).help(help));
    }
}
