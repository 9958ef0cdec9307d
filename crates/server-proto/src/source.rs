//! Sources: arrays at addresses outside of Farcall. The server does not open them itself. It asks a
//! connector, a process without rights of its own.
//!
//! This module has the messages between the two. A message is a length of four bytes, big-endian,
//! and that many bytes of JSON. The bytes of an array follow their message without a frame. The
//! connector reads foreign bytes, so that nothing of its answers is trusted: lengths are bounded,
//! and forms and texts are checked.

use farcall_directory::source_name;
use farcall_rpc_proto::{ArrayForm, Failure, FailureKind, SourceOptions};
use serde::{Deserialize, Serialize};

/// Longest message, in bytes.
pub const MOST_MESSAGE: usize = 1 << 20;
/// Longest address, in bytes.
const MOST_ADDRESS: usize = 4096;
/// Longest query, in bytes.
const MOST_QUERY: usize = 64 << 10;
/// Most columns of a table, and most bytes of the name of one.
const MOST_COLUMNS: usize = 1024;
const MOST_COLUMN: usize = 256;
/// Longest text of a failure, and longest version of a source, in characters.
const MOST_TEXT: usize = 2000;
const MOST_VERSION: usize = 256;

/// An array that a user wants from a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    /// Its address, as the client wrote it.
    pub address: String,
    /// The wanted type (empty: that of the source) and order.
    pub form: ArrayForm,
    /// How to read it.
    pub source: SourceOptions,
    /// The version that the server has. If the source still has it, nothing is read.
    pub version: Option<String>,
}

/// What a connector has found at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFound {
    /// The version that the server has.
    Unchanged,
    /// An array.
    Array {
        /// Type, shape and order.
        form: ArrayForm,
        /// The version of the source, if it says one.
        version: Option<String>,
    },
}

/// What a connector has written.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SourceWritten {
    /// Bytes at the address.
    pub bytes: u64,
    /// Their checksum.
    pub sha256: String,
    /// Their version, if the address says one.
    pub version: Option<String>,
}

/// What a connector says.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has found something. The bytes of an array follow after [`Go`].
    Found(SourceFound),
    /// All bytes were sent, and the source did not change meanwhile.
    Done,
    /// It waits for the bytes of an array, to write them.
    Ready,
    /// It has written an array.
    Written(SourceWritten),
}

/// The server's answer to a found array: whether it has memory for the bytes.
#[derive(Serialize)]
pub struct Go {
    /// Whether the connector sends the bytes.
    pub go: bool,
}

#[derive(Serialize)]
struct Asked<'a> {
    address: &'a str,
    wanted: &'a str,
    column_major: bool,
    format: Option<&'a str>,
    element: Option<&'a str>,
    shape: Option<&'a [u64]>,
    by_columns: Option<bool>,
    big_endian: Option<bool>,
    columns: Option<&'a [String]>,
    query: Option<&'a str>,
    rows: Option<(u64, Option<u64>)>,
    sha256: Option<&'a str>,
    version: Option<&'a str>,
    /// The shape of an array that will be written.
    writes: Option<&'a [u64]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Told {
    Failure(ToldFailure),
    Unchanged,
    Array(ToldArray),
    Done,
    Ready,
    Written(SourceWritten),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldFailure {
    kind: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToldArray {
    element: String,
    shape: Vec<u64>,
    column_major: bool,
    version: Option<String>,
}

impl SourceRequest {
    /// Checks the bounds of a request.
    ///
    /// # Errors
    /// What is too long, or is no type or checksum.
    pub fn check(&self) -> Result<(), Failure> {
        let SourceOptions {
            format,
            element,
            shape,
            columns,
            query,
            sha256,
            rows,
            ..
        } = &self.source;
        let columns = columns.as_deref().unwrap_or_default();
        let is_type = |name: &str| form_of(name, Vec::new(), false).bytes().is_ok();
        let wrong = if self.address.len() > MOST_ADDRESS {
            "its address is too long"
        } else if query.as_ref().is_some_and(|query| query.len() > MOST_QUERY) {
            "its query is too long"
        } else if columns.len() > MOST_COLUMNS || columns.iter().any(|one| one.len() > MOST_COLUMN)
        {
            "it has too many columns, or their names are too long"
        } else if format.as_ref().is_some_and(|format| format.len() > 16) {
            "its format is unknown"
        } else if !(self.form.element.is_empty() || is_type(&self.form.element))
            || !element.as_deref().is_none_or(is_type)
        {
            "its type is none that servers store, such as char, int, long, float, double, dcomplex"
        } else if shape.as_ref().is_some_and(|shape| shape.len() > 32) {
            "it has too many dimensions"
        } else if rows.is_some_and(|rows| rows.end.is_some_and(|end| end < rows.begin)) {
            "its rows end before they begin"
        } else if !sha256.as_deref().is_none_or(is_sum) {
            "its checksum does not have 64 hexadecimal digits"
        } else {
            return Ok(());
        };
        let text = format!("the address {} cannot be used: {wrong}", self.shown());
        Err(Failure::new(FailureKind::BadArgument, text))
    }

    /// The address in a text for people.
    pub fn shown(&self) -> String {
        format!("`{}`", printable(&self.address, 200))
    }

    /// The message that asks a connector for an array.
    pub fn message(&self) -> Vec<u8> {
        self.asked(None)
    }

    /// The message that asks a connector to write an array.
    pub fn message_to_write(&self) -> Vec<u8> {
        self.asked(Some(&self.form.shape))
    }

    fn asked(&self, writes: Option<&[u64]>) -> Vec<u8> {
        let source = &self.source;
        framed(&Asked {
            address: &self.address,
            wanted: &self.form.element,
            column_major: self.form.column_major,
            format: source.format.as_deref(),
            element: source.element.as_deref(),
            shape: source.shape.as_deref(),
            by_columns: source.column_major,
            big_endian: source.big_endian,
            columns: source.columns.as_deref(),
            query: source.query.as_deref(),
            rows: source.rows.map(|rows| (rows.begin, rows.end)),
            sha256: source.sha256.as_deref(),
            version: self.version.as_deref(),
            writes,
        })
    }

    /// The name of its array among the named data of its user.
    pub fn name(&self) -> String {
        source_name(&self.address, &self.form, &self.source)
    }
}

/// A message with its length before it.
pub fn framed(message: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_vec(message).unwrap_or_default();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(text);
    bytes
}

/// The length of a message, from the bytes before it.
///
/// # Errors
/// It is too long.
pub fn length(bytes: [u8; 4]) -> Result<usize, Failure> {
    let length = u32::from_be_bytes(bytes) as usize;
    match length <= MOST_MESSAGE {
        true => Ok(length),
        false => Err(nonsense("a message that is too long")),
    }
}

/// Reads an answer of a connector.
///
/// # Errors
/// The connector reports a failure, or its answer makes no sense.
pub fn answer(bytes: &[u8]) -> Result<Answer, Failure> {
    let told: Told = serde_json::from_slice(bytes)
        .map_err(|error| nonsense(&format!("a message that cannot be read ({error})")))?;
    match told {
        Told::Failure(ToldFailure { kind, message }) => {
            let kind = match kind.as_str() {
                "refused" => FailureKind::NotAllowed,
                "missing" => FailureKind::NotFound,
                "unfit" => FailureKind::BadArgument,
                "large" => FailureKind::TooLarge,
                "unreachable" => FailureKind::Unreachable,
                _ => FailureKind::Internal,
            };
            Err(Failure::new(kind, printable(&message, MOST_TEXT)))
        }
        Told::Unchanged => Ok(Answer::Found(SourceFound::Unchanged)),
        Told::Done => Ok(Answer::Done),
        Told::Ready => Ok(Answer::Ready),
        Told::Written(written) if !is_sum(&written.sha256) => {
            Err(nonsense("a checksum that is none"))
        }
        Told::Written(written) => {
            let version = written.version;
            let version = version.filter(|version| version.len() <= MOST_VERSION);
            let version = version.map(|version| printable(&version, MOST_VERSION));
            Ok(Answer::Written(SourceWritten { version, ..written }))
        }
        Told::Array(array) => {
            let form = form_of(&array.element, array.shape, array.column_major);
            form.bytes()
                .map_err(|error| nonsense(&format!("an array that cannot be: {error}")))?;
            let version = array.version;
            let version = version.filter(|version| version.len() <= MOST_VERSION);
            Ok(Answer::Found(SourceFound::Array { form, version }))
        }
    }
}

/// Whether a text is a SHA-256 checksum.
fn is_sum(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn form_of(element: &str, shape: Vec<u64>, column_major: bool) -> ArrayForm {
    ArrayForm {
        element: element.to_string(),
        shape,
        column_major,
    }
}

fn nonsense(what: &str) -> Failure {
    let text = format!("the connector that reads sources has sent {what}");
    Failure::new(FailureKind::Internal, printable(&text, MOST_TEXT))
}

/// A text of at most `most` characters, each of which can be shown.
fn printable(text: &str, most: usize) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => ' ',
        false => letter,
    };
    text.chars().take(most).map(shown).collect()
}

#[cfg(test)]
mod tests;
