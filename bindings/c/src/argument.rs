//! Reads the arguments of a call, which C passes as pointers, and checks what can be checked. An
//! argument that states its type and size is compared with the interface. A bare pointer is
//! trusted, and the caller promises what it points to.

use crate::error::Problem;
use crate::function::{Function, kind};
use crate::gridrpc::ninfg;
use crate::texts::Texts;
use crate::{Kind, callback, handle};
use farcall_client::{Argument, LaidOut, Scalar};
use farcall_idl::{Mode, Param, Type, Values};
use std::ffi::{CStr, c_void};
use std::slice;

/// An argument with its type and size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// A pointer to the scalar, to the first element of the array or to the first character of the
    /// text, which needs no NUL at its end; or the callback.
    pub data: *mut c_void,
    /// Size of the scalar, of the whole array, or of the text.
    pub bytes: usize,
    /// The `farcall_kind` of the scalar or of the elements, but not `FARCALL_ARRAY`. Or the reason
    /// to refuse it: `FARCALL_REFUSED`, `FARCALL_SCATTERED`.
    pub kind: i32,
    /// Not 0 if the call must not write to it.
    pub read_only: i32,
}

/// The `kind` of a value whose type no argument can have.
pub const FARCALL_REFUSED: i32 = -1;
/// The `kind` of an array that is not contiguous.
pub const FARCALL_SCATTERED: i32 = -2;
/// The `kind` of a callback with data of its own. `data` points to two pointers: a function `const
/// char *f(void *user, void *const *arguments)` and its `user`. The function gets the address of
/// each argument, and returns NULL, or a text that says why it failed.
pub const FARCALL_CLOSURE: i32 = 12;
/// The kind of texts in rows of characters, for Fortran. `data` points to two words: the address of
/// the first row, and the number of rows. `bytes` is the size of all rows.
pub const FARCALL_ROWS: i32 = 13;

/// What `data` of `FARCALL_ROWS` points to.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rows {
    first: *mut c_void,
    count: usize,
}

impl Value {
    /// A pointer to the type that the interface declares.
    pub(crate) fn unchecked(data: *mut c_void) -> Value {
        Value {
            data,
            bytes: 0,
            kind: Kind::FarcallArray as i32,
            read_only: 0,
        }
    }

    fn is_checked(&self) -> bool {
        self.kind != Kind::FarcallArray as i32
    }

    /// Texts as characters, if it has them in rows. There must be as many rows as the call needs.
    ///
    /// # Safety
    /// `data` of `FARCALL_ROWS` is as its kind says.
    pub(crate) unsafe fn without_rows(&self, needed: usize) -> Result<Value, String> {
        if self.kind != FARCALL_ROWS {
            return Ok(*self);
        }
        // SAFETY: the caller's promise.
        let Rows { first, count } = unsafe { read_as(self.data) };
        if count != needed {
            return Err(format!("{count} texts, and the call needs {needed}"));
        }
        Ok(Value {
            data: first,
            kind: Kind::FarcallChar as i32,
            ..*self
        })
    }

    fn has_kind_of_function(&self) -> bool {
        [Kind::FarcallFunction as i32, FARCALL_CLOSURE].contains(&self.kind)
    }

    /// Whether it can be a callback.
    fn is_function(&self) -> bool {
        let right = !self.is_checked() || self.has_kind_of_function();
        right && !self.data.is_null()
    }

    /// A description for error messages.
    pub(crate) fn what(&self) -> String {
        let can_be_null = self.has_kind_of_function() || self.kind == FARCALL_REFUSED;
        if can_be_null && self.data.is_null() {
            return "NULL".to_owned();
        }
        let Some((name, size)) = described(self.kind) else {
            return match self.kind {
                FARCALL_REFUSED => "a type that no argument has".to_owned(),
                0 => "NULL".to_owned(),
                FARCALL_SCATTERED => "an array that is not in one piece of memory".to_owned(),
                kind => format!("a value of the unknown kind {kind}"),
            };
        };
        match self.bytes.checked_div(size) {
            Some(1) => name.to_owned(),
            Some(count) => format!("{count} of {name}"),
            None => name.to_owned(),
        }
    }
}

/// The name and the size of a kind; texts have no fixed size.
fn described(kind: i32) -> Option<(&'static str, usize)> {
    Some(match kind {
        1 => ("char", 1),
        2 => ("short", 2),
        3 => ("int", 4),
        4 => ("long", 8),
        5 => ("float", 4),
        6 => ("double", 8),
        7 => ("scomplex", 8),
        8 => ("dcomplex", 16),
        9 => ("text", 0),
        10 | FARCALL_CLOSURE => ("a function", 0),
        11 | FARCALL_ROWS => ("texts", 0),
        _ => return None,
    })
}

/// What the arguments are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Call,
    /// The call only reads arrays.
    Submit,
    /// The call only writes arrays.
    Fetch,
}

impl Use {
    /// How the call uses an array.
    fn mode(self, param: &Param) -> Mode {
        match self {
            Use::Call => param.mode,
            Use::Submit => Mode::In,
            Use::Fetch if param.is_fixed_texts() => Mode::Out,
            Use::Fetch => param.mode,
        }
    }

    fn skips(self, mode: Mode) -> bool {
        match self {
            Use::Call => false,
            Use::Submit => mode == Mode::Out,
            Use::Fetch => mode == Mode::In,
        }
    }
}

/// Reads the scalars, computes the sizes, and finds the memory of the arrays. Arrays of texts of
/// fixed length are copies, which `texts` holds.
///
/// # Safety
/// As for `farcall_call_array`.
pub(crate) unsafe fn read<'a>(
    function: &Function,
    given: &[Value],
    wanted: Use,
    texts: &mut Texts,
) -> Result<(LaidOut, Vec<Argument<'a>>), Problem> {
    // SAFETY: the caller's promise.
    unsafe { read_knowing(None, function, given, wanted, texts) }
}

/// The same, where the arrays of texts and the elements that decide sizes may be known already.
///
/// # Safety
/// As for [`read`]; then these arrays of texts, and the arrays of these elements, may be NULL.
pub(crate) unsafe fn read_knowing<'a>(
    known: Option<Values<'_>>,
    function: &Function,
    given: &[Value],
    wanted: Use,
    texts: &mut Texts,
) -> Result<(LaidOut, Vec<Argument<'a>>), Problem> {
    let interface = function.client.interface();
    let problem = |text: String| of_function(function, &text);
    let values = by_parameter(function, given)?;
    // SAFETY: the caller's promise.
    let laid_out = unsafe { lay_out_knowing(known, function, &values) }?;
    let layout = laid_out.layout();

    let mut arguments = Vec::with_capacity(values.len());
    for (index, (param, scalar)) in interface.params.iter().zip(laid_out.scalars()).enumerate() {
        let length = layout.array(index).map_or(0, |array| array.client_bytes) as usize;
        arguments.push(match (scalar, values[index]) {
            (Some(_), _) | (None, None) => Argument::Skip,
            (None, Some(_)) if wanted.skips(param.mode) => Argument::Skip,
            (None, Some(value)) if param.is_fixed_texts() => {
                let array = layout.array(index).map(|array| (param, array));
                let array = array.ok_or_else(|| problem(mismatch(param, "nothing")))?;
                // SAFETY: the caller's promise.
                unsafe { texts.add(array, &value, wanted.mode(param)) }.map_err(&problem)?
            }
            (None, Some(value))
                if let Some(kept) = handle::of_argument(value.data, function.client.server()) =>
            {
                if wanted == Use::Submit {
                    let text = match kept {
                        Argument::Source(_) => {
                            "an address, which a durable call does not take: pass the array itself"
                        }
                        _ => {
                            "a stored array, which does not survive a restart of the server as a \
                             durable call does: pass the array itself"
                        }
                    };
                    return Err(problem(mismatch(param, text)));
                }
                kept
            }
            (None, Some(value)) => {
                let mode = wanted.mode(param);
                check_array(param, mode, &value, length).map_err(&problem)?;
                // SAFETY: the caller's promise; an empty array is not read.
                unsafe { array(mode, value.data, length) }
            }
        });
    }
    // SAFETY: the caller's promise.
    arguments.extend(unsafe { functions(function, &values) }?);
    Ok((laid_out, arguments))
}

/// A problem with the arguments of a function.
fn of_function(function: &Function, text: &str) -> Problem {
    Problem::argument(format!("{}: {text}", function.client.qualified_name()))
}

/// The arguments by parameter, callbacks after all parameters; `None` for work space.
pub(crate) fn by_parameter(
    function: &Function,
    given: &[Value],
) -> Result<Vec<Option<Value>>, Problem> {
    let interface = function.client.interface();
    if given.len() != function.passed.len() {
        let (expected, given) = (function.passed.len(), given.len());
        let text = format!("expected {expected} arguments, given {given}");
        return Err(of_function(function, &text));
    }
    let mut values = vec![None; interface.params.len() + interface.callbacks.len()];
    for (&index, &value) in function.passed.iter().zip(given) {
        values[index] = Some(value);
    }
    Ok(values)
}

/// Reads the scalars of a call and computes the sizes of its arrays.
///
/// # Safety
/// As for [`read`]; arrays whose elements decide no size are not touched.
pub(crate) unsafe fn lay_out(
    function: &Function,
    values: &[Option<Value>],
) -> Result<LaidOut, Problem> {
    // SAFETY: the caller's promise.
    unsafe { lay_out_knowing(None, function, values) }
}

/// # Safety
/// As for [`read_knowing`].
unsafe fn lay_out_knowing(
    known: Option<Values<'_>>,
    function: &Function,
    values: &[Option<Value>],
) -> Result<LaidOut, Problem> {
    let problem = |text: String| of_function(function, &text);
    // SAFETY: the caller's promise.
    let (scalars, elements) = unsafe { values_of(known, function, values) }.map_err(problem)?;
    Ok(function.client.lay_out(scalars, elements)?)
}

/// The values in the message of the call: scalars and arrays of texts, and the elements of arrays
/// that decide sizes.
///
/// # Safety
/// As for [`read_knowing`].
unsafe fn values_of(
    known: Option<Values<'_>>,
    function: &Function,
    values: &[Option<Value>],
) -> Result<(Vec<Option<Scalar>>, Vec<i64>), String> {
    let interface = function.client.interface();
    let mut scalars: Vec<Option<Scalar>> = Vec::with_capacity(values.len());
    for (param, value) in interface.params.iter().zip(values) {
        scalars.push(match value {
            Some(value) if param.is_scalar() => {
                // SAFETY: the caller's promise.
                let scalar = unsafe { scalar_of(param, value) };
                let scalar = scalar.map_err(|what| mismatch(param, &what))?;
                Some(scalar.convert(param).map_err(|error| error.to_string())?)
            }
            _ => None,
        });
    }
    check_deciding(function, values)?;
    let is_given = |param: usize| values[param].is_some_and(|value| !value.data.is_null());
    let mut references = interface.element_refs.iter();
    let elements = match known {
        Some(known) if !references.any(|one| is_given(one.param)) => known.elements.to_vec(),
        _ => elements(function, &scalars, values).map_err(|error| error.to_string())?,
    };
    for (index, param) in interface.params.iter().enumerate() {
        if let Some(value) = values[index].filter(|_| param.is_texts()) {
            if let Some(known) = known.filter(|_| value.data.is_null()) {
                scalars[index] = known.scalars.get(index).cloned().flatten();
                continue;
            }
            let sizes = Values {
                scalars: &scalars,
                elements: &elements,
            };
            let count = interface.text_count(index, sizes);
            let count = count.map_err(|error| error.to_string())?;
            // SAFETY: the caller's promise.
            let texts = unsafe { texts_of(&value, count) };
            scalars[index] = Some(texts.map_err(|what| mismatch(param, &what))?);
        }
    }
    Ok((scalars, elements))
}

/// The callbacks.
///
/// # Safety
/// As for [`read`].
unsafe fn functions<'a>(
    function: &Function,
    values: &[Option<Value>],
) -> Result<Vec<Argument<'a>>, Problem> {
    let interface = function.client.interface();
    let name = function.client.qualified_name();
    let problem = |text: String| Problem::argument(format!("{name}: {text}"));
    let mut arguments = Vec::with_capacity(interface.callbacks.len());
    for (index, known) in interface.callbacks.iter().enumerate() {
        let value = values[interface.params.len() + index];
        let function = value.filter(Value::is_function);
        let Some(function) = function else {
            let given = value.map_or_else(String::new, |value| value.what());
            let name = &known.name;
            return Err(problem(format!(
                "argument `{name}`: expected a function, given {given}"
            )));
        };
        // SAFETY: the caller's promise.
        let callback = unsafe {
            match function.kind {
                FARCALL_CLOSURE => callback::of_closure(interface, index, function.data),
                _ => callback::of(interface, index, function.data),
            }
        };
        arguments.push(Argument::Function(callback.map_err(&problem)?));
    }
    Ok(arguments)
}

/// Checks the types of the arrays whose elements decide sizes: the bytes of another type tell no
/// size, and what has no type may be at no address.
fn check_deciding(function: &Function, values: &[Option<Value>]) -> Result<(), String> {
    let interface = function.client.interface();
    for reference in &interface.element_refs {
        let param = &interface.params[reference.param];
        let has_other_type = |value: &Value| {
            let is_array = !value.data.is_null() && !handle::is_one(value.data);
            is_array && value.is_checked() && value.kind != kind(param.ty) as i32
        };
        if let Some(value) = values[reference.param].filter(has_other_type) {
            return Err(mismatch(param, &value.what()));
        }
    }
    Ok(())
}

/// The elements of IN arrays that decide sizes. Only the part of an array up to that element is
/// known to exist.
fn elements(
    function: &Function,
    scalars: &[Option<Scalar>],
    values: &[Option<Value>],
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
    interface.element_values(scalars, |param| match values[param] {
        Some(value) if handle::is_one(value.data) => &[],
        Some(value) if !value.data.is_null() => {
            let length = match value.is_checked() {
                true => length(param).min(value.bytes),
                false => length(param),
            };
            // SAFETY: the caller promises the whole array, which has these elements, or states its
            // size.
            unsafe { slice::from_raw_parts(value.data.cast::<u8>(), length) }
        }
        _ => &[],
    })
}

/// Checks the memory of an array against the interface, as far as its type and size are known.
/// `mode` says how the call uses it.
fn check_array(param: &Param, mode: Mode, value: &Value, length: usize) -> Result<(), String> {
    if value.data.is_null() && length > 0 {
        return Err(mismatch(param, "NULL"));
    }
    if !value.is_checked() {
        return Ok(());
    }
    let element = param.ty.size().unwrap_or(1) as usize;
    if value.kind != kind(param.ty) as i32 || value.bytes != length {
        let expected = format!("{} of {}", length / element, param.ty.name());
        let given = value.what();
        return Err(format!(
            "argument `{}`: expected {expected}, given {given}",
            param.name
        ));
    }
    if value.read_only != 0 && mode != Mode::In {
        return Err(mismatch(param, "one that may not be written to"));
    }
    Ok(())
}

/// # Safety
/// As for `farcall_call_array`, or for `farcall_call_values` if the value has a type.
unsafe fn scalar_of(param: &Param, value: &Value) -> Result<Scalar, String> {
    if !value.is_checked() {
        // SAFETY: the caller's promise.
        return unsafe { scalar(param.ty, value.data) };
    }
    let ty = match value.kind {
        1 if matches!(param.ty, Type::Char | Type::UnsignedChar) => Type::Char,
        // For all other types it is an integer of 8 bits.
        1 => Type::SignedChar,
        2 => Type::Short,
        3 => Type::Int,
        4 => Type::Long,
        5 => Type::Float,
        6 => Type::Double,
        7 => Type::SComplex,
        8 => Type::DComplex,
        // SAFETY: the caller's promise.
        9 => return unsafe { text_of(value) },
        _ => return Err(value.what()),
    };
    if ty.size().map(|size| size as usize) != Some(value.bytes) {
        return Err(value.what());
    }
    // SAFETY: the caller's promise; its size is that of its type.
    unsafe { scalar(ty, value.data) }
}

/// # Safety
/// The value has as many bytes as it states.
unsafe fn text_of(value: &Value) -> Result<Scalar, String> {
    let bytes = match value.bytes {
        0 => &[],
        _ if value.data.is_null() => return Err("NULL".to_owned()),
        // SAFETY: the caller's promise.
        length => unsafe { slice::from_raw_parts(value.data.cast::<u8>(), length) },
    };
    let text = std::str::from_utf8(bytes).map_err(|_| "text that is not UTF-8".to_owned())?;
    // A single NUL would stand for a NULL pointer.
    match text.contains('\0') {
        true => Err("a text with a NUL in it".to_owned()),
        false => Ok(Scalar::Text(text.to_owned())),
    }
}

/// An array of texts: pointers to texts that end with NUL; such texts one after the other; or rows
/// of characters, which end with blanks or NUL.
///
/// # Safety
/// The value has as many pointers as the interface states, or as many bytes as it states itself.
unsafe fn texts_of(value: &Value, count: usize) -> Result<Scalar, String> {
    let utf8 = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err("text that is not UTF-8".to_owned()),
    };
    // SAFETY: the caller's promise.
    let value = unsafe { value.without_rows(count) }?;
    if count > 0 && value.data.is_null() {
        return Err("NULL".to_owned());
    }
    if !value.is_checked() {
        let pointers = value.data.cast::<*const std::ffi::c_char>();
        let text = |index: usize| {
            // SAFETY: the caller's promise.
            let text = unsafe { pointers.add(index).read_unaligned() };
            if text.is_null() && ninfg::is_calling() {
                return Ok(Scalar::NULL_TEXT.to_owned());
            }
            if text.is_null() {
                return Err(format!(
                    "NULL as string {index}, and the call needs {count}"
                ));
            }
            // SAFETY: the same promise.
            utf8(unsafe { CStr::from_ptr(text) }.to_bytes())
        };
        return Ok(Scalar::Texts(
            (0..count).map(text).collect::<Result<_, _>>()?,
        ));
    }
    let bytes = match value.bytes {
        0 => &[],
        // SAFETY: the caller's promise.
        length => unsafe { slice::from_raw_parts(value.data.cast::<u8>(), length) },
    };
    let texts = if value.kind == Kind::FarcallText as i32 {
        let texts = bytes.split_inclusive(|byte| *byte == 0);
        texts
            .map(|text| utf8(text.strip_suffix(&[0]).unwrap_or(text)))
            .collect()
    } else if value.kind == Kind::FarcallChar as i32 {
        let row = bytes.len().checked_div(count).unwrap_or(0).max(1);
        let is_filling = |byte: &u8| *byte == b' ' || *byte == 0;
        let rows = bytes.chunks(row).map(|row| {
            let length = row.iter().rposition(|byte| !is_filling(byte));
            utf8(&row[..length.map_or(0, |last| last + 1)])
        });
        rows.collect()
    } else {
        return Err(value.what());
    };
    let texts: Result<Vec<String>, String> = texts;
    Ok(Scalar::Texts(texts?))
}

pub(crate) fn mismatch(param: &Param, given: &str) -> String {
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
/// `pointer` points to `length` bytes, if there are any.
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

/// The value that a pointer points to, or a description of its fault.
///
/// # Safety
/// `pointer` is NULL or points to a value of the C type of the interface's type.
unsafe fn scalar(ty: Type, pointer: *const c_void) -> Result<Scalar, String> {
    if pointer.is_null() {
        return Err("NULL".to_owned());
    }
    // SAFETY: the caller's promise; user memory need not be aligned.
    let value = unsafe {
        match ty {
            // The code of the character, for signed and unsigned char.
            Type::Char | Type::UnsignedChar => Scalar::Int(read_as::<u8>(pointer).into()),
            Type::SignedChar => Scalar::Int(read_as::<i8>(pointer).into()),
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
            Type::String | Type::FixedString | Type::Filename | Type::FilePointer => {
                let text = read_as::<*const std::ffi::c_char>(pointer);
                if text.is_null() && ninfg::is_calling() {
                    return Ok(Scalar::Text(Scalar::NULL_TEXT.to_owned()));
                }
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
/// `pointer` points to a `T`.
unsafe fn read_as<T>(pointer: *const c_void) -> T {
    // SAFETY: the caller's promise.
    unsafe { pointer.cast::<T>().read_unaligned() }
}
