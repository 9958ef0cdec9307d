//! What a caller passes for each parameter.

use crate::Callback;
use farcall_idl::{ArrayLayout, ElementError, Interface, LayoutError, Mode, Param, Scalar};
use farcall_rpc_proto::Call;

/// What a caller passes for one parameter; the functions that a function calls back come after all
/// parameters.
///
/// Arrays are the bytes of the whole declared array, contiguous in the declared order of indices
/// and in the byte order of this machine.
#[derive(Debug)]
pub enum Argument<'a> {
    /// The value of a scalar, or an array of texts.
    Scalar(Scalar),
    /// An IN array.
    In(&'a [u8]),
    /// An OUT or INOUT array. After a failed call its contents are undefined.
    Out(&'a mut [u8]),
    /// Work space, which exists only at the server.
    Skip,
    /// A function of the caller.
    Function(Callback),
}

impl Argument<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Argument::In(bytes) => bytes,
            Argument::Out(bytes) => bytes,
            Argument::Scalar(_) | Argument::Skip | Argument::Function(_) => &[],
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Argument::Scalar(_) => "a scalar",
            Argument::In(_) => "an IN array",
            Argument::Out(_) => "an array to write to",
            Argument::Skip => "nothing",
            Argument::Function(_) => "a function",
        }
    }
}

/// Arguments that do not fit the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// The number of arguments is wrong.
    #[error("expected {expected} arguments, given {given}")]
    Count {
        /// Parameters and callbacks of the interface.
        expected: usize,
        /// Arguments given.
        given: usize,
    },
    /// An argument is of the wrong kind.
    #[error("argument `{argument}`: expected {expected}, given {given}")]
    Kind {
        /// Its name.
        argument: String,
        /// What the parameter takes.
        expected: &'static str,
        /// What was given.
        given: &'static str,
    },
    /// An array has the wrong length.
    #[error("argument `{argument}`: expected {expected} bytes, given {given}")]
    Length {
        /// Its name.
        argument: String,
        /// Bytes the dimensions come to.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// Scalars and texts are too long for one message.
    #[error("its scalars and texts have {given} bytes, at most {most} can be sent")]
    TooLong {
        /// Bytes that there may be.
        most: usize,
        /// Bytes that there are.
        given: usize,
    },
    /// A scalar does not fit, or sizes do not come out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An array element that a size depends on is not there.
    #[error(transparent)]
    Element(#[from] ElementError),
}

/// The scalars among the arguments, in the form of [`Interface::layout`].
pub(crate) fn scalars(
    interface: &Interface,
    arguments: &[Argument<'_>],
) -> Result<Vec<Option<Scalar>>, ArgumentError> {
    let expected = interface.params.len() + interface.callbacks.len();
    if arguments.len() != expected {
        return Err(ArgumentError::Count {
            expected,
            given: arguments.len(),
        });
    }
    let value = |(param, argument): (&Param, &Argument<'_>)| match argument {
        Argument::Scalar(value) if param.is_value() => Ok(Some(
            value.clone().convert(param).map_err(LayoutError::Scalar)?,
        )),
        _ => Ok(None),
    };
    interface.params.iter().zip(arguments).map(value).collect()
}

/// Whether the call fits one message, which is looked at where there are long texts.
pub(crate) fn check_length(call: &Call) -> Result<(), ArgumentError> {
    const MOST: usize = 1 << 20;
    const LONG: usize = MOST / 4;
    let texts = call.scalars.iter().map(|scalar| match scalar {
        Some(Scalar::Text(text)) => text.len(),
        Some(Scalar::Texts(texts)) => texts.iter().map(|text| text.len() + 9).sum(),
        _ => 0,
    });
    if texts.sum::<usize>() < LONG {
        return Ok(());
    }
    // Places of arrays and the number of the function come to it later.
    let room = 64 + 32 * call.scalars.len();
    let mut message = Vec::new();
    call.encode(&mut message);
    let (most, given) = (MOST - room, message.len());
    match given <= most {
        true => Ok(()),
        false => Err(ArgumentError::TooLong { most, given }),
    }
}

/// The functions of the caller among the arguments.
pub(crate) fn callbacks(
    interface: &Interface,
    arguments: &[Argument<'_>],
) -> Result<Vec<Callback>, ArgumentError> {
    let given = &arguments[interface.params.len()..];
    let callbacks = interface.callbacks.iter().zip(given);
    let callbacks = callbacks.map(|(callback, argument)| match argument {
        Argument::Function(function) => Ok(function.clone()),
        other => Err(ArgumentError::Kind {
            argument: callback.name.clone(),
            expected: "a function",
            given: other.what(),
        }),
    });
    callbacks.collect()
}

/// The values of array elements that sizes depend on.
pub(crate) fn elements(
    interface: &Interface,
    scalars: &[Option<Scalar>],
    arguments: &[Argument<'_>],
) -> Result<Vec<i64>, ArgumentError> {
    if interface.element_refs.is_empty() {
        return Ok(Vec::new());
    }
    Ok(interface.element_values(scalars, |param| arguments[param].bytes())?)
}

/// Whether an array argument is of the kind and length that the layout says.
pub(crate) fn check_array(
    param: &Param,
    array: &ArrayLayout,
    argument: &Argument<'_>,
) -> Result<(), ArgumentError> {
    let expected = match (param.mode, argument) {
        (Mode::In, Argument::In(_)) | (Mode::Work, Argument::Skip) => None,
        (Mode::Out | Mode::InOut, Argument::Out(_)) => None,
        (Mode::In, _) => Some("an IN array"),
        (Mode::Work, _) => Some("nothing, it is work space"),
        (Mode::Out | Mode::InOut, _) => Some("an array to write to"),
    };
    let argument_name = || param.name.clone();
    if let Some(expected) = expected {
        let given = argument.what();
        return Err(ArgumentError::Kind {
            argument: argument_name(),
            expected,
            given,
        });
    }
    let given = argument.bytes().len() as u64;
    if given != array.client_bytes {
        let expected = array.client_bytes;
        return Err(ArgumentError::Length {
            argument: argument_name(),
            expected,
            given,
        });
    }
    Ok(())
}
