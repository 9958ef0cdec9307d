//! Arrays as JSON: lists in lists, a flat list with its shape, or elements as base64. It reads the
//! elements as the type of the parameter, one by one, so that the memory that it takes is a small
//! multiple of the text. Rows come first: `[[1, 2], [3, 4]]` has the rows (1, 2) and (3, 4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use farcall_idl::{MAX_RANK, Order, Param, Type};
use farcall_npy::{Array, Number, description, transpose};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// An array that a caller gives for a parameter.
pub(crate) struct Given<'p>(pub(crate) &'p Param);

impl<'de> DeserializeSeed<'de> for Given<'_> {
    type Value = Array;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Array, D::Error> {
        input.deserialize_any(self)
    }
}

impl Given<'_> {
    /// The elements of lists in lists, or of a number, which `read` passes to the first level.
    fn of<E: de::Error>(&self, read: impl FnOnce(Level<'_>) -> Result<(), E>) -> Result<Array, E> {
        let mut elements = Elements::new(self.0);
        read(Level(&mut elements, 0))?;
        let name = &self.0.name;
        elements.finish().ok_or_else(|| {
            E::custom(format!(
                "argument `{name}`: expected lists of equal length, and a complex number as [real, \
                 imaginary]"
            ))
        })
    }
}

impl<'de> Visitor<'de> for Given<'_> {
    type Value = Array;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, ty) = (&self.0.name, self.0.ty.name());
        write!(
            f,
            "for argument `{name}` an array of {ty}: lists of numbers, or an object with `shape` \
             and `values`, or with `shape`, `dtype` and `data`"
        )
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Array, A::Error> {
        self.of(|level| level.visit_seq(list))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Array, E> {
        self.of(|level| level.visit_i64(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Array, E> {
        self.of(|level| level.visit_u64(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Array, E> {
        self.of(|level| level.visit_f64(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Array, A::Error> {
        let name = &self.0.name;
        let fail = |text: String| de::Error::custom(format!("argument `{name}`: {text}"));
        let (mut shape, mut values) = (None, None);
        let (mut kind, mut data, mut columns) = (None, None, None);
        while let Some(key) = map.next_key::<Cow<'_, str>>()? {
            match &*key {
                "shape" if shape.is_none() => shape = Some(map.next_value::<Shape>()?.0),
                "values" if values.is_none() => values = Some(map.next_value_seed(Given(self.0))?),
                "dtype" if kind.is_none() => kind = Some(map.next_value::<String>()?),
                "data" if data.is_none() => data = Some(map.next_value::<Bytes>()?.0),
                "fortran_order" if columns.is_none() => columns = Some(map.next_value::<bool>()?),
                "shape" | "values" | "dtype" | "data" | "fortran_order" => {
                    return Err(fail(format!("`{key}` is given twice")));
                }
                key => return Err(fail(format!("an array has no `{}`", key.escape_debug()))),
            }
        }
        let order = match columns {
            Some(true) => Order::ColumnMajor,
            _ => Order::RowMajor,
        };
        let array = match (shape, values, kind, data) {
            (Some(shape), Some(values), None, None) => {
                let is_flat = values.shape.len() <= 1;
                if !is_flat && (values.shape != shape || order == Order::ColumnMajor) {
                    let text = "`values` needs a flat list, or lists by rows in this `shape`";
                    return Err(fail(text.to_owned()));
                }
                let ty = values.element();
                let bytes = values.into_bytes(ty, Order::RowMajor).map_err(&fail)?;
                Array::new(ty, shape, order, bytes)
            }
            (Some(shape), None, Some(kind), Some(data)) => {
                if farcall_npy::element(&kind).is_none() {
                    let kind = kind.escape_debug();
                    return Err(fail(format!("`{kind}` is not a type of numbers of NumPy")));
                }
                Array::described(&kind, shape, order, data)
            }
            _ => {
                let text = "an object needs `shape` and `values`, or `shape`, `dtype` and `data`";
                return Err(fail(text.to_owned()));
            }
        };
        array.ok_or_else(|| fail("the number of elements is not that of the shape".to_owned()))
    }
}

/// The shape of an array.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Shape, D::Error> {
        struct Lengths;
        impl<'de> Visitor<'de> for Lengths {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_RANK} lengths as `shape`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(length) = list.next_element()? {
                    if shape.len() == MAX_RANK {
                        return Err(de::Error::invalid_length(MAX_RANK + 1, &self));
                    }
                    shape.push(length);
                }
                Ok(Shape(shape))
            }
        }
        input.deserialize_seq(Lengths)
    }
}

/// Bytes as base64 (RFC 4648, section 4).
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Bytes, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64 as `data`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                let bytes = STANDARD.decode(text);
                bytes
                    .map(Bytes)
                    .map_err(|error| E::custom(format!("`data`: {error}")))
            }
        }
        input.deserialize_str(Text)
    }
}

/// The elements of lists in lists, as far as they are read.
struct Elements {
    /// Type of the numbers in the list. A complex number is a list of two.
    ty: Type,
    is_complex: bool,
    /// The length of each level, once the first list of that level has ended.
    lengths: Vec<Option<u64>>,
    /// The level of the numbers.
    depth: Option<usize>,
    bytes: Vec<u8>,
}

impl Elements {
    fn new(param: &Param) -> Elements {
        let ty = match param.ty {
            Type::SComplex => Type::Float,
            Type::DComplex => Type::Double,
            ty => ty,
        };
        Elements {
            ty,
            is_complex: ty != param.ty,
            lengths: Vec::new(),
            depth: None,
            bytes: Vec::new(),
        }
    }

    fn push<E: de::Error>(&mut self, level: usize, number: Number) -> Result<(), E> {
        if *self.depth.get_or_insert(level) != level {
            return Err(E::custom("a list mixes numbers and lists"));
        }
        // JSON has decimal numbers. The nearest one is meant.
        let number = match number {
            Number::Real(_) => number.nearest(self.ty),
            _ => number,
        };
        number.write(self.ty, &mut self.bytes).map_err(E::custom)
    }

    fn finish(self) -> Option<Array> {
        let shape: Option<Vec<u64>> = self.lengths.into_iter().collect();
        let mut shape = shape?;
        let ty = match (self.is_complex, self.ty) {
            (false, ty) => ty,
            (true, ty) => {
                if self.depth.is_some() && shape.pop() != Some(2) {
                    return None;
                }
                match ty {
                    Type::Float => Type::SComplex,
                    _ => Type::DComplex,
                }
            }
        };
        Array::new(ty, shape, Order::RowMajor, self.bytes)
    }
}

/// A list, or a number, at a level of lists in lists.
struct Level<'e>(&'e mut Elements, usize);

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, or lists of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Level(elements, level) = self;
        // One level more for complex numbers.
        if level > MAX_RANK {
            return Err(de::Error::custom("the lists are too deep"));
        }
        if elements.lengths.len() == level {
            elements.lengths.push(None);
        }
        let mut length = 0;
        while list
            .next_element_seed(Level(elements, level + 1))?
            .is_some()
        {
            length += 1;
        }
        match *elements.lengths[level].get_or_insert(length) == length {
            true => Ok(()),
            false => Err(de::Error::custom("the lists have different lengths")),
        }
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.0.push(self.1, Number::Integer(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.0.push(self.1, Number::Integer(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        // A whole number may be written as 1.0 or 1e3.
        let is_whole = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        match is_whole && self.0.ty.is_integer() {
            true => self.visit_i64(value as i64),
            false => self.0.push(self.1, Number::Real(value)),
        }
    }

    /// JSON has no infinite numbers and no NaN: they are texts.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let value = match text {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        };
        self.0.push(self.1, Number::Real(value))
    }
}

/// An array that is written as JSON.
pub struct Shown<'a> {
    /// Type of the elements.
    pub element: Type,
    /// The shape in the order of the caller.
    pub shape: &'a [u64],
    /// Elements in the order of rows, in the byte order of this machine.
    bytes: Cow<'a, [u8]>,
    /// Whether elements are base64.
    is_binary: bool,
}

impl<'a> Shown<'a> {
    /// An array of numbers: lists in lists, or an object with its elements as base64. `None` if the
    /// elements are not numbers.
    pub fn new(
        element: Type,
        shape: &'a [u64],
        order: Order,
        bytes: &'a [u8],
        is_binary: bool,
    ) -> Option<Shown<'a>> {
        if !farcall_npy::is_number(element) {
            return None;
        }
        let size = element.size()? as usize;
        let bytes = match order {
            Order::ColumnMajor if shape.len() > 1 => {
                transpose(bytes, size, shape, Order::RowMajor).into()
            }
            _ => bytes.into(),
        };
        Some(Shown {
            element,
            shape,
            bytes,
            is_binary,
        })
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        if !self.is_binary {
            let rows = Rows {
                element: self.element,
                shape: self.shape,
                bytes: &self.bytes,
            };
            return rows.serialize(out);
        }
        let mut map = out.serialize_map(Some(3))?;
        map.serialize_entry("dtype", &description(self.element))?;
        map.serialize_entry("shape", self.shape)?;
        map.serialize_entry("data", &STANDARD.encode(&self.bytes))?;
        map.end()
    }
}

/// A part of an array: lists in lists.
struct Rows<'a> {
    element: Type,
    shape: &'a [u64],
    bytes: &'a [u8],
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let Some((&length, inner)) = self.shape.split_first() else {
            let number = Number::all(self.element, self.bytes).next();
            return Item(self.element, number.unwrap_or(Number::Integer(0))).serialize(out);
        };
        let length = length as usize;
        let mut list = out.serialize_seq(Some(length))?;
        if inner.is_empty() {
            for number in Number::all(self.element, self.bytes) {
                list.serialize_element(&Item(self.element, number))?;
            }
            return list.end();
        }
        let row = self.bytes.len() / length.max(1);
        for index in 0..length {
            list.serialize_element(&Rows {
                element: self.element,
                shape: inner,
                bytes: &self.bytes[index * row..][..row],
            })?;
        }
        list.end()
    }
}

/// An element at full precision. A complex number is a list of two.
struct Item(Type, Number);

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match (self.0, self.1) {
            (Type::UnsignedLong | Type::UnsignedLongLong, Number::Integer(value)) => {
                out.serialize_u64(value as u64)
            }
            (_, Number::Integer(value)) => out.serialize_i64(value as i64),
            (_, Number::Real(value)) => Real(value).serialize(out),
            (_, Number::Complex(re, im)) => [Real(re), Real(im)].serialize(out),
        }
    }
}

struct Real(f64);

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_nan() => out.serialize_str("NaN"),
            f64::INFINITY => out.serialize_str("Infinity"),
            f64::NEG_INFINITY => out.serialize_str("-Infinity"),
            value => out.serialize_f64(value),
        }
    }
}
