//! Sizes that the caller leaves out. A number that is a whole dimension of an array follows from
//! the array that the caller gives. Nobody but the source knows the size of a source, so the server
//! reads it first, and the call takes the array that it has then.

use super::Function;
use super::arguments::Given;
use crate::array::shape;
use crate::handle::Handle;
use crate::origin;
use crate::source::Source;
use farcall_client::ArrayForm;
use farcall_idl::{ArrayLayout, Mode, Op, Order, Param, Type};
use numpy::PyUntypedArray;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString};

/// The length of a text or of bytes that stand for an array of this type.
fn characters(ty: Type, value: &Bound<'_, PyAny>) -> Option<usize> {
    match value.cast::<PyString>() {
        Ok(text) if ty == Type::Char => return text.to_str().ok().map(str::len),
        _ => {}
    }
    let takes_bytes = matches!(ty, Type::Char | Type::SignedChar | Type::UnsignedChar);
    let is_bytes = value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>();
    value.len().ok().filter(|_| takes_bytes && is_bytes)
}

impl Function {
    /// Fills in sizes that were left out and that an array of the call has. With `in_lines`, an
    /// array that is a part of longer lines has the length of these.
    pub(super) fn fill_sizes<'py>(
        &self,
        py: Python<'py>,
        given: &mut Given<'py>,
        in_lines: bool,
    ) -> PyResult<()> {
        let params = self.params();
        let is_absent =
            |given: &Given<'_>, index: usize| given.get(index).is_none_or(Option::is_none);
        let is_size = |param: &Param| {
            param.is_value() && param.is_passed() && param.mode == Mode::In && param.ty.is_integer()
        };
        let mut left_out = params.iter().enumerate();
        if !left_out.any(|(index, param)| is_size(param) && is_absent(given, index)) {
            return Ok(());
        }
        for (index, param) in params.iter().enumerate() {
            let size = |position: usize| match param.dims[position].size.ops() {
                [Op::Param(size)] => Some(usize::from(*size)),
                _ => None,
            };
            let sizes = (0..param.dims.len()).filter_map(|at| Some((at, size(at)?)));
            let sizes =
                sizes.filter(|(_, size)| is_size(&params[*size]) && is_absent(given, *size));
            let sizes: Vec<(usize, usize)> = sizes.collect();
            let Some(value) = given[index].clone().filter(|_| !sizes.is_empty()) else {
                continue;
            };
            let value = match value.cast::<Source>() {
                Ok(source) => self.read_first(py, param, source.get())?,
                Err(_) => Some(value),
            };
            let Some(value) = value.filter(|value| !value.is_none()) else {
                continue;
            };
            let shape = match characters(param.ty, &value) {
                Some(length) => vec![length as u64],
                None => {
                    let shape = value.getattr("shape").and_then(|shape| shape.extract());
                    let Ok(shape): PyResult<Vec<u64>> = shape else {
                        continue;
                    };
                    shape
                }
            };
            if shape.len() != param.dims.len() {
                continue;
            }
            let last = shape.len() - 1;
            let whole = match param.leading() {
                Some(lead) if in_lines && sizes.iter().any(|(_, size)| *size == lead) => {
                    self.whole_lines(&value, index, given)?
                }
                _ => None,
            };
            let shape: Vec<u64> = match whole {
                Some(whole) => whole.getattr("shape")?.extract()?,
                None => shape,
            };
            for (position, size) in sizes {
                let length = match self.client.interface().order() {
                    Order::RowMajor => shape[position],
                    Order::ColumnMajor => shape[last - position],
                };
                given[size] = Some(length.into_pyobject(py)?.into_any());
            }
            given[index] = Some(value);
        }
        Ok(())
    }

    /// The first array that was given and has this size. If the size was left out and is still
    /// unknown, the array has no shape, as a list has none, or another number of dimensions.
    pub(super) fn shapeless(&self, size: usize, given: &Given<'_>) -> Option<&Param> {
        let has_size = |param: &Param| {
            let mut sizes = param.dims.iter().map(|dim| dim.size.ops());
            sizes.any(|ops| matches!(ops, [Op::Param(param)] if usize::from(*param) == size))
        };
        let mut params = self.params().iter().zip(given);
        let is_given = |(param, given): &(&Param, &Option<Bound<'_, PyAny>>)| {
            given.as_ref().is_some_and(|given| !given.is_none()) && has_size(param)
        };
        Some(params.find(is_given)?.0)
    }

    /// The lines of which an array is a part, if the call has their length as an argument. No part
    /// of the lines outside of the array travels.
    pub(super) fn whole_lines_of<'py>(
        &self,
        layout: &ArrayLayout,
        index: usize,
        given: &Given<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (Some(_), Some(value)) = (self.params()[index].leading(), &given[index]) else {
            return Ok(None);
        };
        let Ok(array) = value.cast::<PyUntypedArray>() else {
            return Ok(None);
        };
        let lead = match self.client.interface().order() {
            Order::RowMajor => shape(array).last(),
            Order::ColumnMajor => shape(array).first(),
        };
        // The last dimension of the interface is along the lines.
        let line = layout.axes.last().zip(lead.map(|&lead| lead as u64));
        match line.is_some_and(|(line, lead)| line.size > lead && line.section.end <= lead) {
            true => self.whole_lines(value, index, given),
            false => Ok(None),
        }
    }

    /// The lines of which an array is a part.
    fn whole_lines<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        index: usize,
        given: &Given<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        let axis = match self.client.interface().order() {
            Order::RowMajor => 1,
            Order::ColumnMajor => 0,
        };
        let others = given.iter().enumerate();
        let others = others.filter_map(|(other, value)| value.as_ref().filter(|_| other != index));
        let others = PyList::new(py, others)?;
        let module = py.import(intern!(py, "farcall._arrays"))?;
        let found = module.call_method1(intern!(py, "whole_lines"), (value, axis, others))?;
        Ok((!found.is_none()).then_some(found))
    }

    /// Lets the server read a source before the call. Behind a metaserver, nobody knows yet which
    /// server will compute; then the sizes must be given.
    fn read_first<'py>(
        &self,
        py: Python<'py>,
        param: &Param,
        source: &Source,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let server = self.client.server();
        if param.mode != Mode::In || server.is_metaserver() {
            return Ok(None);
        }
        let form = ArrayForm {
            element: param.ty.name().to_owned(),
            shape: Vec::new(),
            column_major: self.client.interface().order() == Order::ColumnMajor,
        };
        let read = origin::ask(py, || server.read_source(source.client(), form, false))?;
        let (array, is_own) = read;
        let handle = Handle::new(array, self.origin.clone(), is_own);
        Ok(Some(Bound::new(py, handle)?.into_any()))
    }
}
