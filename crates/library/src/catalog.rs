//! The interfaces of several files, by name.

use crate::{Source, SourceError};
use farcall_idl::{Document, Interface, Severity, render};
use std::collections::HashMap;
use std::path::PathBuf;
use thiserror::Error;

/// The checked interfaces of several files.
#[derive(Debug, Default)]
pub struct Catalog {
    files: Vec<(Source, Document)>,
    /// By qualified name.
    qualified: HashMap<String, Entry>,
    /// By name alone, where one module has it.
    plain: HashMap<String, Vec<Entry>>,
}

/// Where an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Index of the file in the catalog.
    pub file: usize,
    /// Index of the interface in the file, also in its binding.
    pub function: usize,
}

/// Why a file cannot be added, or a name not be found.
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
    /// Another file has a function of the same qualified name.
    #[error("`{name}` is defined by {} and by {}", first.display(), second.display())]
    Twice {
        /// The qualified name.
        name: String,
        /// The file that came first.
        first: PathBuf,
        /// The file that came now.
        second: PathBuf,
    },
    /// No function has the name.
    #[error("there is no function `{0}`")]
    Unknown(String),
    /// No class has the name.
    #[error("there is no class `{0}`")]
    UnknownClass(String),
    /// Several modules have a function or class of that name.
    #[error("`{name}` is in several modules; call one of {}", candidates.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// The qualified names.
        candidates: Vec<String>,
    },
}

impl Catalog {
    /// Reads and checks files.
    pub fn load<P: Into<PathBuf>>(
        paths: impl IntoIterator<Item = P>,
    ) -> Result<Catalog, CatalogError> {
        let mut catalog = Catalog::default();
        for path in paths {
            catalog.add(Source::read(path)?)?;
        }
        Ok(catalog)
    }

    /// What a file says, if it can be added.
    pub fn check(&self, source: &Source) -> Result<Document, CatalogError> {
        let parsed = source.parse();
        if parsed.has_errors() {
            let path = source.path.display().to_string();
            let rendered = render(&parsed.diagnostics, &path, &source.text, false);
            return Err(CatalogError::Diagnostics {
                path: source.path.clone(),
                rendered,
            });
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
        Ok(parsed.document)
    }

    /// Adds a file, all of it or nothing, and returns its index.
    pub fn add(&mut self, source: Source) -> Result<usize, CatalogError> {
        let document = self.check(&source)?;
        let file = self.files.len();
        for (function, interface) in document.functions().enumerate() {
            let entry = Entry { file, function };
            self.qualified
                .insert(interface.qualified_name().into_owned(), entry);
            self.plain
                .entry(interface.plain_name().into_owned())
                .or_default()
                .push(entry);
        }
        self.files.push((source, document));
        Ok(file)
    }

    /// The function of that name, `module/name` or the name alone where only one module has it.
    pub fn find(&self, name: &str) -> Result<Entry, CatalogError> {
        if let Some(entry) = self.qualified.get(name) {
            return Ok(*entry);
        }
        match self.plain.get(name).map(Vec::as_slice) {
            Some([entry]) => Ok(*entry),
            Some(entries) => Err(CatalogError::Ambiguous {
                name: name.to_string(),
                candidates: entries
                    .iter()
                    .map(|entry| self.interface(*entry).qualified_name().into_owned())
                    .collect(),
            }),
            None => Err(CatalogError::Unknown(name.to_string())),
        }
    }

    /// The class of that name, `module/class` or the name alone where only one module has it: its
    /// file, and its own name.
    pub fn find_class(&self, name: &str) -> Result<(usize, &str), CatalogError> {
        let mut found = Vec::new();
        for (file, (_, document)) in self.files.iter().enumerate() {
            for class in &document.classes {
                let qualified = match &document.module {
                    Some(module) => format!("{module}/{}", class.name),
                    None => class.name.clone(),
                };
                if name == qualified || name == class.name {
                    found.push((file, class.name.as_str(), qualified));
                }
            }
        }
        match found.as_slice() {
            [(file, class, _)] => Ok((*file, class)),
            [] => Err(CatalogError::UnknownClass(name.to_string())),
            several => Err(CatalogError::Ambiguous {
                name: name.to_string(),
                candidates: several.iter().map(|(_, _, name)| name.clone()).collect(),
            }),
        }
    }

    /// The interface of an entry of this catalog.
    pub fn interface(&self, entry: Entry) -> &Interface {
        let (interfaces, classes) = {
            let document = &self.files[entry.file].1;
            (&document.interfaces, &document.classes)
        };
        let mut methods = classes.iter().flat_map(|class| &class.methods);
        match entry.function.checked_sub(interfaces.len()) {
            None => &interfaces[entry.function],
            Some(method) => methods.nth(method).expect("an entry of this catalog"),
        }
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

/// Checks files for a person at a terminal: all findings as text, and whether every file is
/// accepted.
pub fn check_files<P: Into<PathBuf>>(
    paths: impl IntoIterator<Item = P>,
    colour: bool,
) -> (String, bool) {
    let (mut rendered, mut accepted) = (String::new(), true);
    for path in paths {
        let source = match Source::read(path) {
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
        rendered.push_str(&format!(
            "{path}: {functions} functions, {errors} errors, {warnings} warnings\n"
        ));
    }
    (rendered, accepted)
}
