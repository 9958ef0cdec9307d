//! Messages about stored arrays and their handles. The messages only describe an array: its bytes
//! travel as a data stream, and the server decides who may use it. [`ArrayForm::bytes`] computes
//! sizes with checks, because a form comes from the peer.

use crate::ids::HandleId;
use alloc::string::String;
use alloc::vec::Vec;
use farcall_idl::{ArrayLayout, Order, Type};
use minicbor::{Decode, Encode};

/// Feature bit: the server stores arrays, and calls use them by their handles.
pub const HANDLES: u64 = 1 << 9;

/// Feature bit: parts of stored arrays travel on any connection. Needs [`HANDLES`].
pub const PARTS: u64 = 1 << 6;

/// Feature bit: arrays travel from server to server. Needs [`HANDLES`].
pub const LOANS: u64 = 1 << 13;

/// Feature bit: the server reads arrays from addresses outside of Farcall. Needs [`LOANS`].
pub const SOURCES: u64 = 1 << 20;

/// Feature bit: the server writes stored arrays to addresses outside of Farcall. Needs
/// [`SOURCES`].
pub const WRITES: u64 = 1 << 22;
/// Feature of servers that read [parts](SourceOptions::rows) of sources.
pub const ROWS: u64 = 1 << 26;

/// Most dimensions of an array.
const MAX_DIMENSIONS: usize = 32;

/// Type, shape and order of a stored array.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArrayForm {
    /// Type of the elements, by its name in the interface language.
    #[n(0)]
    pub element: String,
    /// The shape as its user sees it.
    #[n(1)]
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest in memory; otherwise the last one does.
    #[n(2)]
    pub column_major: bool,
}

/// Stores an array.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Put {
    /// Type, shape and order.
    #[n(0)]
    pub form: ArrayForm,
    /// Length of the data stream that follows: the whole array, or 0 for an array of zeros.
    #[n(1)]
    pub data_bytes: u64,
    /// Whether it remains after the end of the connection.
    #[n(2)]
    pub stays: bool,
}

/// A part of a stored array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArrayPart {
    /// The array.
    #[n(0)]
    pub id: HandleId,
    /// Offset of the part in bytes.
    #[n(1)]
    pub offset: u64,
    /// Length in bytes, which is also that of the data stream.
    #[n(2)]
    pub bytes: u64,
}

impl ArrayPart {
    /// Whether this is a part of an array of that form, in whole elements.
    pub fn is_of(&self, form: &ArrayForm) -> bool {
        let (Ok(ty), Ok(bytes)) = (form.ty(), form.bytes()) else {
            return false;
        };
        let unit = u64::from(ty.size().unwrap_or(1)).max(1);
        let whole = self.offset.is_multiple_of(unit) && self.bytes.is_multiple_of(unit);
        let end = self.offset.checked_add(self.bytes);
        whole && self.bytes > 0 && end.is_some_and(|end| end <= bytes)
    }
}

/// Asks a server to read an array from another server, or from an address outside of Farcall, and
/// to store it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pull {
    /// Address of the other server, as this one reaches it; or that of the source.
    #[n(0)]
    pub address: String,
    /// The name under which the other server lends the array. Zeros for a source.
    #[n(1)]
    pub loan: HandleId,
    /// Type, shape and order. For a source: the wanted type, or an empty text for that of the
    /// source; no shape; and the wanted order.
    #[n(2)]
    pub form: ArrayForm,
    /// Whether it remains after the end of the connection.
    #[n(3)]
    pub stays: bool,
    /// How to read a source: the address is outside of Farcall. Needs [`SOURCES`].
    #[n(4)]
    pub source: Option<SourceOptions>,
}

/// How to read an array from an address outside of Farcall.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SourceOptions {
    /// `npy`, `raw`, `csv` and so on; otherwise the end of the address says it.
    #[n(0)]
    pub format: Option<String>,
    /// Type of the numbers of a format that does not say it, by its name in the interface language.
    #[n(1)]
    pub element: Option<String>,
    /// The shape of raw numbers. For other formats: the shape that the array must have.
    #[n(2)]
    pub shape: Option<Vec<u64>>,
    /// Whether the first index of raw numbers varies fastest.
    #[n(3)]
    pub column_major: Option<bool>,
    /// The columns of a table.
    #[n(4)]
    pub columns: Option<Vec<String>>,
    /// The query to a database.
    #[n(5)]
    pub query: Option<String>,
    /// The SHA-256 checksum of the bytes of the source, as 64 hexadecimal digits.
    #[n(6)]
    pub sha256: Option<String>,
    /// Whether raw numbers have their highest byte first.
    #[n(7)]
    pub big_endian: Option<bool>,
    /// The rows that are wanted: a part of the first dimension. Needs [`ROWS`].
    #[n(8)]
    pub rows: Option<Rows>,
}

/// Rows of an array: indices of its first dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rows {
    /// The first one.
    #[n(0)]
    pub begin: u64,
    /// The one after the last; nothing for all that there are.
    #[n(1)]
    pub end: Option<u64>,
}

/// Asks a server to write a stored array to an address outside of Farcall.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Write {
    /// The array.
    #[n(0)]
    pub id: HandleId,
    /// The address.
    #[n(1)]
    pub address: String,
    /// How to write it: its format, and the type and order of the numbers there.
    #[n(2)]
    pub options: SourceOptions,
}

/// What a server has written to an address.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Receipt {
    /// The address.
    #[n(0)]
    pub address: String,
    /// Bytes that lie there.
    #[n(1)]
    pub bytes: u64,
    /// Their SHA-256 checksum, as 64 hexadecimal digits.
    #[n(2)]
    pub sha256: String,
    /// Their version there, if the address says one.
    #[n(3)]
    pub version: Option<String>,
}

/// The status of a stored array. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HandleRecord {
    /// The handle's id.
    #[n(0)]
    pub id: HandleId,
    /// Number in the order of creation.
    #[n(1)]
    pub number: u64,
    /// Type, shape and order.
    #[n(2)]
    pub form: ArrayForm,
    /// Whether it remains after the end of the connection that stored it.
    #[n(3)]
    pub stays: bool,
    /// Time of the last use.
    #[n(4)]
    pub used: u64,
    /// Whether it is on the disk because memory is short.
    #[n(5)]
    pub on_disk: bool,
    /// Why the contents are undefined: a call that writes them has failed.
    #[n(6)]
    pub undefined: Option<String>,
}

/// A page of a user's stored arrays, in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HandlePage {
    /// The arrays of this page.
    #[n(0)]
    pub handles: Vec<HandleRecord>,
    /// Number after which the next page begins, if there is one.
    #[n(1)]
    pub next: Option<u64>,
}

/// Names a stored array.
#[derive(Encode, Decode)]
pub(crate) struct HandleMessage {
    #[n(0)]
    pub(crate) id: HandleId,
}

/// Asks for a page of stored arrays.
#[derive(Encode, Decode)]
pub(crate) struct ListHandlesMessage {
    /// The page begins after this number.
    #[n(0)]
    pub(crate) after: u64,
}

/// Why a form cannot be that of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The type is unknown, or has no fixed size.
    #[error("arrays of this type cannot be stored at a server")]
    Element,
    /// Too many dimensions, or too many bytes to count.
    #[error("the array is too large")]
    Size,
}

impl ArrayForm {
    /// The form of an array of a call, in the order in which its user sees it.
    pub fn of(array: &ArrayLayout, order: Order) -> ArrayForm {
        ArrayForm {
            element: array.element.name().into(),
            shape: array.shape(order),
            column_major: order == Order::ColumnMajor,
        }
    }

    /// The type of the elements.
    pub fn ty(&self) -> Result<Type, FormError> {
        let mut types = Type::ALL.into_iter();
        let ty = types.find(|ty| ty.name() == self.element && ty.size().is_some());
        ty.ok_or(FormError::Element)
    }

    /// Bytes of the whole array, checked.
    pub fn bytes(&self) -> Result<u64, FormError> {
        let size = u64::from(self.ty()?.size().ok_or(FormError::Element)?);
        if self.shape.len() > MAX_DIMENSIONS {
            return Err(FormError::Size);
        }
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let count = self
            .shape
            .iter()
            .try_fold(size, |all, length| all.checked_mul(*length));
        count
            .filter(|bytes| *bytes <= i64::MAX as u64)
            .ok_or(FormError::Size)
    }

    /// Whether an array of this form has that type, shape and order. Axes of length 1 do not
    /// matter, and with at most one longer axis the order does not either. `char` says nothing of a
    /// sign, so it stands for bytes with and without one.
    pub fn fits(&self, ty: Type, shape: &[u64], column_major: bool) -> bool {
        let long = |shape: &[u64]| -> Vec<u64> {
            let lengths = shape.iter().copied();
            lengths.filter(|length| *length != 1).collect()
        };
        let (ours, theirs) = (long(&self.shape), long(shape));
        let same_type = self.ty().is_ok_and(|own| match (alike(own), alike(ty)) {
            (Type::Char, other) | (other, Type::Char) => is_byte(other),
            (own, other) => own == other,
        });
        same_type && ours == theirs && (ours.len() <= 1 || self.column_major == column_major)
    }
}

fn is_byte(ty: Type) -> bool {
    matches!(ty, Type::Char | Type::SignedChar | Type::UnsignedChar)
}

/// Treats `long` and `long long` as one type.
fn alike(ty: Type) -> Type {
    match ty {
        Type::LongLong => Type::Long,
        Type::UnsignedLongLong => Type::UnsignedLong,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn form(element: &str, shape: &[u64]) -> ArrayForm {
        ArrayForm {
            element: element.to_string(),
            shape: shape.to_vec(),
            column_major: true,
        }
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(form("double", &[3, 4]).bytes(), Ok(96));
        assert_eq!(form("double", &[]).bytes(), Ok(8));
        assert_eq!(form("char", &[u64::MAX, 0]).bytes(), Ok(0));
        assert_eq!(form("double", &[1 << 61]).bytes(), Err(FormError::Size));
        assert_eq!(
            form("char", &[1 << 32, 1 << 32]).bytes(),
            Err(FormError::Size)
        );
        assert_eq!(form("char", &vec![1; 33]).bytes(), Err(FormError::Size));
        for element in ["string", "filename", "nothing", ""] {
            assert_eq!(form(element, &[1]).bytes(), Err(FormError::Element));
        }
    }

    #[test]
    fn a_part_lies_within_its_array() {
        let form = form("double", &[4]);
        let id = HandleId([0; 16]);
        let part = |offset, bytes| ArrayPart { id, offset, bytes }.is_of(&form);
        assert!(part(0, 32) && part(24, 8));
        for (offset, bytes) in [(0, 0), (32, 8), (24, 16), (4, 8), (8, 4), (u64::MAX - 7, 8)] {
            assert!(!part(offset, bytes), "{offset} {bytes}");
        }
    }

    #[test]
    fn a_matrix_is_not_taken_for_its_transpose() {
        let square = form("double", &[3, 3]);
        assert!(square.fits(Type::Double, &[3, 3], true));
        assert!(!square.fits(Type::Double, &[3, 3], false));
        assert!(!square.fits(Type::Float, &[3, 3], true));
        let vector = form("long", &[3]);
        assert!(vector.fits(Type::LongLong, &[1, 3], false));
        assert!(!vector.fits(Type::UnsignedLong, &[3], true));
        assert!(!vector.fits(Type::Long, &[3, 3], true));
    }

    #[test]
    fn a_char_has_no_sign_and_other_bytes_keep_theirs() {
        let fits = |element, ty| form(element, &[3]).fits(ty, &[3], true);
        for (element, ty) in [
            ("char", Type::UnsignedChar),
            ("char", Type::SignedChar),
            ("unsigned char", Type::Char),
            ("signed char", Type::Char),
            ("unsigned char", Type::UnsignedChar),
        ] {
            assert!(fits(element, ty), "{element} {ty:?}");
        }
        assert!(!fits("unsigned char", Type::SignedChar));
        assert!(!fits("signed char", Type::UnsignedChar));
        assert!(!fits("char", Type::Short));
        assert!(!fits("short", Type::Char));
    }
}
