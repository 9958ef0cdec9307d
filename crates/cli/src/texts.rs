//! Arrays of strings on the command line: the lines of a file, or texts with commas between them.
//! `results` prints them. The shape of such an array leaves out the length of the texts.

use crate::failure::Failure;
use crate::replace;
use farcall_idl::{ArrayLayout, read_texts};
use std::io::Write;
use std::path::Path;

/// The texts of an argument.
pub(crate) fn parse(text: &str, name: &str) -> Result<Vec<String>, Failure> {
    Ok(match text.strip_prefix('@') {
        Some(path) => {
            let lines = std::fs::read_to_string(path);
            let lines = lines.map_err(|error| {
                Failure::cannot("read", path, error)
                    .into_usage()
                    .of(format_args!("`{name}`"))
            })?;
            lines.lines().map(str::to_string).collect()
        }
        None if text.is_empty() => Vec::new(),
        None => text.split(',').map(str::to_string).collect(),
    })
}

/// The lengths of all dimensions except the length of the texts.
pub(crate) fn shape(array: &ArrayLayout) -> Vec<u64> {
    let axes = array.axes.split_last().map_or(&[][..], |(_, axes)| axes);
    axes.iter().map(|axis| axis.size).collect()
}

/// Writes the texts of a result as lines.
pub(crate) fn write(path: &Path, array: &ArrayLayout, fields: &[u8]) -> Result<(), Failure> {
    let mut lines = Vec::with_capacity(fields.len());
    for text in read_texts(fields, array.text_length()) {
        lines.extend_from_slice(text);
        lines.push(b'\n');
    }
    let written = replace::file(path, |file| file.write_all(&lines));
    written.map_err(|error| Failure::cannot("write", path.display(), error))
}

/// All texts as JSON.
pub(crate) fn to_json(array: &ArrayLayout, fields: &[u8]) -> serde_json::Value {
    let texts = read_texts(fields, array.text_length());
    texts.map(String::from_utf8_lossy).collect()
}

/// Whether `to_json` shows all bytes of the texts: in other encodings than UTF-8 it cannot.
pub(crate) fn is_exact(fields: &[u8], length: usize) -> bool {
    read_texts(fields, length).all(|text| std::str::from_utf8(text).is_ok())
}

/// The first texts, for people.
pub(crate) fn preview(array: &ArrayLayout, fields: &[u8], most: usize) -> String {
    let texts = read_texts(fields, array.text_length());
    let more = if texts.len() > most { ", ..." } else { "" };
    let shown = texts.take(most);
    let shown: Vec<String> = shown
        .map(|text| format!("{:?}", String::from_utf8_lossy(text)))
        .collect();
    format!("[{}{more}]", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_not_utf_8_are_not_shown_exactly() {
        assert!(is_exact("one two gr\u{fc}n".as_bytes(), 13));
        assert!(is_exact(b"", 4));
        assert!(!is_exact(b"one gr\xfcn", 4));
    }
}
