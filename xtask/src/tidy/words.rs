//! Retired words. The glossary in ARCHITECTURE.md has one word for each thing; these are the words
//! that it replaces, and turns of phrase that readers stumble over.
//!
//! It judges comments, strings and documents. Names in code are the work of the compiler and of
//! reviewers; spelling is the work of `typos`.

use super::Finding;
use super::sources::Source;

/// What must not be written, and what to write instead. Matched in small letters, at the start of a
/// word.
const RETIRED: &[(&str, &str)] = &[
    ("an edition of", "version"),
    ("newest edition", "version"),
    ("submitted call", "durable call"),
    ("kept call", "durable call"),
    ("arrays that stay", "stored arrays"),
    ("array that stays", "stored array"),
    ("data that stay", "stored arrays"),
    ("objects that stay", "persistent objects"),
    ("object that stays", "persistent object"),
    ("data with a name", "named data"),
    ("job buffer", "call buffer"),
    ("functions that call back", "functions with callbacks"),
    ("whoever", "the actor by its name"),
    ("what became of", "the outcome of"),
    ("is let pass", "is accepted"),
    ("is to be had", "is available"),
    ("are to be had", "are available"),
    ("of late ", "recently"),
    ("of late.", "recently"),
    ("but for a ", "except"),
    ("lest ", "so that ... not"),
    ("thereby", "a sentence of its own"),
    ("whither", "where"),
];

/// Files that quote retired words: the rules themselves, bytes of the protocol that are frozen.
const EXEMPT: &[&str] = &[
    "docs/style.md",
    "xtask/src/tidy/words.rs",
    "testing/conformance/golden/",
    "crates/rpc-proto/tests/golden/",
    "fuzz/corpus/",
];

/// Files with sentences.
const READ: &[&str] = &[
    "rs", "py", "md", "c", "h", "hpp", "in", "java", "f90", "toml", "sh", "rst",
];

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let exempt = EXEMPT.iter().any(|path| source.path.starts_with(path));
    if exempt || !READ.contains(&source.extension()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let line = line.to_lowercase();
        let retired = RETIRED.iter().filter(|(word, _)| says(&line, word));
        findings.extend(retired.map(|(word, instead)| {
            let place = format!("{}:{}", source.path, number + 1);
            let word = word.trim_end_matches([' ', '.']);
            Finding::error(place, format!("`{word}` is retired: write {instead}"))
        }));
    }
    findings
}

/// Whether the line has the phrase, at the start of a word.
fn says(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || char == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::new(path, text.to_owned()).expect("parses")).len()
    }

    #[test]
    fn retired_words_are_found_in_comments_strings_and_documents() {
        assert_eq!(count("docs/a.md", "A Submitted call, lest it"), 2);
        assert_eq!(
            count("a/b.rs", "/// Whoever\nconst A: &str = \"whoever\";"),
            2
        );
        assert_eq!(count("a/b.py", "# It is to be had.\n"), 1);
    }

    #[test]
    fn parts_of_words_and_files_that_quote_are_left_alone() {
        assert_eq!(
            count("docs/a.md", "the smallest of them, the oldest call"),
            0
        );
        assert_eq!(count("docs/style.md", "not: whoever"), 0);
        assert_eq!(count("a.svg", "whoever"), 0);
    }
}
