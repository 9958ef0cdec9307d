//! Messages about data that stay at the server.

use crate::ids::HandleId;
use alloc::string::String;
use alloc::vec::Vec;
use farcall_idl::{ArrayLayout, Order, Type};
use minicbor::{Decode, Encode};

/// Feature bit: data may stay at the server, to be used in calls by their handle.
pub const HANDLES: u64 = 1 << 9;

/// Feature bit: parts of arrays at the server travel on their own, on any connection. Needs
/// [`HANDLES`].
pub const PARTS: u64 = 1 << 6;

/// Feature bit: arrays travel from server to server. Needs [`HANDLES`].
pub const LOANS: u64 = 1 << 13;

/// Most dimensions of data.
const MAX_DIMENSIONS: usize = 32;

/// An array that is to stay at the server, or does.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArrayForm {
    /// Type of the elements, by its name in the interface language.
    #[n(0)]
    pub element: String,
    /// The shape as its user sees it.
    #[n(1)]
    pub shape: Vec<u64>,
    /// Whether the first index varies fastest in memory; the last does otherwise.
    #[n(2)]
    pub column_major: bool,
}

/// Puts an array at the server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Put {
    /// The array.
    #[n(0)]
    pub form: ArrayForm,
    /// Length of the data stream that follows: all of the array, or nothing where it is to be zero.
    #[n(1)]
    pub data_bytes: u64,
    /// Whether it stays when the connection ends.
    #[n(2)]
    pub stays: bool,
}

/// A part of an array at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ArrayPart {
    /// The array.
    #[n(0)]
    pub id: HandleId,
    /// Where the part starts, in bytes.
    #[n(1)]
    pub offset: u64,
    /// Its length in bytes, which is that of the data stream.
    #[n(2)]
    pub bytes: u64,
}

impl ArrayPart {
    /// Whether it is a part of an array of that form, in whole elements.
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

/// Has an array read from another server, to stay at this one.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Pull {
    /// Where the other server is, as this one reaches it.
    #[n(0)]
    pub address: String,
    /// The name that it has lent the array under.
    #[n(1)]
    pub loan: HandleId,
    /// The array.
    #[n(2)]
    pub form: ArrayForm,
    /// Whether it stays when the connection ends.
    #[n(3)]
    pub stays: bool,
}

/// What is known of data at the server. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HandleRecord {
    /// Their name.
    #[n(0)]
    pub id: HandleId,
    /// Place in the order of creation, greater than that of every earlier one.
    #[n(1)]
    pub number: u64,
    /// The array.
    #[n(2)]
    pub form: ArrayForm,
    /// Whether they stay when the connection ends that has put them there.
    #[n(3)]
    pub stays: bool,
    /// When they were used last.
    #[n(4)]
    pub used: u64,
    /// Whether they are on the disk, for want of memory.
    #[n(5)]
    pub on_disk: bool,
    /// Why their contents are undefined: a call failed that was to write them.
    #[n(6)]
    pub undefined: Option<String>,
}

/// A page of a user's data, in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct HandlePage {
    /// The data of this page.
    #[n(0)]
    pub handles: Vec<HandleRecord>,
    /// Ask for those after this number next, if there are more.
    #[n(1)]
    pub next: Option<u64>,
}

/// Names data.
#[derive(Encode, Decode)]
pub(crate) struct HandleMessage {
    #[n(0)]
    pub(crate) id: HandleId,
}

/// Asks for a page of data.
#[derive(Encode, Decode)]
pub(crate) struct ListHandlesMessage {
    /// Those with a greater number.
    #[n(0)]
    pub(crate) after: u64,
}

/// Why a form is not one of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The type has no fixed size, or is not known.
    #[error("elements of that type cannot stay at the server")]
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

    /// Whether an array with this form is one of that type, shape and order. Axes of length 1 do
    /// not matter, nor does the order of one that has only one other.
    pub fn fits(&self, ty: Type, shape: &[u64], column_major: bool) -> bool {
        let long = |shape: &[u64]| -> Vec<u64> {
            let lengths = shape.iter().copied();
            lengths.filter(|length| *length != 1).collect()
        };
        let (ours, theirs) = (long(&self.shape), long(shape));
        let same_type = self.ty().is_ok_and(|own| alike(own) == alike(ty));
        same_type && ours == theirs && (ours.len() <= 1 || self.column_major == column_major)
    }
}

/// `long` and `long long` are one type.
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
}
