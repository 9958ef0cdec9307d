//! The shapes of arrays, for languages that make the arrays which a call fills. The sizes follow
//! from the scalars of the call; this module asks no server.

use crate::argument::{self, Value};
use crate::call::unchecked;
use crate::error::{Problem, guard};
use crate::function::{Function, share};
use farcall_client::LaidOut;
use farcall_idl::{LayoutError, Order, Param, Type};
use std::ffi::c_void;

/// Stores the lengths of an array argument in a call with these arguments, which are as for
/// `farcall_call_array`. This reads only scalars, arrays of texts without a length limit, and
/// arrays whose elements decide sizes; other arrays may be NULL. Returns the number of dimensions,
/// and stores the first `room` lengths; 0 for a scalar, -1 on failure. The order of the lengths is
/// that of `farcall_column_major`. The room of texts is no dimension. Since `FARCALL_1.8`.
///
/// # Safety
/// `function` is from `farcall_function_of`, `arguments` points to `count` addresses, and `shape`
/// to `room` lengths. The scalars are of the types of the interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_argument_shape(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
    index: usize,
    shape: *mut usize,
    room: usize,
) -> i32 {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let function = unsafe { share(function) }?;
        // SAFETY: as above.
        let given: Vec<Value> = unsafe { unchecked(arguments, count) }?;
        let values = argument::by_parameter(&function, &given)?;
        // SAFETY: as above.
        let laid_out = unsafe { argument::lay_out(&function, &values) }?;
        let Some(mut lengths) = lengths(&function, &laid_out, index)? else {
            return Ok(0);
        };
        if function.interface().order() == Order::ColumnMajor {
            lengths.reverse();
        }
        if room > 0 && shape.is_null() {
            return Err(Problem::null("shape"));
        }
        for (place, length) in lengths.iter().take(room).enumerate() {
            // SAFETY: the caller's promise: there is room for so many.
            unsafe { shape.add(place).write(*length as usize) };
        }
        Ok(i32::try_from(lengths.len()).unwrap_or(i32::MAX))
    })
}

/// The lengths of an argument as the interface declares them; `None` for a scalar.
fn lengths(
    function: &Function,
    laid_out: &LaidOut,
    index: usize,
) -> Result<Option<Vec<u64>>, Problem> {
    let interface = function.interface();
    let param = function.place(index);
    // Texts without a length travel with the scalars.
    if let Some(param) =
        param.filter(|&param| interface.params.get(param).is_some_and(Param::is_texts))
    {
        let shape = interface.text_shape(param, laid_out.values());
        let named = |error: LayoutError| {
            Problem::argument(format!("{}: {error}", function.client.qualified_name()))
        };
        return shape.map(Some).map_err(named);
    }
    let mut arrays = laid_out.layout().arrays.iter();
    Ok(arrays
        .find(|array| Some(array.param) == param)
        .map(|array| {
            let mut lengths = array.shape(Order::RowMajor);
            if array.element == Type::FixedString {
                // The room of each text.
                lengths.pop();
            }
            lengths
        }))
}

/// 1 if the first index of the arrays of a function varies fastest (`Calls "FORTRAN"`), 0 if the
/// last one does. Since `FARCALL_1.8`.
///
/// # Safety
/// `function` is from `farcall_function_of`, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_column_major(function: *const Function) -> i32 {
    // SAFETY: the caller's promise.
    let function = unsafe { function.as_ref() };
    i32::from(function.is_some_and(|it| it.interface().order() == Order::ColumnMajor))
}
