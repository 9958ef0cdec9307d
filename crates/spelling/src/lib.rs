//! "Did you mean": finds the known word closest to an unknown one. The caller writes the question.
//! Long words are not compared, so a word from a peer costs little.
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

/// Longest word that is compared, in characters.
const MAX_LENGTH: usize = 64;

/// The candidate with the fewest edits, if there are at most `most`. The first one wins a tie. Case
/// does not count as an edit. A candidate does not match if the edits replace all of it.
pub fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(word, candidate)?, candidate)))
        .filter(|(edits, candidate)| *edits <= most && *edits < candidate.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap neighbours) between two words.
fn distance(a: &str, b: &str) -> Option<usize> {
    let fold = |word: &str| {
        word.bytes()
            .map(|byte| byte.to_ascii_lowercase())
            .collect::<Vec<_>>()
    };
    let (a, b) = (fold(a), fold(b));
    if a.len() > MAX_LENGTH || b.len() > MAX_LENGTH {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut edits = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                edits = edits.min(before[j - 2] + 1);
            }
            row.push(edits);
        }
        before = core::mem::replace(&mut last, row);
    }
    last.last().copied()
}

#[cfg(test)]
mod tests {
    use super::closest;

    #[test]
    fn close_words_are_found_and_far_ones_are_not() {
        let words = ["double", "float", "int", "INOUT", "lda"];
        assert_eq!(closest("duoble", words, 2), Some("double"));
        assert_eq!(closest("Double", words, 0), Some("double"));
        assert_eq!(closest("inuot", words, 1), Some("INOUT"));
        assert_eq!(closest("ldb", words, 1), Some("lda"));
        assert_eq!(closest("lb", words, 1), None);
        assert_eq!(closest("x", words, 1), None);
        assert_eq!(closest("matrix", words, 2), None);
        assert_eq!(closest("abc", ["xy"], 3), None);
    }
}
