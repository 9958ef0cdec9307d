//! Makes callbacks of the functions of a C program. An interface with a callback that C cannot
//! express is refused before the call. A callback runs on the thread that waits for its call.

use farcall_client::{Callback, CallbackArguments, CallbackError, Scalar};
use farcall_idl::{Interface, Param, Type};
use libffi::middle::{Arg, Cif, CodePtr, Type as FfiType};
use std::ffi::{CStr, CString, c_char, c_void};

/// The callback with this index as the C function at `address`: scalars by value in the type of the
/// interface, texts as `const char *`, arrays as pointers. Its return value is ignored.
///
/// # Safety
/// The function exists until the call has ended.
pub(crate) unsafe fn of(
    interface: &Interface,
    index: usize,
    address: *mut c_void,
) -> Result<Callback, String> {
    check(interface, index)?;
    // The address; any thread may call it.
    let address = address.expose_provenance();
    let run = move |arguments: &mut CallbackArguments<'_>| {
        let params = &arguments.interface().params;
        let passed = params.iter().filter(|param| param.is_passed());
        let types: Vec<FfiType> = passed.filter_map(ffi_type).collect();
        let cif = Cif::new(types, FfiType::void());
        // SAFETY: the caller's promise.
        unsafe {
            call(
                &cif,
                std::ptr::with_exposed_provenance_mut(address),
                arguments,
            )
        }
    };
    Ok(Callback::new(run))
}

/// A function with data of its own, which C++ makes of a lambda with captures. It gets the address
/// of each argument, and returns NULL, or why it failed.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Closure {
    function: Option<unsafe extern "C" fn(*mut c_void, *const *mut c_void) -> *const c_char>,
    user: *mut c_void,
}

/// The callback with this index as a closure.
///
/// # Safety
/// `closure` points to a closure whose data exists until the call has ended.
pub(crate) unsafe fn of_closure(
    interface: &Interface,
    index: usize,
    closure: *const c_void,
) -> Result<Callback, String> {
    // SAFETY: the caller's promise.
    let Closure { function, user } = unsafe { closure.cast::<Closure>().read_unaligned() };
    let name = &interface.callbacks[index].name;
    let function = function.ok_or_else(|| format!("callback `{name}` has no function"))?;
    check(interface, index)?;
    let user = user.expose_provenance();
    let run = move |arguments: &mut CallbackArguments<'_>| {
        let mut texts = Vec::new();
        let mut slots = slots(arguments, &mut texts)?;
        let slots = slots.iter_mut().map(|slot| slot.0.as_mut_ptr().cast());
        let addresses: Vec<*mut c_void> = slots.collect();
        let user = std::ptr::with_exposed_provenance_mut(user);
        // SAFETY: the caller's promise. A text that comes back is read at once.
        unsafe {
            let failed = function(user, addresses.as_ptr());
            match failed.is_null() {
                true => Ok(()),
                false => Err(CStr::from_ptr(failed).to_string_lossy().into_owned().into()),
            }
        }
    };
    Ok(Callback::new(run))
}

/// Checks that a callback has only arguments that C has.
fn check(interface: &Interface, index: usize) -> Result<(), String> {
    let known = &interface.callbacks[index];
    if known.params.iter().all(|param| ffi_type(param).is_some()) {
        return Ok(());
    }
    let name = &known.name;
    Err(format!(
        "callback `{name}` has a file, which C programs cannot be given"
    ))
}

/// Texts of the arguments of a callback.
#[allow(dead_code, reason = "it keeps the memory to which arguments point")]
enum Held {
    Text(CString),
    List(Vec<CString>, Box<[*const c_char]>),
}

/// Memory for one argument.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Slot([u8; 16]);

impl Slot {
    fn new(bytes: &[u8]) -> Slot {
        let mut slot = Slot([0; 16]);
        slot.0[..bytes.len()].copy_from_slice(bytes);
        slot
    }

    fn address<T>(address: *const T) -> Slot {
        Slot::new(&address.expose_provenance().to_ne_bytes())
    }
}

/// # Safety
/// `function` has the parameters of the callback.
unsafe fn call(
    cif: &Cif,
    function: *mut c_void,
    arguments: &mut CallbackArguments<'_>,
) -> Result<(), CallbackError> {
    let mut texts = Vec::new();
    let slots = slots(arguments, &mut texts)?;
    let values: Vec<Arg<'_>> = slots.iter().map(Arg::new).collect();
    // SAFETY: the slots have the types of the call, and the caller promises the function. Nothing
    // else uses the arrays meanwhile.
    unsafe { cif.call::<()>(CodePtr(function), &values) };
    Ok(())
}

/// The arguments as C takes them. The pointers are valid as long as the arguments and the texts.
fn slots(
    arguments: &mut CallbackArguments<'_>,
    texts: &mut Vec<Held>,
) -> Result<Vec<Slot>, CallbackError> {
    let params = &arguments.interface().params;
    let mut slots = Vec::with_capacity(params.len());
    for (index, param) in params.iter().enumerate() {
        if !param.is_passed() {
            continue;
        }
        slots.push(match &arguments.scalars()[index] {
            Some(Scalar::Text(text)) if param.ty == Type::String => {
                let text = CString::new(text.as_str())?;
                let start = Slot::address(text.as_ptr());
                texts.push(Held::Text(text));
                start
            }
            Some(Scalar::Texts(list)) => {
                let ended = list.iter().map(|text| CString::new(text.as_str()));
                let ended = ended.collect::<Result<Vec<_>, _>>()?;
                let pointers = ended.iter().map(|text| text.as_ptr());
                let pointers: Box<[_]> = pointers.chain([std::ptr::null()]).collect();
                let start = Slot::address(pointers.as_ptr());
                texts.push(Held::List(ended, pointers));
                start
            }
            Some(scalar) => scalar_slot(param.ty, scalar),
            None => Slot::address(arguments.array(index).as_ptr()),
        });
    }
    Ok(slots)
}

fn scalar_slot(ty: Type, scalar: &Scalar) -> Slot {
    match (ty, scalar) {
        (Type::Float, Scalar::Float(value)) => Slot::new(&(*value as f32).to_ne_bytes()),
        (_, Scalar::Float(value)) => Slot::new(&value.to_ne_bytes()),
        (Type::SComplex, Scalar::Complex { re, im }) => {
            let parts = [*re as f32, *im as f32].map(f32::to_ne_bytes);
            Slot::new(parts.as_flattened())
        }
        (_, Scalar::Complex { re, im }) => {
            Slot::new([*re, *im].map(f64::to_ne_bytes).as_flattened())
        }
        // The checker of interfaces refuses callbacks with texts.
        (_, Scalar::Texts(_)) => Slot::address(std::ptr::null::<u8>()),
        (_, Scalar::Text(text)) => Slot::new(&text.as_bytes()[..text.len().min(1)]),
        (_, Scalar::Int(value)) => match ty.size() {
            Some(1) => Slot::new(&(*value as u8).to_ne_bytes()),
            Some(2) => Slot::new(&(*value as u16).to_ne_bytes()),
            Some(4) => Slot::new(&(*value as u32).to_ne_bytes()),
            _ => Slot::new(&value.to_ne_bytes()),
        },
    }
}

/// The type of a parameter in C; none for a file.
fn ffi_type(param: &Param) -> Option<FfiType> {
    if !param.is_scalar() {
        return Some(FfiType::pointer());
    }
    Some(match param.ty {
        Type::Char => FfiType::i8(),
        Type::Short => FfiType::i16(),
        Type::Int => FfiType::i32(),
        Type::Long | Type::LongLong => FfiType::i64(),
        Type::SignedChar => FfiType::i8(),
        Type::UnsignedChar => FfiType::u8(),
        Type::UnsignedShort => FfiType::u16(),
        Type::UnsignedInt => FfiType::u32(),
        Type::UnsignedLong | Type::UnsignedLongLong => FfiType::u64(),
        Type::Float => FfiType::f32(),
        Type::Double => FfiType::f64(),
        Type::SComplex => FfiType::structure([FfiType::f32(), FfiType::f32()]),
        Type::DComplex => FfiType::structure([FfiType::f64(), FfiType::f64()]),
        Type::String => FfiType::pointer(),
        Type::FixedString | Type::Filename | Type::FilePointer => return None,
    })
}
