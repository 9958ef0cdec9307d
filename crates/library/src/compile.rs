//! Builds bodies written in C, and object files, into shared libraries in a private folder.
//! `loader` loads them. The C compiler runs only if the operator has allowed it. The libraries are
//! deleted when [`Compiled`] is dropped.

use crate::source::compiler;
use farcall_idl::{Body, Callback, Document, Interface, Library, Mode, Param, Type};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thiserror::Error;

/// Shared libraries built from an interface file: one for its functions and one for each class.
/// They are deleted when this value is dropped.
#[derive(Debug)]
pub struct Compiled {
    folder: TempDir,
}

/// The reason why bodies could not be built.
#[derive(Debug, Error)]
pub enum CompileError {
    /// The operator has not allowed the C compiler.
    #[error(
        "`{function}` needs the C compiler, which is off: a body runs with the rights of the \
         worker; allow it (`--allow-code`, or `allow_code` in the configuration), or name a \
         finished library"
    )]
    NotAllowed {
        /// The first function that needs it.
        function: String,
    },
    /// A file could not be written.
    #[error("cannot write the C text: {0}")]
    Write(#[from] io::Error),
    /// The compiler could not be run.
    #[error("cannot run `{command}`: {error}; install a C compiler or name one in CC")]
    NoCompiler {
        /// The command.
        command: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The compiler or linker found errors.
    #[error("`{command}` failed:\n{messages}")]
    Failed {
        /// The command.
        command: String,
        /// Its messages.
        messages: String,
    },
}

impl Compiled {
    /// The folder of the shared libraries.
    pub fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

/// The file name of the shared library with the bodies of the functions, or of the methods of a
/// class. Each class has a library of its own, so that the names of its state cannot collide with
/// others.
pub(crate) fn bodies(class: Option<usize>) -> String {
    match class {
        None => "bodies.so".to_string(),
        Some(index) => format!("class_{index}.so"),
    }
}

/// The symbol of the body of the interface with this index.
pub(crate) fn symbol(index: usize) -> String {
    format!("farcall_body_{index}")
}

/// The first function of the file that cannot be called without a C compiler.
pub fn needs_compiler(document: &Document) -> Option<&Interface> {
    let units = units(document).into_iter();
    let mut needing = units.filter(|unit| unit.needs_compiler(document));
    needing.find_map(|unit| unit.functions.first().map(|(_, interface)| *interface))
}

/// The content of one shared library.
struct Unit<'d> {
    class: Option<usize>,
    state: Option<&'d str>,
    required: Vec<&'d String>,
    /// The functions with their indices in the document.
    functions: Vec<(usize, &'d Interface)>,
}

fn units(document: &Document) -> Vec<Unit<'_>> {
    let mut numbers = 0..;
    let mut number = |interfaces: &'_ [Interface]| -> Vec<usize> {
        numbers.by_ref().take(interfaces.len()).collect()
    };
    let functions = number(&document.interfaces);
    let mut units = vec![Unit {
        class: None,
        state: None,
        required: Vec::new(),
        functions: functions.into_iter().zip(&document.interfaces).collect(),
    }];
    for (index, class) in document.classes.iter().enumerate() {
        let methods = number(&class.methods);
        units.push(Unit {
            class: Some(index),
            state: class.state.as_deref(),
            required: class.required.iter().collect(),
            functions: methods.into_iter().zip(&class.methods).collect(),
        });
    }
    units
}

impl Unit<'_> {
    fn needs_compiler(&self, document: &Document) -> bool {
        let mut libraries = document.libraries.iter();
        let files = libraries.any(|library| matches!(library, Library::File(_)));
        let needs = |(_, interface): &(usize, &Interface)| {
            matches!(interface.body, Body::Code(_)) || !interface.required.is_empty()
        };
        let any = !self.functions.is_empty();
        any && (files || !self.required.is_empty() || self.functions.iter().any(needs))
    }
}

/// Builds the bodies, `Required` files and `LibFile`s of an interface file into shared libraries in
/// a private folder. `None` if the file has none of them.
///
/// `allowed` says whether the operator permits the compiler. If it is false, a file that needs the
/// compiler is an error.
pub fn compile(
    document: &Document,
    folder: &Path,
    allowed: bool,
) -> Result<Option<Compiled>, CompileError> {
    let Some(first) = needs_compiler(document) else {
        return Ok(None);
    };
    if !allowed {
        return Err(CompileError::NotAllowed {
            function: first.qualified_name().into_owned(),
        });
    }
    let compiled = Compiled {
        folder: tempfile::Builder::new().prefix("farcall-").tempdir()?,
    };
    for unit in units(document) {
        if unit.needs_compiler(document) {
            build(document, &unit, folder, &compiled.path())?;
        }
    }
    Ok(Some(compiled))
}

fn build(
    document: &Document,
    unit: &Unit<'_>,
    folder: &Path,
    target: &Path,
) -> Result<(), CompileError> {
    let library = target.join(bodies(unit.class));
    let source = library.with_extension("c");
    let object = library.with_extension("o");
    fs::write(&source, text(document, unit))?;
    let cc = document.compiler.clone().unwrap_or_else(compiler);
    let options = document
        .compile_options
        .iter()
        .flat_map(|options| options.split_whitespace());
    let mut compile = command(&cc);
    compile
        .args(["-c", "-fPIC", "-O2"])
        .args(options)
        .arg("-o")
        .arg(&object)
        .arg(&source);
    run(compile.current_dir(folder), &cc)?;
    let linker = document.linker.as_deref().unwrap_or(&cc);
    let mut link = command(linker);
    link.args(["-shared", "-o"]).arg(&library).arg(&object);
    link.args(link_arguments(
        document,
        unit,
        &std::path::absolute(folder)?,
    ));
    run(link.current_dir(folder), linker)?;
    Ok(())
}

/// The libraries, so that the bodies find them from any folder: as when they are loaded, names with
/// `/` start at the folder of the file, and others are searched there first.
fn link_arguments(document: &Document, unit: &Unit<'_>, folder: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let functions = unit.functions.iter();
    let required = functions.flat_map(|(_, interface)| &interface.required);
    for file in unit.required.iter().copied().chain(required) {
        if !arguments.contains(file) {
            arguments.push(file.clone());
        }
    }
    for library in &document.libraries {
        match library {
            Library::File(file) if file.ends_with(".a") => {
                let whole = ["-Wl,--whole-archive", file, "-Wl,--no-whole-archive"];
                arguments.extend(whole.map(String::from));
            }
            Library::File(file) => arguments.push(file.clone()),
            Library::Library(name) if name.starts_with('-') => {
                arguments.extend(name.split_whitespace().map(String::from));
            }
            Library::Library(name) if name.contains('/') => {
                let path = folder.join(name);
                arguments.push(path.to_string_lossy().into_owned());
                arguments.extend(path.parent().map(search_at_run_time));
            }
            Library::Library(name) => {
                arguments.push(format!("-L{}", folder.display()));
                arguments.push(format!("-l:{name}"));
                arguments.push(search_at_run_time(folder));
            }
        }
    }
    arguments
}

fn search_at_run_time(folder: &Path) -> String {
    format!("-Wl,-rpath,{}", folder.display())
}

fn command(words: &str) -> Command {
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("cc"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(command: &mut Command, name: &str) -> Result<(), CompileError> {
    let output = command.output().map_err(|error| CompileError::NoCompiler {
        command: name.to_string(),
        error,
    })?;
    let messages = String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_string();
    if output.status.success() {
        if !messages.is_empty() {
            eprintln!("{messages}");
        }
        return Ok(());
    }
    Err(CompileError::Failed {
        command: name.to_string(),
        messages,
    })
}

fn text(document: &Document, unit: &Unit<'_>) -> String {
    let mut text = String::new();
    for globals in &document.globals {
        text.push_str(globals);
        text.push('\n');
    }
    if let Some(state) = unit.state {
        text.push_str(state);
        text.push('\n');
    }
    for (index, interface) in &unit.functions {
        let Body::Code(code) = &interface.body else {
            continue;
        };
        let params = interface
            .params
            .iter()
            .map(declaration)
            .chain(interface.callbacks.iter().map(function));
        let params = list(params);
        // Writing to a `String` does not fail.
        let _ = write!(
            text,
            "__attribute__((visibility(\"default\")))\nvoid {}({params})\n{{{code}}}\n",
            symbol(*index)
        );
    }
    text
}

/// The declaration of a callback as a parameter of the body.
fn function(callback: &Callback) -> String {
    let params = callback.args.iter().map(|arg| match arg.param() {
        Some(param) => declaration(&callback.params[param]),
        None => "void *".to_string(),
    });
    let value = callback.returns.map(|param| callback.params[param].ty);
    let value = value.map_or("void", c_type);
    format!("{value} (*{})({})", callback.name, list(params))
}

fn list(params: impl Iterator<Item = String>) -> String {
    let params: Vec<String> = params.collect();
    match params.is_empty() {
        true => "void".to_string(),
        false => params.join(", "),
    }
}

fn c_type(ty: Type) -> &'static str {
    match ty {
        Type::LongLong => "long long",
        Type::UnsignedLongLong => "unsigned long long",
        Type::SComplex => "float _Complex",
        Type::DComplex => "double _Complex",
        Type::String | Type::FixedString | Type::Filename => "const char *",
        Type::FilePointer => "FILE *",
        other => other.name(),
    }
}

fn declaration(param: &Param) -> String {
    let ty = match param.ty {
        Type::FixedString if param.mode != Mode::In => "char *",
        ty => c_type(ty),
    };
    let pointer = if param.is_scalar() { "" } else { "*" };
    format!("{ty} {pointer}{}", param.name)
}
