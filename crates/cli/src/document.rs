//! Files that people write: configurations, scenarios, plans and keys. They are short, so a file
//! beyond a bound is refused before it fills the memory. What it means is the caller's matter.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// The most bytes of a configuration or a scenario.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// Reads a text of at most `most` bytes.
pub(crate) fn read(path: &Path, most: usize) -> Result<String> {
    let text = String::from_utf8(bytes(path, most)?);
    text.map_err(|_| Error::new(ErrorKind::InvalidData, "the text is not UTF-8"))
}

/// Reads a file of at most `most` bytes.
pub(crate) fn bytes(path: &Path, most: usize) -> Result<Vec<u8>> {
    bytes_of(File::open(path)?, most)
}

/// Reads an open file of at most `most` bytes.
pub(crate) fn bytes_of(file: File, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > most {
        true => {
            let text = format!("it has more than {most} bytes");
            Err(Error::new(ErrorKind::InvalidData, text))
        }
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_the_bound_is_read_and_any_other_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "twelve bytes").unwrap();
        assert_eq!(read(&path, 12).unwrap(), "twelve bytes");
        let error = read(&path, 11).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 11 bytes");
        std::fs::write(&path, [0xff]).unwrap();
        let error = read(&path, 12).unwrap_err();
        assert_eq!(error.to_string(), "the text is not UTF-8");
        let error = read(Path::new("/dev/zero"), 12).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 12 bytes");
        assert!(read(folder.path(), 12).is_err());
    }
}
