//! Writes one file: lines, compressed into one zstd frame. What was flushed can be read before the
//! file is whole.

use farcall_record::Line;
use std::fs::File;
use std::io::{self, Write};
use zstd::stream::write::Encoder;

/// Level of compression: zstd's usual one.
const LEVEL: i32 = 3;

/// Counts the bytes that reach the file.
#[derive(Debug)]
struct Counted {
    file: File,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes lines into a file.
pub struct Writer {
    encoder: Encoder<'static, Counted>,
    /// The bytes of the present line.
    text: Vec<u8>,
}

impl Writer {
    /// Writes into an empty file.
    ///
    /// # Errors
    /// The system refuses memory.
    pub fn new(file: File) -> io::Result<Writer> {
        let mut encoder = Encoder::new(Counted { file, bytes: 0 }, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Writer {
            encoder,
            text: Vec::new(),
        })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        self.text.clear();
        line.write(&mut self.text);
        self.encoder.write_all(&self.text)
    }

    /// Adds a line as it was read, without its end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_text(&mut self, text: &[u8]) -> io::Result<()> {
        self.encoder.write_all(text)?;
        self.encoder.write_all(b"\n")
    }

    /// Makes everything readable that was added.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.encoder.get_ref().bytes
    }

    /// Ends the file: it is whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        self.encoder.finish()?.flush()
    }
}
