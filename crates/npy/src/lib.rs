//! The header of a `.npy` file (NEP 1): type, shape and order of its array, and the position of the
//! elements. [`Array`] has the elements, and converts them into the type of a parameter.
//!
//! The bytes can come from anybody, so this crate reads at most [`MOST_HEADER`] of them. It does
//! not use `npyz`, because that crate multiplies a shape without a check (the case `huge` of the
//! fuzz corpus panics), and 20 nested brackets in a header keep its parser busy for 20 s.

mod array;
mod dictionary;

pub use array::{Array, Number, is_number, same_shape, transpose};

use dictionary::Dictionary;
use farcall_idl::Type;

/// Number of bytes at the start of a file within which its header must end.
pub const MOST_HEADER: usize = 64 << 10;
/// Largest number of dimensions of an array.
const MOST_DIMENSIONS: usize = 32;
/// Letters that an error shows of a type. The list of the fields of structured elements may be
/// long.
const MOST_SHOWN: usize = 100;

/// The description of the array in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the elements.
    pub element: Type,
    /// The shape as NumPy shows it.
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest. Otherwise the last one does.
    pub column_major: bool,
    /// Whether the byte order of the elements differs from this machine's.
    pub is_swapped: bool,
    /// Position of the first element in the file, in bytes.
    pub offset: u64,
    /// Bytes of all elements.
    pub bytes: u64,
}

/// The reason why a file is not an array that can be passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    /// The first bytes are not a header.
    #[error("the file has no .npy header within its first 64 KiB")]
    Header,
    /// Interface files have no type for the elements.
    #[error("elements of type {0} cannot be passed")]
    Element(String),
    /// The array has too many dimensions or bytes.
    #[error("the shape of the array is too large")]
    Shape,
    /// There are more or fewer elements than the header says.
    #[error("its length does not match the shape in its header")]
    Length,
}

impl Header {
    /// Reads the header from the first bytes of a file. `start` is the whole file or its first
    /// [`MOST_HEADER`] bytes.
    ///
    /// # Errors
    /// The reason why the bytes are not a header.
    pub fn read(start: &[u8]) -> Result<Header, NpyError> {
        let start = &start[..start.len().min(MOST_HEADER)];
        let (text, offset) = text(start).ok_or(NpyError::Header)?;
        let Dictionary {
            descr,
            fortran_order,
            shape,
        } = Dictionary::read(text).ok_or(NpyError::Header)?;
        let unknown = || {
            let shown: String = descr.chars().take(MOST_SHOWN).collect();
            NpyError::Element(shown.escape_debug().to_string().replace("\\'", "'"))
        };
        let (element, is_swapped) = element(&descr).ok_or_else(unknown)?;
        let size = u64::from(element.size().ok_or_else(unknown)?);
        let bytes = match shape.contains(&0) {
            true => Some(0),
            false => shape
                .iter()
                .try_fold(size, |all, one| all.checked_mul(*one)),
        };
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64);
        match bytes {
            Some(bytes) if shape.len() <= MOST_DIMENSIONS => Ok(Header {
                element,
                shape,
                column_major: fortran_order,
                is_swapped,
                offset,
                bytes,
            }),
            _ => Err(NpyError::Shape),
        }
    }
}

/// The text of the header and the position of its end, if the end is within the first bytes.
fn text(start: &[u8]) -> Option<(&str, u64)> {
    let rest = start.strip_prefix(b"\x93NUMPY")?;
    let (length, at) = match rest {
        [1, _, low, high, ..] => (u32::from(u16::from_le_bytes([*low, *high])), 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]), 12),
        _ => return None,
    };
    let text = start[at..].get(..length as usize)?;
    let offset = (at + text.len()) as u64;
    Some((std::str::from_utf8(text).ok()?, offset))
}

/// The first bytes of a file whose elements follow in the byte order of this machine. `None` if
/// NumPy has no such elements.
pub fn header(element: Type, shape: &[u64], column_major: bool) -> Option<Vec<u8>> {
    let descr = description(element)?;
    let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let fortran = if column_major { "True" } else { "False" };
    let text = format!(
        "{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({}), }}",
        // `(3,)` is a shape with one length, `(3, 4)` one with two.
        match shape {
            [_] => lengths.trim_end(),
            _ => lengths.trim_end_matches(", "),
        }
    );
    // The elements begin at a multiple of 64, after spaces and an end of line.
    let whole = (10 + text.len() + 1).next_multiple_of(64);
    let length = u16::try_from(whole - 10).ok()?;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(whole - 1, b' ');
    bytes.push(b'\n');
    Some(bytes)
}

/// NumPy's kinds with their sizes, and the corresponding types of interface files.
const KINDS: [(&str, Type); 12] = [
    ("i1", Type::Char),
    ("i2", Type::Short),
    ("i4", Type::Int),
    ("i8", Type::Long),
    ("u1", Type::UnsignedChar),
    ("u2", Type::UnsignedShort),
    ("u4", Type::UnsignedInt),
    ("u8", Type::UnsignedLong),
    ("f4", Type::Float),
    ("f8", Type::Double),
    ("c8", Type::SComplex),
    ("c16", Type::DComplex),
];

/// The type in interface files of elements that NumPy describes as `descr`, such as `<f8`, and
/// whether their byte order differs from this machine's.
pub fn element(descr: &str) -> Option<(Type, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let (_, element) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let size = element.size()?;
    let is_little = match order {
        "<" => true,
        ">" => false,
        "|" if size == 1 => cfg!(target_endian = "little"),
        "=" => cfg!(target_endian = "little"),
        _ => return None,
    };
    let is_swapped = size > 1 && is_little != cfg!(target_endian = "little");
    Some((*element, is_swapped))
}

/// What NumPy calls elements of the type in the byte order of this machine. `None` if NumPy has no
/// such elements.
pub fn description(element: Type) -> Option<String> {
    let size = element.size()?;
    let is_it = |(_, other): &&(&str, Type)| *other == element;
    let kind = match element {
        Type::SignedChar => "i1",
        Type::LongLong => "i8",
        Type::UnsignedLongLong => "u8",
        _ => KINDS.iter().find(is_it)?.0,
    };
    let order = match (size, cfg!(target_endian = "little")) {
        (1, _) => '|',
        (_, true) => '<',
        (_, false) => '>',
    };
    Some(format!("{order}{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut file = b"\x93NUMPY".to_vec();
        file.extend([version, 0]);
        match version {
            1 => file.extend((text.len() as u16).to_le_bytes()),
            _ => file.extend((text.len() as u32).to_le_bytes()),
        }
        file.extend(text.as_bytes());
        file.extend([0; 64]);
        file
    }

    fn dict(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
    }

    #[test]
    fn headers_of_both_versions_are_read() {
        for version in [1, 2] {
            let text = dict("<f8", "True", "(3, 4)");
            let header = Header::read(&file(version, &text)).unwrap();
            assert_eq!(header.element, Type::Double);
            assert_eq!((header.shape, header.column_major), (vec![3, 4], true));
            assert_eq!(header.bytes, 96);
            assert_eq!(
                header.offset,
                text.len() as u64 + if version == 1 { 10 } else { 12 }
            );
        }
        let header = Header::read(&file(1, &dict(">i4", "False", "(5,)"))).unwrap();
        assert_eq!(header.is_swapped, cfg!(target_endian = "little"));
        let scalar = Header::read(&file(1, &dict("|u1", "False", "()"))).unwrap();
        assert_eq!((scalar.bytes, scalar.is_swapped), (1, false));
    }

    #[test]
    fn a_header_that_is_written_reads_back() {
        let shapes: [&[u64]; 4] = [&[], &[3], &[3, 4], &[0, 7, 2]];
        for (shape, element) in shapes.iter().flat_map(|s| Type::ALL.map(|ty| (s, ty))) {
            let Some(written) = header(element, shape, shape.len() == 2) else {
                assert!(element.size().is_none(), "{element:?}");
                continue;
            };
            assert_eq!(written.len() % 64, 0);
            let read = Header::read(&written).unwrap();
            assert_eq!(read.element.size(), element.size());
            assert_eq!((&read.shape[..], read.is_swapped), (*shape, false));
            assert_eq!(read.column_major, shape.len() == 2);
            assert_eq!(read.offset, written.len() as u64);
        }
    }

    /// Other readers of this format fail on these headers: a product that overflows, and nested
    /// brackets, on which a backtracking parser works for hours.
    #[test]
    fn a_hostile_header_is_an_error_at_once() {
        let nested = format!("{}'<f8'{}", "[".repeat(30_000), "]".repeat(30_000));
        let text = format!("{{'descr': {nested}, 'fortran_order': False, 'shape': (3,), }}\n");
        let shown = "[".repeat(MOST_SHOWN);
        assert_eq!(Header::read(&file(2, &text)), Err(NpyError::Element(shown)));
    }

    #[test]
    fn a_file_that_is_not_an_array_is_an_error() {
        for bytes in [&b""[..], b"\x93NUMPY", b"PK\x03\x04", &[0x93; 100]] {
            assert!(matches!(Header::read(bytes), Err(NpyError::Header)));
        }
        let mut long = file(2, "");
        long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Header::read(&long), Err(NpyError::Header)));
        for descr in ["|O", "<U7", "<f2", "|S3", "<M8[s]"] {
            let read = Header::read(&file(1, &dict(descr, "False", "(1,)")));
            assert!(
                matches!(read, Err(NpyError::Element(_))),
                "{descr}: {read:?}"
            );
        }
        let fields = dict("<f8", "False", "(1,)").replace("'<f8'", "[('x', '<f8')]");
        let expected = NpyError::Element("[('x', '<f8')]".to_owned());
        assert_eq!(Header::read(&file(1, &fields)), Err(expected));
        let huge = dict("<f8", "False", "(4294967296, 4294967296)");
        assert_eq!(Header::read(&file(1, &huge)), Err(NpyError::Shape));
    }
}
