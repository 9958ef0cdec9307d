//! The arguments of a call behind their pointers.

use std::ffi::{CStr, c_void};
use std::slice;

use farcall_client::{Argument, Scalar};
use farcall_idl::{Mode, Param, Type};

use crate::Function;
use crate::error::Problem;

/// Reads the scalars and finds the memory of the arrays.
///
/// # Safety
///
/// As for `farcall_call_array`.
pub(crate) unsafe fn read<'a>(
    function: &Function,
    given: &[*mut c_void],
) -> Result<Vec<Argument<'a>>, Problem> {
    let interface = function.client.interface();
    let name = function.client.qualified_name();
    let problem = |text: String| Problem::argument(format!("{name}: {text}"));
    if given.len() != function.passed.len() {
        let expected = function.passed.len();
        return Err(problem(format!(
            "expected {expected} arguments, given {}",
            given.len()
        )));
    }
    let mut pointers = vec![None; interface.params.len()];
    for (&index, &pointer) in function.passed.iter().zip(given) {
        pointers[index] = Some(pointer);
    }

    let mut scalars: Vec<Option<Scalar>> = Vec::with_capacity(pointers.len());
    for (param, pointer) in interface.params.iter().zip(&pointers) {
        scalars.push(match pointer {
            Some(pointer) if param.is_scalar() => {
                // SAFETY: the caller's promise.
                let value = unsafe { scalar(param.ty, *pointer) };
                Some(value.map_err(|what| problem(mismatch(param, &what)))?)
            }
            _ => None,
        });
    }
    let elements =
        elements(function, &scalars, &pointers).map_err(|error| problem(error.to_string()))?;
    let layout = interface
        .layout(&scalars, &elements)
        .map_err(|error| problem(error.to_string()))?;

    let mut arguments = Vec::with_capacity(pointers.len());
    for (index, (param, scalar)) in interface.params.iter().zip(scalars).enumerate() {
        let length = layout.array(index).map_or(0, |array| array.client_bytes) as usize;
        arguments.push(match (scalar, pointers[index]) {
            (Some(scalar), _) => Argument::Scalar(scalar),
            (None, None) => Argument::Skip,
            (None, Some(pointer)) if pointer.is_null() && length > 0 => {
                return Err(problem(mismatch(param, "NULL")));
            }
            // SAFETY: the caller's promise; nothing is read of an empty array.
            (None, Some(pointer)) => unsafe { array(param.mode, pointer, length) },
        });
    }
    Ok(arguments)
}

/// The elements of IN arrays that sizes depend on. Their array is only known to be as long as
/// the index needs.
fn elements(
    function: &Function,
    scalars: &[Option<Scalar>],
    pointers: &[Option<*mut c_void>],
) -> Result<Vec<i64>, farcall_idl::ElementError> {
    let interface = function.client.interface();
    if interface.element_refs.is_empty() {
        return Ok(Vec::new());
    }
    let indices = interface.element_indices(scalars)?;
    let length = |param: usize| {
        let used = interface.element_refs.iter().zip(&indices);
        let used = used.filter(|(reference, _)| reference.param == param);
        let count = used
            .map(|(_, &index)| index.max(0) as usize + 1)
            .max()
            .unwrap_or(0);
        count * interface.params[param].ty.size().unwrap_or(0) as usize
    };
    interface.element_values(scalars, |param| match pointers[param] {
        Some(pointer) if !pointer.is_null() => {
            // SAFETY: `farcall_call_array` demands the whole array, which has these elements.
            unsafe { slice::from_raw_parts(pointer.cast::<u8>(), length(param)) }
        }
        _ => &[],
    })
}

fn mismatch(param: &Param, given: &str) -> String {
    let expected = match param.is_scalar() {
        true => param.ty.name().to_owned(),
        false => format!("an array of {}", param.ty.name()),
    };
    format!(
        "argument `{}`: expected {expected}, given {given}",
        param.name
    )
}

/// # Safety
///
/// `pointer` points to `length` bytes, unless they are none.
unsafe fn array<'a>(mode: Mode, pointer: *mut c_void, length: usize) -> Argument<'a> {
    // SAFETY: the caller's promise.
    unsafe {
        match (mode, length) {
            (Mode::In, 0) => Argument::In(&[]),
            (Mode::In, _) => Argument::In(slice::from_raw_parts(pointer.cast(), length)),
            (_, 0) => Argument::Out(&mut []),
            (_, _) => Argument::Out(slice::from_raw_parts_mut(pointer.cast(), length)),
        }
    }
}

/// The value behind a pointer, or what is wrong with it.
///
/// # Safety
///
/// `pointer` is NULL or points to a value of the C type that the interface's type stands for.
unsafe fn scalar(ty: Type, pointer: *const c_void) -> Result<Scalar, String> {
    if pointer.is_null() {
        return Err("NULL".to_owned());
    }
    // SAFETY: the caller's promise; user memory need not be aligned.
    let value = unsafe {
        match ty {
            // Its code, whether the caller's char is signed or not.
            Type::Char | Type::UnsignedChar => Scalar::Int(read_as::<u8>(pointer).into()),
            Type::Short => Scalar::Int(read_as::<i16>(pointer).into()),
            Type::UnsignedShort => Scalar::Int(read_as::<u16>(pointer).into()),
            Type::Int => Scalar::Int(read_as::<i32>(pointer).into()),
            Type::UnsignedInt => Scalar::Int(read_as::<u32>(pointer).into()),
            Type::Long | Type::LongLong => Scalar::Int(read_as::<i64>(pointer)),
            Type::UnsignedLong | Type::UnsignedLongLong => {
                let value = read_as::<u64>(pointer);
                Scalar::Int(
                    value
                        .try_into()
                        .map_err(|_| format!("{value}, past 2^63 - 1"))?,
                )
            }
            Type::Float => Scalar::Float(read_as::<f32>(pointer).into()),
            Type::Double => Scalar::Float(read_as::<f64>(pointer)),
            Type::SComplex => {
                let [re, im] = read_as::<[f32; 2]>(pointer);
                Scalar::Complex {
                    re: re.into(),
                    im: im.into(),
                }
            }
            Type::DComplex => {
                let [re, im] = read_as::<[f64; 2]>(pointer);
                Scalar::Complex { re, im }
            }
            Type::String | Type::Filename | Type::FilePointer => {
                let text = read_as::<*const std::ffi::c_char>(pointer);
                if text.is_null() {
                    return Err("NULL".to_owned());
                }
                let text = CStr::from_ptr(text).to_str();
                Scalar::Text(
                    text.map_err(|_| "text that is not UTF-8".to_owned())?
                        .to_owned(),
                )
            }
        }
    };
    Ok(value)
}

/// # Safety
///
/// `pointer` points to a `T`.
unsafe fn read_as<T>(pointer: *const c_void) -> T {
    // SAFETY: the caller's promise.
    unsafe { pointer.cast::<T>().read_unaligned() }
}
