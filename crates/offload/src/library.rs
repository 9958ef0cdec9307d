//! The C text of a drop-in library, from interfaces. It is pure: the command compiles the text.
//!
//! A function is in the library if a server may compute it and if it can pay: its interface states
//! its operations, says that a call may run twice, and has only scalars and arrays of numbers.
//! Functions with few operations for each element, such as BLAS 1 and 2, never pay and stay out,
//! unless the library is made to test interfaces.

mod cblas;
mod cost;
mod entry;

use crate::routine::arguments;
use farcall_idl::{Body, Convention, Document, Interface, Param, Scalar, Type};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Operations for each array element, below which a function never pays on any link.
pub const LEAST_INTENSITY: f64 = 32.0;
/// Bytes of a name with what stands before it, at most.
const MOST_NAME: usize = 256;
/// The size of the problem for which the intensity is computed.
const TYPICAL_SIZE: i64 = 1000;

/// The text of a library, and what it has.
#[derive(Debug)]
pub struct Text {
    /// The C text.
    pub c: String,
    /// The number of its parts, which can be compiled at the same time (`-DPART=0` and so on).
    pub parts: usize,
    /// The functions in the library, by name.
    pub covered: Vec<String>,
    /// The functions that are not, with the reasons.
    pub left_out: Vec<(String, String)>,
}

/// Writes the library of all functions in these files that have at least so many operations for
/// each array element: [`LEAST_INTENSITY`] for those that can pay, 0 for all.
pub fn text<'d>(documents: impl IntoIterator<Item = &'d Document>, least_intensity: f64) -> Text {
    let (mut covered, mut left_out) = (Vec::new(), Vec::new());
    let mut writer = entry::Writer::default();
    for interface in documents.into_iter().flat_map(Document::functions) {
        let name = interface.qualified_name().into_owned();
        match suits(interface, least_intensity).and_then(|()| writer.add(interface)) {
            Ok(()) => covered.push(name),
            Err(reason) => left_out.push((name, reason)),
        }
    }
    let (c, parts) = writer.finish();
    Text {
        c,
        parts,
        covered,
        left_out,
    }
}

/// Whether a drop-in library may have the function, or why it may not.
fn suits(interface: &Interface, least_intensity: f64) -> Result<(), String> {
    let refuse = |reason: &str| Err(reason.to_string());
    let Body::Calls {
        convention,
        returns,
        ..
    } = &interface.body
    else {
        return refuse("it is C text and has no symbol");
    };
    if !matches!(convention, Convention::C | Convention::Fortran) {
        return refuse("it is called neither as C nor as Fortran");
    }
    if returns.is_some() {
        return refuse("it returns a value");
    }
    if interface.class.is_some() || interface.is_parallel() {
        return refuse("it is a method or needs several processes");
    }
    if !interface.callbacks.is_empty() {
        return refuse("it calls back");
    }
    if arguments(interface).is_none() {
        return refuse("Calls passes constants that a call cannot be compared with");
    }
    if !interface.params.iter().all(is_number) {
        return refuse("it has texts or files");
    }
    if !interface.element_refs.is_empty() {
        return refuse("its sizes depend on elements of arrays");
    }
    if !interface.repeatable {
        return refuse("it is not Repeatable, so it must not run again after a failure");
    }
    match intensity(interface) {
        None => refuse("it states no CalcOrder"),
        Some(intensity) if intensity < least_intensity => {
            Err(format!("{intensity:.1} operations an element never pay"))
        }
        Some(_) => Ok(()),
    }
}

fn is_number(param: &Param) -> bool {
    !matches!(
        param.ty,
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer
    )
}

/// Operations for each element that travels, in a call of a typical size.
fn intensity(interface: &Interface) -> Option<f64> {
    interface.calc_order.as_ref()?;
    let scalar = |param: &Param| {
        param.is_scalar().then_some(match param.ty {
            Type::Char | Type::UnsignedChar => Scalar::Int(i64::from(b'N')),
            Type::Float | Type::Double => Scalar::Float(1.0),
            Type::SComplex | Type::DComplex => Scalar::Complex { re: 1.0, im: 0.0 },
            _ if param.name.starts_with("inc") => Scalar::Int(1),
            // Work space and leading dimensions: large enough for every use of the size.
            _ if param.name.starts_with('l') => Scalar::Int(8 * TYPICAL_SIZE),
            _ => Scalar::Int(TYPICAL_SIZE),
        })
    };
    let scalars: Vec<Option<Scalar>> = interface.params.iter().map(scalar).collect();
    let layout = interface.layout(&scalars, &[]).ok()?;
    let elements = layout.arrays.iter().map(|array| {
        let trips = u64::from(array.mode.is_sent()) + u64::from(array.mode.is_returned());
        trips * array.wire_bytes / u64::from(array.element_bytes.max(1))
    });
    Some(layout.cost? / elements.sum::<u64>().max(1) as f64)
}

/// The routines and modules of a compiled library, by which [`crate::settings::ONLY`] picks. They
/// stand in the texts of its interfaces.
pub fn names(file: &[u8]) -> BTreeSet<String> {
    let named = |before: &[u8], after: u8| -> Vec<String> {
        let starts = file.windows(before.len()).enumerate();
        let starts = starts.filter(|(_, window)| *window == before);
        let names = starts.filter_map(|(at, _)| {
            let rest = file.get(at + before.len()..)?.get(..MOST_NAME)?;
            let end = rest.iter().position(|byte| *byte == after)?;
            let name = str::from_utf8(&rest[..end]).ok()?;
            // `Calls "FORTRAN" dgesv(`.
            name.split_whitespace().last().map(str::to_owned)
        });
        names.collect()
    };
    let routines = named(b"Calls \"", b'(').into_iter();
    routines.chain(named(b"Module ", b';')).collect()
}

/// A text as a literal of C.
fn literal(text: &str) -> String {
    let mut literal = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => literal.extend(['\\', char::from(byte)]),
            b'\n' => literal.push_str("\\n"),
            b' '..=b'~' => literal.push(char::from(byte)),
            // Three octal digits end by themselves. Writing to a `String` does not fail.
            other => drop(write!(literal, "\\{other:03o}")),
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests;
