//! NumPy arrays as array arguments.
//!
//! A call uses an array in place if it has the type, the shape and the order of memory that the
//! call needs. Otherwise an IN array is copied, with a conversion that loses nothing. OUT and INOUT
//! arrays must have the right type and shape; they are copied in both directions if only the order
//! of memory differs.

use crate::{error, texts};
use checks::{UNMASKED, fits, has_masks, inexact, overlaps_itself, rounded};
pub(crate) use checks::{is_masked, lost};
use farcall_idl::{ArrayLayout, Mode, Order, Param, Type};
use numpy::npyffi::{self, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyString};
pub(crate) use store::{store, store_result};
use types::{casts_safely, has_type, native, type_of};
pub(crate) use types::{dtype, dtype_name, dtype_of, element_of};

mod checks;
mod store;
mod types;

/// One array argument, ready to travel.
pub(crate) struct Slot<'py> {
    /// The array that the caller gave, or the new one: it goes into the result.
    pub(crate) given: Bound<'py, PyAny>,
    /// Contiguous memory of the declared type and order, of the size that the call needs.
    memory: Bound<'py, PyUntypedArray>,
    /// The caller's array as NumPy sees it, if `memory` is a copy.
    source: Option<Bound<'py, PyUntypedArray>>,
    /// The same, if the contents of the copy go back to it.
    target: Option<Bound<'py, PyUntypedArray>>,
    /// Whether the caller left it out.
    pub(crate) is_made: bool,
    /// For texts of fixed length: bytes of each field of `memory`. `given` is the list.
    texts: Option<usize>,
}

/// A slot without the interpreter, for a call under way.
pub(crate) struct Kept {
    given: Py<PyAny>,
    memory: Py<PyUntypedArray>,
    source: Option<Py<PyUntypedArray>>,
    target: Option<Py<PyUntypedArray>>,
    is_made: bool,
    texts: Option<usize>,
}

impl Kept {
    pub(crate) fn bind(self, py: Python<'_>) -> Slot<'_> {
        Slot {
            given: self.given.into_bound(py),
            memory: self.memory.into_bound(py),
            source: self.source.map(|source| source.into_bound(py)),
            target: self.target.map(|target| target.into_bound(py)),
            is_made: self.is_made,
            texts: self.texts,
        }
    }
}

/// An array that has the right type, or that a copy can convert.
pub(crate) struct Typed<'py> {
    array: Bound<'py, PyUntypedArray>,
    needs_conversion: bool,
    /// Texts of fixed length, which have no array yet.
    texts: Vec<String>,
}

impl<'py> Typed<'py> {
    /// The array in the parameter's type, if its elements decide sizes.
    pub(crate) fn convert(self, ty: Type) -> PyResult<Typed<'py>> {
        let shape = shape(&self.array).to_vec();
        let array = match self.needs_conversion || !self.array.is_c_contiguous() {
            true => copy(&self.array, &shape, ty, Order::RowMajor)?,
            false => self.array,
        };
        Ok(Typed::new(array, false))
    }

    fn new(array: Bound<'py, PyUntypedArray>, needs_conversion: bool) -> Typed<'py> {
        Typed {
            array,
            needs_conversion,
            texts: Vec::new(),
        }
    }

    /// The bytes of an array from [`Typed::convert`].
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, length) = range(&self.array);
        // SAFETY: the array is contiguous, and is held with the interpreter while it is read.
        unsafe { slice(start, length) }
    }
}

/// Checks the type of the value that the caller gave for an array.
pub(crate) fn typed<'py>(
    function: &str,
    param: &Param,
    value: &Bound<'py, PyAny>,
) -> PyResult<Typed<'py>> {
    let py = value.py();
    if param.is_fixed_texts() {
        let texts = texts::read(function, param, value)?;
        let array = crate::handle::placeholder(py)?;
        return Ok(Typed {
            texts,
            ..Typed::new(array, false)
        });
    }
    let mismatch = |given: String| {
        let expected = format!("{} of {}", article(param), dtype_name(param.ty));
        error::argument(py, function, &param.name, &expected, &given)
    };
    let other = match value.cast::<PyUntypedArray>() {
        Ok(_) => None,
        Err(_) => from_other(value, param.mode != Mode::In).map_err(|error| {
            match is_about_the_value(py, &error) {
                true => mismatch(error.value(py).to_string()),
                false => error,
            }
        })?,
    };
    let Ok(array) = other.as_ref().unwrap_or(value).cast::<PyUntypedArray>() else {
        if param.mode != Mode::In {
            return Err(mismatch(error::describe(value)));
        }
        let array = from_values(param.ty, value)?;
        let array = array.ok_or_else(|| mismatch(error::describe(value)))?;
        if has_masks(value, array.array.ndim())? {
            return Err(mismatch(format!("a list with a masked array: {UNMASKED}")));
        }
        if !array.needs_conversion {
            return Ok(array);
        }
        let lost = match inexact(&array.array, param.ty)? {
            None => rounded(value, &array.array, param.ty)?,
            lost => lost,
        };
        return match lost {
            Some(lost) => Err(mismatch(lost)),
            None => Ok(array),
        };
    };
    if is_masked(array)? {
        return Err(mismatch(format!("a {}: {UNMASKED}", describe(array))));
    }
    let descr = array.dtype();
    if has_type(&descr, param.ty) {
        if param.mode != Mode::In && !is_writable(array) {
            return Err(mismatch(format!("a read-only {}", describe(array))));
        }
        return Ok(Typed::new(array.clone(), false));
    }
    if param.mode == Mode::In && casts_safely(&descr, &dtype(py, param.ty)?) {
        if let Some(inexact) = inexact(array, param.ty)? {
            return Err(mismatch(inexact));
        }
        return Ok(Typed::new(array.clone(), true));
    }
    Err(mismatch(describe(array)))
}

/// The array of another library, by DLPack or from a sparse matrix.
fn from_other<'py>(
    value: &Bound<'py, PyAny>,
    is_written: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    // Python's own types are common, and are not arrays of other libraries.
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyString>() || value.is_none() {
        return Ok(None);
    }
    let module = py.import(intern!(py, "farcall._arrays"))?;
    let array = module.call_method1(intern!(py, "from_other"), (value, is_written))?;
    Ok((!array.is_none()).then_some(array))
}

/// An array from a list, a number or a text; none if the conversion would lose something.
fn from_values<'py>(ty: Type, value: &Bound<'py, PyAny>) -> PyResult<Option<Typed<'py>>> {
    let py = value.py();
    if value.is_none() {
        return Ok(None);
    }
    let numpy = numpy(py)?;
    let bytes = match value.cast::<PyString>() {
        Ok(text) if ty == Type::Char => match text.to_str() {
            Ok(text) => PyBytes::new(py, text.as_bytes()).into_any(),
            Err(_) => return Ok(None),
        },
        _ => value.clone(),
    };
    // NumPy would make one text of them.
    let takes_bytes = matches!(ty, Type::Char | Type::SignedChar | Type::UnsignedChar);
    if takes_bytes && bytes.is_instance_of::<PyBytes>() {
        let array = numpy.call_method1(intern!(py, "frombuffer"), (bytes, dtype(py, ty)?))?;
        return Ok(Some(Typed::new(array.cast_into()?, false)));
    }
    let array = match numpy.call_method1(intern!(py, "asarray"), (value,)) {
        Ok(array) => array,
        Err(error) if is_about_the_value(py, &error) => return Ok(None),
        // The caller's own object has failed, or Ctrl-C has come while it ran.
        Err(error) => return Err(error),
    };
    let array: Bound<'py, PyUntypedArray> = array.cast_into()?;
    let (from, to) = (array.dtype(), dtype(py, ty)?);
    let fits = casts_safely(&from, &to)
        || array.is_empty()
        // Python's numbers have no width: an integer must fit, a float is rounded.
        || (from.kind() == b'i' && ty.is_integer() && in_range(&array, ty)?)
        || (matches!(from.kind(), b'f' | b'i') && matches!(to.kind(), b'f' | b'c'))
        || (from.kind() == b'c' && to.kind() == b'c');
    Ok(fits.then(|| Typed::new(array, true)))
}

/// Whether NumPy, or an object that it asks, says that a value is no array.
fn is_about_the_value(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py)
}

fn in_range(array: &Bound<'_, PyUntypedArray>, ty: Type) -> PyResult<bool> {
    let Some((least, greatest)) = ty.integer_range() else {
        return Ok(false);
    };
    let py = array.py();
    let lowest: i64 = array.call_method0(intern!(py, "min"))?.extract()?;
    let highest: i64 = array.call_method0(intern!(py, "max"))?.extract()?;
    Ok(least <= lowest && highest <= greatest)
}

/// Checks the shape against the layout of the call, and decides which memory travels.
pub(crate) fn place<'py>(
    function: &str,
    param: &Param,
    layout: &ArrayLayout,
    order: Order,
    given: &Bound<'py, PyAny>,
    typed: Typed<'py>,
) -> PyResult<Slot<'py>> {
    if param.is_fixed_texts() {
        return place_texts(function, (param, layout), given, &typed.texts);
    }
    let array = typed.array;
    let expected = layout.shape(order);
    if !fits(shape(&array), &expected) {
        let expected = format!(
            "{} of {} and shape {}",
            article(param),
            dtype_name(param.ty),
            shape_text(&expected)
        );
        let py = given.py();
        return Err(error::argument(
            py,
            function,
            &param.name,
            &expected,
            &describe(&array),
        ));
    }
    let in_order = match order {
        Order::RowMajor => array.is_c_contiguous(),
        Order::ColumnMajor => array.is_fortran_contiguous(),
    };
    let given = given.clone();
    if in_order && !typed.needs_conversion {
        return Ok(Slot {
            given,
            memory: array,
            source: None,
            target: None,
            is_made: false,
            texts: None,
        });
    }
    if param.mode != Mode::In && overlaps_itself(&array) {
        let expected = "an array whose elements do not share memory";
        let shown = describe(&array);
        return Err(error::argument(
            given.py(),
            function,
            &param.name,
            expected,
            &shown,
        ));
    }
    let shape = shape(&array).to_vec();
    let memory = match param.mode {
        Mode::Out if layout.is_full() => new(given.py(), &shape, param.ty, order, false)?,
        _ => copy(&array, &shape, param.ty, order)?,
    };
    Ok(Slot {
        given,
        memory,
        target: (param.mode != Mode::In).then(|| array.clone()),
        source: Some(array),
        is_made: false,
        texts: None,
    })
}

/// Memory with the texts of an argument.
fn place_texts<'py>(
    function: &str,
    (param, layout): (&Param, &ArrayLayout),
    given: &Bound<'py, PyAny>,
    texts: &[String],
) -> PyResult<Slot<'py>> {
    let slot = Slot::fields(layout, given.clone())?;
    // SAFETY: the memory is new.
    let written = texts::write((param, layout), texts, unsafe { slot.bytes_mut() });
    match written {
        Ok(()) => Ok(slot),
        Err(error) => Err(error::arguments(given.py(), function, &error.to_string())),
    }
}

/// A new array with the bytes of a callback's argument; read-only for IN.
pub(crate) fn argument<'py>(
    py: Python<'py>,
    param: &Param,
    layout: &ArrayLayout,
    order: Order,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let shape: Vec<usize> = layout.shape(order).iter().map(|&n| n as usize).collect();
    let array = new(py, &shape, param.ty, order, false)?;
    let (start, length) = range(&array);
    assert_eq!(length, bytes.len(), "the layout fits the argument");
    // SAFETY: the array is new, and as long as the bytes.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), length) };
    if param.mode == Mode::In {
        array
            .getattr(intern!(py, "flags"))?
            .setattr("writeable", false)?;
    }
    Ok(array)
}

/// The bytes of an array from [`argument`].
pub(crate) fn copy_out(array: &Bound<'_, PyUntypedArray>, bytes: &mut [u8]) {
    let (start, length) = range(array);
    let length = length.min(bytes.len());
    // SAFETY: the array is contiguous, and is held with the interpreter while it is read.
    bytes[..length].copy_from_slice(unsafe { slice(start, length) });
}

impl<'py> Slot<'py> {
    /// An OUT array that the caller left out.
    pub(crate) fn make(
        py: Python<'py>,
        param: &Param,
        layout: &ArrayLayout,
        order: Order,
    ) -> PyResult<Slot<'py>> {
        if param.is_fixed_texts() {
            let slot = Slot::fields(layout, PyList::empty(py).into_any())?;
            return Ok(Slot {
                is_made: true,
                ..slot
            });
        }
        let shape: Vec<usize> = layout
            .shape(order)
            .iter()
            .map(|&size| size as usize)
            .collect();
        let memory = new(py, &shape, param.ty, order, !layout.is_full())?;
        Ok(Slot {
            given: memory.clone().into_any(),
            memory,
            source: None,
            target: None,
            is_made: true,
            texts: None,
        })
    }

    /// The memory of texts of fixed length; `list` gets them when the call is over.
    fn fields(layout: &ArrayLayout, list: Bound<'py, PyAny>) -> PyResult<Slot<'py>> {
        let shape = [layout.text_count(), layout.text_length()];
        let memory = new(list.py(), &shape, Type::Char, Order::RowMajor, true)?;
        Ok(Slot {
            memory,
            source: None,
            target: None,
            is_made: false,
            texts: layout.mode.is_returned().then_some(shape[1]),
            given: list,
        })
    }

    /// The memory of the caller's array, if a copy of it travels.
    pub(crate) fn copy_of(&self) -> Option<std::ops::Range<usize>> {
        let given = self.given.cast::<PyUntypedArray>().ok();
        let array = self.source.as_ref().or(given)?;
        let bounds = bounds(array);
        (!array.is_empty() && bounds != self.range()).then_some(bounds)
    }

    /// A stored array: nothing travels.
    pub(crate) fn at_server(handle: Bound<'py, PyAny>) -> PyResult<Slot<'py>> {
        Ok(Slot {
            memory: crate::handle::placeholder(handle.py())?,
            given: handle,
            source: None,
            target: None,
            is_made: false,
            texts: None,
        })
    }

    pub(crate) fn keep(self) -> Kept {
        Kept {
            given: self.given.unbind(),
            memory: self.memory.unbind(),
            source: self.source.map(Bound::unbind),
            target: self.target.map(Bound::unbind),
            is_made: self.is_made,
            texts: self.texts,
        }
    }

    /// The addresses of its memory.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let (start, length) = range(&self.memory);
        start as usize..start as usize + length
    }

    /// Whether this array and another one, which the call writes both, share memory at the caller.
    pub(crate) fn shares(&self, other: &Slot<'py>) -> PyResult<bool> {
        /// Bound on the work of NumPy for arrays with steps; past it, they count as shared.
        const MOST_WORK: usize = 1 << 20;
        let [one, other] = [self, other].map(|slot| slot.target.as_ref().unwrap_or(&slot.memory));
        let (here, there) = (bounds(one), bounds(other));
        if one.is_empty() || other.is_empty() || here.end <= there.start || there.end <= here.start
        {
            return Ok(false);
        }
        let py = one.py();
        let shared = numpy(py)?.call_method1(intern!(py, "shares_memory"), (one, other, MOST_WORK));
        // NumPy raises an exception if it would take longer.
        Ok(shared.and_then(|shared| shared.extract()).unwrap_or(true))
    }

    /// Copies an IN array that shares memory with an OUT array.
    pub(crate) fn detach(&mut self, ty: Type, order: Order) -> PyResult<()> {
        let shape = shape(&self.memory).to_vec();
        let copy = copy(&self.memory, &shape, ty, order)?;
        let shared = std::mem::replace(&mut self.memory, copy);
        self.source.get_or_insert(shared);
        Ok(())
    }

    /// The bytes of an IN array.
    ///
    /// # Safety
    /// The slot must outlive the slice, and nothing may write to its memory meanwhile.
    pub(crate) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        let (start, length) = range(&self.memory);
        // SAFETY: `place` and `make` leave contiguous memory only; the rest is the caller's.
        unsafe { slice(start, length) }
    }

    /// The bytes of an OUT or INOUT array.
    ///
    /// # Safety
    /// As for [`Slot::bytes`], and nothing else may read the memory meanwhile.
    pub(crate) unsafe fn bytes_mut<'a>(&self) -> &'a mut [u8] {
        match range(&self.memory) {
            (_, 0) => &mut [],
            // SAFETY: as above; `typed` lets only writable arrays be OUT.
            (start, length) => unsafe { std::slice::from_raw_parts_mut(start, length) },
        }
    }

    /// Copies the results to the caller's own array, if a copy travelled.
    pub(crate) fn finish(&self) -> PyResult<()> {
        match (&self.target, self.texts) {
            (Some(target), _) => copy_into(target, &self.memory),
            // SAFETY: the call is over.
            (None, Some(length)) => texts::fill(&self.given, unsafe { self.bytes() }, length),
            (None, None) => Ok(()),
        }
    }

    /// The value in the result: a number if the caller left out an array of one element.
    pub(crate) fn result(&self, is_number: bool) -> PyResult<Bound<'py, PyAny>> {
        match self.is_made && is_number {
            true if self.texts.is_some() => self.given.get_item(0),
            true => self.given.call_method0(intern!(self.given.py(), "item")),
            false => Ok(self.given.clone()),
        }
    }
}

/// The shape; empty for an array without dimensions, whose pointer may be null.
pub(crate) fn shape<'a>(array: &'a Bound<'_, PyUntypedArray>) -> &'a [usize] {
    match array.ndim() {
        0 => &[],
        _ => array.shape(),
    }
}

fn is_writable(array: &Bound<'_, PyUntypedArray>) -> bool {
    // SAFETY: the array is alive, so its header is.
    let flags = unsafe { (*array.as_array_ptr()).fields.flags };
    flags & npyffi::NPY_ARRAY_WRITEABLE != 0
}

fn range(array: &Bound<'_, PyUntypedArray>) -> (*mut u8, usize) {
    // SAFETY: the array is alive, so its header is.
    let start = unsafe { (*array.as_array_ptr()).fields.data };
    (start.cast(), array.len() * array.dtype().itemsize())
}

/// The range of the addresses of all elements.
fn bounds(array: &Bound<'_, PyUntypedArray>) -> std::ops::Range<usize> {
    let (start, _) = range(array);
    let (mut first, mut last) = (start as isize, start as isize);
    for (size, stride) in shape(array).iter().zip(array.strides()) {
        let reach = (*size as isize - 1).max(0) * stride;
        first += reach.min(0);
        last += reach.max(0);
    }
    first as usize..last as usize + array.dtype().itemsize()
}

/// # Safety
/// As for `std::slice::from_raw_parts`, except that an empty slice may start anywhere.
unsafe fn slice<'a>(start: *const u8, length: usize) -> &'a [u8] {
    match length {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(start, length) },
    }
}

/// An array to store at a server: contiguous, with its type, and whether it is in columns.
pub(crate) fn to_put<'py>(
    value: &Bound<'py, PyAny>,
    order: Option<&str>,
) -> PyResult<(Bound<'py, PyUntypedArray>, Type, bool)> {
    let py = value.py();
    let refuse = |name: &str, expected: &str, given: String| {
        Err(error::argument(py, "put", name, expected, &given))
    };
    if let Ok(array) = value.cast::<PyUntypedArray>()
        && is_masked(array)?
    {
        return refuse("array", "an array", format!("a masked array: {UNMASKED}"));
    }
    let numpy = numpy(py)?;
    let array = numpy.call_method1(intern!(py, "asarray"), (value,))?;
    let array: Bound<'py, PyUntypedArray> = array.cast_into()?;
    if has_masks(value, array.ndim())? {
        let given = format!("a list with a masked array: {UNMASKED}");
        return refuse("array", "an array", given);
    }
    let array = native(array)?;
    let Some(ty) = type_of(&array.dtype()) else {
        let (expected, given) = ("an array of numbers that functions take", describe(&array));
        let like = match array.dtype().kind() {
            b'b' => "uint8",
            b'c' => "complex",
            _ => "float",
        };
        let given = format!("{given}; convert it first, as in `array.astype({like:?})`");
        return refuse("array", expected, given);
    };
    if value.cast::<PyUntypedArray>().is_err()
        && let Some(lost) = rounded(value, &array, ty)?
    {
        return refuse("array", "an array", lost);
    }
    let column_major = match order {
        None => array.is_fortran_contiguous() && !array.is_c_contiguous(),
        Some("C") => false,
        Some("F") => true,
        Some(other) => return refuse("order", "\"C\" or \"F\"", other.to_owned()),
    };
    let (order, is_right) = match column_major {
        true => (Order::ColumnMajor, array.is_fortran_contiguous()),
        false => (Order::RowMajor, array.is_c_contiguous()),
    };
    let array = match is_right {
        true => array,
        false => {
            let shape = shape(&array).to_vec();
            copy(&array, &shape, ty, order)?
        }
    };
    Ok((array, ty, column_major))
}

/// A new array.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: &[usize],
    ty: Type,
    order: Order,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    new(py, shape, ty, order, false)
}

/// The addresses of an array that is contiguous.
pub(crate) fn address(array: &Bound<'_, PyUntypedArray>) -> std::ops::Range<usize> {
    bounds(array)
}

/// The bytes of an array that is contiguous.
///
/// # Safety
/// The array outlives the slice, and nothing writes to it meanwhile.
pub(crate) unsafe fn contents<'a>(array: &Bound<'_, PyUntypedArray>) -> &'a [u8] {
    let (start, length) = range(array);
    // SAFETY: the caller's promise.
    unsafe { slice(start, length) }
}

/// The same bytes, to write to.
///
/// # Safety
/// As for [`contents`], and nothing else reads it meanwhile.
pub(crate) unsafe fn contents_mut<'a>(array: &Bound<'_, PyUntypedArray>) -> &'a mut [u8] {
    match range(array) {
        (_, 0) => &mut [],
        // SAFETY: the caller's promise.
        (start, length) => unsafe { std::slice::from_raw_parts_mut(start, length) },
    }
}

fn new<'py>(
    py: Python<'py>,
    shape: &[usize],
    ty: Type,
    order: Order,
    zeroed: bool,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let mut dims: Vec<npy_intp> = shape.iter().map(|&size| size as npy_intp).collect();
    let descr = dtype(py, ty)?.into_dtype_ptr();
    let column_major = i32::from(order == Order::ColumnMajor);
    let (rank, dims) = (dims.len() as i32, dims.as_mut_ptr());
    // SAFETY: NumPy copies the `rank` sizes, takes the reference on the type, and returns a new
    // reference or null with an exception set.
    let array = unsafe {
        let array = match zeroed {
            true => PY_ARRAY_API.PyArray_Zeros(py, rank, dims, descr, column_major),
            false => PY_ARRAY_API.PyArray_Empty(py, rank, dims, descr, column_major),
        };
        Bound::from_owned_ptr_or_err(py, array)?
    };
    Ok(array.cast_into()?)
}

fn copy<'py>(
    array: &Bound<'py, PyUntypedArray>,
    shape: &[usize],
    ty: Type,
    order: Order,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = array.py();
    let memory = new(py, shape, ty, order, false)?;
    match ty == Type::Char && matches!(array.dtype().kind(), b'i' | b'u') {
        // The codes of characters, of any width.
        true => {
            let codes = array.call_method1(intern!(py, "astype"), (intern!(py, "u1"),))?;
            copy_into(&memory, &codes.cast_into()?)?;
        }
        false => copy_into(&memory, array)?,
    }
    Ok(memory)
}

fn copy_into(to: &Bound<'_, PyUntypedArray>, from: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let py = to.py();
    let (there, here) = (to.dtype(), from.dtype());
    // A character stays its code; NumPy would write the code as digits.
    let is_code = here.kind() != there.kind() && (here.kind() == b'S' || there.kind() == b'S');
    let codes = match is_code && (here.itemsize(), there.itemsize()) == (1, 1) {
        true => Some(from.call_method1(intern!(py, "view"), (there,))?),
        false => None,
    };
    let codes = codes.map(Bound::cast_into).transpose()?;
    let from = codes.as_ref().unwrap_or(from);
    // SAFETY: both are arrays of the same shape; NumPy checks types and writability.
    let done = unsafe { PY_ARRAY_API.PyArray_CopyInto(py, to.as_array_ptr(), from.as_array_ptr()) };
    if done < 0 {
        Err(PyErr::fetch(py))
    } else {
        Ok(())
    }
}

fn article(param: &Param) -> &'static str {
    match param.mode {
        Mode::In => "an array",
        Mode::Work => "no argument: the parameter is work space",
        Mode::Out | Mode::InOut => "a writable array",
    }
}

/// A description of an array, for error messages.
pub(crate) fn describe(array: &Bound<'_, PyUntypedArray>) -> String {
    let shape: Vec<u64> = shape(array).iter().map(|&size| size as u64).collect();
    let masked = match is_masked(array) {
        Ok(true) => "masked ",
        _ => "",
    };
    format!(
        "{masked}{} array of shape {}",
        array.dtype(),
        shape_text(&shape)
    )
}

/// The error of NumPy's question for the array of an object that stands for one: what the object
/// is, and how to get the array.
pub(crate) fn not_here(name: &str, what: &str, get: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{name} {what}, and is not an array here. Get the array with {get}"
    ))
}

pub(crate) fn shape_text(shape: &[u64]) -> String {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    match sizes.len() {
        1 => format!("({},)", sizes[0]),
        _ => format!("({})", sizes.join(", ")),
    }
}

pub(crate) fn numpy(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?;
    Ok(module.bind(py).clone())
}
