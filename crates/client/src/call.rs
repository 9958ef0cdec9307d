//! A call before it is made: what its scalars say of its arrays, and whether its arguments fit.
//!
//! The layout of a call is computed here, once, whichever server the call goes to and however often
//! it is begun.

use crate::argument::Argument;
use crate::callback::Callback;
use crate::description::Description;
use crate::error::{ArgumentError, Error};
use farcall_idl::{ArrayLayout, Interface, Layout, LayoutError, Mode, Param, Scalar, SharedRange};
use farcall_rpc_proto::{self as proto, HandleId};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

#[cfg(test)]
mod tests;

/// Stands for memory of the server, where an array has its place that stays there.
const AT_SERVER: u64 = u64::MAX;

/// A call of one function whose scalars are known, and so the sizes of its arrays, which may be
/// made by then.
#[derive(Clone)]
pub struct LaidOut {
    description: Arc<Description>,
    scalars: Vec<Option<Scalar>>,
    elements: Vec<i64>,
    layout: Arc<Layout>,
}

impl fmt::Debug for LaidOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let function = &self.description.qualified;
        write!(f, "LaidOut({function}, {:?})", self.layout)
    }
}

impl LaidOut {
    pub(crate) fn new(
        description: &Arc<Description>,
        scalars: Vec<Option<Scalar>>,
        elements: Vec<i64>,
    ) -> Result<LaidOut, LayoutError> {
        let layout = description.interface.layout(&scalars, &elements)?;
        Ok(LaidOut {
            description: description.clone(),
            layout: Arc::new(layout),
            scalars,
            elements,
        })
    }

    /// The layout that the scalars among the arguments give the call.
    fn of(
        description: &Arc<Description>,
        arguments: &[Argument<'_>],
    ) -> Result<LaidOut, ArgumentError> {
        let interface = &description.interface;
        let scalars = interface.params.iter().zip(arguments).map(scalar);
        let scalars: Vec<Option<Scalar>> = scalars.collect::<Result<_, _>>()?;
        let elements = match interface.element_refs.is_empty() {
            true => Vec::new(),
            false => interface.element_values(&scalars, |param| arguments[param].bytes())?,
        };
        Ok(LaidOut::new(description, scalars, elements)?)
    }

    /// The scalars, by parameter; `None` for arrays.
    pub fn scalars(&self) -> &[Option<Scalar>] {
        &self.scalars
    }

    /// Sizes and shapes of the arrays, and what the call costs.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What is sent for a call that is not made: what it would take is asked for.
    pub(crate) fn into_question(self) -> (proto::Call, Arc<Layout>) {
        let call = proto::Call {
            function: 0,
            scalars: self.scalars,
            elements: self.elements,
            data_bytes: self.layout.sent_bytes(),
            places: Vec::new(),
            output: false,
            handles: Vec::new(),
            object: None,
            reservation: None,
        };
        (call, self.layout)
    }
}

/// Which way the arrays of a call go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Travel {
    /// There and back.
    Both,
    /// They are sent, and the results fetched later.
    There,
    /// They were sent before.
    Back,
}

/// A call whose arguments fit: what is sent, where its arrays lie, and whom it calls back.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) call: proto::Call,
    pub(crate) layout: Arc<Layout>,
    pub(crate) functions: Vec<Callback>,
    /// When its caller asked for it; the first attempt counts from there.
    since: Option<Instant>,
}

impl Prepared {
    /// Checks the arguments of a call; computes its layout, unless the caller has had it computed.
    pub(crate) fn new(
        description: &Arc<Description>,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        let since = Instant::now();
        let prepared = Prepared::of(description, laid_out, arguments, way);
        let prepared = prepared.map_err(|source| Error::Argument {
            function: description.qualified.clone(),
            source,
        })?;
        Ok(Prepared {
            since: Some(since),
            ..prepared
        })
    }

    fn of(
        description: &Arc<Description>,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, ArgumentError> {
        let interface = &description.interface;
        check_count(
            interface.params.len() + interface.callbacks.len(),
            arguments,
        )?;
        // That of another function says nothing of this one.
        let same = |laid_out: &LaidOut| {
            let known = &laid_out.description;
            Arc::ptr_eq(known, description) || known.text == description.text
        };
        let laid_out = match laid_out.filter(same) {
            Some(laid_out) => laid_out,
            None => LaidOut::of(description, arguments)?,
        };
        check_arrays(interface, &laid_out.layout, arguments, way)?;
        let functions = callbacks(interface, arguments)?;
        let (call, layout) = laid_out.into_question();
        check_length(&call)?;
        Ok(Prepared {
            call,
            layout,
            functions,
            since: None,
        })
    }

    /// The same call once more, which counts from when it begins.
    pub(crate) fn again(&self) -> Prepared {
        Prepared {
            since: None,
            ..self.clone()
        }
    }

    /// Its scalars and its layout, before arrays get places.
    pub(crate) fn laid_out(&self, description: &Arc<Description>) -> LaidOut {
        LaidOut {
            description: description.clone(),
            scalars: self.call.scalars.clone(),
            elements: self.call.elements.clone(),
            layout: self.layout.clone(),
        }
    }

    /// When an attempt begins: the first when the caller asked for the call.
    pub(crate) fn begins(&mut self) -> Instant {
        self.since.take().unwrap_or_else(Instant::now)
    }

    /// Leaves the places of an earlier attempt, and gives their place to the arrays that are at the
    /// server.
    pub(crate) fn settle(&mut self, arguments: &[Argument<'_>]) {
        self.call.handles = handles(&self.layout, arguments);
        self.call.places.clear();
        let has_places = self.layout.arrays.iter().any(|array| array.place.is_some());
        let is_at_server = |array: &ArrayLayout| arguments[array.param].is_at_server();
        if !has_places && !self.layout.arrays.iter().any(is_at_server) {
            return;
        }
        let place = |array: &ArrayLayout| {
            is_at_server(array).then_some(SharedRange {
                segment: AT_SERVER,
                offset: 0,
            })
        };
        let places: Vec<Option<SharedRange>> = self.layout.arrays.iter().map(place).collect();
        Arc::make_mut(&mut self.layout).place(places);
    }

    /// Tells the server where those arrays lie that neither travel nor are its own.
    pub(crate) fn tell_places(&mut self) {
        self.call.places = self.layout.places();
        self.call.data_bytes = self.layout.sent_bytes();
        if self.call.handles.is_empty() {
            return;
        }
        for place in &mut self.call.places {
            *place = place.filter(|place| place.segment != AT_SERVER);
        }
        if self.call.places.iter().all(Option::is_none) {
            self.call.places.clear();
        }
    }
}

/// Whether there are as many arguments as are expected.
pub(crate) fn check_count(
    expected: usize,
    arguments: &[Argument<'_>],
) -> Result<(), ArgumentError> {
    let given = arguments.len();
    match given == expected {
        true => Ok(()),
        false => Err(ArgumentError::Count { expected, given }),
    }
}

/// The scalar that an argument is.
fn scalar((param, argument): (&Param, &Argument<'_>)) -> Result<Option<Scalar>, ArgumentError> {
    match argument {
        Argument::Scalar(value) if param.is_value() => {
            let value = value.clone().convert(param).map_err(LayoutError::Scalar)?;
            Ok(Some(value))
        }
        _ => Ok(None),
    }
}

/// Whether the call fits one message, which is looked at where there are long texts.
fn check_length(call: &proto::Call) -> Result<(), ArgumentError> {
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
fn callbacks(
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
fn handles(layout: &Layout, arguments: &[Argument<'_>]) -> Vec<(u32, HandleId)> {
    let arrays = (0u32..).zip(&layout.arrays);
    let handle = |(index, array): (u32, &ArrayLayout)| match &arguments[array.param] {
        Argument::Handle(id) => Some((index, *id)),
        _ => None,
    };
    arrays.filter_map(handle).collect()
}

/// Whether the arrays are of the kinds and lengths that the layout says.
pub(crate) fn check_arrays(
    interface: &Interface,
    layout: &Layout,
    arguments: &[Argument<'_>],
    way: Travel,
) -> Result<(), ArgumentError> {
    for array in &layout.arrays {
        let (param, argument) = (&interface.params[array.param], &arguments[array.param]);
        if is_elsewhere(param, argument, way) {
            continue;
        }
        check_kind(param, argument, way)?;
        if let Argument::Array(given) = argument {
            given.check(param, array, interface.order())?;
        }
        let given = argument.bytes().len() as u64;
        if given != array.client_bytes {
            return Err(ArgumentError::Length {
                argument: param.name.clone(),
                expected: array.client_bytes,
                given,
            });
        }
    }
    Ok(())
}

/// Whether an array needs no memory of the caller: it does not travel this way, or is at a server,
/// which knows its form.
fn is_elsewhere(param: &Param, argument: &Argument<'_>, way: Travel) -> bool {
    let is_idle = match way {
        Travel::Both => param.mode == Mode::Work,
        Travel::There => !param.mode.is_sent(),
        Travel::Back => !param.mode.is_returned(),
    };
    match argument {
        Argument::Skip => is_idle,
        Argument::Handle(_) => way == Travel::Both && param.mode != Mode::Work,
        Argument::Named(_) => way == Travel::Both && param.mode == Mode::In,
        _ => false,
    }
}

/// Whether an argument is an array of the right kind.
fn check_kind(param: &Param, argument: &Argument<'_>, way: Travel) -> Result<(), ArgumentError> {
    let expected = match (param.mode, argument) {
        (Mode::Work, _) => Some("nothing, it is work space"),
        (mode, array) if way == Travel::There && mode.is_sent() && array.is_readable() => None,
        (Mode::In, array) if array.is_readable() => None,
        (Mode::Out | Mode::InOut, array) if array.is_writable() => None,
        (Mode::In, _) => Some("an IN array"),
        (Mode::Out | Mode::InOut, _) if way == Travel::There => Some("an array"),
        (Mode::Out | Mode::InOut, _) => Some("an array to write to"),
    };
    match expected {
        None => Ok(()),
        Some(expected) => Err(ArgumentError::Kind {
            argument: param.name.clone(),
            expected,
            given: argument.what(),
        }),
    }
}
