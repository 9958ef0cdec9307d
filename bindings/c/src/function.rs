//! Function handles, and what they tell about arguments. `call` makes the calls. A text that the
//! library returns remains valid as long as its function.

use crate::connect::Server;
use crate::error::{Problem, guard};
use crate::{Kind, text};
use farcall_client::{Estimator, Output};
use farcall_idl::{Interface, Param, Type};
use std::borrow::Cow;
use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A function of a server.
pub struct Function {
    pub(crate) client: farcall_client::Function,
    /// What a caller passes: parameters except work space, then callbacks.
    pub(crate) passed: Vec<usize>,
    pub(crate) server: usize,
    name: CString,
    interface: CString,
    names: Vec<CString>,
    times: Mutex<Times>,
    /// The libraries that have computed calls, and which one computed the last; texts remain valid.
    libraries: Mutex<(Vec<CString>, Option<usize>)>,
    /// Where the output of the library goes, if not to the server's log.
    pub(crate) output: Mutex<Option<Output>>,
    /// The reservation that its calls use; 0 for none.
    pub(crate) reservation: AtomicU64,
    /// Nanoseconds within which its calls must end; 0 for no deadline.
    pub(crate) deadline: AtomicU64,
    estimator: OnceLock<Estimator>,
}

/// The times of a call in seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Until the server had the arguments.
    pub send: f64,
    /// In the library.
    pub exec: f64,
    /// Until the server had sent the results.
    pub recv: f64,
    /// The rest of `total`.
    pub other: f64,
    /// From the start of the call to its return.
    pub total: f64,
}

impl Function {
    pub(crate) fn new(client: farcall_client::Function, server: usize) -> Function {
        let (params, callbacks) = (&client.interface().params, &client.interface().callbacks);
        let passed: Vec<usize> = (0..params.len() + callbacks.len())
            .filter(|&index| params.get(index).is_none_or(Param::is_passed))
            .collect();
        let passed_name = |index: usize| match params.get(index) {
            Some(param) => param.name.as_str(),
            None => &callbacks[index - params.len()].name,
        };
        // Interfaces have no NUL: the parser refuses it.
        let text = |text: &str| CString::new(text).unwrap_or_default();
        Function {
            name: text(client.qualified_name()),
            interface: text(client.text()),
            names: passed
                .iter()
                .map(|&index| text(passed_name(index)))
                .collect(),
            passed,
            server,
            times: Mutex::default(),
            libraries: Mutex::default(),
            output: Mutex::default(),
            reservation: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            estimator: OnceLock::new(),
            client,
        }
    }

    /// The client's function, with the options of the calls.
    pub(crate) fn client(&self) -> Cow<'_, farcall_client::Function> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match &*output {
            Some(output) => Cow::Owned(self.client.with_output(Some(output.clone()))),
            None => Cow::Borrowed(&self.client),
        };
        let client = match self.reservation.load(Ordering::Relaxed) {
            0 => client,
            id => Cow::Owned(client.with_reservation(Some(id))),
        };
        match self.deadline.load(Ordering::Relaxed) {
            0 => client,
            nanos => Cow::Owned(client.with_deadline(Some(Duration::from_nanos(nanos)))),
        }
    }

    /// Estimates of its calls.
    pub(crate) fn estimator(&self) -> &Estimator {
        self.estimator
            .get_or_init(|| Estimator::new(self.client.clone()))
    }

    /// Stores the times and the library of a call.
    pub(crate) fn keep(&self, outcome: &farcall_client::Outcome) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = outcome.times.into();
        let mut libraries = self
            .libraries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (known, last) = &mut *libraries;
        *last = outcome.library.as_deref().map(|library| {
            let text = CString::new(library).unwrap_or_default();
            let found = known.iter().position(|known| *known == text);
            found.unwrap_or_else(|| {
                known.push(text);
                known.len() - 1
            })
        });
    }

    pub(crate) fn param(&self, index: usize) -> Option<&Param> {
        self.interface().params.get(self.place(index)?)
    }

    pub(crate) fn interface(&self) -> &Interface {
        self.client.interface()
    }

    /// The place of an argument among the parameters of the interface, before its callbacks.
    pub(crate) fn place(&self, index: usize) -> Option<usize> {
        self.passed.get(index).copied()
    }

    fn is_callback(&self, index: usize) -> bool {
        index < self.passed.len() && self.param(index).is_none()
    }
}

/// Shares the function of a handle.
///
/// # Safety
/// `function` is NULL or a valid handle.
pub(crate) unsafe fn share(function: *const Function) -> Result<Arc<Function>, Problem> {
    if function.is_null() {
        return Err(Problem::null("function"));
    }
    // SAFETY: every handle points into an `Arc` that lives as long as the handle is good.
    unsafe {
        Arc::increment_strong_count(function);
        Ok(Arc::from_raw(function))
    }
}

impl From<farcall_client::Times> for Times {
    fn from(times: farcall_client::Times) -> Times {
        let farcall_client::Times {
            send,
            exec,
            recv,
            other,
            total,
        } = times;
        Times {
            send,
            exec,
            recv,
            other,
            total,
        }
    }
}

/// The function with this name, `module/name` or just `name`. It is valid until the server is
/// disconnected. The client fetches its interface once. Returns NULL if there is no such function.
///
/// # Safety
/// `server` is from `farcall_connect`, `name` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_function_of(
    server: *mut Server,
    name: *const c_char,
) -> *mut Function {
    // SAFETY: the caller's promise.
    guard(ptr::null_mut(), || unsafe {
        let server = server.as_ref().ok_or(Problem::null("server"))?;
        let name = text(name, "farcall_function_of: name")?;
        Ok(Arc::as_ptr(&server.function(name)?).cast_mut())
    })
}

/// The full name of a function, `module/name`. It is valid as long as the function.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL, whose name is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_function_name(function: *const Function) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { function.as_ref() }.map_or(c"".as_ptr(), |function| function.name.as_ptr())
}

/// The interface of a function, in the interface language. It is valid as long as the function.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL, whose interface is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_function_interface(function: *const Function) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { function.as_ref() }.map_or(c"".as_ptr(), |function| function.interface.as_ptr())
}

/// The number of arguments of a function.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_count(function: *const Function) -> usize {
    // SAFETY: the caller's promise.
    unsafe { function.as_ref() }.map_or(0, |function| function.passed.len())
}

/// The kind of the argument at `index`, from 0.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_kind(function: *const Function, index: usize) -> Kind {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    match function.and_then(|function| function.param(index)) {
        Some(param) if param.is_scalar() => kind(param.ty),
        None if function.is_some_and(|f| f.is_callback(index)) => Kind::FarcallFunction,
        _ => Kind::FarcallArray,
    }
}

/// The type of a scalar argument, or of the elements of an array. `FARCALL_ARRAY` if there is no
/// such argument.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_type(function: *const Function, index: usize) -> Kind {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    match function.and_then(|function| function.param(index)) {
        Some(param) => kind(param.ty),
        None if function.is_some_and(|f| f.is_callback(index)) => Kind::FarcallFunction,
        None => Kind::FarcallArray,
    }
}

/// 1 if the scalar, or the elements of the array, are integers without a sign, else 0.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_unsigned(function: *const Function, index: usize) -> i32 {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let param = function.and_then(|function| function.param(index));
    i32::from(param.is_some_and(|param| is_unsigned(param.ty)))
}

fn is_unsigned(ty: Type) -> bool {
    matches!(
        ty,
        Type::UnsignedChar
            | Type::UnsignedShort
            | Type::UnsignedInt
            | Type::UnsignedLong
            | Type::UnsignedLongLong
    )
}

/// 1 if a call writes to the argument (OUT and INOUT), else 0. A call only reads an array of names
/// of files, also of files that it writes.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_written(function: *const Function, index: usize) -> i32 {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let param = function.and_then(|function| function.param(index));
    i32::from(param.is_some_and(|param| param.mode.is_returned() && !param.is_files()))
}

/// 1 if a call reads the argument (IN and INOUT, and an array of names of files), else 0.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_read(function: *const Function, index: usize) -> i32 {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let param = function.and_then(|function| function.param(index));
    i32::from(param.is_some_and(|param| param.mode.is_sent() || param.is_files()))
}

/// The name of an argument; NULL if there is no such argument. It is valid as long as the function.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_name(
    function: *const Function,
    index: usize,
) -> *const c_char {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    let name = function.and_then(|function| function.names.get(index));
    name.map_or(ptr::null(), |name| name.as_ptr())
}

/// The times of the last call of a function, in any thread; zeros before the first call.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_times_of(function: *const Function) -> Times {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    function.map_or_else(Times::default, |function| {
        *function
            .times
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    })
}

/// The library that computed the last call of a function, in any thread, with its version and its
/// kernel if it states them; empty before the first call. It is valid as long as the function.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_library_of(function: *const Function) -> *const c_char {
    // SAFETY: the caller's promise.
    let Some(function) = (unsafe { function.as_ref() }) else {
        return c"".as_ptr();
    };
    let libraries = function.libraries.lock();
    let libraries = libraries.unwrap_or_else(PoisonError::into_inner);
    let (known, last) = &*libraries;
    // A text stays where it is when others are added.
    last.map_or(c"".as_ptr(), |last| known[last].as_ptr())
}

pub(crate) fn kind(ty: Type) -> Kind {
    match ty {
        Type::Char | Type::SignedChar | Type::UnsignedChar => Kind::FarcallChar,
        Type::Short | Type::UnsignedShort => Kind::FarcallShort,
        Type::Int | Type::UnsignedInt => Kind::FarcallInt,
        Type::Long | Type::LongLong | Type::UnsignedLong | Type::UnsignedLongLong => {
            Kind::FarcallLong
        }
        Type::Float => Kind::FarcallFloat,
        Type::Double => Kind::FarcallDouble,
        Type::SComplex => Kind::FarcallScomplex,
        Type::DComplex => Kind::FarcallDcomplex,
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer => Kind::FarcallText,
    }
}
