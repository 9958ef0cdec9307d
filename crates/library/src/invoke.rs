//! Makes one call in place: scalars are copied, arrays are not. `bind` has prepared the call, and
//! the caller answers for the memory of the arrays. Nothing is called before all arguments have
//! been checked.

use crate::Binding;
use crate::allocated;
use crate::bind::callback::{Activation, Caller};
use crate::bind::{Argument, Fixed, Function, Returns};
use crate::failure;
use crate::texts::{FixedTexts, TextArray, ended};
use crate::xerbla::{self, WrongArgument};
use farcall_idl::{Layout, Mode, Scalar, Type};
use libffi::raw::ffi_call;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::slice;
use thiserror::Error;

/// The reason why a call was not made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum InvokeError {
    /// The interface is not bound here: the index does not exist, or another engine runs it.
    #[error("function {0} cannot be called in this process")]
    NotBound(usize),
    /// The scalars or the layout belong to another function.
    #[error("the arguments belong to another function")]
    OtherFunction,
    /// BLAS or LAPACK reports that an argument has an illegal value, and the function has no `info`
    /// that reports it.
    #[error("{0}")]
    WrongArgument(WrongArgument),
    /// A scalar is missing or does not have the type of the interface.
    #[error("argument {0} is missing or has another type")]
    Scalar(usize),
    /// The library has failed the call, or a result that it has allocated does not fit the
    /// interface.
    #[error("{0}")]
    Result(String),
    /// The stream on a file cannot be opened.
    #[error("the file of argument {0} cannot be opened: {1}")]
    Stream(usize, String),
    /// Not all that the function has written to a stream is in its file.
    #[error("the file of argument {0} cannot be written: {1}")]
    Unwritten(usize, String),
}

/// Storage for one scalar, address or length.
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
struct Slot([u8; 16]);

impl Slot {
    fn set<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0[..N].copy_from_slice(&bytes);
    }

    fn address(address: *const c_void) -> Slot {
        Slot::size(address.expose_provenance())
    }

    fn size(size: usize) -> Slot {
        let mut slot = Slot::default();
        slot.set(size.to_ne_bytes());
        slot
    }

    fn pointer(self) -> *mut c_void {
        let mut bytes = [0; size_of::<usize>()];
        bytes.copy_from_slice(&self.0[..size_of::<usize>()]);
        ptr::with_exposed_provenance_mut(usize::from_ne_bytes(bytes))
    }

    fn fixed(value: Fixed) -> Slot {
        let mut slot = Slot::default();
        match value {
            Fixed::Int(value) => slot.set(value.to_ne_bytes()),
            Fixed::Long(value) => slot.set(value.to_ne_bytes()),
            Fixed::Double(bits) => slot.set(bits.to_ne_bytes()),
            Fixed::Character(code) => slot.set([code]),
            Fixed::Word(value) => slot.set(value.to_ne_bytes()),
        }
        slot
    }

    fn scalar(scalar: &Scalar, ty: Type) -> Option<Slot> {
        let mut slot = Slot::default();
        match (ty, scalar) {
            (Type::Float, Scalar::Float(value)) => slot.set((*value as f32).to_ne_bytes()),
            (Type::Double, Scalar::Float(value)) => slot.set(value.to_ne_bytes()),
            (Type::SComplex, Scalar::Complex { re, im }) => {
                slot.0[..4].copy_from_slice(&(*re as f32).to_ne_bytes());
                slot.0[4..8].copy_from_slice(&(*im as f32).to_ne_bytes());
            }
            (Type::DComplex, Scalar::Complex { re, im }) => {
                slot.0[..8].copy_from_slice(&re.to_ne_bytes());
                slot.0[8..].copy_from_slice(&im.to_ne_bytes());
            }
            (Type::Char, Scalar::Text(text)) => slot.0[0] = *text.as_bytes().first()?,
            (ty, Scalar::Int(value)) if ty.is_integer() => match ty.size()? {
                1 => slot.set((*value as u8).to_ne_bytes()),
                2 => slot.set((*value as u16).to_ne_bytes()),
                4 => slot.set((*value as u32).to_ne_bytes()),
                _ => slot.set(value.to_ne_bytes()),
            },
            _ => return None,
        }
        Some(slot)
    }
}

/// Memory that lives as long as the call. Its addresses are among the arguments.
#[derive(Default)]
struct CallMemory {
    texts: Texts,
    arrays: Vec<TextArray>,
    fixed: Vec<FixedTexts>,
    streams: Vec<Stream>,
}

impl CallMemory {
    /// The argument for a scalar. `own` is storage that does not move before the call ends.
    fn slot(
        &mut self,
        argument: &Argument,
        scalars: &[Option<Scalar>],
        own: &mut Slot,
    ) -> Result<Slot, InvokeError> {
        Ok(match *argument {
            Argument::Value { param, ty } => scalar(scalars, param, ty)?,
            Argument::Reference { param, ty } => {
                *own = scalar(scalars, param, ty)?;
                Slot::address(ptr::from_mut(own).cast())
            }
            Argument::Text { param } if text(scalars, param)? == Scalar::NULL_TEXT => {
                Slot::default()
            }
            Argument::Text { param } => {
                let text = private_text(scalars, param)?;
                let address = Slot::address(text.as_ptr().cast());
                self.texts.push(text);
                address
            }
            Argument::ConstantText(text) => {
                let text: Box<[u8]> = text.into();
                let address = Slot::address(text.as_ptr().cast());
                self.texts.push(text);
                address
            }
            Argument::Texts { param } => {
                let Some(Scalar::Texts(texts)) = &scalars[param] else {
                    return Err(InvokeError::Scalar(param));
                };
                let texts = TextArray::new(texts);
                let address = Slot::address(texts.pointers().cast());
                self.arrays.push(texts);
                address
            }
            Argument::Stream { param, mode } => {
                let stream = Stream::open(scalars, param, mode)?;
                let address = Slot::address(stream.file.cast_const().cast());
                self.streams.push(stream);
                address
            }
            Argument::Constant(value) => Slot::fixed(value),
            Argument::ConstantReference(value) => {
                *own = Slot::fixed(value);
                Slot::address(ptr::from_mut(own).cast())
            }
            Argument::Scratch { by_reference, .. } => match by_reference {
                true => Slot::address(ptr::from_mut(own).cast()),
                false => Slot::default(),
            },
            Argument::TextLength { param } => Slot::size(match text(scalars, param)? {
                Scalar::NULL_TEXT => 0,
                text => text.len(),
            }),
            Argument::OneCharacter => Slot::size(1),
            // These arguments do not depend on scalars.
            Argument::Array { .. }
            | Argument::FixedTexts { .. }
            | Argument::BlankTexts { .. }
            | Argument::Allocated { .. }
            | Argument::Function { .. }
            | Argument::RowLength { .. } => Slot::default(),
        })
    }

    /// The argument for an array of texts of fixed length.
    ///
    /// # Safety
    /// The same as [`Binding::invoke`], for this array.
    unsafe fn fixed_texts(
        &mut self,
        argument: &Argument,
        layout: &Layout,
        starts: &[*mut u8],
    ) -> Option<Slot> {
        let (array, mode, has_blanks) = match *argument {
            Argument::FixedTexts { array, mode } => (array, mode, false),
            Argument::BlankTexts { array, mode } => (array, mode, true),
            _ => return None,
        };
        if starts[array].is_null() {
            return Some(Slot::default());
        }
        // SAFETY: the caller's promise.
        let texts = unsafe { FixedTexts::new(&layout.arrays[array], starts[array], mode) };
        let mut texts = if has_blanks {
            texts.blank()
        } else {
            texts.apart()
        };
        let address = Slot::address(texts.argument());
        self.fixed.push(texts);
        Some(address)
    }
}

impl CallMemory {
    /// Closes the streams, and frees the memory.
    fn close(self) -> Result<(), InvokeError> {
        let closed = self.streams.into_iter().map(Stream::close);
        closed.fold(Ok(()), Result::and)
    }
}

type Slots = SmallVec<[Slot; 32]>;
type Texts = SmallVec<[Box<[u8]>; 2]>;

/// A stream of the C library on a file, closed when the call ends.
struct Stream {
    file: *mut libc::FILE,
    param: usize,
    is_written: bool,
}

impl Stream {
    fn open(scalars: &[Option<Scalar>], param: usize, mode: Mode) -> Result<Stream, InvokeError> {
        let path = private_text(scalars, param)?;
        let is_written = mode.is_returned();
        let mode = match mode {
            Mode::In | Mode::Work => c"r",
            Mode::Out => c"w+",
            Mode::InOut => c"r+",
        };
        // SAFETY: both texts end with NUL.
        let file = unsafe { libc::fopen(path.as_ptr().cast(), mode.as_ptr()) };
        if file.is_null() {
            let error = io::Error::last_os_error().to_string();
            return Err(InvokeError::Stream(param, error));
        }
        Ok(Stream {
            file,
            param,
            is_written,
        })
    }

    /// Closes it. What the function has written last is in its buffer until then, so the function
    /// cannot know whether there is room for it on the disk.
    fn close(self) -> Result<(), InvokeError> {
        let stream = ManuallyDrop::new(self);
        // SAFETY: the stream is open, and nobody uses it any more.
        let (has_failed, is_closed) = unsafe {
            (
                libc::ferror(stream.file) != 0,
                libc::fclose(stream.file) == 0,
            )
        };
        let problem = match (is_closed, has_failed) {
            _ if !stream.is_written => return Ok(()),
            (true, false) => return Ok(()),
            (false, _) => io::Error::last_os_error().to_string(),
            (true, true) => "a write to it has failed".to_string(),
        };
        Err(InvokeError::Unwritten(stream.param, problem))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open: a library must not close what it was given.
        unsafe { libc::fclose(self.file) };
    }
}

impl Binding {
    /// Calls the function with this index on arrays in place.
    ///
    /// Scalars are copied, so the caller does not see it if the library writes to them. The return
    /// value goes into its OUT array. Callbacks go to `caller`.
    ///
    /// # Safety
    /// `layout` is the layout that the interface with this index gives for `scalars`. `starts` has
    /// an address for each of its arrays, aligned for the element and good for reads and writes of
    /// the bytes of the array until the call returns; or NULL, for an array that only another
    /// process has. The library is trusted to match its interface.
    pub unsafe fn invoke(
        &self,
        function: usize,
        scalars: &[Option<Scalar>],
        layout: &Layout,
        starts: &[*mut u8],
        caller: &mut Caller<'_>,
    ) -> Result<(), InvokeError> {
        let index = function;
        let function = self.functions.get(index).and_then(Option::as_ref);
        let function = function.ok_or(InvokeError::NotBound(index))?;
        let arrays = [layout.arrays.len(), starts.len()];
        if scalars.len() != function.params || arrays != [function.arrays; 2] {
            return Err(InvokeError::OtherFunction);
        }
        let mut kept = CallMemory::default();
        let mut storage = Slots::from_elem(Slot::default(), function.args.len());
        let mut values = Slots::from_elem(Slot::default(), function.args.len());
        for (place, argument) in function.args.iter().enumerate() {
            // The storage does not move after this line.
            let own = &mut storage[place];
            values[place] = match *argument {
                _ if function.is_body && is_empty(argument, layout) => Slot::default(),
                Argument::Array { array } => Slot::address(starts[array].cast_const().cast()),
                Argument::Allocated { .. } => Slot::address(ptr::from_mut(own).cast()),
                Argument::Function { callback } => {
                    Slot::address(function.callbacks[callback].cast_const())
                }
                Argument::RowLength { array } => {
                    let axis = layout.arrays[array].axes.last();
                    Slot::size(axis.map_or(0, |axis| axis.size as usize))
                }
                // SAFETY: the caller's promise.
                ref value => match unsafe { kept.fixed_texts(value, layout, starts) } {
                    Some(slot) => slot,
                    None => kept.slot(value, scalars, own)?,
                },
            };
        }
        // SAFETY: the caller's promise.
        unsafe { clear_info(function, layout, starts) };
        let calls_back = !function.callbacks.is_empty();
        let _active = calls_back.then(|| Activation::new(caller, scalars));
        // SAFETY: every argument above has the type the call was prepared with; the caller answers
        // for the memory and for the library.
        let value = unsafe { call(function, &mut values, starts) };
        // A result may be a part of a text among the arguments, which exist until here.
        // SAFETY: the function has returned its results with the promise of the caller.
        let (blocks, results) = unsafe { results(function, &storage, value, layout, starts) };
        let mut fixed = kept.fixed.iter_mut();
        let finished = fixed.try_for_each(FixedTexts::finish);
        if let Some(release) = function.release {
            // SAFETY: the interface says that this function releases the results.
            unsafe { allocated::release(release, blocks) };
        }
        let closed = kept.close();
        let failed = failure::take().map_or(Ok(()), Err);
        // Both reports are of this call, whichever counts.
        let wrong = xerbla::take();
        failed
            .and(finished)
            .and(results)
            .map_err(InvokeError::Result)?;
        closed?;
        match wrong {
            // SAFETY: the function has written its arrays, with the promise of the caller.
            Some(wrong) => unsafe { refused(function, wrong, layout, starts) },
            None => Ok(()),
        }
    }
}

/// Sets `info` to 0. OpenBLAS leaves it as it was in some routines, and what was there must not
/// look like the number of an argument.
///
/// # Safety
/// As for [`Binding::invoke`].
unsafe fn clear_info(function: &Function, layout: &Layout, starts: &[*mut u8]) {
    let is_out = |info: &usize| layout.arrays[*info].mode == Mode::Out && !starts[*info].is_null();
    if let Some(info) = function.info.filter(is_out) {
        // SAFETY: the caller's promise.
        unsafe { ptr::write_bytes(starts[info], 0, layout.arrays[info].bytes as usize) };
    }
}

/// What a call with a wrong argument is: complete, if the caller gets the number of the argument in
/// `info`.
///
/// # Safety
/// As for [`Binding::invoke`].
unsafe fn refused(
    function: &Function,
    wrong: WrongArgument,
    layout: &Layout,
    starts: &[*mut u8],
) -> Result<(), InvokeError> {
    // SAFETY: the caller's promise.
    if unsafe { tells(function, layout, starts) } {
        eprintln!("{wrong}");
        return Ok(());
    }
    Err(InvokeError::WrongArgument(wrong))
}

/// Whether the function has an `info`, and it is negative.
///
/// # Safety
/// As for [`Binding::invoke`].
unsafe fn tells(function: &Function, layout: &Layout, starts: &[*mut u8]) -> bool {
    let Some(info) = function.info.filter(|info| !starts[*info].is_null()) else {
        return false;
    };
    let (start, bytes) = (
        starts[info].cast_const(),
        layout.arrays[info].bytes as usize,
    );
    match layout.arrays[info].element_bytes {
        // SAFETY: the caller's promise.
        4 => unsafe { slice::from_raw_parts(start.cast::<i32>(), bytes / 4) }
            .iter()
            .any(|info| *info < 0),
        // SAFETY: the caller's promise.
        8 => unsafe { slice::from_raw_parts(start.cast::<i64>(), bytes / 8) }
            .iter()
            .any(|info| *info < 0),
        _ => true,
    }
}

/// Whether this is an array of numbers without elements, which is NULL in a body, as in Ninf-G.
/// Work space is not: LAPACK returns its best size there. A list of texts is not either: it ends
/// with NULL, and functions walk it.
fn is_empty(argument: &Argument, layout: &Layout) -> bool {
    let Argument::Array { array } = *argument else {
        return false;
    };
    let array = &layout.arrays[array];
    array.mode != Mode::Work && array.axes.iter().any(|axis| axis.size == 0)
}

/// # Safety
/// The same as [`Binding::invoke`]. `values` are the arguments of the function.
unsafe fn call(function: &Function, values: &mut Slots, starts: &[*mut u8]) -> Slot {
    let mut pointers: SmallVec<[*mut c_void; 32]> = values
        .iter_mut()
        .map(|value| ptr::from_mut(value).cast())
        .collect();
    let mut result = Slot::default();
    // SAFETY: the address is a function; the prepared call and the values match it as far as the
    // interface is true, which the caller answers for. The result has room for every type.
    unsafe {
        let address: unsafe extern "C" fn() = std::mem::transmute(function.address);
        ffi_call(
            function.cif.as_raw_ptr(),
            Some(address),
            (&raw mut result).cast(),
            pointers.as_mut_ptr(),
        );
    }
    if let Returns::Number(array, bytes) = function.returns {
        // An integer result is widened to a register: on a little-endian machine its bytes come
        // first, on the others last.
        let start = if cfg!(target_endian = "big") && bytes < 8 {
            8 - bytes
        } else {
            0
        };
        // SAFETY: the array has one element of this type.
        unsafe { ptr::copy_nonoverlapping(result.0[start..].as_ptr(), starts[array], bytes) };
    }
    result
}

/// Copies the results that the library has allocated. Returns their memory, to be released.
///
/// # Safety
/// The same as [`Binding::invoke`]. The function has returned `value`, and has put the addresses of
/// other results into the storage of their arguments.
unsafe fn results(
    function: &Function,
    storage: &Slots,
    value: Slot,
    layout: &Layout,
    starts: &[*mut u8],
) -> (Vec<*mut c_void>, Result<(), String>) {
    let returned = match &function.returns {
        Returns::Pointer(result) => Some((value, result)),
        Returns::Nothing | Returns::Number(..) => None,
    };
    let others = function.allocated.iter();
    let others = others.map(|(place, result)| (storage[*place], result));
    let (mut blocks, mut outcome) = (Vec::new(), Ok(()));
    for (slot, result) in returned.into_iter().chain(others) {
        let block = slot.pointer();
        blocks.push(block);
        if starts[result.array].is_null() {
            continue;
        }
        // SAFETY: the caller's promise.
        let copied = unsafe { result.copy(block.cast(), layout, starts) };
        outcome = outcome.and(copied);
    }
    (blocks, outcome)
}

fn scalar(scalars: &[Option<Scalar>], param: usize, ty: Type) -> Result<Slot, InvokeError> {
    let slot = scalars[param]
        .as_ref()
        .and_then(|scalar| Slot::scalar(scalar, ty));
    slot.ok_or(InvokeError::Scalar(param))
}

fn text(scalars: &[Option<Scalar>], param: usize) -> Result<&str, InvokeError> {
    match &scalars[param] {
        Some(Scalar::Text(text)) => Ok(text),
        _ => Err(InvokeError::Scalar(param)),
    }
}

fn private_text(scalars: &[Option<Scalar>], param: usize) -> Result<Box<[u8]>, InvokeError> {
    Ok(ended(text(scalars, param)?))
}
