//! The files that are made from others.

use std::fs;
use std::path::Path;

/// One generated file.
pub(crate) struct Generated {
    /// Relative to the root.
    pub(crate) path: &'static str,
    pub(crate) text: String,
}

/// Every generated file, as its generator writes it now.
pub(crate) fn files(_root: &Path) -> Result<Vec<Generated>, String> {
    Ok(Vec::new())
}

/// Writes them all.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    for file in files(root)? {
        let path = root.join(file.path);
        fs::write(&path, file.text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("generate: {}", file.path);
    }
    Ok(true)
}
