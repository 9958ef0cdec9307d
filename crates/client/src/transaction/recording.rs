//! Turns the calls of a transaction into a plan. The crate `plan` writes it as text, and nothing
//! runs here. A transaction that no plan can describe, such as one with callbacks, is refused with
//! the reason.

use super::{Deferred, Recorded, Transaction};
use crate::argument::Held;
use crate::error::Error;
use farcall_idl::{ArrayLayout, Interface, Mode, Scalar};
use farcall_plan::{MOST_CALLS, Plan, Step, Value, check_name};
use farcall_rpc_proto::ArrayForm;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How an array of a transaction is identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By its addresses in the caller's memory.
    Memory(Range<usize>),
    /// It exists only at servers.
    Deferred(Deferred),
}

/// A transaction as a plan, with its input arrays.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The plan. Its files have the names of their arrays.
    pub plan: Plan,
    /// The arrays for its inputs.
    pub inputs: Vec<Input>,
}

/// An input array, to be written to a file beside the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Name of the file.
    pub file: String,
    /// Type, shape and order.
    pub form: ArrayForm,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// An array on the way to a plan.
struct Written {
    identity: Identity,
    form: ArrayForm,
    name: String,
    is_named: bool,
    is_written: bool,
}

impl Transaction {
    /// The transaction as a plan, before it runs. `names` gives arrays their names. Written arrays
    /// with a name are the outputs of the plan.
    ///
    /// # Errors
    /// A call has callbacks, arrays overlap without being equal, or a name is invalid.
    pub fn record(&self, names: &[(String, Identity)]) -> Result<Recording, Error> {
        let fail = |text: String| Error::Misuse {
            function: "the transaction".to_string(),
            argument: "plan".to_string(),
            reason: text,
        };
        for (name, _) in names {
            check_name("the array", name).map_err(|error| fail(error.to_string()))?;
        }
        if self.calls.len() > MOST_CALLS {
            return Err(fail(format!("a plan has at most {MOST_CALLS} calls")));
        }
        let mut recorder = Recorder {
            names,
            arrays: Vec::new(),
            inputs: BTreeMap::new(),
            files: Vec::new(),
            taken: BTreeSet::new(),
        };
        let calls = self
            .calls
            .iter()
            .map(|call| recorder.step(call).map_err(fail));
        let calls: Vec<Step> = calls.collect::<Result<_, _>>()?;
        recorder.check_overlaps().map_err(fail)?;
        let written = recorder
            .arrays
            .iter()
            .filter(|one| one.is_written && one.is_named);
        let taken = &mut recorder.taken;
        let outputs: BTreeMap<String, String> = written
            .map(|one| {
                let is_input = recorder.inputs.contains_key(&one.name);
                let end = if is_input { "-out.npy" } else { ".npy" };
                (one.name.clone(), free_file(&one.name, end, taken))
            })
            .collect();
        if outputs.is_empty() {
            let text = "no array that a call writes has a name: name the arrays that are results";
            return Err(fail(text.to_string()));
        }
        Ok(Recording {
            plan: Plan::new(recorder.inputs, outputs, calls),
            inputs: recorder.files,
        })
    }
}

/// A file for an array that no other array of the plan has. Names can differ where files do not: by
/// `/` and `-`, or by letters in upper case.
fn free_file(name: &str, end: &str, taken: &mut BTreeSet<String>) -> String {
    let name = name.replace('/', "-");
    let mut file = format!("{name}{end}");
    let mut number = 1;
    while !taken.insert(file.to_lowercase()) {
        number += 1;
        file = format!("{name}-{number}{end}");
    }
    file
}

/// The arrays found so far.
struct Recorder<'n> {
    names: &'n [(String, Identity)],
    arrays: Vec<Written>,
    inputs: BTreeMap<String, String>,
    files: Vec<Input>,
    /// The files of the plan, in lower case.
    taken: BTreeSet<String>,
}

impl Recorder<'_> {
    fn step(&mut self, call: &Recorded) -> Result<Step, String> {
        let interface =
            farcall_idl::parse_interface(&call.text).map_err(|error| error.to_string())?;
        let mut arguments = BTreeMap::new();
        for (index, kept) in call.arguments.iter().enumerate() {
            let name = || interface.params[index].name.clone();
            match kept {
                Held::Function(_) => {
                    let function = &call.qualified;
                    return Err(format!(
                        "{function} has callbacks, which a plan cannot contain"
                    ));
                }
                Held::Scalar(scalar) => drop(arguments.insert(name(), value(scalar))),
                _ => {}
            }
        }
        for array in &call.prepared.layout.arrays {
            if array.mode != Mode::Work {
                let name = self.array(call, &interface, array)?;
                let param = &interface.params[array.param].name;
                arguments.insert(param.clone(), Value::Text(name));
            }
        }
        Ok(Step {
            function: call.qualified.clone(),
            arguments,
        })
    }

    /// The name of an array of a call.
    fn array(
        &mut self,
        call: &Recorded,
        interface: &Interface,
        array: &ArrayLayout,
    ) -> Result<String, String> {
        let param = array.param;
        let (start, length) = match &call.arguments[param] {
            Held::In(start, length) => (*start, *length),
            Held::Out(start, length) => (start.cast_const(), *length),
            _ => (std::ptr::null(), 0),
        };
        let of = |ways: &[(usize, Deferred)]| ways.iter().find(|way| way.0 == param).map(|w| w.1);
        let copy = call.ways.copies.iter().find(|(copied, _)| *copied == param);
        let identity = match (of(&call.ways.deferred), copy) {
            (Some(deferred), _) => Identity::Deferred(deferred),
            (None, Some((_, range))) => Identity::Memory(range.clone()),
            (None, None) => Identity::Memory(start.addr()..start.addr() + length),
        };
        let form = ArrayForm::of(array, interface.order());
        let writes = array.mode.is_returned();
        let same_form =
            |one: &Written| one.form.fits(array.element, &form.shape, form.column_major);
        let mut known = self
            .arrays
            .iter_mut()
            .filter(|one| one.identity == identity);
        if let Some(one) = known.find(|one| same_form(one)) {
            one.is_written |= writes;
            return Ok(one.name.clone());
        }
        let is_new = !self.arrays.iter().any(|one| one.identity == identity);
        let is_changed = |one: &Written| one.identity == identity && (one.is_written || writes);
        if self.arrays.iter().any(is_changed) {
            let param = &interface.params[param].name;
            return Err(format!(
                "{}: `{param}` is written here and used elsewhere with another shape or order, \
                 which a plan cannot express",
                call.qualified
            ));
        }
        let (name, is_named) = self.name(&identity, is_new);
        let reads = array.mode.is_sent() || !array.is_full();
        if reads && matches!(identity, Identity::Memory(_)) {
            // SAFETY: who recorded the call holds its arrays until it has run.
            let bytes = unsafe { std::slice::from_raw_parts(start, length) }.to_vec();
            let file = free_file(&name, ".npy", &mut self.taken);
            self.inputs.insert(name.clone(), file.clone());
            let form = form.clone();
            self.files.push(Input { file, form, bytes });
        }
        self.arrays.push(Written {
            identity,
            form,
            name: name.clone(),
            is_named,
            is_written: writes,
        });
        Ok(name)
    }

    /// The name that the caller gave an array, or a new one.
    fn name(&self, identity: &Identity, is_new: bool) -> (String, bool) {
        let mut given = self.names.iter();
        let given = given.find(|(_, one)| one == identity).filter(|_| is_new);
        if let Some((name, _)) = given {
            return (name.clone(), true);
        }
        let is_free = |name: &String| {
            let known = self.arrays.iter().map(|one| &one.name);
            !known
                .chain(self.names.iter().map(|(name, _)| name))
                .any(|known| known == name)
        };
        let mut names = (self.arrays.len() + 1..).map(|number| format!("array{number}"));
        (names.find(is_free).unwrap_or_default(), false)
    }

    /// Refuses arrays that overlap without being equal: no name could describe them.
    fn check_overlaps(&self) -> Result<(), String> {
        let memory = |one: &Written| match &one.identity {
            Identity::Memory(range) if !range.is_empty() => Some((range.clone(), one.is_written)),
            _ => None,
        };
        let mut ranges: Vec<(Range<usize>, bool)> = self.arrays.iter().filter_map(memory).collect();
        ranges.sort_by_key(|(range, _)| (range.start, range.end));
        let mut reach: Option<(Range<usize>, bool)> = None;
        for (range, is_written) in ranges {
            if let Some((before, written)) = &reach
                && range.start < before.end
                && range != *before
                && (*written || is_written)
            {
                let text = "arrays overlap and one of them is written; arrays of a plan must not \
                 overlap";
                return Err(text.to_string());
            }
            let written = reach
                .as_ref()
                .is_some_and(|(before, written)| *before == range && *written);
            if reach
                .as_ref()
                .is_none_or(|(before, _)| range.end >= before.end)
            {
                reach = Some((range, is_written || written));
            }
        }
        Ok(())
    }
}

fn value(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Int(value) => Value::Integer(*value),
        Scalar::Float(value) => Value::Real(*value),
        Scalar::Complex { re, im } => Value::Text(format!("{re:?},{im:?}")),
        Scalar::Text(text) => Value::Text(text.clone()),
        Scalar::Texts(texts) => Value::Texts(texts.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_array_has_a_file_of_its_own() {
        let mut taken = BTreeSet::new();
        let mut file = |name, end| free_file(name, end, &mut taken);
        assert_eq!(file("x/1", ".npy"), "x-1.npy");
        assert_eq!(file("x-1", ".npy"), "x-1-2.npy");
        assert_eq!(file("X-1", ".npy"), "X-1-3.npy");
        assert_eq!(file("c-out", ".npy"), "c-out.npy");
        assert_eq!(file("c", "-out.npy"), "c-2-out.npy");
    }
}
