//! Checks and converts values for the parameters that they are passed to. It handles scalars only;
//! `layout` checks arrays. An integer becomes a float only if that is exact. A value that does not
//! fit is an error that says what the parameter accepts.

use super::{Param, Type};
use crate::Scalar;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

/// A scalar argument that does not fit its parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("argument `{argument}`: expected {expected}, given {given}")]
pub struct ScalarError {
    /// Name of the argument.
    pub argument: Box<str>,
    /// The values that the parameter accepts, in words.
    pub expected: Box<str>,
    /// The value that was given, in words.
    pub given: Box<str>,
}

impl Scalar {
    /// Checks that the parameter can hold the value without conversion.
    pub fn check(&self, param: &Param) -> Result<(), ScalarError> {
        let fits = match self {
            Scalar::Int(value) => match param.ty.integer_range() {
                Some((least, greatest)) => (least..=greatest).contains(value),
                None => false,
            },
            Scalar::Float(value) => match param.ty {
                Type::Double => true,
                Type::Float => fits_binary32(*value),
                _ => false,
            },
            Scalar::Complex { re, im } => match param.ty {
                Type::DComplex => true,
                Type::SComplex => fits_binary32(*re) && fits_binary32(*im),
                _ => false,
            },
            Scalar::Text(text) => match param.ty {
                Type::Char => text.len() == 1,
                _ if param.is_texts() => false,
                Type::String | Type::Filename | Type::FilePointer => is_text(text),
                _ => false,
            },
            Scalar::Texts(texts) => param.is_texts() && texts.iter().all(|text| is_text(text)),
        };
        if fits {
            Ok(())
        } else {
            Err(self.mismatch(param))
        }
    }

    /// Converts the value to the type of the parameter. An integer becomes a float or a complex
    /// number if that is exact, and a float becomes a complex number. Everything else is as in
    /// [`Scalar::check`].
    pub fn convert(self, param: &Param) -> Result<Scalar, ScalarError> {
        let converted = match (&self, param.ty) {
            (Scalar::Int(value), Type::Float | Type::Double) if exact(*value, param.ty) => {
                Scalar::Float(*value as f64)
            }
            (Scalar::Int(value), Type::SComplex | Type::DComplex) if exact(*value, param.ty) => {
                Scalar::Complex {
                    re: *value as f64,
                    im: 0.0,
                }
            }
            (Scalar::Float(value), Type::SComplex | Type::DComplex) => Scalar::Complex {
                re: *value,
                im: 0.0,
            },
            _ => {
                self.check(param)?;
                return Ok(self);
            }
        };
        match converted.check(param) {
            Ok(()) => Ok(converted),
            Err(_) => Err(self.mismatch(param)),
        }
    }

    /// [`Scalar::convert`] for a value that somebody has written in a language without NULL. A text
    /// of one NUL is refused there, as every other text with NUL.
    pub fn convert_written(self, param: &Param) -> Result<Scalar, ScalarError> {
        let is_null = |text: &String| text == Scalar::NULL_TEXT;
        let has_null = match &self {
            Scalar::Text(text) => param.ty != Type::Char && is_null(text),
            Scalar::Texts(texts) => texts.iter().any(is_null),
            _ => false,
        };
        match has_null {
            true => Err(self.mismatch(param)),
            false => self.convert(param),
        }
    }

    fn mismatch(&self, param: &Param) -> ScalarError {
        ScalarError {
            argument: param.name.as_str().into(),
            expected: expected(param).into(),
            given: self.to_string().into(),
        }
    }
}

impl ScalarError {
    /// The error of an argument that is missing.
    pub fn missing(param: &Param) -> ScalarError {
        ScalarError {
            argument: param.name.as_str().into(),
            expected: expected(param).into(),
            given: "nothing".into(),
        }
    }

    /// The error of a scalar that was given for an array.
    pub fn not_array(param: &Param, given: &Scalar) -> ScalarError {
        ScalarError {
            argument: param.name.as_str().into(),
            expected: format!("an array of {}", param.ty.name()).into(),
            given: format!("the scalar {given}").into(),
        }
    }
}

fn is_text(text: &str) -> bool {
    !text.contains('\0') || text == Scalar::NULL_TEXT
}

/// Whether the floating-point type has enough bits for all digits of the integer.
fn exact(value: i64, ty: Type) -> bool {
    let bits = ty.precision();
    bits.is_some_and(|bits| is_exact(value.unsigned_abs(), bits))
}

impl Type {
    /// Bits of precision of a floating-point type, or of the parts of a complex one.
    pub fn precision(self) -> Option<u32> {
        match self {
            Type::Float | Type::SComplex => Some(f32::MANTISSA_DIGITS),
            Type::Double | Type::DComplex => Some(f64::MANTISSA_DIGITS),
            _ => None,
        }
    }
}

/// Whether a floating-point number with `bits` bits of precision holds a whole number of this size,
/// positive or negative, exactly.
pub fn is_exact(size: u64, bits: u32) -> bool {
    size == 0 || u64::BITS - size.leading_zeros() - size.trailing_zeros() <= bits
}

/// Whether a value fits in binary32. Infinities and NaN do; a finite value must not become
/// infinite.
fn fits_binary32(value: f64) -> bool {
    !value.is_finite() || (value as f32).is_finite()
}

fn expected(param: &Param) -> String {
    match param.ty {
        Type::String if param.is_texts() => "strings (texts without NUL)".to_string(),
        Type::Char => "char (one character, or its code)".to_string(),
        Type::Float => "float (32 bit)".to_string(),
        Type::Double => "double (64 bit)".to_string(),
        Type::SComplex => "scomplex (2 x 32 bit)".to_string(),
        Type::DComplex => "dcomplex (2 x 64 bit)".to_string(),
        Type::String => "string (text without NUL)".to_string(),
        Type::Filename | Type::FilePointer => "the name of a file".to_string(),
        other => match other.integer_range() {
            Some((least, greatest)) => format!("{} ({least} to {greatest})", other.name()),
            None => other.name().to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use alloc::vec::Vec;

    fn param(ty: Type) -> Param {
        Param {
            name: "x".to_string(),
            mode: Mode::In,
            allocate: false,
            count: None,
            broadcast: false,
            ty,
            dims: Vec::new(),
        }
    }

    #[test]
    fn an_integer_becomes_a_float_only_if_all_its_digits_fit() {
        let fits = |value: i64, ty| Scalar::Int(value).convert(&param(ty)).is_ok();
        let most = [(Type::Float, 24), (Type::SComplex, 24), (Type::Double, 53)];
        for (ty, bits) in most.into_iter().chain([(Type::DComplex, 53)]) {
            for whole in [
                0,
                1 << bits,
                -(1 << bits),
                (1 << bits) - 1,
                i64::MIN,
                3 << 60,
            ] {
                assert!(fits(whole, ty), "{whole} {ty:?}");
            }
            for odd in [(1 << bits) + 1, -(1 << bits) - 1, i64::MAX] {
                assert!(!fits(odd, ty), "{odd} {ty:?}");
            }
        }
        let error = Scalar::Int((1 << 24) + 1).convert(&param(Type::Float));
        assert_eq!(
            error.unwrap_err().to_string(),
            "argument `x`: expected float (32 bit), given 16777217"
        );
    }
}
