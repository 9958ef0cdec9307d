//! Checks that every Rust file says what it is responsible for, in at least two sentences. The
//! compiler asks for docs of public items (`missing_docs`). Whether the sentences are true is for a
//! reviewer to judge.

use super::Finding;
use super::sources::Source;

/// One says what the module does. Another says what it leaves to others, or what always holds.
const SENTENCES: usize = 2;

pub(super) fn check(source: &Source) -> Option<Finding> {
    source.rust.as_ref()?;
    let lines = source.text.lines();
    let docs = lines.filter_map(|line| line.strip_prefix("//!"));
    let count = docs.flat_map(str::split_whitespace).filter(ends).count();
    (count < SENTENCES).then(|| {
        let text = format!(
            "the module docs have {count} sentences: say what the module is responsible for, and \
             what it leaves to others or what always holds"
        );
        Finding::error(format!("{}:1", source.path), text)
    })
}

/// Whether a sentence ends with this word.
fn ends(word: &&str) -> bool {
    let word = word.trim_end_matches([')', '"', '*']);
    word.ends_with(['.', '?', '!'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(path: &str, text: &str) -> bool {
        check(&Source::new(path, text.to_owned()).expect("parses")).is_some()
    }

    #[test]
    fn a_title_or_one_sentence_is_not_enough() {
        assert!(is_found("crates/a/src/b.rs", "//! Servers.\n"));
        assert!(is_found("crates/a/tests/b.rs", "struct A;\n"));
        let one = "//! Servers: from their first connection,\n//! to their end (RFC 1, 2.3).\n";
        assert!(is_found("fuzz/fuzz_targets/b.rs", one));
        let comments = "//! Servers.\n\n/// A thing. And more.\nstruct A;\n";
        assert!(is_found("crates/a/src/b.rs", comments));
    }

    #[test]
    fn two_sentences_are_enough() {
        let two = "//! Serves calls. The queue\n//! (see `queue`) chooses them.\n";
        assert!(!is_found("crates/a/src/b.rs", two));
        assert!(!is_found("docs/a.md", ""));
    }
}
