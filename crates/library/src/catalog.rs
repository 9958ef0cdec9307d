//! A catalog of the interfaces of several files, by name. `source` reads a file, and the crate
//! `idl` parses it. A file is added as a whole or not at all, and no two functions have the same
//! qualified name.

use crate::{Source, SourceError};
use farcall_idl::{Diagnostic, Document, Interface, Parsed, Severity, position, render};
use farcall_quantity::counted;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The checked interfaces of several files.
#[derive(Debug, Default)]
pub struct Catalog {
    files: Vec<(Source, Document)>,
    /// By qualified name.
    qualified: HashMap<String, Entry>,
    /// What the files might not mean as they stand, in one line each.
    warnings: Vec<String>,
}

/// The position of an interface in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Index of the file in the catalog.
    pub file: usize,
    /// Index of the interface in the file. It is the same in the file's binding.
    pub function: usize,
}

/// The reason why a file cannot be added.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// The file cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The file has errors.
    #[error("{}: not accepted\n{rendered}", path.display())]
    Diagnostics {
        /// The file.
        path: PathBuf,
        /// The errors as text, without colour.
        rendered: String,
    },
    /// The file has no functions.
    #[error("{}: no function is defined there; `Define NAME(...)` defines one", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Another file has a function of the same qualified name.
    #[error("{}", twice(.name, .first, .second))]
    Twice {
        /// The qualified name.
        name: String,
        /// The file that was added first.
        first: PathBuf,
        /// The file that cannot be added.
        second: PathBuf,
    },
}

fn twice(name: &str, first: &Path, second: &Path) -> String {
    let is_same = |first: PathBuf| second.canonicalize().is_ok_and(|second| first == second);
    let first_shown = first.display();
    match first.canonicalize().is_ok_and(is_same) {
        true => format!(
            "`{name}` is defined by {first_shown}, which is there already: name a file once; a \
             server reads a changed file after a restart"
        ),
        false => format!(
            "`{name}` is defined by {first_shown} and by {}: name one of them, or give one \
             another `Module`",
            second.display()
        ),
    }
}

/// A finding in one line, with its place.
fn line(found: &Diagnostic, source: &Source) -> String {
    let place = position(&source.text, found.span.start);
    let path = match place.file {
        Some(_) => String::new(),
        None => format!("{}:", source.path.display()),
    };
    let help = found.help.iter().map(|help| format!("; {help}"));
    let help: String = help.collect();
    format!("{path}{place}: {}{help}", found.message)
}

impl Catalog {
    /// Reads and checks files.
    pub fn load<P: Into<PathBuf>>(
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Catalog, CatalogError> {
        Catalog::load_with(paths, &[])
    }

    /// The same with options of the C preprocessor, `-I` and `-D`.
    pub fn load_with<P: Into<PathBuf>>(
        paths: impl IntoIterator<Item = P>,
        options: &[String],
    ) -> Result<Catalog, CatalogError> {
        let mut catalog = Catalog::default();
        for path in paths {
            catalog.add(Source::read_with(path, options)?)?;
        }
        Ok(catalog)
    }

    /// Checks whether a file can be added, and returns its contents.
    pub fn check(&self, source: &Source) -> Result<Document, CatalogError> {
        Ok(self.parse(source)?.document)
    }

    fn parse(&self, source: &Source) -> Result<Parsed, CatalogError> {
        let parsed = source.parse();
        if parsed.has_errors() {
            let path = source.path.display().to_string();
            let rendered = render(&parsed.diagnostics, &path, &source.text, false);
            return Err(CatalogError::Diagnostics {
                path: source.path.clone(),
                rendered,
            });
        }
        if parsed.document.functions().next().is_none() {
            let path = source.path.clone();
            return Err(CatalogError::Empty { path });
        }
        for interface in parsed.document.functions() {
            if let Some(entry) = self.qualified.get(&*interface.qualified_name()) {
                return Err(CatalogError::Twice {
                    name: interface.qualified_name().into_owned(),
                    first: self.files[entry.file].0.path.clone(),
                    second: source.path.clone(),
                });
            }
        }
        Ok(parsed)
    }

    /// Adds all interfaces of a file, or none, and returns the index of the file.
    pub fn add(&mut self, source: Source) -> Result<usize, CatalogError> {
        let Parsed {
            document,
            diagnostics,
        } = self.parse(&source)?;
        let warnings = diagnostics.iter().map(|found| line(found, &source));
        self.warnings.extend(warnings);
        let file = self.files.len();
        for (function, interface) in document.functions().enumerate() {
            let entry = Entry { file, function };
            let name = interface.qualified_name().into_owned();
            self.qualified.insert(name, entry);
        }
        self.files.push((source, document));
        Ok(file)
    }

    /// What the files might not mean as they stand, in one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The files in the order they were added.
    pub fn files(&self) -> impl ExactSizeIterator<Item = (&Source, &Document)> {
        self.files
            .iter()
            .map(|(source, document)| (source, document))
    }

    /// All functions in the order of the files.
    pub fn entries(&self) -> impl Iterator<Item = (Entry, &Interface)> {
        self.files
            .iter()
            .enumerate()
            .flat_map(|(file, (_, document))| {
                let functions = document.functions().enumerate();
                functions.map(move |(function, interface)| (Entry { file, function }, interface))
            })
    }
}

/// Checks files for a user at a terminal. Returns all findings as text, and whether every file is
/// accepted.
pub fn check_files<P: Into<PathBuf>>(
    paths: impl IntoIterator<Item = P>,
    options: &[String],
    colour: bool,
) -> (String, bool) {
    let (mut rendered, mut accepted) = (String::new(), true);
    for path in paths {
        let source = match Source::read_with(path, options) {
            Ok(source) => source,
            Err(error) => {
                accepted = false;
                rendered.push_str(&format!("error: {error}\n"));
                continue;
            }
        };
        let parsed = source.parse();
        let path = source.path.display().to_string();
        rendered.push_str(&render(&parsed.diagnostics, &path, &source.text, colour));
        let count = |severity| {
            parsed
                .diagnostics
                .iter()
                .filter(|found| found.severity == severity)
                .count()
        };
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        accepted &= errors == 0;
        let functions = parsed.document.functions().count();
        let told = [
            (functions, "function"),
            (errors, "error"),
            (warnings, "warning"),
        ];
        let told = told.map(|(count, thing)| counted(count, thing)).join(", ");
        rendered.push_str(&format!("{path}: {told}\n"));
    }
    (rendered, accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_has_one_line_with_its_place() {
        let source = |text: &str| Source {
            path: "heat.idl".into(),
            text: text.to_string(),
            options: Vec::new(),
        };
        let mut catalog = Catalog::default();
        let text = "Module heat;\nDefine f(IN int n, OUT double x[n]) Calls \"C\" f(n, x);\n";
        catalog.add(source(text)).unwrap();
        assert!(catalog.warnings().is_empty());
        let text = "Module more;\nDefine g(int n, double x[n]) Calls \"C\" g(n, x);\n";
        catalog.add(source(text)).unwrap();
        let [warning] = catalog.warnings() else {
            panic!("{:?}", catalog.warnings());
        };
        let expected = "heat.idl:2:24: array `x` has no mode and is taken as IN; write IN, OUT, \
                        INOUT or WORK";
        assert_eq!(warning, expected);
    }
}
