//! Reads interface files, and Python modules that declare interfaces with decorators. It runs the C
//! preprocessor only if a file has directives, and imports a Python module in a process of its own.
//! The crate `idl` parses the text. A file that is too long is refused.

mod python;

use farcall_idl::{MAX_DOCUMENT, Parsed, parse_document};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use thiserror::Error;

pub use python::{pickled_functions, python_connector, python_draft, python_flight, python_worker};

/// An interface file in the form that the parser takes.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path of the file.
    pub path: PathBuf,
    /// Its text after the preprocessor.
    pub text: String,
    /// Options of the C preprocessor, `-I` and `-D`, for the file and its bodies.
    pub options: Vec<String>,
}

/// The reason why a file could not be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file does not exist, or the process must not read it.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// The file is what the functions are made of, and does not describe them.
    #[error(
        "{}: this is a {what}, not an interface file, which describes its functions; `farcall idl \
         draft {draft_from}` writes a first one",
        path.display()
    )]
    NotInterface {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// From what a first interface can be written.
        draft_from: String,
    },
    /// The file is too long.
    #[error("{}: longer than {MAX_DOCUMENT} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The C preprocessor cannot be run.
    #[error(
        "{}: the file has preprocessor directives and `{compiler}` cannot be run: {error}; install \
         a C compiler (`apt-get install gcc libc6-dev`) or name one in CC",
        path.display()
    )]
    NoPreprocessor {
        /// The file.
        path: PathBuf,
        /// The command.
        compiler: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// Python cannot be run.
    #[error(
        "{}: `{interpreter}` cannot be run: {error}; install Python and the farcall package, or \
         name the interpreter in FARCALL_PYTHON",
        path.display()
    )]
    NoPython {
        /// The module.
        path: PathBuf,
        /// The command.
        interpreter: String,
        /// The error of the system.
        #[source]
        error: io::Error,
    },
    /// A Python module cannot be imported, or its declarations have errors.
    #[error("{}: {messages}", path.display())]
    Python {
        /// The module.
        path: PathBuf,
        /// The messages of Python.
        messages: String,
    },
    /// The C preprocessor found errors.
    #[error("{}: the C preprocessor says\n{messages}", path.display())]
    Preprocessor {
        /// The file.
        path: PathBuf,
        /// Its messages.
        messages: String,
    },
}

impl Source {
    /// Reads a file. It runs `cc -E` (or the command in `CC`) only if a line starts with `#`. It
    /// imports a Python module in a separate process.
    pub fn read(path: impl Into<PathBuf>) -> Result<Source, SourceError> {
        Source::read_with(path, &[])
    }

    /// The same with options of the C preprocessor, `-I` and `-D`. With such an option, it always
    /// runs.
    pub fn read_with(path: impl Into<PathBuf>, options: &[String]) -> Result<Source, SourceError> {
        let path = path.into();
        let options = options.to_vec();
        if Source::is_module(&path) {
            let text = python::declarations(&path)?;
            return Ok(Source {
                path,
                text,
                options,
            });
        }
        let mut bytes = Vec::new();
        // One byte more than a document may have, so that a longer one is known.
        let read = File::open(&path)
            .and_then(|file| file.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            return Err(SourceError::Read { path, error });
        }
        if let Some(error) = not_interface(&path, &bytes) {
            return Err(error);
        }
        if bytes.len() > MAX_DOCUMENT {
            return Err(SourceError::TooLong { path });
        }
        let text = match String::from_utf8(bytes) {
            // Editors of Windows write a mark in front of the text.
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(),
            Err(_) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-8");
                return Err(SourceError::Read { path, error });
            }
        };
        let directives = text.lines().any(|line| line.trim_start().starts_with('#'));
        let text = match directives || !options.is_empty() {
            true => preprocess(&path, &options)?,
            false => text,
        };
        Ok(Source {
            path,
            text,
            options,
        })
    }

    /// The folder of the file. Names of libraries and object files are looked up there first.
    pub fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Whether the file is a Python module.
    pub fn is_python(&self) -> bool {
        Source::is_module(&self.path)
    }

    /// Whether a path names a Python module.
    pub fn is_module(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "py")
    }

    /// Parses the file: its contents and the findings about it.
    pub fn parse(&self) -> Parsed {
        parse_document(&self.text)
    }
}

/// Whether the file is a library, or a source that `farcall idl draft` reads.
fn not_interface(path: &Path, bytes: &[u8]) -> Option<SourceError> {
    let is_library = bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"!<arch>\n");
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (what, draft_from) = match extension {
        _ if is_library => ("compiled library", "HEADER.h".to_owned()),
        Some("c" | "h" | "f" | "f90" | "pyf") => ("source", path.display().to_string()),
        _ => return None,
    };
    Some(SourceError::NotInterface {
        path: path.to_owned(),
        what,
        draft_from,
    })
}

/// Headers that interface files of Ninf and Ninf-G include.
const HEADERS: [(&str, &str); 2] = [
    (
        "grpc_executable.h",
        include_str!("../include/grpc_executable.h"),
    ),
    ("ninf_stub.h", include_str!("../include/ninf_stub.h")),
];

/// Writes the headers that interface files find without `-I`.
pub(crate) fn write_headers(folder: &Path) -> io::Result<()> {
    let mut headers = HEADERS.iter();
    headers.try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

/// A temporary folder with these headers.
fn headers() -> io::Result<TempDir> {
    let made = tempfile::Builder::new()
        .prefix("farcall-headers-")
        .tempdir();
    let made = made.and_then(|folder| write_headers(folder.path()).map(|()| folder));
    made.map_err(|error| {
        let folder = std::env::temp_dir();
        let text = format!(
            "cannot write a temporary file in {}: {error}",
            folder.display()
        );
        io::Error::new(error.kind(), text)
    })
}

/// The C compiler with its first options: `CC`, or `cc`.
pub fn compiler() -> String {
    match std::env::var("CC") {
        Ok(compiler) if !compiler.trim().is_empty() => compiler,
        _ => "cc".to_string(),
    }
}

fn preprocess(path: &Path, options: &[String]) -> Result<String, SourceError> {
    let compiler = compiler();
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap_or("cc");
    let headers = headers().map_err(|error| SourceError::Read {
        path: path.into(),
        error,
    })?;
    let output = Command::new(program)
        .args(words)
        .args(["-E", "-x", "c"])
        .args(options)
        .arg("-I")
        .arg(headers.path())
        .arg(path)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            return Err(SourceError::NoPreprocessor {
                path: path.into(),
                compiler,
                error,
            });
        }
    };
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_string();
        return Err(SourceError::Preprocessor {
            path: path.into(),
            messages,
        });
    }
    String::from_utf8(output.stdout).map_err(|_| SourceError::Read {
        path: path.into(),
        error: io::Error::new(
            io::ErrorKind::InvalidData,
            "the preprocessed text is not UTF-8",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_an_editor_of_windows_is_read() {
        let file = tempfile::NamedTempFile::with_suffix(".idl").unwrap();
        let text = "\u{feff}Module heat;\r\nDefine f(IN int n) Calls \"C\" f(n);\r\n";
        fs::write(file.path(), text).unwrap();
        let parsed = Source::read(file.path()).unwrap().parse();
        assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
        assert_eq!(parsed.document.functions().count(), 1);
    }

    #[test]
    fn a_source_or_a_library_is_refused_with_the_command_that_drafts_an_interface() {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents, told) in [
            ("heat.c", "int f(int n);\n", "a source"),
            ("libheat.so.1", "\x7fELF...", "a compiled library"),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, contents).unwrap();
            let error = Source::read(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("this is {told}, not an")),
                "{error}"
            );
            assert!(error.contains("`farcall idl draft "), "{error}");
        }
    }

    /// The preprocessor takes a line with `#` before the compiler sees the body.
    #[test]
    fn headers_of_ninf_and_ninf_g_are_found_wherever_they_are_included() {
        let file = tempfile::NamedTempFile::with_suffix(".idl").unwrap();
        let text = "Module m;\nGlobals {\n#include \"grpc_executable.h\"\n\
                    #include <ninf_stub.h>\n}\n\
                    Define f(IN int n) { puts(grpc_is_canceled_np(0) ? \"\" : \"on\"); }\n";
        fs::write(file.path(), text).unwrap();
        let source = Source::read(file.path()).unwrap();
        let parsed = source.parse();
        assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
        assert!(
            crate::compile(&parsed.document, &source, true)
                .unwrap()
                .is_some()
        );
    }
}
