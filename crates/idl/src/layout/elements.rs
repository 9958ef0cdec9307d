//! Elements of IN arrays that dimensions depend on.
//!
//! The server needs their values before it has the array, so the caller sends them with the
//! scalars. After the array has arrived, the side that runs the function compares them with the
//! array.

use super::{ArrayLayout, Layout};
use crate::{EvalError, Interface, Scalar, Type, Values};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The reason why the elements in the layout do not match the array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// The index has no value.
    #[error("array `{array}`: the index of an element used as a size {error}")]
    Eval {
        /// Name of the array.
        array: Box<str>,
        /// The error of the evaluation.
        error: EvalError,
    },
    /// The index is out of the bounds of the array.
    #[error("array `{array}`: element {index} is used as a size but it has {size} elements")]
    OutOfBounds {
        /// Name of the array.
        array: Box<str>,
        /// The index.
        index: i64,
        /// Number of elements of the array.
        size: u64,
    },
    /// The element of the caller's array is larger than any size.
    #[error("array `{array}`: element {index} is used as a size but is more than 2^63 - 1")]
    TooLarge {
        /// Name of the array.
        array: Box<str>,
        /// The index.
        index: i64,
    },
    /// The caller stated a value that differs from the array.
    #[error("array `{array}`: element {index} is {actual}, but the caller stated {stated}")]
    Differs {
        /// Name of the array.
        array: Box<str>,
        /// The index.
        index: i64,
        /// The value that the caller stated.
        stated: i64,
        /// The value in the array.
        actual: i64,
    },
}

impl Interface {
    /// What a caller sees of an array after the call, and its bytes. Of a result that the library
    /// has allocated, these are the elements that the function has counted. `bytes_of` gives the
    /// bytes of an OUT argument.
    pub fn shown<'b>(
        &self,
        array: &ArrayLayout,
        bytes: &'b [u8],
        bytes_of: impl FnOnce(usize) -> Option<&'b [u8]>,
    ) -> (ArrayLayout, &'b [u8]) {
        let mut shown = array.clone();
        let count = self.params[array.param].count;
        let count = count.and_then(|count| read_integer(self.params[count].ty, bytes_of(count)?));
        let count = count.and_then(|count| u64::try_from(count).ok());
        let Some((axis, count)) = shown.axes.first_mut().zip(count) else {
            return (shown, bytes);
        };
        let row = array.client_bytes / axis.size.max(1);
        axis.size = axis.size.min(count);
        axis.section.end = axis.size;
        axis.section.count = axis.size;
        let length = row * axis.size;
        (shown.bytes, shown.client_bytes, shown.wire_bytes) = (length, length, length);
        (shown, bytes.get(..length as usize).unwrap_or(bytes))
    }

    /// The index of each entry of [`Interface::element_refs`], for a caller that has the arrays. It
    /// is within the array, whose length is known here if no other element decides it.
    pub fn element_indices(&self, scalars: &[Option<Scalar>]) -> Result<Vec<i64>, ElementError> {
        let values = Values {
            scalars,
            elements: &[],
        };
        let index = |reference: &crate::ElementRef| {
            let array = || self.name_of(reference.param);
            let index = reference.index.integer(values);
            let index = index.map_err(|error| ElementError::Eval {
                array: array(),
                error,
            })?;
            let dims = &self.params[reference.param].dims;
            let size = dims.first().and_then(|dim| dim.size.integer(values).ok());
            match size {
                Some(size) if !(0..size).contains(&index) => Err(ElementError::OutOfBounds {
                    array: array(),
                    index,
                    size: u64::try_from(size).unwrap_or(0),
                }),
                _ => Ok(index),
            }
        };
        self.element_refs.iter().map(index).collect()
    }

    /// The values of [`Interface::element_refs`], read from the caller's arrays. `bytes_of` gives
    /// the bytes of the array with a parameter index, in the byte order of this machine.
    pub fn element_values<'a>(
        &self,
        scalars: &[Option<Scalar>],
        bytes_of: impl Fn(usize) -> &'a [u8],
    ) -> Result<Vec<i64>, ElementError> {
        let indices = self.element_indices(scalars)?;
        let pairs = self.element_refs.iter().zip(indices);
        pairs
            .map(|(reference, index)| self.element_value(reference.param, index, &bytes_of))
            .collect()
    }

    fn element_value<'a>(
        &self,
        param: usize,
        index: i64,
        bytes_of: &impl Fn(usize) -> &'a [u8],
    ) -> Result<i64, ElementError> {
        let element = self.params[param].ty;
        let size = element.size().unwrap_or(1) as usize;
        let bytes = bytes_of(param);
        let start = usize::try_from(index)
            .ok()
            .and_then(|index| index.checked_mul(size));
        let found = start
            .and_then(|start| bytes.get(start..)?.get(..size))
            .ok_or_else(|| ElementError::OutOfBounds {
                array: self.name_of(param),
                index,
                size: (bytes.len() / size) as u64,
            })?;
        read_integer(element, found).ok_or_else(|| ElementError::TooLarge {
            array: self.name_of(param),
            index,
        })
    }

    /// Compares the elements of the layout with the arrays in the call buffer. The arrays must
    /// already be in the byte order of this machine. An array in another place can change at any
    /// time, so this function accepts no element of it.
    pub fn verify_elements(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
        layout: &Layout,
        buffer: &[u8],
    ) -> Result<(), ElementError> {
        if self.element_refs.is_empty() {
            return Ok(());
        }
        let indices = self.element_indices(scalars)?;
        for ((reference, index), stated) in self.element_refs.iter().zip(indices).zip(elements) {
            let actual = element(layout, reference.param, index, buffer);
            let actual = actual.ok_or_else(|| ElementError::OutOfBounds {
                array: self.name_of(reference.param),
                index,
                size: layout
                    .array(reference.param)
                    .map_or(0, |array| array.axes[0].size),
            })?;
            if actual != *stated {
                let array = self.name_of(reference.param);
                return Err(ElementError::Differs {
                    array,
                    index,
                    stated: *stated,
                    actual,
                });
            }
        }
        Ok(())
    }

    fn name_of(&self, param: usize) -> Box<str> {
        self.params
            .get(param)
            .map_or("", |param| param.name.as_str())
            .into()
    }
}

fn element(layout: &Layout, param: usize, index: i64, buffer: &[u8]) -> Option<i64> {
    let array = layout.array(param).filter(|array| array.place.is_none())?;
    let index = u64::try_from(index)
        .ok()
        .filter(|index| *index < array.axes[0].size)?;
    let size = u64::from(array.element_bytes);
    let start = usize::try_from(array.offset + index * size).ok()?;
    let bytes = buffer.get(start..)?.get(..array.element_bytes as usize)?;
    read_integer(array.element, bytes)
}

/// An integer of the type in native byte order. `None` for other types, for another number of
/// bytes, and for unsigned values above 2^63 - 1.
pub fn read_integer(ty: Type, bytes: &[u8]) -> Option<i64> {
    Some(match ty {
        Type::Char | Type::SignedChar => i64::from(i8::from_ne_bytes(bytes.try_into().ok()?)),
        Type::UnsignedChar => i64::from(u8::from_ne_bytes(bytes.try_into().ok()?)),
        Type::Short => i64::from(i16::from_ne_bytes(bytes.try_into().ok()?)),
        Type::UnsignedShort => i64::from(u16::from_ne_bytes(bytes.try_into().ok()?)),
        Type::Int => i64::from(i32::from_ne_bytes(bytes.try_into().ok()?)),
        Type::UnsignedInt => i64::from(u32::from_ne_bytes(bytes.try_into().ok()?)),
        Type::Long | Type::LongLong => i64::from_ne_bytes(bytes.try_into().ok()?),
        Type::UnsignedLong | Type::UnsignedLongLong => {
            i64::try_from(u64::from_ne_bytes(bytes.try_into().ok()?)).ok()?
        }
        _ => return None,
    })
}
