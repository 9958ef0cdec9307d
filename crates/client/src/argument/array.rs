//! Typed arrays of the caller: slices and views whose element type, shape and order are known.
//! `conversions` and `views` make them. What is known is compared with the interface before a call
//! is sent. Only types without padding are elements, so their bytes can be sent as they are.

use crate::error::ArgumentError;
use farcall_idl::{ArrayLayout, Order, Param, Type};
use std::fmt;

/// An element type of arrays: `i8` and `u8` (`char`), `i16` to `u64`, `f32`, `f64`, and `[f32; 2]`
/// and `[f64; 2]` for complex numbers, with the real part first.
pub trait Element: plain::Plain {}

impl<T: plain::Plain> Element for T {}

mod plain {
    use farcall_idl::Type;

    /// Types without padding, for which every bit pattern is a valid value.
    pub trait Plain: Copy {
        /// The types of the interface language that this type matches.
        const TYPES: &'static [Type];
        /// The name of the type in Rust.
        const NAME: &'static str;
    }

    macro_rules! plain {
        ($($element:ty: $($ty:ident)*;)*) => {
            $(impl Plain for $element {
                const TYPES: &'static [Type] = &[$(Type::$ty),*];
                const NAME: &'static str = stringify!($element);
            })*
        };
    }

    plain! {
        i8: Char SignedChar;
        u8: Char UnsignedChar;
        i16: Short;
        u16: UnsignedShort;
        i32: Int;
        u32: UnsignedInt;
        i64: Long LongLong;
        u64: UnsignedLong UnsignedLongLong;
        f32: Float;
        f64: Double;
        [f32; 2]: SComplex;
        [f64; 2]: DComplex;
    }
}

/// An array of the caller with its element type. An `ndarray` view also has a shape and an order.
/// Slices and views become arrays by [`From`].
pub struct Array<'a> {
    /// The matching types of the interface language, and the name of the element type in Rust.
    types: &'static [Type],
    element: &'static str,
    memory: Bytes<'a>,
    /// Shape and order, if the array is a view.
    form: Option<Form>,
}

enum Bytes<'a> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
}

/// The shape of a view, and how it lies in memory.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) shape: Vec<u64>,
    /// The last index varies fastest, without gaps.
    pub(super) is_row_major: bool,
    /// The first index varies fastest, without gaps.
    pub(super) is_column_major: bool,
}

impl<'a> Array<'a> {
    /// An array that the call reads.
    pub(super) fn read<T: Element>(elements: &'a [T]) -> Array<'a> {
        // SAFETY: the element type has no padding, so every byte is initialized.
        let bytes =
            unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
        Array::new::<T>(Bytes::Read(bytes))
    }

    /// An array that the call may write.
    pub(super) fn write<T: Element>(elements: &'a mut [T]) -> Array<'a> {
        let length = size_of_val(elements);
        // SAFETY: the element type has no padding, and every bit pattern is a valid value.
        let bytes = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), length) };
        Array::new::<T>(Bytes::Write(bytes))
    }

    fn new<T: Element>(memory: Bytes<'a>) -> Array<'a> {
        Array {
            types: T::TYPES,
            element: T::NAME,
            memory,
            form: None,
        }
    }

    /// The same array with a shape and an order.
    #[cfg_attr(not(feature = "ndarray"), allow(dead_code, reason = "for views alone"))]
    pub(super) fn of_form(self, form: Form) -> Array<'a> {
        Array {
            form: Some(form),
            ..self
        }
    }

    pub(super) fn reborrow(&mut self) -> Array<'_> {
        Array {
            types: self.types,
            element: self.element,
            memory: match &mut self.memory {
                Bytes::Read(bytes) => Bytes::Read(bytes),
                Bytes::Write(bytes) => Bytes::Write(bytes),
            },
            form: self.form.clone(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        }
    }

    pub(super) fn start(&mut self) -> *mut u8 {
        match &mut self.memory {
            Bytes::Read(bytes) => bytes.as_ptr().cast_mut(),
            Bytes::Write(bytes) => bytes.as_mut_ptr(),
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        matches!(self.memory, Bytes::Write(_))
    }

    /// Compares element type, shape and order with what the function takes, as far as they are
    /// known.
    pub(crate) fn check(
        &self,
        param: &Param,
        layout: &ArrayLayout,
        order: Order,
    ) -> Result<(), ArgumentError> {
        if !self.types.contains(&param.ty) {
            return Err(ArgumentError::Type {
                argument: param.name.clone(),
                expected: param.ty.name(),
                given: self.element,
            });
        }
        let Some(form) = &self.form else {
            return Ok(());
        };
        let expected = layout.shape(order);
        let in_order = match order {
            Order::RowMajor => form.is_row_major,
            Order::ColumnMajor => form.is_column_major,
        };
        if form.shape == expected && in_order {
            return Ok(());
        }
        let wanted = match order {
            Order::RowMajor => "with the last index fastest (C)",
            Order::ColumnMajor => "with the first index fastest (Fortran)",
        };
        let given = match (form.is_row_major, form.is_column_major) {
            (true, true) => "in any order",
            (true, false) => "with the last index fastest",
            (false, true) => "with the first index fastest",
            (false, false) => "with gaps in memory",
        };
        Err(ArgumentError::Shape {
            argument: param.name.clone(),
            expected: format!("shape {expected:?} {wanted}"),
            given: format!("shape {:?} {given}", form.shape),
        })
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array")
            .field("element", &self.element)
            .field("bytes", &self.bytes().len())
            .field("form", &self.form)
            .finish()
    }
}
