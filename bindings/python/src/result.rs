//! The result of a call: OUT and INOUT arguments as a named tuple, in the order of the interface.
//! The class of a function is made once. An array of one element that the call itself has made
//! becomes a number, and one that a library allocates has as many elements as the function has
//! counted.

use crate::array::Slot;
use farcall_idl::{Interface, Scalar, Values};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PySlice, PyTuple};

/// The named tuple of one function.
pub(crate) struct Results {
    name: String,
    /// Returned parameters in the order of the interface.
    fields: Vec<Field>,
    class: PyOnceLock<Py<PyAny>>,
}

struct Field {
    param: usize,
    name: String,
    /// Whether the parameter always has one element.
    is_number: bool,
    /// The argument in which the function has counted the elements.
    count: Option<usize>,
}

impl Results {
    pub(crate) fn new(interface: &Interface) -> Results {
        let fields = interface
            .params
            .iter()
            .enumerate()
            .filter(|(_, p)| p.mode.is_returned() && !p.is_scalar() && !p.is_files());
        let nothing: [Option<Scalar>; 0] = [];
        let values = Values {
            scalars: &nothing,
            elements: &[],
        };
        let fields = fields.map(|(index, param)| {
            // The last dimension of texts is their length.
            let fields = usize::from(param.is_fixed_texts());
            let is_number = param.dims[..param.dims.len() - fields]
                .iter()
                .all(|dim| dim.size.integer(values) == Ok(1));
            Field {
                param: index,
                name: crate::interface::Interface::python_name(&param.name),
                is_number,
                count: param.count,
            }
        });
        let name = interface.name.clone();
        Results {
            name,
            fields: fields.collect(),
            class: PyOnceLock::new(),
        }
    }

    /// The result of one call.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        slots: &[Option<Slot<'py>>],
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.fields.is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let values = self
            .fields
            .iter()
            .map(|field| match (&slots[field.param], field.count) {
                (Some(slot), Some(count)) => counted(slot, slots[count].as_ref()),
                (Some(slot), None) => slot.result(field.is_number),
                (None, _) => Ok(py.None().into_bound(py)),
            });
        let values = PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
        // As the class's own `_make` does, which is code in Python: a signal handler could run in
        // it, and interrupt a call that is over.
        let new = py.get_type::<PyTuple>();
        new.call_method1(pyo3::intern!(py, "__new__"), (self.class(py)?, values))
    }

    /// Makes the class, if it is not there yet, so that `make` need not run code in Python.
    pub(crate) fn prepare(&self, py: Python<'_>) -> PyResult<()> {
        match self.fields.is_empty() {
            true => Ok(()),
            false => self.class(py).map(drop),
        }
    }

    fn class<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        let class = self.class.get_or_try_init(py, || {
            let names: Vec<&str> = self
                .fields
                .iter()
                .map(|field| field.name.as_str())
                .collect();
            let class = py.import("farcall._handles")?.getattr("result_class")?;
            let class = class.call1((&self.name, PyTuple::new(py, names)?))?;
            PyResult::Ok(class.unbind())
        })?;
        Ok(class.bind(py))
    }
}

/// The elements that the function has counted. An array at the server keeps all.
fn counted<'py>(slot: &Slot<'py>, count: Option<&Slot<'py>>) -> PyResult<Bound<'py, PyAny>> {
    let value = slot.result(false)?;
    let count = count.filter(|_| value.cast::<PyUntypedArray>().is_ok());
    let Some(count) = count.map(|count| count.given.get_item(0)).transpose()? else {
        return Ok(value);
    };
    value.get_item(PySlice::new(value.py(), 0, count.extract()?, 1))
}
