//! Records a call in a transaction. `transaction` runs it later. An OUT array that the caller
//! leaves out becomes a remote array, which stays at a server until it is asked for.

use super::Function;
use super::arguments::Given;
use crate::array::{self, Typed};
use crate::error;
use crate::handle::Keep;
use crate::trace;
use crate::transaction::{self, Transaction};
use farcall_idl::{Mode, Param};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What to use instead of `farcall.keep()`.
fn not_kept(mode: Mode) -> &'static str {
    match mode {
        Mode::InOut => {
            "in a transaction pass an array where data travel both ways, such as numpy.zeros: it \
             stays at a server, and after `discard` it does not come back"
        }
        _ => {
            "in a transaction leave the argument out: its array stays at a server until it is \
             asked for"
        }
    }
}

impl Function {
    /// Records a call in a transaction. The result has the caller's arrays, which are filled at the
    /// end, and a remote array for each array that was left out.
    pub(super) fn record<'py>(
        &self,
        py: Python<'py>,
        transaction: &Bound<'py, Transaction>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.origin.check(py)?;
        let mut given = self.bind(py, args, kwargs, true)?;
        for (param, value) in self.params().iter().zip(&mut given) {
            let Some(value) = value else { continue };
            if value.cast::<Keep>().is_ok() {
                let text = not_kept(param.mode);
                return Err(error::arguments(py, &self.name, text));
            }
            if let Some(remote) = transaction::given(value)
                && remote.get().has_run()
            {
                *value = remote.get().get(py)?;
            }
        }
        let returns_texts = |param: &&Param| param.is_fixed_texts() && param.mode.is_returned();
        if let Some(param) = self.params().iter().find(returns_texts) {
            let name = &param.name;
            let text = format!(
                "in a transaction no strings come back (`{name}`): call it before or after it"
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        let (laid_out, typed) = self.lay_out(py, &given)?;
        let callbacks = self.callbacks(py, &given)?;
        let mut remote = Vec::new();
        for array in &laid_out.layout().arrays {
            let param = &self.params()[array.param];
            let value = &mut given[array.param];
            let is_left_out = value.as_ref().is_none_or(|value| value.is_none());
            if param.mode == Mode::Out && is_left_out {
                let made = transaction.get().make(py, param, array, self.order)?;
                // Small arrays have memory in this program anyway.
                *value = Some(transaction::memory_of(&made).unwrap_or_else(|| made.clone()));
                remote.push((array.param, made));
            }
        }
        let typed = self.retype(&given, typed)?;
        let mut slots = self.place(py, laid_out.layout(), &given, typed)?;
        self.part(py, &mut slots)?;
        let mut arguments = self.arguments(&slots);
        arguments.extend(callbacks);
        transaction.get().add(
            py,
            (&trace::traced(py, &self.client), laid_out),
            &mut arguments,
            &slots,
        )?;
        // An array that was left out is a remote array, even if it has memory in this program.
        for (param, made) in remote {
            if let Some(slot) = &mut slots[param] {
                slot.given = made;
            }
        }
        let result = self.results.make(py, &slots)?;
        transaction.get().hold(py, slots);
        Ok(result)
    }

    /// The arrays of the caller, and those that are new.
    fn retype<'py>(
        &self,
        given: &Given<'py>,
        typed: Vec<Option<Typed<'py>>>,
    ) -> PyResult<Vec<Option<Typed<'py>>>> {
        let params = self.params().iter().zip(given).zip(typed);
        let again = params.map(|((param, given), typed)| match (given, typed) {
            (Some(given), None) if !param.is_value() && param.mode == Mode::Out => {
                match transaction::given(given).is_some() {
                    true => Ok(None),
                    false => array::typed(&self.name, param, given).map(Some),
                }
            }
            (_, typed) => Ok(typed),
        });
        again.collect()
    }
}
