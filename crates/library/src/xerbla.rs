//! The error handler of BLAS and LAPACK.
//!
//! BLAS and LAPACK call `XERBLA` with the name of a routine and the number of an argument that has
//! an illegal value. LAPACK's handler prints a line and stops the program; OpenBLAS's only prints.
//! The program that runs workers exports the handler below. The dynamic linker binds libraries to
//! it before their own. A call fails with the text of the handler, unless the function has an
//! `info` that reports the same.

use farcall_idl::{Body, Interface};
use std::ffi::{c_char, c_int};
use std::fmt;
use std::slice;
use std::sync::{Mutex, PoisonError};

/// A routine's report about an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongArgument {
    /// The name that the routine gives.
    pub routine: String,
    /// The number of its argument, from 1.
    pub number: c_int,
}

/// The first wrong argument of the running call.
static WRONG: Mutex<Option<WrongArgument>> = Mutex::new(None);

/// Keeps the linker from removing the handler.
#[used]
static HANDLER: unsafe extern "C" fn(*const c_char, *const c_int, usize) = xerbla_;

/// `SUBROUTINE XERBLA(SRNAME, INFO)`.
///
/// # Safety
/// As Fortran calls it: `name` has `length` characters, `number` points to an integer.
#[unsafe(no_mangle)]
unsafe extern "C" fn xerbla_(name: *const c_char, number: *const c_int, length: usize) {
    /// Longest name to read. Names of routines have 6 characters or a few more, and a caller in C
    /// might pass no length.
    const MOST: usize = 32;
    // SAFETY: the caller's promise.
    let (name, number) = unsafe {
        let name = slice::from_raw_parts(name.cast::<u8>(), length.min(MOST));
        (String::from_utf8_lossy(name).into_owned(), number.read())
    };
    let routine = name.trim_matches([' ', '\0']).to_string();
    let mut wrong = WRONG.lock().unwrap_or_else(PoisonError::into_inner);
    wrong.get_or_insert(WrongArgument { routine, number });
}

/// Takes the report since the last call of this function.
pub(crate) fn take() -> Option<WrongArgument> {
    WRONG.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl fmt::Display for WrongArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongArgument { routine, number } = self;
        write!(f, "argument {number} of {routine} has an illegal value")
    }
}

impl WrongArgument {
    /// The error text for the caller of the interface.
    pub fn text(&self, interface: &Interface) -> String {
        let WrongArgument { routine, number } = self;
        let name = match &interface.body {
            Body::Calls { function, args, .. } if function.eq_ignore_ascii_case(routine) => {
                usize::try_from(i64::from(*number) - 1)
                    .ok()
                    .and_then(|index| args.get(index)?.param())
                    .and_then(|param| interface.params.get(param))
                    .map(|param| format!(" (`{}`)", param.name))
            }
            _ => None,
        };
        let name = name.unwrap_or_default();
        format!("argument {number}{name} of {routine} has an illegal value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_idl::parse_interface;

    #[test]
    fn the_first_wrong_argument_is_named() {
        let interface = "Define solve(IN int n, IN int lda, IN double a[n]) \
                         Calls \"FORTRAN\" dsolve(n, a, lda);";
        let interface = parse_interface(interface).unwrap();
        for (name, number) in [("DSOLVE ", 3), ("DOTHER", 1)] {
            // SAFETY: as Fortran calls it.
            unsafe { xerbla_(name.as_ptr().cast(), &number, name.len()) };
        }
        let wrong = take().unwrap();
        let text = "argument 3 (`lda`) of DSOLVE has an illegal value";
        assert_eq!(wrong.text(&interface), text);
        assert_eq!(take(), None);
    }
}
