//! Module docs: every module says what it is responsible for. The compiler asks for docs of public
//! items (`missing_docs`); this check asks for more than a title.

use super::Finding;
use super::sources::Source;

/// A title such as `//! Servers.` has fewer words than this.
const WORDS: usize = 6;

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_module = source.path.contains("/src/") && source.rust.is_some();
    if !is_module || source.path.ends_with("/tests.rs") {
        return Vec::new();
    }
    let lines = source
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("//!"));
    match lines.flat_map(str::split_whitespace).count() {
        count if count < WORDS => {
            let text =
                format!("{count} words of module docs: say what the module is responsible for");
            vec![Finding::error(format!("{}:1", source.path), text)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text.to_owned()).expect("parses")).len()
    }

    #[test]
    fn a_title_is_not_enough() {
        assert_eq!(count("crates/a/src/b.rs", "//! Servers.\n"), 1);
        assert_eq!(count("crates/a/src/b.rs", "struct A;\n"), 1);
        let text = "//! Servers, from their first connection\n//! to their end.\n";
        assert_eq!(count("crates/a/src/b.rs", text), 0);
        assert_eq!(count("crates/a/src/b/tests.rs", ""), 0);
        assert_eq!(count("docs/a.md", ""), 0);
    }
}
