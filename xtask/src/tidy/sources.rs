//! Reads the files that belong to the project, once for all checks. A file belongs to it if git
//! tracks it or would track it. A file that is not text is left out.

use super::Failure;
use std::path::Path;
use std::process::Command;

/// One text file of the project.
pub(super) struct Source {
    /// Relative to the root, with `/` between the parts.
    pub(super) path: String,
    pub(super) text: String,
    /// The parsed file, where it is Rust.
    pub(super) rust: Option<syn::File>,
}

impl Source {
    pub(super) fn new(path: &str, text: String) -> Result<Self, Failure> {
        let rust = match path.ends_with(".rs") {
            true => Some(syn::parse_file(&text).map_err(|error| format!("{path}: {error}"))?),
            false => None,
        };
        Ok(Self {
            path: path.to_owned(),
            text,
            rust,
        })
    }

    pub(super) fn extension(&self) -> &str {
        self.path
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension)
    }
}

/// Every text file that git tracks or would track.
pub(super) fn read(root: &Path) -> Result<Vec<Source>, Failure> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    if !listed.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&listed.stderr)
        ));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let mut sources = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        // Files that are not text, and files deleted but still in the index, have no lines.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            sources.push(Source::new(path, text)?);
        }
    }
    Ok(sources)
}
