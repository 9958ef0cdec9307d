//! What a caller passes for each parameter.

use crate::{Callback, DataName, HandleId};
use farcall_idl::{ArrayLayout, ElementError, Interface, Layout, LayoutError, Mode, Param, Scalar};
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
    /// An array that stays at the server.
    Handle(HandleId),
    /// Data with a name, wherever they are. They are read and not written.
    Named(DataName),
}

impl Argument<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Argument::In(bytes) => bytes,
            Argument::Out(bytes) => bytes,
            Argument::Scalar(_)
            | Argument::Skip
            | Argument::Function(_)
            | Argument::Handle(_)
            | Argument::Named(_) => &[],
        }
    }

    fn what(&self) -> &'static str {
        match self {
            Argument::Scalar(_) => "a scalar",
            Argument::In(_) => "an IN array",
            Argument::Out(_) => "an array to write to",
            Argument::Skip => "nothing",
            Argument::Function(_) => "a function",
            Argument::Handle(_) => "a handle",
            Argument::Named(_) => "data with a name",
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

/// The arrays that stay at the server, by their index among the arrays.
pub(crate) fn handles(layout: &Layout, arguments: &[Argument<'_>]) -> Vec<(u32, HandleId)> {
    let arrays = (0u32..).zip(&layout.arrays);
    let handle = |(index, array): (u32, &ArrayLayout)| match &arguments[array.param] {
        Argument::Handle(id) => Some((index, *id)),
        _ => None,
    };
    arrays.filter_map(handle).collect()
}

/// Whether an array is at a server.
pub(crate) fn is_at_server(argument: &Argument<'_>) -> bool {
    matches!(argument, Argument::Handle(_) | Argument::Named(_))
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

/// Which way the arrays of a call go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// There and back.
    Both,
    /// They are sent, and the results fetched later.
    There,
    /// They were sent before.
    Back,
}

/// Whether an array argument is of the kind and length that the layout says.
pub(crate) fn check_array(
    param: &Param,
    array: &ArrayLayout,
    argument: &Argument<'_>,
    way: Way,
) -> Result<(), ArgumentError> {
    let is_idle = match way {
        Way::Both => param.mode == Mode::Work,
        Way::There => !param.mode.is_sent(),
        Way::Back => !param.mode.is_returned(),
    };
    let expected = match (param.mode, argument) {
        (_, Argument::Skip) if is_idle => return Ok(()),
        // The server knows its form.
        (_, Argument::Handle(_)) if way == Way::Both && param.mode != Mode::Work => return Ok(()),
        (Mode::In, Argument::Named(_)) if way == Way::Both => return Ok(()),
        (Mode::Work, _) => Some("nothing, it is work space"),
        (_, Argument::In(_)) if way == Way::There && param.mode.is_sent() => None,
        (Mode::In, Argument::In(_)) => None,
        (Mode::Out | Mode::InOut, Argument::Out(_)) => None,
        (Mode::In, _) => Some("an IN array"),
        (Mode::Out | Mode::InOut, _) if way == Way::There => Some("an array"),
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
