//! The house rules that the compiler and linters do not check. Each rule has a module.

mod claims;
mod docs;
mod features;
mod generated;
mod layers;
mod lengths;
mod modules;
mod names;
mod no_std;
mod purity;
mod sources;
mod types;
mod words;

use std::fmt;
use std::path::Path;

/// An error of the check itself, as text.
type Failure = String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// Printed, but does not fail the check.
    Warning,
    /// Fails the check.
    Error,
}

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    level: Level,
    /// `path` or `path:line`, relative to the root.
    place: String,
    text: String,
}

impl Finding {
    fn error(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            place: place.into(),
            text: text.into(),
        }
    }

    fn warning(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            level: Level::Warning,
            place: place.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Error => "error",
        };
        write!(f, "{level}: {}: {}", self.place, self.text)
    }
}

/// Runs every check. Returns true if none found an error.
pub(crate) fn run(root: &Path) -> Result<bool, Failure> {
    let sources = sources::read(root)?;
    let workspace = layers::workspace(root)?;

    let mut findings = Vec::new();
    for source in &sources {
        findings.extend(docs::check(source));
        findings.extend(lengths::check(source));
        findings.extend(names::check(source));
        findings.extend(purity::check(source));
        findings.extend(words::check(source));
    }
    findings.extend(claims::check(&sources));
    findings.extend(modules::check(&sources));
    findings.extend(types::check(&sources));
    findings.extend(layers::check(root, &workspace, &sources)?);
    findings.extend(features::check(root)?);
    findings.extend(generated::check(root)?);
    findings.extend(no_std::check(root, &workspace)?);

    for finding in &findings {
        println!("{finding}");
    }
    let errors = findings
        .iter()
        .filter(|found| found.level == Level::Error)
        .count();
    let warnings = findings.len() - errors;
    println!(
        "tidy: {} files, {errors} errors, {warnings} warnings",
        sources.len()
    );
    Ok(errors == 0)
}
