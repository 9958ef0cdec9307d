//! "Did you mean": the known word closest to one that is not known.

use alloc::vec::Vec;

/// Longer words are not compared.
const MAX_LENGTH: usize = 64;

/// The candidate fewest edits away, if they are few enough; case does not count as an edit.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| Some((distance(word, candidate)?, candidate)))
        .filter(|(edits, candidate)| *edits <= limit && *edits < candidate.len())
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
        assert_eq!(closest("duoble", words), Some("double"));
        assert_eq!(closest("Double", words), Some("double"));
        assert_eq!(closest("inuot", words), Some("INOUT"));
        assert_eq!(closest("ldb", words), Some("lda"));
        assert_eq!(closest("x", words), None);
        assert_eq!(closest("matrix", words), None);
    }
}
