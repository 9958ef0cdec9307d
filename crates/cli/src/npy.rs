//! Arrays on the command line, and in NumPy's `.npy` files. `farcall_npy` reads and writes the
//! headers of such files. A value is converted to the type of a parameter only if that loses
//! nothing.

use crate::failure::Failure;
use farcall_idl::{Order, Type};
use farcall_npy::{Header, MOST_HEADER};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// An array as it came: elements are raw bytes in the byte order of this machine.
pub(crate) struct Array {
    pub(crate) shape: Vec<u64>,
    pub(crate) order: Order,
    kind: Kind,
    /// Bytes of one element.
    size: usize,
    bytes: Vec<u8>,
}

/// What the bits of an element mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Uint,
    Float,
    Complex,
}

/// Whether two shapes hold the same elements in the same order: axes of length 1 do not matter.
pub(crate) fn same_shape(a: &[u64], b: &[u64]) -> bool {
    let long = |shape: &[u64]| -> Vec<u64> {
        shape
            .iter()
            .copied()
            .filter(|length| *length != 1)
            .collect()
    };
    long(a) == long(b)
}

/// An element on its way from one type to another.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
    Complex(f64, f64),
}

impl Number {
    /// A number as users write it. A whole number is an integer, also as `1e3`.
    fn parse(word: &str) -> Option<Number> {
        let word = word.trim();
        if let Ok(value) = word.parse() {
            return Some(Number::Integer(value));
        }
        let value: f64 = word.parse().ok()?;
        let is_integer = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
        Some(match is_integer {
            true => Number::Integer(value as i64),
            false => Number::Real(value),
        })
    }

    /// The number at full precision. JSON has no infinite numbers and no NaN: they are texts.
    fn to_json(self) -> Value {
        let real = |value: f64| match value.is_finite() {
            true => json!(value),
            false if value.is_nan() => json!("NaN"),
            false if value > 0.0 => json!("Infinity"),
            false => json!("-Infinity"),
        };
        match self {
            Number::Integer(value) => json!(value),
            Number::Real(value) => real(value),
            Number::Complex(re, im) => json!([real(re), real(im)]),
        }
    }
}

impl Array {
    /// Reads a `.npy` file.
    pub(crate) fn read(path: &Path) -> Result<Array, Failure> {
        let fail = |error: &dyn std::fmt::Display| Failure::cannot("read", path.display(), error);
        let mut bytes = fs::read(path).map_err(|error| fail(&error))?;
        let header = Header::read(&bytes[..bytes.len().min(MOST_HEADER)]).map_err(|error| {
            fail(&format!(
                "{error}; `numpy.save` writes valid files of numbers"
            ))
        })?;
        bytes.drain(..header.offset as usize);
        if header.bytes != bytes.len() as u64 {
            return Err(fail(&"its length does not match the shape in its header"));
        }
        let (kind, size) = type_of(header.element).expect("elements are numbers");
        if header.is_swapped {
            let unit = if kind == Kind::Complex {
                size / 2
            } else {
                size
            };
            bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
        let order = match header.column_major {
            false => Order::RowMajor,
            true => Order::ColumnMajor,
        };
        Ok(Array {
            shape: header.shape,
            order,
            kind,
            size,
            bytes,
        })
    }

    /// An array that came otherwise, if its elements are numbers.
    pub(crate) fn new(ty: Type, shape: &[u64], order: Order, bytes: Vec<u8>) -> Option<Array> {
        let (kind, size) = type_of(ty)?;
        Some(Array {
            shape: shape.to_vec(),
            order,
            kind,
            size,
            bytes,
        })
    }

    /// An array as users write it: `@FILE.npy`, or numbers with commas between them.
    pub(crate) fn parse(text: &str) -> Result<Array, Failure> {
        match text.strip_prefix('@') {
            Some(path) => Array::read(Path::new(path)),
            None => Array::inline(text),
        }
    }

    /// A vector written as `1,2.5,3`.
    pub(crate) fn inline(text: &str) -> Result<Array, Failure> {
        let numbers: Option<Vec<Number>> = text.split(',').map(Number::parse).collect();
        let numbers = numbers.ok_or_else(|| {
            Failure::usage(format!(
                "`{text}` is not an array: write @FILE.npy, or numbers with commas between them"
            ))
        })?;
        let is_integer = |number: &Number| matches!(number, Number::Integer(_));
        let (kind, ty) = match numbers.iter().all(is_integer) {
            true => (Kind::Int, Type::Long),
            false => (Kind::Float, Type::Double),
        };
        let mut bytes = Vec::with_capacity(8 * numbers.len());
        for number in &numbers {
            write_number(*number, ty, &mut bytes)
                .map_err(|error| Failure::usage(format!("`{text}`: {error}")))?;
        }
        Ok(Array {
            shape: vec![numbers.len() as u64],
            order: Order::RowMajor,
            kind,
            size: 8,
            bytes,
        })
    }

    /// The type of its elements in the interface language.
    pub(crate) fn element(&self) -> Type {
        let same = |ty: &Type| type_of(*ty) == Some((self.kind, self.size));
        let found = Type::ALL.into_iter().find(same);
        found.expect("every type that is read has a name")
    }

    /// Elements of the wanted type in the wanted order. Values are converted if that loses nothing.
    pub(crate) fn into_bytes(self, ty: Type, order: Order) -> Result<Vec<u8>, String> {
        let (kind, size) = type_of(ty).ok_or("a text is not an array")?;
        let bytes = if (self.kind, self.size) == (kind, size) {
            self.bytes
        } else {
            let mut converted = Vec::with_capacity(self.bytes.len() / self.size * size);
            for element in self.bytes.chunks_exact(self.size) {
                write_number(read_number(element, self.kind), ty, &mut converted)?;
            }
            converted
        };
        let vector = self.shape.iter().filter(|length| **length > 1).count() < 2;
        if vector || self.order == order {
            return Ok(bytes);
        }
        Ok(transpose(&bytes, size, &self.shape, order))
    }
}

/// Writes a `.npy` file.
pub(crate) fn write(
    path: &Path,
    ty: Type,
    shape: &[u64],
    order: Order,
    bytes: &[u8],
) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::cannot("write", path.display(), error);
    let header = farcall_npy::header(ty, shape, order == Order::ColumnMajor);
    let header = header.expect("arrays have numbers");
    let mut file = File::create(path).map_err(fail)?;
    file.write_all(&header)
        .and_then(|()| file.write_all(bytes))
        .map_err(fail)
}

/// The first elements as text, for people.
pub(crate) fn preview(ty: Type, bytes: &[u8], most: usize) -> String {
    let Some((kind, size)) = type_of(ty) else {
        return String::new();
    };
    let words: Vec<String> = bytes
        .chunks_exact(size)
        .take(most)
        .map(|element| match read_number(element, kind) {
            Number::Integer(value) => value.to_string(),
            Number::Real(value) => format!("{value:.6}"),
            Number::Complex(re, im) => format!("{re:.6}{im:+.6}j"),
        })
        .collect();
    let more = if bytes.len() / size > most {
        ", ..."
    } else {
        ""
    };
    format!("[{}{more}]", words.join(", "))
}

/// All elements as JSON: lists in lists, such that `values[i][j]` is the element of row i and
/// column j. A complex number is a list of two.
pub(crate) fn to_json(ty: Type, shape: &[u64], order: Order, bytes: &[u8]) -> Value {
    let Some((kind, size)) = type_of(ty) else {
        return Value::Null;
    };
    let in_rows = match order {
        Order::ColumnMajor if shape.len() > 1 => transpose(bytes, size, shape, Order::RowMajor),
        _ => bytes.to_vec(),
    };
    let elements = in_rows.chunks_exact(size);
    let mut values: Vec<Value> = elements
        .map(|element| match kind {
            Kind::Uint if size == 8 => json!(integer(element, false) as u64),
            _ => read_number(element, kind).to_json(),
        })
        .collect();
    for &length in shape.iter().skip(1).rev() {
        let rows = values.chunks(length.max(1) as usize);
        values = rows.map(|row| Value::Array(row.to_vec())).collect();
    }
    Value::Array(values)
}

/// Whether elements of the type are numbers.
pub(crate) fn is_number(ty: Type) -> bool {
    type_of(ty).is_some()
}

fn type_of(ty: Type) -> Option<(Kind, usize)> {
    let kind = match ty {
        Type::Char | Type::Short | Type::Int | Type::Long | Type::LongLong => Kind::Int,
        Type::UnsignedChar
        | Type::UnsignedShort
        | Type::UnsignedInt
        | Type::UnsignedLong
        | Type::UnsignedLongLong => Kind::Uint,
        Type::Float | Type::Double => Kind::Float,
        Type::SComplex | Type::DComplex => Kind::Complex,
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer => return None,
    };
    Some((kind, ty.size()? as usize))
}

fn read_number(bytes: &[u8], kind: Kind) -> Number {
    let real = |bytes: &[u8]| match *bytes {
        [a, b, c, d] => f64::from(f32::from_ne_bytes([a, b, c, d])),
        _ => f64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    };
    match kind {
        Kind::Float => Number::Real(real(bytes)),
        Kind::Complex => {
            let (re, im) = bytes.split_at(bytes.len() / 2);
            Number::Complex(real(re), real(im))
        }
        _ => Number::Integer(integer(bytes, kind == Kind::Int)),
    }
}

/// Unsigned values above 2^63 - 1 become negative, and the range check refuses them.
fn integer(bytes: &[u8], signed: bool) -> i64 {
    let value = match *bytes {
        [a] => i64::from(a),
        [a, b] => i64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => i64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => i64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    };
    let unused = 64 - 8 * bytes.len() as u32;
    if signed {
        value << unused >> unused
    } else {
        value
    }
}

fn write_number(number: Number, ty: Type, out: &mut Vec<u8>) -> Result<(), String> {
    let lossy = || Err(format!("its values do not fit {}", ty.name()));
    match (ty, number) {
        (Type::Double, Number::Real(value)) => out.extend(value.to_ne_bytes()),
        (Type::Double, Number::Integer(value)) if value as f64 as i128 == i128::from(value) => {
            out.extend((value as f64).to_ne_bytes());
        }
        (Type::Float, Number::Real(value)) if f64::from(value as f32) == value => {
            out.extend((value as f32).to_ne_bytes());
        }
        (Type::Float, Number::Integer(value)) if value as f32 as i128 == i128::from(value) => {
            out.extend((value as f32).to_ne_bytes());
        }
        (Type::SComplex | Type::DComplex, number) => {
            let (re, im) = match number {
                Number::Complex(re, im) => (re, im),
                Number::Real(re) => (re, 0.0),
                Number::Integer(re) if re as f64 as i128 == i128::from(re) => (re as f64, 0.0),
                Number::Integer(_) => return lossy(),
            };
            let part = if ty == Type::SComplex {
                Type::Float
            } else {
                Type::Double
            };
            write_number(Number::Real(re), part, out)?;
            write_number(Number::Real(im), part, out)?;
        }
        (_, Number::Integer(value)) => match ty.integer_range() {
            Some((least, most)) if (least..=most).contains(&value) => {
                let bytes = value.to_le_bytes();
                let mut bytes = bytes[..ty.size().unwrap_or(8) as usize].to_vec();
                if cfg!(target_endian = "big") {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
            _ => return lossy(),
        },
        _ => return lossy(),
    }
    Ok(())
}

/// The elements in the other order; `to` is the order wanted.
fn transpose(bytes: &[u8], size: usize, shape: &[u64], to: Order) -> Vec<u8> {
    let shape: Vec<usize> = shape.iter().map(|length| *length as usize).collect();
    let count: usize = shape.iter().product();
    // Distances in elements of the source, with the axis that varies fastest in the target last.
    let mut strides = vec![1; shape.len()];
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    match to {
        Order::RowMajor => {
            (1..shape.len()).for_each(|i| strides[i] = strides[i - 1] * shape[i - 1])
        }
        Order::ColumnMajor => {
            (0..shape.len() - 1)
                .rev()
                .for_each(|i| strides[i] = strides[i + 1] * shape[i + 1]);
            axes.reverse();
        }
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0; shape.len()];
    let mut position = 0;
    for _ in 0..count {
        out.extend_from_slice(&bytes[position * size..][..size]);
        for &axis in axes.iter().rev() {
            index[axis] += 1;
            position += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            position -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_changes_its_order_there_and_back() {
        let bytes: Vec<u8> = (0..24).collect();
        let columns = transpose(&bytes, 2, &[3, 4], Order::ColumnMajor);
        assert_eq!(columns[..6], [0, 1, 8, 9, 16, 17]);
        assert_eq!(transpose(&columns, 2, &[3, 4], Order::RowMajor), bytes);
    }

    #[test]
    fn numbers_are_converted_only_without_loss() {
        let bytes = Array::inline("1,2,3")
            .unwrap()
            .into_bytes(Type::Double, Order::RowMajor);
        assert_eq!(bytes.unwrap()[8..16], 2f64.to_ne_bytes());
        let bytes = Array::inline("1.5")
            .unwrap()
            .into_bytes(Type::Int, Order::RowMajor);
        assert_eq!(bytes.unwrap_err(), "its values do not fit int");
        let bytes = Array::inline("-1,300")
            .unwrap()
            .into_bytes(Type::Short, Order::RowMajor);
        assert_eq!(bytes.unwrap()[2..4], 300i16.to_ne_bytes());
    }
}
