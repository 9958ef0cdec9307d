//! Conversions of numbers, texts and slices into arguments. A conversion records the type of the
//! elements; `call` compares it with the interface. A mutable slice becomes an array that the call
//! may write, and any other slice one that it only reads.

use super::{Argument, Array, Element};
use crate::callback::Callback;
use farcall_idl::Scalar;
use farcall_rpc_proto::{DataName, HandleId};

macro_rules! scalars {
    ($variant:ident($as:ty): $($number:ty)*) => {
        $(impl From<$number> for Argument<'_> {
            fn from(value: $number) -> Self {
                Argument::Scalar(Scalar::$variant(<$as>::from(value)))
            }
        })*
    };
}

scalars!(Int(i64): i8 u8 i16 u16 i32 u32 i64);
scalars!(Float(f64): f32 f64);
scalars!(Text(String): &str String);

impl From<Scalar> for Argument<'_> {
    fn from(value: Scalar) -> Self {
        Argument::Scalar(value)
    }
}

impl From<Vec<String>> for Argument<'_> {
    fn from(texts: Vec<String>) -> Self {
        Argument::Scalar(Scalar::Texts(texts))
    }
}

impl<'a, T: Element> From<&'a [T]> for Argument<'a> {
    fn from(elements: &'a [T]) -> Self {
        Argument::Array(Array::read(elements))
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Argument<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        Argument::Array(Array::write(elements))
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Argument<'a> {
    fn from(elements: &'a [T; N]) -> Self {
        elements.as_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for Argument<'a> {
    fn from(elements: &'a mut [T; N]) -> Self {
        elements.as_mut_slice().into()
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Argument<'a> {
    fn from(elements: &'a Vec<T>) -> Self {
        elements.as_slice().into()
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for Argument<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        elements.as_mut_slice().into()
    }
}

macro_rules! single {
    ($($element:ty)*) => {
        $(/// An array of one element, which is written: what C has as `int *info`.
        impl<'a> From<&'a mut $element> for Argument<'a> {
            fn from(element: &'a mut $element) -> Self {
                std::slice::from_mut(element).into()
            }
        })*
    };
}

single!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

impl From<Callback> for Argument<'_> {
    fn from(function: Callback) -> Self {
        Argument::Function(function)
    }
}

impl From<HandleId> for Argument<'_> {
    fn from(array: HandleId) -> Self {
        Argument::Handle(array)
    }
}

impl From<DataName> for Argument<'_> {
    fn from(name: DataName) -> Self {
        Argument::Named(name)
    }
}
