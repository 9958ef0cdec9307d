//! Reads one file, compressed or not, line by line. It takes no more memory than one line and the
//! window of the compression.

use farcall_record::{Line, LineError, MOST_LINE};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use zstd::stream::read::Decoder;

/// The first bytes of a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The largest window of a frame, as a power of two: the recorder uses 2 MiB.
const WINDOW: u32 = 23;

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A line is not one of a record.
    #[error("{}: line {number}: {source}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        number: u64,
        /// The reason.
        source: LineError,
    },
    /// The first line does not say that this is a record.
    #[error(
        "{}: line 1: this is not a record of calls; `farcall serve` writes such files",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The compressed bytes are damaged.
    #[error("{}: after line {after}: the file is damaged: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The number of the last line that is whole.
        after: u64,
        /// The reason.
        source: io::Error,
    },
    /// The system refuses.
    #[error("cannot read {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// A line that was read.
#[derive(Debug)]
pub struct Told {
    /// Its text, without its end.
    pub text: Vec<u8>,
    /// Its meaning.
    pub line: Line,
}

/// The lines of a file. After an error there are no more.
pub struct Lines<R: BufRead> {
    path: PathBuf,
    from: Source<R>,
    /// The number of the last line.
    number: u64,
    has_ended: bool,
    is_cut: bool,
}

enum Source<R: BufRead> {
    Plain(R),
    Compressed(Box<BufReader<Decoder<'static, R>>>),
}

impl Lines<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// The system refuses.
    pub fn open(path: &Path) -> Result<Lines<BufReader<File>>, ReadError> {
        let open = || Lines::new(path, BufReader::new(File::open(path)?));
        open().map_err(|source| ReadError::System {
            path: path.to_path_buf(),
            source,
        })
    }
}

impl<R: BufRead> Lines<R> {
    /// Reads bytes. `path` is for messages.
    ///
    /// # Errors
    /// The bytes cannot be read.
    pub fn new(path: &Path, mut bytes: R) -> io::Result<Lines<R>> {
        let start = bytes.fill_buf()?;
        // What comes later to a file that a server has just begun is not read as text.
        let has_ended = start.is_empty();
        let from = match start.starts_with(&MAGIC) {
            false => Source::Plain(bytes),
            true => {
                let mut decoder = Decoder::with_buffer(bytes)?;
                decoder.window_log_max(WINDOW)?;
                Source::Compressed(Box::new(BufReader::new(decoder)))
            }
        };
        Ok(Lines {
            path: path.to_path_buf(),
            from,
            number: 0,
            has_ended,
            is_cut: false,
        })
    }

    /// Whether the file ends within a line or a frame, because its server was killed or still
    /// writes it. All lines before are whole.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The text of the next line; `None` at the end.
    fn text(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let from: &mut dyn BufRead = match &mut self.from {
            Source::Plain(from) => from,
            Source::Compressed(from) => from,
        };
        let mut text = Vec::new();
        let read = from.take(MOST_LINE as u64 + 1).read_until(b'\n', &mut text);
        let ends = match read {
            Ok(_) => text.pop_if(|last| *last == b'\n').is_some(),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_cut = true;
                false
            }
            Err(source) => {
                return Err(ReadError::Damaged {
                    path: self.path.clone(),
                    after: self.number,
                    source,
                });
            }
        };
        match ends || text.len() > MOST_LINE {
            true => Ok(Some(text)),
            false => {
                self.is_cut |= !text.is_empty();
                Ok(None)
            }
        }
    }

    fn next_line(&mut self) -> Result<Option<Told>, ReadError> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        self.number += 1;
        let (path, number) = (|| self.path.clone(), self.number);
        match Line::read(&text) {
            Ok(line) if number > 1 || matches!(line, Line::Record(_)) => {
                Ok(Some(Told { text, line }))
            }
            Err(source) if number > 1 || !matches!(source, LineError::Json(_)) => {
                Err(ReadError::Line {
                    path: path(),
                    number,
                    source,
                })
            }
            _ => Err(ReadError::Foreign { path: path() }),
        }
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Told, ReadError>;

    fn next(&mut self) -> Option<Result<Told, ReadError>> {
        if self.has_ended {
            return None;
        }
        let next = self.next_line().transpose();
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}
