//! Generated files must be what their generator writes.

use std::fs;
use std::path::Path;

use super::{Failure, Finding};
use crate::generate;

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for file in generate::files(root)? {
        let present = fs::read_to_string(root.join(file.path)).unwrap_or_default();
        if present != file.text {
            let text = "is not what its generator writes: run `cargo xtask generate`";
            findings.push(Finding::error(file.path, text));
        }
    }
    Ok(findings)
}
