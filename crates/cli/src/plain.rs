//! Texts of others, for people: what a server or another program sends must not move the cursor,
//! change colours or begin a line of its own. Control characters are escaped, so nothing is lost.

use std::fmt::{self, Display, Write};

/// Characters of a table's column, at most. What comes from others can be of any length, and a
/// width beyond 65535 would be a panic.
const MOST_WIDTH: usize = 100;

/// The width of a column of texts with these lengths. A longer one moves what follows it.
pub(crate) fn width(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.max().unwrap_or(0).min(MOST_WIDTH)
}

/// A text in one line, which changes nothing on a terminal: control characters are escaped.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = OneLine(String::new());
    // A string takes everything.
    let _ = line.write_str(text);
    line.0
}

/// The same for a text of several lines, which keeps its ends of lines and its tabs.
pub(crate) fn text(text: &str) -> String {
    let is_kept = |letter: char| letter == '\n' || letter == '\t';
    let parts = text.split_inclusive(is_kept).map(|part| {
        let words = part.trim_end_matches(is_kept);
        one_line(words) + &part[words.len()..]
    });
    parts.collect()
}

/// Prints a text and the end of its line on standard output.
pub(crate) fn say(what: impl Display) {
    println!("{}", text(&what.to_string()));
}

/// Escapes control characters.
pub(crate) struct OneLine<W>(pub(crate) W);

impl<W: Write> Write for OneLine<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(char::is_control) {
            let plain = part.trim_end_matches(char::is_control);
            self.0.write_str(plain)?;
            write!(self.0, "{}", part[plain.len()..].escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line() {
        assert_eq!(
            one_line("sh -c a\n\u{1b}[31mb\u{9b}c"),
            "sh -c a\\n\\u{1b}[31mb\\u{9b}c"
        );
        assert_eq!(one_line("gr\u{fc}n \\n 'x'"), "gr\u{fc}n \\n 'x'");
    }

    #[test]
    fn a_text_of_several_lines_keeps_them() {
        assert_eq!(
            text("a\n\n\tb\u{1b}]0;x\u{7}c\n"),
            "a\n\n\tb\\u{1b}]0;x\\u{7}c\n"
        );
        assert_eq!(text(""), "");
    }

    #[test]
    fn a_long_text_does_not_move_the_columns_of_the_others_away() {
        let columns = width([4, 1 << 20].into_iter());
        assert_eq!(format!("{:columns$}|", "name").len(), MOST_WIDTH + 1);
        assert_eq!(width(std::iter::empty()), 0);
    }
}
