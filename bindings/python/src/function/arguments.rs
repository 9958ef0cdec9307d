//! The arguments of a call: which parameter each belongs to, the sizes that follow from them, and
//! the memory of the arrays. `array` converts single arrays. No array that the call writes shares
//! memory with another argument.

use super::Function;
use crate::array::{self, Slot, Typed};
use crate::handle::{self, Keep};
use crate::interface::Interface;
use crate::{callback, error, scalar, texts, transaction};
use farcall_client::{Argument, Callback, CallbackArguments, LaidOut, Scalar};
use farcall_idl::{Layout, Mode, Param};
use farcall_quantity::counted;
use farcall_spelling::closest;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

/// The values that the caller gave, by parameter.
pub(super) type Given<'py> = Vec<Option<Bound<'py, PyAny>>>;

impl Function {
    pub(super) fn params(&self) -> &[Param] {
        &self.client.interface().params
    }

    /// The callbacks.
    pub(super) fn callbacks<'a>(
        &self,
        py: Python<'_>,
        given: &Given<'_>,
    ) -> PyResult<Vec<Argument<'a>>> {
        let callbacks = &self.client.interface().callbacks;
        let given = &given[self.params().len()..];
        let callable = |(known, given): (&farcall_idl::Callback, &Option<Bound<'_, PyAny>>)| {
            let callable = given.as_ref().filter(|given| given.is_callable());
            let Some(callable) = callable else {
                let given = given.as_ref().map_or("nothing".into(), error::describe);
                let expected = counted(known.passed(), "argument");
                let expected = format!("a callable with {expected}");
                return Err(error::argument(
                    py,
                    &self.name,
                    &known.name,
                    &expected,
                    &given,
                ));
            };
            let callable = callback::Callable::new(callable, known)?;
            let run = move |arguments: &mut CallbackArguments<'_>| callable.run(arguments);
            Ok(Argument::Function(Callback::new(run)))
        };
        callbacks.iter().zip(given).map(callable).collect()
    }

    /// The name in Python of the parameter or callback with this index.
    fn passed_name(&self, index: usize) -> String {
        let interface = self.client.interface();
        let name = match interface.params.get(index) {
            Some(param) => &param.name,
            None => &interface.callbacks[index - interface.params.len()].name,
        };
        Interface::python_name(name)
    }

    /// Assigns the arguments to the parameters, and fills in sizes as `fill_sizes` does.
    pub(super) fn bind<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        in_lines: bool,
    ) -> PyResult<Given<'py>> {
        let interface = self.client.interface();
        let count = interface.params.len() + interface.callbacks.len();
        let mut given: Given<'py> = vec![None; count];
        if args.len() > self.passed.len() {
            let text = format!(
                "takes {} ({}), given {}",
                counted(self.passed.len(), "argument"),
                self.signature(),
                args.len()
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        for (value, &index) in args.iter().zip(&self.passed) {
            given[index] = Some(value);
        }
        for (name, value) in kwargs.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_str()?;
            let matches = |&&index: &&usize| self.passed_name(index) == name;
            let Some(&index) = self.passed.iter().find(matches) else {
                let known: Vec<String> = self.passed.iter().map(|&i| self.passed_name(i)).collect();
                let close = closest(name, known.iter().map(String::as_str), 1);
                let hint =
                    close.map_or_else(String::new, |known| format!("did you mean `{known}`? "));
                let text = format!(
                    "has no argument `{name}`; {hint}it takes {}",
                    known.join(", ")
                );
                return Err(error::arguments(py, &self.name, &text));
            };
            if given[index].replace(value).is_some() {
                let text = format!("argument `{name}` is given twice");
                return Err(error::arguments(py, &self.name, &text));
            }
        }
        for value in given.iter_mut().flatten() {
            if let Some(array) = transaction::for_server(py, value, self.client.server())? {
                *value = array;
            }
        }
        self.fill_sizes(py, &mut given, in_lines)?;
        Ok(given)
    }

    pub(super) fn signature(&self) -> String {
        let names: Vec<String> = self.passed.iter().map(|&i| self.passed_name(i)).collect();
        names.join(", ")
    }

    /// Reads the scalars, checks the types of the arrays, and computes the sizes.
    pub(super) fn lay_out<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
    ) -> PyResult<(LaidOut, Vec<Option<Typed<'py>>>)> {
        let interface = self.client.interface();
        let is_needed = |index: usize| interface.params[index].mode != Mode::Out;
        let (scalars, mut arrays) = self.read(py, given, is_needed)?;
        let elements = self.elements(py, &scalars, &mut arrays)?;
        let laid_out = self.client.lay_out(scalars, elements);
        let laid_out = laid_out.map_err(|error| error::from_client(py, &error))?;
        Ok((laid_out, arrays))
    }

    /// Reads the scalars and checks the types of the arrays; the caller must give what is needed.
    #[allow(clippy::type_complexity)]
    pub(super) fn read<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
        is_needed: impl Fn(usize) -> bool,
    ) -> PyResult<(Vec<Option<Scalar>>, Vec<Option<Typed<'py>>>)> {
        let mut scalars = Vec::with_capacity(given.len());
        let mut arrays = Vec::with_capacity(given.len());
        for (index, (param, value)) in self.params().iter().zip(given).enumerate() {
            let value = value.as_ref().filter(|value| !value.is_none());
            if value.is_none() && param.is_passed() && is_needed(index) {
                let expected = match param.is_value() {
                    true => match self.shapeless(index, given) {
                        None => scalar::expected(param).to_owned(),
                        Some(array) => format!(
                            "{}, which is taken from `{}` only if that is a NumPy array with {}",
                            scalar::expected(param),
                            array.name,
                            counted(array.dims.len(), "dimension")
                        ),
                    },
                    false if param.is_fixed_texts() => texts::expected(param).to_owned(),
                    false => format!("an array of {}", array::dtype_name(param.ty)),
                };
                let name = &param.name;
                return Err(error::argument(py, &self.name, name, &expected, "nothing"));
            }
            let (mut scalar, mut array) = (None, None);
            match value {
                Some(value) if param.is_value() => {
                    scalar = Some(scalar::read(&self.name, param, value)?);
                }
                Some(value) if param.is_fixed_texts() => {
                    array = Some(array::typed(&self.name, param, value)?);
                }
                // The server checks the type and the shape of a stored array.
                Some(value) if handle::stays(value) => {}
                Some(value) if transaction::given(value).is_some() => {}
                Some(value) if param.mode.is_returned() && value.cast::<Keep>().is_ok() => {}
                Some(value) => array = Some(array::typed(&self.name, param, value)?),
                None => {}
            }
            scalars.push(scalar);
            arrays.push(array);
        }
        Ok((scalars, arrays))
    }

    /// The scalars, and the elements that decide sizes. All other arrays may be left out.
    pub(super) fn sizes(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<(Vec<Option<Scalar>>, Vec<i64>)> {
        self.origin.check(py)?;
        let given = self.bind(py, args, kwargs, true)?;
        let references = &self.client.interface().element_refs;
        let is_needed = |index: usize| {
            let param = &self.params()[index];
            param.is_value() || references.iter().any(|reference| reference.param == index)
        };
        let (scalars, mut arrays) = self.read(py, &given, is_needed)?;
        let elements = self.elements(py, &scalars, &mut arrays)?;
        Ok((scalars, elements))
    }

    /// The elements of IN arrays that decide sizes.
    pub(super) fn elements<'py>(
        &self,
        py: Python<'py>,
        scalars: &[Option<Scalar>],
        arrays: &mut [Option<Typed<'py>>],
    ) -> PyResult<Vec<i64>> {
        let interface = self.client.interface();
        if interface.element_refs.is_empty() {
            return Ok(Vec::new());
        }
        for reference in &interface.element_refs {
            let ty = interface.params[reference.param].ty;
            let array = &mut arrays[reference.param];
            *array = array.take().map(|array| array.convert(ty)).transpose()?;
        }
        let bytes = |param: usize| arrays[param].as_ref().map_or(&[][..], Typed::bytes);
        interface
            .element_values(scalars, bytes)
            .map_err(|error| error::arguments(py, &self.name, &error.to_string()))
    }

    pub(super) fn place<'py>(
        &self,
        py: Python<'py>,
        layout: &Layout,
        given: &Given<'py>,
        mut typed: Vec<Option<Typed<'py>>>,
    ) -> PyResult<Vec<Option<Slot<'py>>>> {
        let mut slots: Vec<Option<Slot<'py>>> = given.iter().map(|_| None).collect();
        for layout in &layout.arrays {
            let (index, order) = (layout.param, self.order);
            let param = &self.params()[index];
            slots[index] = match (&given[index], typed[index].take()) {
                _ if param.mode == Mode::Work => None,
                (Some(given), None)
                    if handle::stays(given) || transaction::given(given).is_some() =>
                {
                    Some(Slot::at_server(given.clone())?)
                }
                (Some(given), None) if let Ok(keep) = given.cast::<Keep>() => {
                    let whose = self.origin.clone();
                    let server = self.client.server();
                    let form = (layout, order);
                    let made = keep.get().make(py, server, whose, param, form)?;
                    Some(Slot::at_server(Bound::new(py, made)?.into_any())?)
                }
                (Some(value), Some(typed)) => {
                    let typed = match self.whole_lines_of(layout, index, given)? {
                        Some(whole) => array::typed(&self.name, param, &whole)?,
                        None => typed,
                    };
                    let placed = array::place(&self.name, param, layout, order, value, typed);
                    Some(placed?)
                }
                _ => Some(Slot::make(py, param, layout, order)?),
            };
        }
        Ok(slots)
    }

    /// Makes sure that no array which the call writes shares memory with another. An IN array that
    /// does is copied, and keeps the values that it has before the call.
    pub(super) fn part(&self, py: Python<'_>, slots: &mut [Option<Slot<'_>>]) -> PyResult<()> {
        let returned = |index: usize| self.params()[index].mode.is_returned();
        for written in 0..slots.len() {
            let Some(range) = slots[written].as_ref().map(Slot::range) else {
                continue;
            };
            if !returned(written) {
                continue;
            }
            for index in (0..slots.len()).filter(|&index| index != written) {
                let Some(other) = &slots[index] else { continue };
                let range_of_other = other.range();
                let apart = range.is_empty()
                    || range_of_other.is_empty()
                    || range.end <= range_of_other.start
                    || range_of_other.end <= range.start;
                let shared = match (&slots[written], returned(index)) {
                    (Some(slot), true) => slot.given.is(&other.given) || slot.shares(other)?,
                    _ => false,
                };
                if shared {
                    let (a, b) = (&self.params()[written].name, &self.params()[index].name);
                    let text = format!("arguments `{a}` and `{b}` are written and share memory");
                    return Err(error::arguments(py, &self.name, &text));
                }
                if let Some(other) = slots[index].as_mut().filter(|_| !apart) {
                    other.detach(self.params()[index].ty, self.order)?;
                }
            }
        }
        Ok(())
    }

    /// The arguments for the client, which has the scalars. They live as long as the caller keeps
    /// the slots.
    pub(super) fn arguments<'a>(&self, slots: &[Option<Slot<'_>>]) -> Vec<Argument<'a>> {
        let argument = |(param, slot): (&Param, &Option<Slot<'_>>)| {
            match slot {
                None => Argument::Skip,
                Some(slot)
                    if let Some(kept) = handle::argument(&slot.given, self.client.server()) =>
                {
                    kept
                }
                // A remote array in a transaction, which the client knows; otherwise a handle.
                Some(slot) if let Some(remote) = transaction::given(&slot.given) => {
                    remote.get().argument()
                }
                // SAFETY: the slots outlive the call, and `part` has seen to it that no memory
                // which is written belongs to two of them. That the user leaves the arrays alone
                // until the call ends is the contract of the call.
                Some(slot) => unsafe {
                    match param.mode {
                        Mode::In => Argument::In(slot.bytes()),
                        _ => Argument::Out(slot.bytes_mut()),
                    }
                },
            }
        };
        let params = self.params().iter().zip(slots);
        params.map(argument).collect()
    }
}
