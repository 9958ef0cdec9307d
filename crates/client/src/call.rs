//! A call before it is made: its layout, and the check of its arguments.
//!
//! The client computes the layout of a call here and nowhere else. It does so once, whichever
//! server the call goes to and however often the call begins again. The server computes it again,
//! independently.

use crate::argument::Argument;
use crate::callback::Callback;
use crate::description::Description;
use crate::error::{ArgumentError, Error};
use crate::timeout::Timeout;
use farcall_idl::{
    ArrayLayout, Interface, Layout, LayoutError, Mode, Param, Scalar, SharedRange, Values,
};
use farcall_rpc_proto::{self as proto, HandleId};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Marks an array that the server already has, in the list of array locations.
const AT_SERVER: u64 = u64::MAX;

/// A call of one function with known scalars. The sizes of its arrays follow from them. The arrays
/// need not exist yet.
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

    /// The layout that follows from the scalars among the arguments.
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

    /// The values of the numbers on which sizes depend.
    pub fn values(&self) -> Values<'_> {
        Values {
            scalars: &self.scalars,
            elements: &self.elements,
        }
    }

    /// Sizes and shapes of the arrays, and the cost of the call.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn shared_layout(&self) -> Arc<Layout> {
        self.layout.clone()
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// The message that asks for an estimate of the call.
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
            trace: None,
            before: None,
        };
        (call, self.layout)
    }
}

/// In which directions the arrays of a call travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Travel {
    /// To the server and back.
    Both,
    /// To the server; a later request fetches the results.
    There,
    /// Back; an earlier request sent the arguments.
    Back,
}

/// A call whose arguments fit the interface: its message, its array locations and its callbacks.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) call: proto::Call,
    pub(crate) layout: Arc<Layout>,
    pub(crate) functions: Vec<Callback>,
    /// When the caller asked for the call. The time of the first attempt counts from here.
    since: Option<Instant>,
    timeout: Timeout,
}

impl Prepared {
    /// Checks the arguments of a call. Computes its layout, unless the caller passes it.
    pub(crate) fn new(
        description: &Arc<Description>,
        timeout: Timeout,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        let since = Instant::now();
        let prepared = Prepared::of(description, timeout, laid_out, arguments, way);
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
        timeout: Timeout,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, ArgumentError> {
        let interface = &description.interface;
        check_count(
            interface.params.len() + interface.callbacks.len(),
            arguments,
        )?;
        // A layout of another function cannot be used here.
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
            timeout,
        })
    }

    /// A copy of the call for another attempt. Its time counts from the start of that attempt.
    pub(crate) fn again(&self) -> Prepared {
        Prepared {
            since: None,
            ..self.clone()
        }
    }

    /// The scalars and the layout, before arrays get locations.
    pub(crate) fn laid_out(&self, description: &Arc<Description>) -> LaidOut {
        LaidOut {
            description: description.clone(),
            scalars: self.call.scalars.clone(),
            elements: self.call.elements.clone(),
            layout: self.layout.clone(),
        }
    }

    /// When this attempt begins. For the first attempt, this is when the caller asked for the call.
    pub(crate) fn begins(&mut self) -> Instant {
        self.since.take().unwrap_or_else(Instant::now)
    }

    /// The same call, with the time-out that it has from now on.
    pub(crate) fn within(self, timeout: Timeout) -> Prepared {
        Prepared { timeout, ..self }
    }

    /// The time-out of the whole call.
    pub(crate) fn timeout(&self) -> Timeout {
        self.timeout
    }

    /// Milliseconds that are left of a time since the caller asked for the call.
    pub(crate) fn left(&self, before: Duration) -> u64 {
        let left = before.saturating_sub(self.timeout.start.elapsed());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    /// Forgets the array locations of an earlier attempt, and marks the arrays that are at the
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

    /// Tells the server the locations of arrays in shared memory.
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

/// Checks the number of arguments.
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

/// The value of a scalar argument.
fn scalar((param, argument): (&Param, &Argument<'_>)) -> Result<Option<Scalar>, ArgumentError> {
    match argument {
        Argument::Scalar(value) if param.is_value() => {
            let value = value.clone().convert(param).map_err(LayoutError::Scalar)?;
            Ok(Some(value))
        }
        _ => Ok(None),
    }
}

/// Checks that the call fits one message. Only calls with long texts can be too long.
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
    // Array locations and the number of the function are added later.
    let room = 64 + 32 * call.scalars.len();
    let mut message = Vec::new();
    call.encode(&mut message);
    let (most, given) = (MOST - room, message.len());
    match given <= most {
        true => Ok(()),
        false => Err(ArgumentError::TooLong { most, given }),
    }
}

/// The callbacks among the arguments.
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

/// The stored arrays among the arguments, by their index among the arrays.
fn handles(layout: &Layout, arguments: &[Argument<'_>]) -> Vec<(u32, HandleId)> {
    let arrays = (0u32..).zip(&layout.arrays);
    let handle = |(index, array): (u32, &ArrayLayout)| match &arguments[array.param] {
        Argument::Handle(id) => Some((index, *id)),
        _ => None,
    };
    arrays.filter_map(handle).collect()
}

/// Checks the kinds and lengths of the arrays against the layout.
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
    match way {
        Travel::There => Ok(()),
        Travel::Both | Travel::Back => check_apart(interface, layout, arguments),
    }
}

/// Checks that no two arrays that the call writes share memory: only one of them could be right.
fn check_apart(
    interface: &Interface,
    layout: &Layout,
    arguments: &[Argument<'_>],
) -> Result<(), ArgumentError> {
    let arrays = layout.arrays.iter().map(|array| array.param);
    let written = arrays.filter(|param| interface.params[*param].mode.is_returned());
    for (index, param) in written.clone().enumerate() {
        let here = &arguments[param];
        let mut before = written.clone().take(index);
        if let Some(other) = before.find(|other| here.overlaps(&arguments[*other])) {
            return Err(ArgumentError::Shared {
                argument: interface.params[other].name.clone(),
                other: interface.params[param].name.clone(),
            });
        }
    }
    Ok(())
}

/// Whether an array needs no memory of the caller. Either it does not travel in this direction, or
/// a server has it and knows its form.
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
        Argument::Source(_) => way == Travel::Both && matches!(param.mode, Mode::In | Mode::Out),
        _ => false,
    }
}

/// Checks that an argument is an array of the right kind.
fn check_kind(param: &Param, argument: &Argument<'_>, way: Travel) -> Result<(), ArgumentError> {
    let expected = match (param.mode, argument) {
        (Mode::Work, _) => Some("nothing, it is work space"),
        (mode, array) if way == Travel::There && mode.is_sent() && array.is_readable() => None,
        (Mode::In, array) if array.is_readable() => None,
        (Mode::Out | Mode::InOut, array) if array.is_writable() => None,
        (Mode::In, _) => Some("an array that is only read"),
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
