//! Arrays on the command line, and in NumPy's `.npy` files. `farcall_npy` converts their elements,
//! and reads and writes the headers of such files.

use crate::failure::Failure;
use crate::replace;
use farcall_idl::{Order, Type};
use farcall_npy::{Array, Header, MOST_HEADER, NpyError, Number};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Reads a `.npy` file.
pub(crate) fn read(path: &Path) -> Result<Array, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::cannot("read", path.display(), error);
    let wrong = |error: NpyError| match error {
        NpyError::Length => fail(&error),
        NpyError::Element(_) => fail(&format!(
            "{error}; convert them before you save them, as in `a.astype(float)`"
        )),
        error => fail(&format!(
            "{error}; `numpy.save` writes valid files of numbers"
        )),
    };
    let mut file = File::open(path).map_err(|error| fail(&error))?;
    let mut bytes = Vec::new();
    let begun = (&mut file).take(MOST_HEADER as u64).read_to_end(&mut bytes);
    begun.map_err(|error| fail(&error))?;
    // A file that is no array may be long, so its header is checked before the rest is read.
    let header = Header::read(&bytes).map_err(wrong)?;
    let length = header.offset.saturating_add(header.bytes);
    let rest = length.saturating_add(1).saturating_sub(bytes.len() as u64);
    let read = file.take(rest).read_to_end(&mut bytes);
    read.map_err(|error| fail(&error))?;
    Array::from_file(bytes).map_err(wrong)
}

/// An array as users write it: `@FILE.npy`, or numbers with commas between them.
pub(crate) fn parse(text: &str) -> Result<Array, Failure> {
    match text.strip_prefix('@') {
        Some(path) => read(Path::new(path)),
        None => inline(text),
    }
}

/// A vector written as `1,2.5,3`; nothing is one without elements.
fn inline(text: &str) -> Result<Array, Failure> {
    let words = text.split(',').filter(|_| !text.is_empty());
    let numbers: Option<Vec<Number>> = words.map(number).collect();
    let numbers = numbers.ok_or_else(|| {
        Failure::usage(format!(
            "`{text}` is not an array: write @FILE.npy, or numbers with commas between them"
        ))
    })?;
    let all = |fits: fn(i128) -> bool| {
        let mut numbers = numbers.iter();
        numbers.all(|number| matches!(number, Number::Integer(value) if fits(*value)))
    };
    let ty = match () {
        () if all(|value| i64::try_from(value).is_ok()) => Type::Long,
        () if all(|value| u64::try_from(value).is_ok()) => Type::UnsignedLong,
        () => Type::Double,
    };
    let mut bytes = Vec::with_capacity(8 * numbers.len());
    for number in &numbers {
        let written = number.write(ty, &mut bytes);
        written.map_err(|error| Failure::usage(format!("`{text}`: {error}")))?;
    }
    let shape = vec![numbers.len() as u64];
    let array = Array::new(ty, shape, Order::RowMajor, bytes);
    let array = array.expect("each number is an element");
    // The nearest `float` of 0.1 is meant, but a number with all its digits is not rounded.
    let is_rounded = |word: &str| {
        let value = word.trim().parse::<i128>();
        value.is_ok_and(|value| value as f32 as i128 != value)
    };
    Ok(match text.split(',').any(is_rounded) {
        true => array,
        false => array.decimal(),
    })
}

/// A number as users write it. A whole number is an integer, also as `1e3`. No integer is `-0.0`.
fn number(word: &str) -> Option<Number> {
    let word = word.trim();
    if let Ok(value) = word.parse() {
        return Some(Number::Integer(value));
    }
    let value = real(word)?;
    let is_integer = value.fract() == 0.0 && value.abs() < 2f64.powi(53);
    let is_integer = is_integer && (value != 0.0 || value.is_sign_positive());
    Some(match is_integer {
        true => Number::Integer(value as i128),
        false => Number::Real(value),
    })
}

/// A floating-point number as users write it: `inf` is infinite, but `1e400` is no number.
pub(crate) fn real(word: &str) -> Option<f64> {
    let value: f64 = word.parse().ok()?;
    let is_too_large = value.is_infinite() && word.contains(|c: char| c.is_ascii_digit());
    (!is_too_large).then_some(value)
}

/// Refuses the name of a text file for an array.
pub(crate) fn check_name(path: &Path) -> Result<(), Failure> {
    let texts = ["csv", "tsv", "txt", "json"];
    let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
    if !ending.is_some_and(|ending| texts.iter().any(|text| ending == *text)) {
        return Ok(());
    }
    let other = path.with_extension("npy");
    let text = format!(
        "arrays go to .npy files; write {}, which `numpy.load` reads and `numpy.savetxt` converts",
        other.display()
    );
    Err(Failure::cannot("write", path.display(), text).into_usage())
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
    let fill = |file: &mut File| {
        file.write_all(&header)?;
        file.write_all(bytes)
    };
    replace::file(path, fill).map_err(fail)
}

/// The first elements as text, for people.
pub(crate) fn preview(ty: Type, bytes: &[u8], most: usize) -> String {
    let Some(size) = ty.size() else {
        return String::new();
    };
    let words = Number::all(ty, bytes)
        .take(most)
        .map(|element| match element {
            Number::Integer(value) => value.to_string(),
            Number::Real(value) => short(value, ""),
            Number::Complex(re, im) => format!("{}{}j", short(re, ""), short(im, "+")),
        });
    let words: Vec<String> = words.collect();
    let more = match bytes.len() / size as usize > most {
        true => ", ...",
        false => "",
    };
    format!("[{}{more}]", words.join(", "))
}

/// Six decimals, with an exponent where these would hide a number; `plus` stands before one that
/// is not negative.
fn short(value: f64, plus: &str) -> String {
    let plus = if value.is_sign_negative() && !value.is_nan() {
        ""
    } else {
        plus
    };
    match value.abs() {
        size if size > 0.0 && size.is_finite() && !(1e-4..1e15).contains(&size) => {
            format!("{plus}{value:.6e}")
        }
        _ => format!("{plus}{value:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_file_without_a_header_is_refused_before_its_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let written = std::thread::spawn(move || {
            writer.write_all(&vec![0; MOST_HEADER]).unwrap();
            writer // It stays open, so that the file has no end.
        });
        let error = read(Path::new(&path)).unwrap_err().to_string();
        assert!(error.contains("no .npy header"), "{error}");
        drop(written.join().unwrap());
    }

    #[test]
    fn elements_that_no_function_takes_are_refused_with_the_remedy() {
        let header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }\n";
        let length = (header.len() as u16).to_le_bytes();
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = [&b"\x93NUMPY\x01\x00"[..], &length, header, &[1]].concat();
        std::fs::write(file.path(), bytes).unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        let text = "elements of type |b1 cannot be passed; convert them before you save them";
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn large_and_missing_numbers_on_the_command_line() {
        let bytes = |text, ty| {
            inline(text).and_then(|array| {
                array
                    .into_bytes(ty, Order::RowMajor)
                    .map_err(Failure::usage)
            })
        };
        let most = u64::MAX.to_string();
        assert_eq!(
            bytes(&most, Type::UnsignedLong).unwrap(),
            u64::MAX.to_ne_bytes()
        );
        assert!(bytes(&most, Type::Double).is_err(), "it would be rounded");
        let mixed = format!("-1,{most}");
        assert!(bytes(&mixed, Type::Double).is_err());
        assert!(bytes("", Type::Double).unwrap().is_empty());
        assert!(bytes("1,", Type::Double).is_err());
        assert!(bytes("1e400", Type::Double).is_err(), "no double holds it");
        assert!(bytes("-inf", Type::Double).is_ok());
        assert_eq!(
            preview(Type::UnsignedLong, &[0xff; 8], 3),
            format!("[{most}]")
        );
    }

    #[test]
    fn small_and_large_numbers_are_shown_with_an_exponent() {
        let shown = |value: f64| preview(Type::Double, &value.to_ne_bytes(), 8);
        assert_eq!(shown(0.0), "[0.000000]");
        assert_eq!(shown(-0.25), "[-0.250000]");
        assert_eq!(shown(1.5e-9), "[1.500000e-9]");
        assert_eq!(shown(-2e300), "[-2.000000e300]");
        assert_eq!(short(1e-9, "+"), "+1.000000e-9");
    }

    #[test]
    fn decimals_on_the_command_line_become_the_nearest_float() {
        let bytes = |text| {
            inline(text)
                .unwrap()
                .into_bytes(Type::Float, Order::RowMajor)
        };
        let near = [0.1f32, 1.0, 1e11, 6.022e23].map(f32::to_ne_bytes).concat();
        assert_eq!(bytes("0.1, 1,1e11,6.022e23").unwrap(), near);
        assert_eq!(bytes("1e11").unwrap(), 1e11f32.to_ne_bytes());
        assert!(bytes("1e39").is_err(), "it would be infinite");
        assert!(bytes("16777217").is_err(), "it has all its digits");
        assert!(bytes("16777217,0.5").is_err());
    }

    #[test]
    fn numbers_on_the_command_line_are_integers_if_all_are() {
        let bytes = |text, ty| inline(text).unwrap().into_bytes(ty, Order::RowMajor);
        assert_eq!(
            bytes("1,2,3", Type::Double).unwrap()[8..16],
            2f64.to_ne_bytes()
        );
        let zeros = [
            (-0f64).to_ne_bytes(),
            0f64.to_ne_bytes(),
            1e3f64.to_ne_bytes(),
        ];
        assert_eq!(bytes("-0.0,0.0,1e3", Type::Double).unwrap(), zeros.concat());
        assert_eq!(bytes("0.0,1e3", Type::Int).unwrap().len(), 8);
        assert_eq!(
            bytes("1.5", Type::Int).unwrap_err(),
            "its values do not fit int"
        );
        assert_eq!(
            bytes("-1,300", Type::Short).unwrap()[2..4],
            300i16.to_ne_bytes()
        );
    }
}
