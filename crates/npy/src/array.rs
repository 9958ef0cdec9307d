//! Arrays of numbers as they come from files or messages, and their way into the type of a
//! parameter. A value is converted only if that loses nothing, or if somebody wrote it as a decimal
//! and a `float` takes the nearest one. The bytes of elements are in the byte order of this
//! machine.

use crate::{Header, MOST_HEADER, NpyError, element};
use farcall_idl::{Order, Type};

/// An array of numbers as it came.
#[derive(Clone, Debug)]
pub struct Array {
    /// The shape as its writer sees it.
    pub shape: Vec<u64>,
    /// Which index varies fastest in memory.
    pub order: Order,
    kind: Kind,
    /// Bytes of one element.
    size: usize,
    /// Whether somebody wrote its numbers as decimals.
    is_decimal: bool,
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

/// An element on its way from one type to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i128),
    /// A real number.
    Real(f64),
    /// Real part, imaginary part.
    Complex(f64, f64),
}

/// Whether two shapes hold the same elements in the same order: axes of length 1 do not matter.
pub fn same_shape(a: &[u64], b: &[u64]) -> bool {
    let long = |shape: &[u64]| -> Vec<u64> {
        let lengths = shape.iter().copied();
        lengths.filter(|length| *length != 1).collect()
    };
    long(a) == long(b)
}

/// Whether elements of the type are numbers.
pub fn is_number(ty: Type) -> bool {
    kind_of(ty).is_some()
}

impl Array {
    /// The array in the contents of a `.npy` file.
    ///
    /// # Errors
    /// The reason why the bytes are not such an array.
    pub fn from_file(mut file: Vec<u8>) -> Result<Array, NpyError> {
        let header = Header::read(&file[..file.len().min(MOST_HEADER)])?;
        file.drain(..header.offset as usize);
        if header.bytes != file.len() as u64 {
            return Err(NpyError::Length);
        }
        let order = match header.column_major {
            false => Order::RowMajor,
            true => Order::ColumnMajor,
        };
        let array = Array::new(header.element, header.shape, order, file);
        let array = array.expect("elements are numbers, and as many as the header says");
        Ok(if header.is_swapped {
            array.swapped()
        } else {
            array
        })
    }

    /// Elements in the byte order of this machine. `None` if they are not numbers, or not as many
    /// as the shape says.
    pub fn new(ty: Type, shape: Vec<u64>, order: Order, bytes: Vec<u8>) -> Option<Array> {
        let (kind, size) = kind_of(ty)?;
        let array = Array {
            shape,
            order,
            kind,
            size,
            is_decimal: false,
            bytes,
        };
        (array.declared_bytes() == Some(array.bytes.len() as u64)).then_some(array)
    }

    /// Elements whose type NumPy calls `descr`, such as `<f8`. `None` as for [`Array::new`].
    pub fn described(descr: &str, shape: Vec<u64>, order: Order, bytes: Vec<u8>) -> Option<Array> {
        let (ty, is_swapped) = element(descr)?;
        let array = Array::new(ty, shape, order, bytes)?;
        Some(if is_swapped { array.swapped() } else { array })
    }

    /// The same array, whose numbers somebody wrote as decimals: a `float` takes the nearest one.
    pub fn decimal(self) -> Array {
        Array {
            is_decimal: true,
            ..self
        }
    }

    /// Bytes that the shape asks for.
    fn declared_bytes(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut lengths = self.shape.iter();
        lengths.try_fold(self.size as u64, |all, one| all.checked_mul(*one))
    }

    fn swapped(mut self) -> Array {
        let unit = match self.kind {
            Kind::Complex => self.size / 2,
            _ => self.size,
        };
        self.bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        self
    }

    /// The type of its elements in the interface language, with their sign.
    pub fn element(&self) -> Type {
        let is_own = |ty: &Type| kind_of(*ty) == Some((self.kind, self.size));
        let same = |ty: &Type| *ty != Type::Char && is_own(ty);
        let found = Type::ALL.into_iter().find(same);
        found.expect("every type that is read has a name")
    }

    /// Elements of the wanted type in the wanted order. Values are converted if that loses nothing,
    /// and [decimals](Array::decimal) to the nearest one.
    ///
    /// # Errors
    /// The reason why they cannot be converted.
    pub fn into_bytes(self, ty: Type, order: Order) -> Result<Vec<u8>, String> {
        let (kind, size) = kind_of(ty).ok_or("a text is not an array")?;
        let bytes = if (self.kind, self.size) == (kind, size) {
            self.bytes
        } else {
            let mut converted = Vec::with_capacity(self.bytes.len() / self.size * size);
            for element in self.bytes.chunks_exact(self.size) {
                let number = read_number(element, self.kind);
                let number = match self.is_decimal {
                    true => number.nearest(ty),
                    false => number,
                };
                number.write(ty, &mut converted)?;
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

impl Number {
    /// The elements of an array of numbers.
    pub fn all(ty: Type, bytes: &[u8]) -> impl Iterator<Item = Number> {
        let (kind, size) = kind_of(ty).unwrap_or((Kind::Uint, 1));
        let elements = bytes.chunks_exact(size);
        elements.map(move |element| read_number(element, kind))
    }

    /// The nearest number that the type holds, if that is a `float` or a pair of them. A number
    /// that would become infinite, and a number for any other type, is returned as it is.
    pub fn nearest(self, ty: Type) -> Number {
        let value = match self {
            Number::Real(value) => value,
            Number::Integer(value) => value as f64,
            Number::Complex(..) => return self,
        };
        let near = value as f32;
        match ty {
            Type::Float | Type::SComplex if near.is_infinite() == value.is_infinite() => {
                Number::Real(near.into())
            }
            _ => self,
        }
    }

    /// Appends the number as an element of the type.
    ///
    /// # Errors
    /// The type cannot hold the value.
    pub fn write(self, ty: Type, out: &mut Vec<u8>) -> Result<(), String> {
        let lossy = || Err(format!("its values do not fit {}", ty.name()));
        match (ty, self) {
            (Type::Double, Number::Real(value)) => out.extend(value.to_ne_bytes()),
            (Type::Double, Number::Integer(value)) if value as f64 as i128 == value => {
                out.extend((value as f64).to_ne_bytes());
            }
            (Type::Float, Number::Real(value)) if is_float(value) => {
                out.extend((value as f32).to_ne_bytes());
            }
            (Type::Float, Number::Integer(value)) if value as f32 as i128 == value => {
                out.extend((value as f32).to_ne_bytes());
            }
            (Type::SComplex | Type::DComplex, number) => {
                let (re, im) = match number {
                    Number::Complex(re, im) => (re, im),
                    Number::Real(re) => (re, 0.0),
                    Number::Integer(re) if re as f64 as i128 == re => (re as f64, 0.0),
                    Number::Integer(_) => return lossy(),
                };
                let part = match ty {
                    Type::SComplex => Type::Float,
                    _ => Type::Double,
                };
                Number::Real(re).write(part, out)?;
                Number::Real(im).write(part, out)?;
            }
            (_, Number::Integer(value)) if holds(ty, value) => {
                let size = ty.size().unwrap_or(8) as usize;
                match cfg!(target_endian = "little") {
                    true => out.extend(&value.to_le_bytes()[..size]),
                    false => out.extend(&value.to_be_bytes()[16 - size..]),
                }
            }
            _ => return lossy(),
        }
        Ok(())
    }
}

/// Whether the integer type holds the value.
fn holds(ty: Type, value: i128) -> bool {
    match ty {
        // An argument that is a scalar has 63 bits, an element 64.
        Type::UnsignedLong | Type::UnsignedLongLong => u64::try_from(value).is_ok(),
        _ => ty
            .integer_range()
            .is_some_and(|(least, most)| (i128::from(least)..=i128::from(most)).contains(&value)),
    }
}

/// Whether `float` holds the value exactly.
fn is_float(value: f64) -> bool {
    f64::from(value as f32) == value || value.is_nan()
}

fn kind_of(ty: Type) -> Option<(Kind, usize)> {
    let kind = match ty {
        Type::Char | Type::SignedChar | Type::Short | Type::Int | Type::Long | Type::LongLong => {
            Kind::Int
        }
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

fn integer(bytes: &[u8], signed: bool) -> i128 {
    let value = match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap_or_default()),
    };
    let unused = 64 - 8 * bytes.len() as u32;
    match signed {
        true => ((value << unused) as i64 >> unused).into(),
        false => value.into(),
    }
}

/// The elements, of `size` bytes each, in the other order; `to` is the order wanted. `bytes` has as
/// many elements as the shape.
pub fn transpose(bytes: &[u8], size: usize, shape: &[u64], to: Order) -> Vec<u8> {
    // The axes of an array without elements can have any lengths.
    if bytes.is_empty() {
        return Vec::new();
    }
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
    fn an_array_without_elements_has_any_shape() {
        let shape = vec![1 << 40, 1 << 40, 0];
        assert!(transpose(&[], 8, &shape, Order::RowMajor).is_empty());
        let array = Array::new(Type::Double, shape, Order::RowMajor, Vec::new()).unwrap();
        let bytes = array.into_bytes(Type::Double, Order::ColumnMajor);
        assert_eq!(bytes, Ok(Vec::new()));
    }

    #[test]
    fn numbers_are_converted_only_without_loss() {
        let write = |number: Number, ty| {
            let mut out = Vec::new();
            number.write(ty, &mut out).map(|()| out)
        };
        let lossy = Err("its values do not fit int".to_string());
        assert_eq!(
            write(Number::Integer(2), Type::Double),
            Ok(2f64.to_ne_bytes().to_vec())
        );
        assert_eq!(write(Number::Real(1.5), Type::Int), lossy);
        assert_eq!(write(Number::Integer(1 << 40), Type::Int), lossy);
        assert_eq!(write(Number::Integer(-1), Type::Short), Ok(vec![0xff; 2]));
        assert!(write(Number::Real(0.1), Type::Float).is_err());
        assert!(write(Number::Real(f64::NAN), Type::Float).is_ok());
        assert!(write(Number::Integer((1 << 53) + 1), Type::Double).is_err());
    }

    #[test]
    fn a_float_takes_the_nearest_decimal_but_none_that_becomes_infinite() {
        let convert = |values: [f64; 2], ty| {
            let bytes = values.map(f64::to_ne_bytes).concat();
            let array = Array::new(Type::Double, vec![2], Order::RowMajor, bytes);
            array.unwrap().decimal().into_bytes(ty, Order::RowMajor)
        };
        let near = [0.1f32, f32::INFINITY].map(f32::to_ne_bytes).concat();
        assert_eq!(convert([0.1, f64::INFINITY], Type::Float), Ok(near));
        let pairs = [0.1f32, 0.0, 0.5, 0.0].map(f32::to_ne_bytes).concat();
        assert_eq!(convert([0.1, 0.5], Type::SComplex), Ok(pairs));
        assert!(convert([1e39, 0.0], Type::Float).is_err());
        assert!(convert([0.1, 0.0], Type::Int).is_err());
    }

    #[test]
    fn large_unsigned_elements_never_become_negative() {
        let convert = |values: [u64; 2], ty| {
            let bytes = values.map(u64::to_ne_bytes).concat();
            let array = Array::new(Type::UnsignedLong, vec![2], Order::RowMajor, bytes);
            array.unwrap().into_bytes(ty, Order::RowMajor)
        };
        for ty in Type::ALL.into_iter().filter(|ty| is_number(*ty)) {
            let same = matches!(ty, Type::UnsignedLong | Type::UnsignedLongLong);
            assert_eq!(convert([1, u64::MAX], ty).is_ok(), same, "{ty:?}");
        }
        let halves = [1u64 << 63, 3 << 62];
        assert_eq!(
            convert(halves, Type::Double).unwrap(),
            halves.map(|value| (value as f64).to_ne_bytes()).concat()
        );
        assert!(convert(halves, Type::Long).is_err());
        let all = |ty: Type, bytes: &[u8]| Number::all(ty, bytes).next();
        assert_eq!(
            all(Type::UnsignedLong, &[0xff; 8]),
            Some(Number::Integer(u64::MAX.into()))
        );
        assert_eq!(all(Type::Short, &[0xff; 2]), Some(Number::Integer(-1)));
    }

    #[test]
    fn elements_and_shape_must_agree() {
        let new =
            |shape: &[u64], bytes| Array::new(Type::Int, shape.into(), Order::RowMajor, bytes);
        assert!(new(&[2, 3], vec![0; 24]).is_some());
        assert!(new(&[2, 3], vec![0; 20]).is_none());
        assert!(new(&[0, u64::MAX], Vec::new()).is_some());
        assert!(new(&[u64::MAX, 2], vec![0; 8]).is_none());
        let of = |descr| Array::described(descr, vec![1], Order::RowMajor, vec![0, 0, 1, 0]);
        let bytes = |descr| {
            of(descr)
                .unwrap()
                .into_bytes(Type::Long, Order::RowMajor)
                .unwrap()
        };
        assert_eq!(bytes("<i4"), 65536i64.to_ne_bytes());
        assert_eq!(bytes(">i4"), 256i64.to_ne_bytes());
        assert!(of("<U1").is_none() && of("|i4").is_none());
    }
}
