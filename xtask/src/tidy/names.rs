//! Refuses names of files and modules that do not say what is in them, such as `utils`. It also
//! refuses `mod.rs`, because a module `foo` lies in `foo.rs`.

use super::Finding;
use super::sources::Source;

const FORBIDDEN: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "misc", "manager",
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let file = source.path.rsplit('/').next().unwrap_or_default();
    if file == "mod.rs" {
        let text = "a module `foo` lies in `foo.rs`, its children in `foo/`";
        findings.push(Finding::error(&source.path, text));
    }
    for part in source.path.split('/') {
        let stem = part.split('.').next().unwrap_or(part);
        findings.extend(meaningless(&source.path, stem));
    }
    let modules = source
        .rust
        .iter()
        .flat_map(|file| &file.items)
        .filter_map(|item| match item {
            syn::Item::Mod(module) if module.content.is_some() => Some(module.ident.to_string()),
            _ => None,
        });
    findings.extend(modules.filter_map(|module| meaningless(&source.path, &module)));
    findings
}

fn meaningless(path: &str, name: &str) -> Option<Finding> {
    FORBIDDEN
        .contains(&name)
        .then(|| Finding::error(path, format!("`{name}` does not say what is in it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text.to_owned()).expect("parses")).len()
    }

    #[test]
    fn files_folders_and_modules_are_held_to_it() {
        assert_eq!(count("crates/a/src/utils.rs", ""), 1);
        assert_eq!(count("crates/common/src/lib.rs", ""), 1);
        assert_eq!(count("crates/a/src/b.rs", "mod helpers { }"), 1);
        assert_eq!(count("crates/a/src/b/mod.rs", ""), 1);
        assert_eq!(
            count("crates/a/src/community.rs", "mod manager_of_nothing { }"),
            0
        );
    }
}
