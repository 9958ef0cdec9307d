//! Builds bodies written in C, and object files, into shared libraries in a private folder.
//! `loader` loads them. The C compiler runs only if the operator has allowed it. The libraries are
//! deleted when [`Compiled`] is dropped.

use crate::Source;
use crate::loader::{of_linker, searched};
use crate::source::{compiler, write_headers};
use farcall_idl::{Body, Callback, Code, Document, Interface, Library, Param, Type, position};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thiserror::Error;

/// Shared libraries built from an interface file: one for its functions and one for each class.
/// They are deleted when this value is dropped. If the process is killed, the next one that
/// compiles deletes them.
#[derive(Debug)]
pub struct Compiled {
    folder: TempDir,
    /// The folder, locked for as long as a process uses it.
    _lock: File,
}

/// What a body finds without an `#include`, as it does in Ninf-G.
const STANDARD: &str = "\
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
";

/// What the bodies of functions of several processes find besides, as in Ninf-G.
const MPI: &str = "\
#if __has_include(<mpi.h>)
#include <mpi.h>
#endif
";

/// The complex numbers of Ninf and Ninf-G, for bodies that use their members.
const STRUCTURES: &str = "\
typedef struct { float r, i; } scomplex;
typedef struct { double r, i; } dcomplex;
";

/// How the names of the folders begin.
const PREFIX: &str = "farcall-bodies-";

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
    /// An empty folder, locked.
    fn new() -> io::Result<Compiled> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            // Until it is locked, another process may take it for an abandoned one and delete it.
            let lock = match File::open(folder.path()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            lock.lock_shared()?;
            if folder.path().exists() {
                return Ok(Compiled {
                    folder,
                    _lock: lock,
                });
            }
        }
    }

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
    state: Option<&'d Code>,
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
            state: class.state.as_ref(),
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

/// Deletes the folders of killed processes of this user, beside the one that it uses: those that
/// nobody has locked.
fn delete_abandoned(used: &Path) {
    let own = fs::metadata(used).map(|found| found.uid());
    let entries = used.parent().map(fs::read_dir);
    let (Ok(own), Some(Ok(entries))) = (own, entries) else {
        return;
    };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let metadata = entry.metadata();
        let is_own = metadata.is_ok_and(|found| found.is_dir() && found.uid() == own);
        if !is_ours || !is_own {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Builds the bodies, `Required` files and `LibFile`s of an interface file into shared libraries in
/// a private folder. `None` if the file has none of them.
///
/// `allowed` says whether the operator permits the compiler. If it is false, a file that needs the
/// compiler is an error.
pub fn compile(
    document: &Document,
    source: &Source,
    allowed: bool,
) -> Result<Option<Compiled>, CompileError> {
    let first = needs_compiler(document);
    if !allowed {
        return match first {
            None => Ok(None),
            Some(first) => Err(CompileError::NotAllowed {
                function: first.qualified_name().into_owned(),
            }),
        };
    }
    // `Calls` may name a function of the globals.
    let has_globals = !document.globals.is_empty();
    if first.is_none() && !has_globals {
        return Ok(None);
    }
    let compiled = Compiled::new()?;
    write_headers(&compiled.path())?;
    delete_abandoned(&compiled.path());
    for unit in units(document) {
        let is_empty = unit.functions.is_empty();
        if unit.needs_compiler(document) || (has_globals && !is_empty) {
            build(document, &unit, source, &compiled.path())?;
        }
    }
    Ok(Some(compiled))
}

fn build(
    document: &Document,
    unit: &Unit<'_>,
    file: &Source,
    target: &Path,
) -> Result<(), CompileError> {
    let folder = file.folder();
    let library = target.join(bodies(unit.class));
    let source = library.with_extension("c");
    let object = library.with_extension("o");
    fs::write(&source, text(document, unit, file))?;
    let cc = document.compiler.clone().unwrap_or_else(compiler);
    let options = document
        .compile_options
        .iter()
        .flat_map(|options| options.split_whitespace());
    let mut compile = command(&cc);
    compile
        .args(["-c", "-fPIC", "-O2", "-I"])
        .arg(target)
        .args(&file.options)
        .args(options)
        .arg("-o")
        .arg(&object)
        .arg(&source);
    run(compile.current_dir(folder), &cc)?;
    let linker = document.linker.as_deref().unwrap_or(&cc);
    let mut link = command(linker);
    link.args(["-shared", "-o"]).arg(&library).arg(&object);
    link.args(link_arguments(document, unit, &folders_of(folder)?));
    run(link.current_dir(folder), linker)?;
    Ok(())
}

/// The files that bodies require, and the libraries.
fn link_arguments(document: &Document, unit: &Unit<'_>, folders: &[PathBuf]) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let functions = unit.functions.iter();
    let required = functions.flat_map(|(_, interface)| &interface.required);
    let required = unit.required.iter().copied().chain(required);
    for file in required.flat_map(|files| files.split_whitespace()) {
        if !arguments.iter().any(|known| known == file) {
            arguments.push(file.to_owned());
        }
    }
    for library in &document.libraries {
        match library {
            Library::File(file) if file.ends_with(".a") => {
                let whole = ["-Wl,--whole-archive", file, "-Wl,--no-whole-archive"];
                arguments.extend(whole.map(String::from));
            }
            Library::File(file) => arguments.push(file.clone()),
            Library::Library(name) => arguments.extend(linked(name, folders)),
        }
    }
    arguments
}

/// The options of the linker for the shared libraries of an interface file.
///
/// # Errors
/// The present folder cannot be found.
pub fn link_options(source: &Source, document: &Document) -> io::Result<Vec<String>> {
    let folders = folders_of(source.folder())?;
    let names = document.libraries.iter().filter_map(|one| match one {
        Library::Library(name) => Some(name),
        Library::File(_) => None,
    });
    Ok(names.flat_map(|name| linked(name, &folders)).collect())
}

/// The folders that are searched, wherever the linker runs.
fn folders_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let folders = searched(folder).into_iter().map(std::path::absolute);
    folders.collect()
}

/// The options for one `Library`, so that what is linked finds it from any folder: as when it is
/// loaded, a name with `/` starts at the folder of the file, which is the first of `folders`, and
/// others are searched in all of these first.
fn linked(name: &str, folders: &[PathBuf]) -> Vec<String> {
    let (own, words) = match name.starts_with('-') {
        true => of_linker(name, &folders[0]),
        false if name.contains('/') => {
            let path = folders[0].join(name);
            let search = path.parent().map(search_at_run_time);
            let path = path.to_string_lossy().into_owned();
            let search = search.into_iter().flatten();
            return std::iter::once(path).chain(search).collect();
        }
        false => (Vec::new(), Vec::new()),
    };
    let mut arguments = Vec::new();
    for folder in folders.iter().chain(&own) {
        arguments.push(format!("-L{}", folder.display()));
        arguments.extend(search_at_run_time(folder));
    }
    match name.starts_with('-') {
        true => arguments.extend(words.into_iter().map(String::from)),
        false => arguments.push(format!("-l:{name}")),
    }
    arguments
}

/// In `-Wl,-rpath,FOLDER`, the name of the folder would end at a comma.
fn search_at_run_time(folder: &Path) -> [String; 4] {
    let folder = folder.display().to_string();
    ["-Xlinker", "-rpath", "-Xlinker", &folder].map(String::from)
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

/// The C text of a library. Its lines have the numbers of the interface file, so that messages of
/// the compiler point there.
fn text(document: &Document, unit: &Unit<'_>, file: &Source) -> String {
    let mut text = String::new();
    if !has_headers(file) {
        text.push_str(STANDARD);
    }
    let mut functions = unit.functions.iter();
    if functions.any(|(_, interface)| interface.is_parallel()) {
        text.push_str(MPI);
    }
    let bodies = unit
        .functions
        .iter()
        .filter_map(|(_, interface)| match &interface.body {
            Body::Code(code) => Some(code),
            Body::Calls { .. } => None,
        });
    let mut globals = document.globals.iter().chain(unit.state);
    let has_types = globals.any(|code| code.text.contains("complex;"));
    if bodies.clone().any(has_members) && !has_types {
        text.push_str(STRUCTURES);
    }
    // Writing to a `String` does not fail.
    for code in document.globals.iter().chain(unit.state) {
        // The brace before the text is not a part of it.
        let _ = writeln!(text, "{} {}", line(file, code), code.text);
    }
    for (index, interface) in &unit.functions {
        let Body::Code(code) = &interface.body else {
            continue;
        };
        let params = (0..interface.params.len())
            .map(|param| match interface.is_allocated(param) {
                true => allocated(&interface.params[param]),
                false => declaration(&interface.params[param], has_members(code)),
            })
            .chain(
                interface
                    .callbacks
                    .iter()
                    .map(|known| function(known, has_members(code))),
            );
        let params = list(params);
        let _ = write!(
            text,
            "{0}__attribute__((visibility(\"default\"))) void {1}({params})\n{0}{{{2}}}\n",
            line(file, code),
            symbol(*index),
            code.text,
        );
    }
    text
}

/// Whether the preprocessor has put headers of the system into the text of the file. They must not
/// come twice. It reads `stdc-predef.h` for every file, which declares nothing, and clang marks its
/// own macros as a header of the system.
fn has_headers(file: &Source) -> bool {
    let declares_nothing =
        |line: &str| line.contains("/stdc-predef.h\"") || line.contains("\"<built-in>\"");
    let markers = file.text.lines().filter(|line| line.starts_with("# "));
    let mut named = markers.filter(|line| !declares_nothing(line));
    named.any(|line| line.ends_with(" 3") || line.ends_with(" 3 4"))
}

/// What puts the text of a block at its line and column of the interface file.
fn line(file: &Source, code: &Code) -> String {
    let place = position(&file.text, code.start);
    let path = file.path.to_string_lossy();
    let path = place.file.as_deref().unwrap_or(&path);
    let path = path.replace('\\', "\\\\").replace('"', "\\\"");
    let before = " ".repeat(place.column - 1);
    format!("#line {} \"{path}\"\n{before}", place.line)
}

/// The declaration of a callback as a parameter of the body.
fn function(callback: &Callback, has_members: bool) -> String {
    let params = callback.args.iter().map(|arg| match arg.param() {
        Some(param) => declaration(&callback.params[param], has_members),
        None => "void *".to_string(),
    });
    let value = callback.returns.map(|param| callback.params[param].ty);
    let value = value.map_or("void", |ty| c_type(ty, has_members));
    format!("{value} (*{})({})", callback.name, list(params))
}

fn list(params: impl Iterator<Item = String>) -> String {
    let params: Vec<String> = params.collect();
    match params.is_empty() {
        true => "void".to_string(),
        false => params.join(", "),
    }
}

/// Whether a body uses the members `r` and `i` of complex numbers.
fn has_members(code: &Code) -> bool {
    let text = code.text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_member = |(at, pair): (usize, &[u8])| {
        let ends = text.get(at + 2).is_none_or(|next| !is_word(*next));
        let before = at.checked_sub(1).map(|before| text[before]);
        let follows = match pair[0] {
            b'.' => before.is_some_and(|before| is_word(before) || matches!(before, b')' | b']')),
            _ => pair[0] == b'>' && before == Some(b'-'),
        };
        follows && ends && matches!(pair[1], b'r' | b'i')
    };
    text.windows(2).enumerate().any(is_member)
}

fn c_type(ty: Type, has_members: bool) -> &'static str {
    match ty {
        Type::SComplex if has_members => "scomplex",
        Type::DComplex if has_members => "dcomplex",
        Type::LongLong => "long long",
        Type::UnsignedLongLong => "unsigned long long",
        Type::SComplex => "float _Complex",
        Type::DComplex => "double _Complex",
        Type::String | Type::FixedString | Type::Filename => "char *",
        Type::FilePointer => "FILE *",
        other => other.name(),
    }
}

/// The declaration of a result that the body allocates.
fn allocated(param: &Param) -> String {
    match param.ty {
        Type::FixedString => format!("char **{}", param.name),
        ty => format!("{} **{}", c_type(ty, false), param.name),
    }
}

fn declaration(param: &Param, has_members: bool) -> String {
    let ty = c_type(param.ty, has_members);
    let pointer = if param.is_scalar() { "" } else { "*" };
    format!("{ty} {pointer}{}", param.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when the libraries are loaded without a body beside them.
    #[test]
    fn a_body_is_linked_with_a_library_from_any_searched_folder() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("others, in one folder");
        fs::create_dir(&other).unwrap();
        let made = |text: &str, name: &str| {
            let (source, to) = (folder.path().join("made.c"), other.join(name));
            fs::write(&source, text).unwrap();
            let mut command = command(&compiler());
            command.args(["-shared", "-fPIC", "-o"]).arg(to).arg(source);
            run(&mut command, "cc").unwrap();
        };
        made("int twice(int n) { return 2 * n; }", "libtwice.so.1");
        made("int half(int n) { return n / 2; }", "libhalf.so");
        fs::create_dir(folder.path().join("named")).unwrap();
        made("int third(int n) { return n / 3; }", "../named/libthird.so");
        let text = "Library \"libtwice.so.1\"; Library \"-lhalf\"; Library \"-Lnamed -lthird\"; \
                    Define f(IN int n, OUT int *m) { *m = twice(half(third(n))); }";
        let document = farcall_idl::parse_document(text).document;
        let folders = [folder.path().to_owned(), other];
        let arguments = link_arguments(&document, &units(&document)[0], &folders);
        let (object, made) = (folder.path().join("body.o"), folder.path().join("body.so"));
        let body = folder.path().join("body.c");
        fs::write(
            &body,
            "int twice(int), half(int), third(int); int f(int n) { return twice(half(third(n))); }",
        )
        .unwrap();
        let mut compile = command(&compiler());
        compile.args(["-c", "-fPIC", "-o"]).arg(&object).arg(&body);
        run(&mut compile, "cc").unwrap();
        let mut link = command(&compiler());
        link.args(["-shared", "-Wl,-z,defs", "-o"])
            .arg(&made)
            .arg(&object);
        run(link.args(arguments).current_dir(folder.path()), "cc").unwrap();
        let loaded = crate::loader::Loaded::open(&made.to_string_lossy(), folder.path());
        assert!(loaded.is_ok_and(|loaded| loaded.symbol("twice").is_some()));
    }

    #[test]
    fn what_every_preprocessor_reads_is_no_header_of_the_system() {
        let has = |text: &str| {
            has_headers(&Source {
                path: "heat.idl".into(),
                text: text.to_string(),
                options: Vec::new(),
            })
        };
        let gcc = "# 0 \"<built-in>\"\n# 1 \"/usr/include/stdc-predef.h\" 1 3 4\n";
        let clang = "# 1 \"<built-in>\" 1\n# 1 \"<built-in>\" 3\n# 396 \"<built-in>\" 3\n";
        let stdio = "# 1 \"/usr/include/stdio.h\" 1 3 4\n";
        for text in [gcc, clang] {
            let own = format!("{text}# 1 \"heat.idl\" 2\nDefine f() {{ }}\n");
            assert!(!has(&own), "{own}");
            assert!(has(&format!("{own}{stdio}")), "{own}");
        }
    }

    /// Servers that start at the same time delete the folders of killed ones.
    #[test]
    fn nobody_deletes_a_folder_in_use() {
        let make = || {
            for _ in 0..200 {
                let compiled = Compiled::new().unwrap();
                delete_abandoned(&compiled.path());
                assert!(compiled.path().exists());
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(make))));
    }
}
