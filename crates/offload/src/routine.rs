//! A function of a drop-in library as its interface describes it. This module reads the arguments
//! of a call, which come as one address each in the order of the function. It reads only scalars.

use farcall_idl::{
    Body, Constant, Convention, Interface, Mode, Op, Passed, Scalar, Type, parse_interface,
};
use std::ffi::c_void;

/// A function.
#[derive(Debug)]
pub(crate) struct Routine {
    pub(crate) interface: Interface,
    /// Name of the function, such as `dgesv`.
    pub(crate) name: String,
    arguments: Vec<Role>,
    /// Work arrays with the scalars that tell their lengths, as `work` and `lwork`.
    pub(crate) lengths: Vec<(usize, usize)>,
    pub(crate) has_work: bool,
    is_fortran: bool,
    /// The parameter that reports success.
    pub(crate) info: Option<usize>,
}

/// The arguments of one call.
pub(crate) struct Given {
    /// The address for each parameter.
    pub(crate) addresses: Vec<*mut u8>,
    /// The scalars, by parameter.
    pub(crate) scalars: Vec<Option<Scalar>>,
}

/// Why a call cannot go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// It asks for the size of its work space.
    Query,
    /// An argument is wrong or out of range; the real function reports it.
    Argument,
}

/// What an interface says of one argument of the function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    Param(usize),
    /// The server passes this letter. A call with another one stays here.
    Letter(u8),
    /// The server passes nothing. Fortran 77 has no null pointers, so this is an argument that the
    /// routine does not use in such a call.
    Unused,
}

impl Role {
    /// The parameter, if it is one.
    pub(crate) fn param(self) -> Option<usize> {
        match self {
            Role::Param(param) => Some(param),
            _ => None,
        }
    }
}

/// The arguments of a function, in order. `None` if it has no symbol, or if `Calls` passes
/// constants that a call cannot be compared with.
pub(crate) fn arguments(interface: &Interface) -> Option<Vec<Role>> {
    let Body::Calls {
        args, convention, ..
    } = &interface.body
    else {
        return None;
    };
    let is_fortran = *convention == Convention::Fortran;
    let argument = |passed: &Passed| match passed {
        Passed::Param(param) => Some(Role::Param(*param)),
        Passed::Constant(Constant::Character(letter)) if is_fortran => Some(Role::Letter(*letter)),
        Passed::Constant(Constant::Null) if is_fortran => Some(Role::Unused),
        Passed::Constant(_) => None,
    };
    args.iter().map(argument).collect()
}

impl Routine {
    /// Reads the interface of a function. `None` if it is not one that `library` writes.
    pub(crate) fn read(text: &str) -> Option<Routine> {
        let interface = parse_interface(text).ok()?;
        let arguments = arguments(&interface)?;
        let Body::Calls {
            convention,
            function,
            ..
        } = &interface.body
        else {
            return None;
        };
        let name = function.clone();
        let is_fortran = *convention == Convention::Fortran;
        let is_work = |param: &usize| interface.params[*param].mode == Mode::Work;
        let work: Vec<usize> = (0..interface.params.len()).filter(is_work).collect();
        let lengths = work.iter().filter_map(|&work| {
            let dims = interface.params[work].dims.iter();
            let mut scalars = dims
                .flat_map(|dim| dim.size.ops())
                .filter_map(|op| match op {
                    Op::Param(index) => Some(usize::from(*index)),
                    _ => None,
                });
            let length = scalars.find(|&scalar| interface.params[scalar].name.starts_with('l'))?;
            Some((work, length))
        });
        let lengths = lengths.collect();
        let info = interface.params.iter().position(|param| {
            param.name == "info" && param.mode == Mode::Out && param.ty == Type::Int
        });
        Some(Routine {
            has_work: !work.is_empty(),
            is_fortran,
            lengths,
            info,
            name,
            arguments,
            interface,
        })
    }

    /// Whether a call needs what this INOUT array contains. BLAS does not read C if beta is 0. If C
    /// is symmetric or hermitian, the other triangle stays what it was, so it must be there.
    pub(crate) fn reads(&self, param: usize, scalars: &[Option<Scalar>]) -> bool {
        let params = &self.interface.params;
        let is_blas = self.interface.module.as_deref() == Some("blas");
        let writes_all = matches!(self.name.get(1..), Some("gemm" | "symm" | "hemm"));
        let is_zero = self.is_zero("beta", scalars);
        !(is_blas && is_zero && writes_all && params[param].name == "c")
    }

    /// Whether a factor of this name is there, and 0.
    fn is_zero(&self, name: &str, scalars: &[Option<Scalar>]) -> bool {
        let params = &self.interface.params;
        let factor = params.iter().position(|param| param.name == name);
        match factor.and_then(|factor| scalars[factor].as_ref()) {
            Some(Scalar::Float(factor)) => *factor == 0.0,
            Some(Scalar::Complex { re, im }) => *re == 0.0 && *im == 0.0,
            _ => false,
        }
    }

    /// Reads the scalars of a call.
    ///
    /// # Safety
    /// `arguments` has an address for each argument of the function. Those of scalars are readable;
    /// an `int` has `integer` bytes.
    pub(crate) unsafe fn given(
        &self,
        arguments: *const *mut c_void,
        integer: u32,
    ) -> Result<Given, NotSent> {
        let mut addresses = vec![std::ptr::null_mut(); self.interface.params.len()];
        for (index, argument) in self.arguments.iter().enumerate() {
            // SAFETY: the caller's promise.
            let address = unsafe { *arguments.add(index) }.cast::<u8>();
            match *argument {
                Role::Param(param) => addresses[param] = address,
                Role::Unused => {}
                Role::Letter(_) if address.is_null() => return Err(NotSent::Argument),
                Role::Letter(letter) => {
                    // SAFETY: the caller's promise.
                    let given = unsafe { address.read() };
                    if !letter.eq_ignore_ascii_case(&given) {
                        return Err(NotSent::Argument);
                    }
                }
            }
        }
        let mut scalars = Vec::with_capacity(addresses.len());
        for (param, &address) in self.interface.params.iter().zip(&addresses) {
            scalars.push(match param.is_scalar() {
                false => None,
                true if address.is_null() => return Err(NotSent::Argument),
                // SAFETY: the caller's promise.
                true => Some(unsafe { self.scalar(param.ty, address, integer) }?),
            });
        }
        // With alpha 0, BLAS scales its result and reads no other matrix: none need be there.
        if self.may_have_less_memory(&scalars)
            || self.is_zero("alpha", &scalars)
            || self.has_own_letter(&scalars)
        {
            return Err(NotSent::Argument);
        }
        let is_query = |&(_, length): &(usize, usize)| scalars[length] == Some(Scalar::Int(-1));
        match self.lengths.iter().any(is_query) {
            true => Err(NotSent::Query),
            false => Ok(Given { addresses, scalars }),
        }
    }

    /// Whether a letter for a transposition is none of the routine: libraries differ in what they
    /// make of it, or report it.
    fn has_own_letter(&self, scalars: &[Option<Scalar>]) -> bool {
        let letters = self.transpositions().iter();
        let known: Vec<_> = letters
            .map(|letter| Some(Scalar::Int(i64::from(*letter))))
            .collect();
        let mut params = self.interface.params.iter().zip(scalars);
        params.any(|(param, scalar)| {
            self.is_fortran
                && param.ty == Type::Char
                && matches!(&*param.name, "trans" | "transa" | "transb")
                && !known.contains(scalar)
        })
    }

    /// The letters for transpositions that the routine takes. In BLAS, a hermitian result needs the
    /// conjugate, and a complex symmetric one does without.
    fn transpositions(&self) -> &'static [u8] {
        match (self.name.get(..1), self.name.get(1..)) {
            (_, Some("herk" | "her2k")) => b"NC",
            (Some("c" | "z"), Some("syrk" | "syr2k")) => b"NT",
            _ => b"NTC",
        }
    }

    /// Whether the program may have less memory than the interface declares: LAPACK asks for as
    /// many columns as eigenvalues are found, if they are selected by value.
    fn may_have_less_memory(&self, scalars: &[Option<Scalar>]) -> bool {
        let params = &self.interface.params;
        let range = params.iter().position(|param| param.name == "range");
        let letter = range.and_then(|range| scalars[range].as_ref());
        letter == Some(&Scalar::Int(i64::from(b'V')))
            && self.interface.module.as_deref() == Some("lapack")
    }

    /// The value of a scalar.
    ///
    /// # Safety
    /// As for [`scalar`].
    unsafe fn scalar(&self, ty: Type, address: *const u8, int: u32) -> Result<Scalar, NotSent> {
        if self.is_fortran && ty == Type::Char {
            // LAPACK takes both cases. A byte that is no letter is an error that it reports.
            // SAFETY: the caller's promise.
            let letter = unsafe { address.read() }.to_ascii_uppercase();
            let known = letter.is_ascii_uppercase();
            return known
                .then(|| Scalar::Int(letter.into()))
                .ok_or(NotSent::Argument);
        }
        // SAFETY: the caller's promise.
        unsafe { scalar(ty, address, int) }
    }
}

/// The value of a scalar.
///
/// # Safety
/// The address is that of a scalar of this type, in which an `int` has `integer` bytes.
unsafe fn scalar(ty: Type, address: *const u8, integer: u32) -> Result<Scalar, NotSent> {
    // SAFETY: the caller's promise, for each of the types below.
    let value = unsafe {
        match ty {
            Type::Int if integer == 8 => {
                let value = address.cast::<i64>().read_unaligned();
                let fits = i32::try_from(value).is_ok();
                return fits.then_some(Scalar::Int(value)).ok_or(NotSent::Argument);
            }
            Type::Int => Scalar::Int(address.cast::<i32>().read_unaligned().into()),
            Type::Short => Scalar::Int(address.cast::<i16>().read_unaligned().into()),
            Type::Long | Type::LongLong => Scalar::Int(address.cast::<i64>().read_unaligned()),
            Type::Char | Type::UnsignedChar => Scalar::Int(address.read().into()),
            Type::SignedChar => Scalar::Int(address.cast::<i8>().read().into()),
            Type::UnsignedShort => Scalar::Int(address.cast::<u16>().read_unaligned().into()),
            Type::UnsignedInt => Scalar::Int(address.cast::<u32>().read_unaligned().into()),
            Type::UnsignedLong | Type::UnsignedLongLong => {
                let value = address.cast::<u64>().read_unaligned();
                Scalar::Int(i64::try_from(value).map_err(|_| NotSent::Argument)?)
            }
            Type::Float => Scalar::Float(address.cast::<f32>().read_unaligned().into()),
            Type::Double => Scalar::Float(address.cast::<f64>().read_unaligned()),
            Type::SComplex => {
                let [re, im] = address.cast::<[f32; 2]>().read_unaligned();
                Scalar::Complex {
                    re: re.into(),
                    im: im.into(),
                }
            }
            Type::DComplex => {
                let [re, im] = address.cast::<[f64; 2]>().read_unaligned();
                Scalar::Complex { re, im }
            }
            Type::String | Type::FixedString | Type::Filename | Type::FilePointer => {
                return Err(NotSent::Argument);
            }
        }
    };
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a call of this function of BLAS, with a `beta` of 0, needs the contents of C.
    fn reads_c(function: &str, front: &str) -> bool {
        let names = front.replace("IN char ", "");
        let text = format!(
            "Module blas;\nDefine {function}({front} IN int n, IN double beta, \
             INOUT double c[n][n]) Calls \"FORTRAN\" {function}({names}n, beta, c);"
        );
        let routine = Routine::read(&text).expect("an interface");
        let params = &routine.interface.params;
        let scalar = |param: &farcall_idl::Param| match param.ty {
            Type::Double if param.is_scalar() => Some(Scalar::Float(0.0)),
            _ if param.is_scalar() => Some(Scalar::Int(85)),
            _ => None,
        };
        let scalars: Vec<Option<Scalar>> = params.iter().map(scalar).collect();
        routine.reads(params.len() - 1, &scalars)
    }

    #[test]
    fn a_letter_that_a_routine_does_not_take_stays_here() {
        let stays = |function: &str, letter: u8| {
            let text = format!(
                "Module blas;\nDefine {function}(IN char trans, IN int n, INOUT double c[n][n]) \
                 Calls \"FORTRAN\" {function}(trans, n, c);"
            );
            let routine = Routine::read(&text).expect("an interface");
            let letter = Some(Scalar::Int(letter.into()));
            routine.has_own_letter(&[letter, Some(Scalar::Int(1)), None])
        };
        assert!(!stays("zherk", b'C') && stays("zherk", b'T'));
        assert!(!stays("csyr2k", b'T') && stays("csyr2k", b'C'));
        assert!(!stays("dsyrk", b'C') && stays("dsyrk", b'R'));
    }

    #[test]
    fn a_triangle_that_is_not_written_stays_what_it_was() {
        assert!(!reads_c("dgemm", ""));
        assert!(!reads_c("dsymm", "IN char side, IN char uplo,"));
        for function in ["dsyrk", "dsyr2k", "zherk", "zher2k"] {
            assert!(reads_c(function, "IN char uplo,"), "{function}");
        }
    }
}
