//! Callbacks: functions of the caller that the library can call while it runs.
//!
//! Each callback is a libffi closure, created once when the function is bound. The closure passes
//! each call to the [`Caller`] of the present invocation, which decides what to do with it.

use super::{Argument, Ordinals, arguments, ffi_argument, value};
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, Scalar, StringLengths, Type, Values};
use libffi::low::ffi_cif;
use libffi::middle::{Cif, Closure};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::slice;
use std::sync::{Mutex, PoisonError};

/// Largest number of bytes of the arrays and texts of one callback, in their declared sizes.
pub const MOST_CALLBACK_BYTES: u64 = 1_000_000;

/// A call of the library to a function of its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct CallbackRequest {
    /// Index among the callbacks of the interface.
    pub index: usize,
    /// One value per parameter, `None` for arrays.
    pub scalars: Vec<Option<Scalar>>,
    /// The sections of its IN and INOUT arrays, one after the other.
    pub data: Vec<u8>,
}

/// The result of the caller's function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackAnswer {
    /// The sections of the INOUT and OUT arrays, one after the other.
    pub data: Vec<u8>,
    /// Whether the elements are in the other byte order.
    pub swap: bool,
}

/// A function that answers callbacks. An `Err` says why a callback cannot be made or its answer
/// cannot be used. The function must then end the process or never return, because the library
/// cannot be interrupted.
pub type Caller<'a> = dyn FnMut(Result<CallbackRequest, String>) -> CallbackAnswer + Send + 'a;

/// The caller that answers the callbacks of the running call. The lock also serialises the threads
/// of a library.
static ACTIVE: Mutex<Active> = Mutex::new(Active(None));

struct Active(Option<Running>);

/// The caller of the running call, and the scalars of the call.
#[derive(Clone, Copy)]
struct Running {
    caller: *mut Caller<'static>,
    scalars: *const [Option<Scalar>],
}

// SAFETY: the pointers are only used under the lock, and a `Caller` may change threads.
unsafe impl Send for Active {}

/// A guard. While it lives, callbacks go to the caller that it was created with.
pub(crate) struct Activation<'a>(std::marker::PhantomData<&'a mut Caller<'a>>);

impl<'a> Activation<'a> {
    pub(crate) fn new(caller: &'a mut Caller<'a>, scalars: &'a [Option<Scalar>]) -> Activation<'a> {
        let caller = ptr::from_mut(caller);
        // SAFETY: only the lifetime changes; the pointer is gone before the caller is.
        let caller: *mut Caller<'static> = unsafe { std::mem::transmute(caller) };
        lock().0 = Some(Running { caller, scalars });
        Activation(std::marker::PhantomData)
    }
}

impl Drop for Activation<'_> {
    fn drop(&mut self) {
        lock().0 = None;
    }
}

fn lock() -> std::sync::MutexGuard<'static, Active> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data that a closure needs about its callback.
struct Site {
    index: usize,
    interface: Interface,
    args: Vec<Argument>,
    /// The parameter for the value that it returns.
    returns: Option<usize>,
    /// Parameters with the values of parameters of the function.
    outer: Vec<(usize, usize)>,
}

/// Creates the function that the library calls for a callback of `of`. It is never freed, because
/// the library can keep its address.
pub(crate) fn closure(
    of: &Interface,
    index: usize,
    lengths: StringLengths,
) -> Result<*mut c_void, &'static str> {
    let interface = of.callbacks[index].interface(of);
    for param in &interface.params {
        match param.ty {
            Type::Filename | Type::FilePointer => return Err("a callback has no files"),
            _ => {}
        }
    }
    let args = arguments(&interface, lengths)?;
    let (result, _) = value(&interface, &Ordinals::of(&interface));
    let cif = Cif::new(args.iter().map(|arg| ffi_argument(*arg)), result);
    let site: &'static Site = Box::leak(Box::new(Site {
        index,
        interface,
        args,
        returns: of.callbacks[index].returns,
        outer: (of.callbacks[index].passed()..)
            .zip(of.callbacks[index].outer.clone())
            .collect(),
    }));
    let closure = Box::leak(Box::new(Closure::new(cif, called, site)));
    Ok(*closure.code_ptr() as *mut c_void)
}

/// # Safety
/// `args` are those that `site` describes: the library keeps to its interface.
unsafe extern "C" fn called(
    _: &ffi_cif,
    result: &mut c_void,
    args: *const *const c_void,
    site: &Site,
) {
    let mut value = Value::default();
    let active = lock();
    let Some(Running { caller, scalars }) = active.0 else {
        let name = &site.interface.name;
        eprintln!("farcall: the library called `{name}` outside of a call");
        std::process::abort();
    };
    // SAFETY: the caller lives as long as its activation, and the lock keeps others away.
    let caller = unsafe { &mut *caller };
    // SAFETY: the caller's promise.
    let args = unsafe { slice::from_raw_parts(args, site.args.len()) };
    // SAFETY: the same as above.
    let given = unsafe { site.read(args, &mut value, &*scalars) };
    let request = match given {
        Ok(given) => given,
        Err(text) => return drop(caller(Err(site.problem(&text)))),
    };
    let (scalars, layout, starts) = request;
    // SAFETY: the same as above.
    let data = unsafe { gather(&layout, &starts) };
    let answer = caller(Ok(CallbackRequest {
        index: site.index,
        scalars,
        data,
    }));
    let returned = layout.returned_bytes();
    if answer.data.len() as u64 != returned {
        let text = format!(
            "the callback returned {} bytes, expected {returned}",
            answer.data.len()
        );
        return drop(caller(Err(site.problem(&text))));
    }
    // SAFETY: the same as above.
    unsafe { scatter(&layout, &starts, answer) };
    if let Some(param) = site.returns {
        let ty = site.interface.params[param].ty;
        // SAFETY: libffi has room for a value of the type, and for a register.
        unsafe { value.store(ty, ptr::from_mut(result)) };
    }
}

/// The value that a callback returns, as an array of one element.
#[derive(Default)]
#[repr(C, align(16))]
struct Value([u8; 16]);

impl Value {
    /// Stores the value as libffi wants it: an integer is widened to a register.
    ///
    /// # Safety
    /// There is room for the type, and for a register.
    unsafe fn store(&self, ty: Type, result: *mut c_void) {
        // SAFETY: this value is initialised, and as large as any type.
        let scalar = unsafe { scalar(ty, self.0.as_ptr().cast()) };
        // SAFETY: the caller's promise.
        unsafe {
            match scalar {
                Scalar::Int(value) => result.cast::<i64>().write_unaligned(value),
                _ => {
                    let bytes = ty.size().unwrap_or(0) as usize;
                    let result = result.cast::<u8>();
                    result.copy_from_nonoverlapping(self.0.as_ptr(), bytes);
                }
            }
        }
    }
}

type Given = (Vec<Option<Scalar>>, Layout, Vec<*mut u8>);

impl Site {
    fn problem(&self, text: &str) -> String {
        format!("callback `{}`: {text}", self.interface.name)
    }

    /// The scalars, and the arrays with their layout. The last array is the value that the callback
    /// returns, if it does.
    ///
    /// # Safety
    /// As for [`called`].
    unsafe fn read(
        &self,
        args: &[*const c_void],
        value: &mut Value,
        of: &[Option<Scalar>],
    ) -> Result<Given, String> {
        let mut scalars = vec![None; self.interface.params.len()];
        for (param, outer) in &self.outer {
            scalars[*param] = of[*outer].clone();
        }
        let mut lists = Vec::new();
        let mut starts = Vec::new();
        let mut texts = 0;
        for (argument, &value) in self.args.iter().zip(args) {
            // SAFETY: libffi gives the address of each argument; the rest is the caller's promise.
            unsafe {
                match *argument {
                    Argument::Value { param, ty } => scalars[param] = Some(scalar(ty, value)),
                    Argument::Reference { param, ty } => {
                        let value = not_null(value.cast::<*const c_void>().read(), param, self)?;
                        scalars[param] = Some(scalar(ty, value));
                    }
                    Argument::Text { param } => {
                        let start = not_null(value.cast::<*const c_void>().read(), param, self)?;
                        let text = text(start.cast(), self.length_of(param, args));
                        texts += text.len() as u64;
                        scalars[param] = Some(Scalar::Text(text));
                    }
                    Argument::Texts { param } => {
                        lists.push((param, value.cast::<*const *const c_char>().read()));
                    }
                    Argument::Array { .. } => starts.push(value.cast::<*mut u8>().read()),
                    Argument::Constant(_)
                    | Argument::ConstantReference(_)
                    | Argument::ConstantText(_)
                    | Argument::TextLength { .. }
                    | Argument::OneCharacter
                    | Argument::RowLength { .. }
                    | Argument::Stream { .. }
                    | Argument::Scratch { .. }
                    | Argument::FixedTexts { .. }
                    | Argument::BlankTexts { .. }
                    | Argument::Allocated { .. }
                    | Argument::Function { .. } => {}
                }
            }
        }
        if self.returns.is_some() {
            starts.push(value.0.as_mut_ptr());
        }
        // SAFETY: the caller's promise.
        texts += unsafe { self.read_lists(lists, &mut scalars) }?;
        let layout = self.interface.layout(&scalars, &[]);
        let layout = layout.map_err(|error| error.to_string())?;
        if layout.bytes.saturating_add(texts) > MOST_CALLBACK_BYTES {
            let bytes = layout.bytes.saturating_add(texts);
            return Err(format!(
                "its arrays and texts have {bytes} bytes, more than the {MOST_CALLBACK_BYTES} \
                 that a callback may have"
            ));
        }
        for (array, start) in layout.arrays.iter().zip(&starts) {
            if array.bytes > 0 {
                not_null(start.cast_const().cast(), array.param, self)?;
            }
        }
        Ok((scalars, layout, starts))
    }

    /// Reads arrays of texts, whose sizes depend on the other scalars, and returns their bytes.
    ///
    /// # Safety
    /// As for [`called`].
    unsafe fn read_lists(
        &self,
        lists: Vec<(usize, *const *const c_char)>,
        scalars: &mut [Option<Scalar>],
    ) -> Result<u64, String> {
        let mut bytes = 0;
        for (param, start) in lists {
            let values = Values {
                scalars,
                elements: &[],
            };
            let count = self.interface.text_count(param, values);
            let count = count.map_err(|error| error.to_string())?;
            if count > 0 {
                not_null(start.cast(), param, self)?;
            }
            // SAFETY: the caller's promise.
            let list = unsafe { list(start, count) };
            bytes += list.iter().map(|text| text.len() as u64).sum::<u64>();
            scalars[param] = Some(Scalar::Texts(list));
        }
        Ok(bytes)
    }

    /// The hidden length of a text.
    ///
    /// # Safety
    /// As for [`called`].
    unsafe fn length_of(&self, param: usize, args: &[*const c_void]) -> Option<usize> {
        let length = Argument::TextLength { param };
        let place = self.args.iter().position(|argument| *argument == length)?;
        // SAFETY: a hidden length is a size.
        Some(unsafe { args[place].cast::<usize>().read() })
    }
}

fn not_null(pointer: *const c_void, param: usize, site: &Site) -> Result<*const c_void, String> {
    match pointer.is_null() {
        false => Ok(pointer),
        true => {
            let name = &site.interface.params[param].name;
            Err(format!("argument `{name}` is NULL"))
        }
    }
}

/// The texts at `count` addresses. NULL is an empty text.
///
/// # Safety
/// The addresses are NULL or those of texts ended by NUL.
unsafe fn list(start: *const *const c_char, count: usize) -> Vec<String> {
    let text = |index: usize| {
        // SAFETY: the caller's promise.
        unsafe {
            match start.add(index).read_unaligned() {
                start if start.is_null() => String::new(),
                start => text(start, None),
            }
        }
    };
    (0..count).map(text).collect()
}

/// The text at `start`. A Fortran text loses its trailing blanks.
///
/// # Safety
/// There are `length` characters, or text ended by NUL.
unsafe fn text(start: *const c_char, length: Option<usize>) -> String {
    // SAFETY: the caller's promise.
    let bytes = unsafe {
        match length {
            Some(length) => slice::from_raw_parts(start.cast::<u8>(), length),
            None => CStr::from_ptr(start).to_bytes(),
        }
    };
    // A longer text is rejected anyway, so the rest need not be copied.
    let bytes = &bytes[..bytes.len().min(MOST_CALLBACK_BYTES as usize + 1)];
    let text = String::from_utf8_lossy(bytes).replace('\0', " ");
    match length {
        Some(_) => text.trim_end_matches(' ').to_string(),
        None => text,
    }
}

/// # Safety
/// There is a value of that type.
unsafe fn scalar(ty: Type, value: *const c_void) -> Scalar {
    // SAFETY: the caller's promise.
    unsafe {
        match ty {
            Type::Char | Type::SignedChar => {
                Scalar::Int(value.cast::<i8>().read_unaligned().into())
            }
            Type::UnsignedChar => Scalar::Int(value.cast::<u8>().read_unaligned().into()),
            Type::Short => Scalar::Int(value.cast::<i16>().read_unaligned().into()),
            Type::UnsignedShort => Scalar::Int(value.cast::<u16>().read_unaligned().into()),
            Type::Int => Scalar::Int(value.cast::<i32>().read_unaligned().into()),
            Type::UnsignedInt => Scalar::Int(value.cast::<u32>().read_unaligned().into()),
            Type::Float => Scalar::Float(value.cast::<f32>().read_unaligned().into()),
            Type::Double => Scalar::Float(value.cast::<f64>().read_unaligned()),
            Type::SComplex => {
                let [re, im] = value.cast::<[f32; 2]>().read_unaligned().map(f64::from);
                Scalar::Complex { re, im }
            }
            Type::DComplex => {
                let [re, im] = value.cast::<[f64; 2]>().read_unaligned();
                Scalar::Complex { re, im }
            }
            // An unsigned value above 2^63 - 1 becomes negative, and the layout rejects it.
            _ => Scalar::Int(value.cast::<i64>().read_unaligned()),
        }
    }
}

/// The sections of the arrays that are sent.
///
/// # Safety
/// `starts` are the arrays of the layout.
unsafe fn gather(layout: &Layout, starts: &[*mut u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(layout.sent_bytes() as usize);
    each(layout, starts, Mode::is_sent, |_, start, length| {
        // SAFETY: the caller's promise.
        data.extend_from_slice(unsafe { slice::from_raw_parts(start, length) });
    });
    data
}

/// # Safety
/// `starts` are the arrays of the layout, and the answer is as long as they return.
unsafe fn scatter(layout: &Layout, starts: &[*mut u8], mut answer: CallbackAnswer) {
    let mut rest = &mut answer.data[..];
    each(layout, starts, Mode::is_returned, |array, start, length| {
        let (run, after) = std::mem::take(&mut rest).split_at_mut(length);
        rest = after;
        if answer.swap {
            let unit = array.element.swap_unit() as usize;
            run.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
        // SAFETY: the caller's promise.
        unsafe { start.copy_from_nonoverlapping(run.as_ptr(), length) };
    });
}

/// The runs of the arrays' sections, in order.
fn each(
    layout: &Layout,
    starts: &[*mut u8],
    travels: impl Fn(Mode) -> bool,
    mut run: impl FnMut(&ArrayLayout, *mut u8, usize),
) {
    let arrays = layout.arrays.iter().zip(starts);
    for (array, start) in arrays.filter(|(array, _)| travels(array.mode)) {
        for part in array.client_runs() {
            let start = start.wrapping_add(part.offset as usize);
            run(array, start, part.len as usize);
        }
    }
}
