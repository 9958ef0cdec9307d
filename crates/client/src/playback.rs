//! Transactions from plans: reads the calls of a plan, takes their inputs from files, and gives
//! their outputs.
//!
//! This module decides where the arrays of a plan are in memory. `transaction` runs the calls.

use crate::argument::Argument;
use crate::call::LaidOut;
use crate::error::Error;
use crate::function::Function;
use crate::memory::zeroed;
use crate::server::Server;
use crate::transaction::{ArgumentOptions, Deferred, Report, Transaction};
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, Order, Param, Scalar, Type};
use farcall_plan::{Plan, Step, Value};
use farcall_rpc_proto::{ArrayForm, FailureKind};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::path::Path;

/// OUT arrays up to this many bytes travel home even if they are not outputs of the plan.
const SMALL: u64 = 4096;

/// A transaction made from a plan.
pub struct Playback {
    transaction: Transaction,
    servers: Vec<Server>,
    arrays: HashMap<String, Array>,
    outputs: Vec<String>,
    /// Copies of inputs in another form than their first one.
    others: Vec<PlanArray>,
    lines: Vec<String>,
}

/// An array of a plan.
enum Array {
    /// An input that no call has used yet.
    Input,
    Memory(PlanArray),
    Deferred(Deferred, ArrayForm),
}

/// An array in memory. The calls of the transaction use it by its address. Nobody else uses it
/// until they have run.
struct PlanArray {
    name: String,
    form: ArrayForm,
    bytes: Vec<u8>,
    start: *mut u8,
    is_written: bool,
}

// SAFETY: `start` points to the memory of `bytes`.
unsafe impl Send for PlanArray {}

impl PlanArray {
    fn new(name: &str, form: ArrayForm, mut bytes: Vec<u8>) -> PlanArray {
        let start = bytes.as_mut_ptr();
        PlanArray {
            name: name.to_string(),
            form,
            bytes,
            start,
            is_written: false,
        }
    }
}

/// Reads an input in the type, shape and order of a form.
pub type Load<'l> = dyn FnMut(&str, &ArrayForm) -> Result<Vec<u8>, String> + 'l;

fn wrong(text: impl Display) -> Error {
    Error::failed(FailureKind::BadArgument, text.to_string())
}

impl Playback {
    /// Records the calls of a plan, for functions of these servers or of the servers behind a
    /// metaserver. Runs nothing yet.
    ///
    /// # Errors
    /// A function is missing, or its arguments do not fit. The error names the call.
    pub fn record(plan: &Plan, servers: &[Server], load: &mut Load<'_>) -> Result<Playback, Error> {
        let inputs = plan.inputs.keys().map(|name| (name.clone(), Array::Input));
        let mut playback = Playback {
            transaction: Transaction::new(),
            servers: Vec::new(),
            arrays: inputs.collect(),
            outputs: plan.outputs.keys().cloned().collect(),
            others: Vec::new(),
            lines: Vec::new(),
        };
        let mut functions: HashMap<&str, Function> = HashMap::new();
        for (number, step) in plan.calls.iter().enumerate() {
            let name = step.function.as_str();
            let at = |error: Error| {
                let call = number + 1;
                match error {
                    Error::Failed(failure) => Error::failed(
                        failure.kind,
                        format!("call {call}, {name}: {}", failure.message),
                    ),
                    other => other,
                }
            };
            if !functions.contains_key(name) {
                functions.insert(name, function(name, servers).map_err(at)?);
            }
            playback.add(&functions[name], step, load).map_err(at)?;
        }
        for name in &playback.outputs {
            if !matches!(playback.arrays.get(name), Some(Array::Memory(held)) if held.is_written) {
                return Err(wrong(format!("no call writes the output `{name}`")));
            }
        }
        playback.servers = places(servers, functions.values())?;
        playback.discard();
        Ok(playback)
    }

    /// Tells the transaction which written arrays are not outputs, so that they stay at servers.
    fn discard(&mut self) {
        for (name, array) in &self.arrays {
            if let Array::Memory(held) = array
                && held.is_written
                && !self.outputs.contains(name)
            {
                let start = held.start.addr();
                self.transaction.discard(start..start + held.bytes.len());
            }
        }
    }

    fn add(&mut self, function: &Function, step: &Step, load: &mut Load<'_>) -> Result<(), Error> {
        let interface = function.interface();
        let (scalars, names) = arguments(interface, step)?;
        let elements = self.elements(interface, &scalars, &names, load)?;
        let laid_out = LaidOut::new(function.description(), scalars, elements).map_err(wrong)?;
        let layout = laid_out.layout();
        let (mut given, mut ways) = (HashMap::new(), ArgumentOptions::default());
        let mut line = CallLine::default();
        for array in &layout.arrays {
            let param = &interface.params[array.param];
            if array.mode == Mode::Work {
                continue;
            }
            let own;
            let name = match names.get(&array.param) {
                Some(name) => *name,
                None if array.mode == Mode::Out => {
                    own = format!("call {}: {}", self.transaction.len() + 1, param.name);
                    own.as_str()
                }
                None => return Err(missing(&param.name, "the name of an array")),
            };
            line.add(name, array.mode);
            let form = ArrayForm::of(array, interface.order());
            let place = self.place(name, param, array, form, load)?;
            match place {
                ArgumentLocation::Memory(start, length) => {
                    given.insert(array.param, (start, length));
                }
                ArgumentLocation::Deferred(deferred) => ways.deferred.push((array.param, deferred)),
            }
        }
        let mut arguments = made(interface, layout, laid_out.scalars(), &given);
        let bytes = (layout.sent_bytes(), layout.returned_bytes());
        // SAFETY: the arrays stay in place longer than the transaction, and nobody else uses them
        // until it has run.
        unsafe {
            self.transaction
                .add_laid_out(function, laid_out, &mut arguments, &ways)
        }?;
        self.lines.push(line.text(function.qualified_name(), bytes));
        Ok(())
    }

    /// The elements of inputs that sizes depend on.
    fn elements(
        &mut self,
        interface: &Interface,
        scalars: &[Option<Scalar>],
        names: &BTreeMap<usize, &str>,
        load: &mut Load<'_>,
    ) -> Result<Vec<i64>, Error> {
        let mut read: HashMap<usize, Vec<u8>> = HashMap::new();
        for reference in &interface.element_refs {
            let param = &interface.params[reference.param];
            let name = names.get(&reference.param);
            let name = name.ok_or_else(|| missing(&param.name, "the name of an array"))?;
            let bytes = match self.arrays.get(*name) {
                Some(Array::Memory(held)) if !held.is_written => held.bytes.clone(),
                Some(Array::Input) => {
                    // The shape is not known yet, and the elements do not depend on it.
                    let form = ArrayForm {
                        element: param.ty.name().to_string(),
                        shape: Vec::new(),
                        column_major: interface.order() == Order::ColumnMajor,
                    };
                    load(name, &form).map_err(wrong)?
                }
                _ => {
                    let text = format!("sizes depend on `{name}`, so it must be an input");
                    return Err(wrong(text));
                }
            };
            read.insert(reference.param, bytes);
        }
        let bytes = |param: usize| read.get(&param).map_or(&[][..], Vec::as_slice);
        interface.element_values(scalars, bytes).map_err(wrong)
    }

    /// The location of an array, in the form in which a call takes it.
    fn place(
        &mut self,
        name: &str,
        param: &Param,
        array: &ArrayLayout,
        form: ArrayForm,
        load: &mut Load<'_>,
    ) -> Result<ArgumentLocation, Error> {
        let writes = array.mode.is_returned();
        let fits = |known: &ArrayForm| known.fits(param.ty, &form.shape, form.column_major);
        match self.arrays.get_mut(name) {
            Some(Array::Memory(held)) if fits(&held.form) => {
                held.is_written |= writes;
                return Ok(ArgumentLocation::Memory(held.start, held.bytes.len()));
            }
            Some(Array::Deferred(deferred, known)) if fits(known) => {
                return Ok(ArgumentLocation::Deferred(*deferred));
            }
            Some(Array::Memory(held)) if !held.is_written && !writes => {
                let other = self
                    .others
                    .iter()
                    .find(|one| one.name == name && fits(&one.form));
                if let Some(other) = other {
                    return Ok(ArgumentLocation::Memory(other.start, other.bytes.len()));
                }
                let bytes = load(name, &form).map_err(wrong)?;
                let held = PlanArray::new(name, form, bytes);
                let place = ArgumentLocation::Memory(held.start, held.bytes.len());
                self.others.push(held);
                return Ok(place);
            }
            Some(Array::Memory(PlanArray { form: known, .. }) | Array::Deferred(_, known)) => {
                return Err(wrong(format!(
                    "the array `{name}` is {}, but `{}` takes {}",
                    shown(known),
                    param.name,
                    shown(&form)
                )));
            }
            Some(Array::Input) | None => {}
        }
        self.make(name, array, form, load)
    }

    /// Makes an array that no call has used yet.
    fn make(
        &mut self,
        name: &str,
        array: &ArrayLayout,
        form: ArrayForm,
        load: &mut Load<'_>,
    ) -> Result<ArgumentLocation, Error> {
        let is_input = self.arrays.contains_key(name);
        if !is_input && array.mode != Mode::Out {
            let text = format!(
                "`{name}` is read, but it is not an input, and no earlier call \
             writes it"
            );
            return Err(wrong(text));
        }
        let is_output = self.outputs.iter().any(|output| output == name);
        let comes_home = is_input || is_output || array.bytes <= SMALL || array.is_shrunk;
        if !comes_home {
            let deferred = self.transaction.defer();
            let made = Array::Deferred(deferred, form);
            self.arrays.insert(name.to_string(), made);
            return Ok(ArgumentLocation::Deferred(deferred));
        }
        let length = usize::try_from(array.client_bytes).map_err(wrong)?;
        let bytes = match is_input {
            true => load(name, &form).map_err(wrong)?,
            false => zeroed(array.client_bytes)?,
        };
        if bytes.len() != length {
            let given = bytes.len();
            return Err(wrong(format!(
                "`{name}` has {given} bytes, expected {length}"
            )));
        }
        let mut held = PlanArray::new(name, form, bytes);
        held.is_written = array.mode.is_returned();
        let place = ArgumentLocation::Memory(held.start, held.bytes.len());
        self.arrays.insert(name.to_string(), Array::Memory(held));
        Ok(place)
    }

    /// Runs the calls.
    ///
    /// # Errors
    /// As [`Transaction::run`].
    pub fn run(&mut self) -> Result<Report, Error> {
        self.transaction.run(&self.servers)
    }

    /// An output, after the calls have run.
    pub fn output(&self, name: &str) -> Option<(&ArrayForm, &[u8])> {
        match self.arrays.get(name)? {
            Array::Memory(held) => {
                // SAFETY: no call runs, and the memory is that of `bytes`.
                let bytes = unsafe { std::slice::from_raw_parts(held.start, held.bytes.len()) };
                Some((&held.form, bytes))
            }
            Array::Input | Array::Deferred(..) => None,
        }
    }

    /// The calls as text, one line each, with the arrays that they read and write.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The servers that may run calls.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The graph in the DOT language.
    pub fn dot(&self) -> String {
        self.transaction.dot()
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        // The recorded calls point to the arrays, so they go first.
        self.transaction = Transaction::new();
    }
}

/// The location of an argument.
enum ArgumentLocation {
    Memory(*mut u8, usize),
    Deferred(Deferred),
}

/// The arrays that a call reads and writes, as text.
#[derive(Default)]
struct CallLine {
    reads: Vec<String>,
    writes: Vec<String>,
}

impl CallLine {
    fn add(&mut self, name: &str, mode: Mode) {
        if mode.is_sent() {
            self.reads.push(name.to_string());
        }
        if mode.is_returned() && !name.starts_with("call ") {
            self.writes.push(name.to_string());
        }
    }

    fn text(&self, function: &str, (sent, returned): (u64, u64)) -> String {
        let (reads, writes) = (self.reads.join(", "), self.writes.join(", "));
        format!("{function}  {reads} -> {writes}  ({sent} bytes in, {returned} out)")
    }
}

fn missing(name: &str, what: &str) -> Error {
    wrong(format!("`{name}` is missing: {what}"))
}

/// The function of the first server that has it.
fn function(name: &str, servers: &[Server]) -> Result<Function, Error> {
    let mut first = None;
    for server in servers {
        match server.function(name) {
            Ok(function) => return Ok(function),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| wrong("there is no server")))
}

/// The servers, with each metaserver replaced by the servers behind it.
fn places<'f>(
    servers: &[Server],
    functions: impl Iterator<Item = &'f Function>,
) -> Result<Vec<Server>, Error> {
    let is_one = |server: &&Server| !server.is_metaserver();
    let mut places: Vec<Server> = servers.iter().filter(is_one).cloned().collect();
    if servers.iter().all(|server| is_one(&server)) {
        return Ok(places);
    }
    for function in functions {
        for server in function.servers()? {
            let mut known = places.iter().map(Server::address);
            if !known.any(|address| address == server.address()) {
                places.push(server);
            }
        }
    }
    Ok(places)
}

/// The scalars of a call, and the names of its arrays, by parameter.
#[expect(clippy::type_complexity, reason = "both by parameter")]
fn arguments<'s>(
    interface: &Interface,
    step: &'s Step,
) -> Result<(Vec<Option<Scalar>>, BTreeMap<usize, &'s str>), Error> {
    if !interface.callbacks.is_empty() {
        let text = "it has callbacks, and a plan cannot contain callbacks";
        return Err(wrong(text));
    }
    let mut scalars = vec![None; interface.params.len()];
    let mut names = BTreeMap::new();
    for (name, value) in &step.arguments {
        let Some(index) = interface.param(name) else {
            let known: Vec<&str> = interface.params.iter().map(|p| p.name.as_str()).collect();
            let text = format!("no argument `{name}`; there are: {}", known.join(", "));
            return Err(wrong(text));
        };
        let param = &interface.params[index];
        match value {
            _ if param.mode == Mode::Work => {
                return Err(wrong(format!("`{name}` is work space: omit it")));
            }
            _ if param.is_value() => {
                let value = scalar(param, value)?;
                check_places(param, &value)?;
                scalars[index] = Some(value);
            }
            Value::Text(array) => drop(names.insert(index, array.as_str())),
            _ => return Err(missing(name, "give the name of an array as text")),
        }
    }
    for (index, param) in interface.params.iter().enumerate() {
        if param.is_value() && param.is_passed() && scalars[index].is_none() {
            return Err(missing(&param.name, param.ty.name()));
        }
    }
    Ok((scalars, names))
}

/// A plan can come from anybody, so its calls write files below the present folder.
fn check_places(param: &Param, value: &Scalar) -> Result<(), Error> {
    let is_written = (param.is_file() || param.is_files()) && param.mode.is_returned();
    let files = match value {
        Scalar::Text(file) if is_written => std::slice::from_ref(file),
        Scalar::Texts(files) if is_written => files,
        _ => return Ok(()),
    };
    let outside = |file: &&String| !plan_may_write(Path::new(""), file);
    match files.iter().find(outside) {
        None => Ok(()),
        Some(file) => Err(wrong(format!(
            "`{}`: the file {file} is written, and a plan writes files below the present folder: \
             write a relative path in the plan, without `..` and without links that lead out",
            param.name
        ))),
    }
}

/// Whether a plan, which can come from anybody, may write a file of this name: one below a folder,
/// out of which neither the name nor a link on the way, nor the file itself, leads.
pub fn plan_may_write(folder: &Path, file: &str) -> bool {
    let folder = Path::new(".").join(folder);
    let path = folder.join(file);
    // Who writes to such a link makes a file somewhere.
    let leads_to_nothing = path.is_symlink() && !path.exists();
    let real = path.canonicalize();
    let real = real.or_else(|_| path.parent().unwrap_or(&path).canonicalize());
    let leads_out = match (folder.canonicalize(), real) {
        (Ok(folder), Ok(real)) => leads_to_nothing || !real.starts_with(folder),
        // There is no such folder, and who writes there learns that.
        _ => false,
    };
    farcall_plan::is_below(file) && !leads_out
}

/// The value of a scalar, as a plan writes it.
fn scalar(param: &Param, value: &Value) -> Result<Scalar, Error> {
    let complex = |text: &str| {
        let (re, im) = text.split_once(',')?;
        let (re, im) = (re.trim().parse().ok()?, im.trim().parse().ok()?);
        Some(Scalar::Complex { re, im })
    };
    let is_complex = matches!(param.ty, Type::SComplex | Type::DComplex);
    let scalar = match value {
        Value::Integer(value) => Scalar::Int(*value),
        Value::Real(value) => Scalar::Float(*value),
        Value::Texts(texts) => Scalar::Texts(texts.clone()),
        Value::Text(text) if is_complex => complex(text).ok_or_else(|| {
            let text = format!("`{}`: `{text}` is not a complex number `RE,IM`", param.name);
            wrong(text)
        })?,
        Value::Text(text) => Scalar::Text(text.clone()),
    };
    scalar.convert_written(param).map_err(wrong)
}

/// The arguments of a call.
fn made<'a>(
    interface: &Interface,
    layout: &Layout,
    scalars: &[Option<Scalar>],
    given: &HashMap<usize, (*mut u8, usize)>,
) -> Vec<Argument<'a>> {
    let mode = |param: usize| layout.array(param).map_or(Mode::Work, |array| array.mode);
    let argument = |(param, scalar): (usize, &Option<Scalar>)| match (scalar, given.get(&param)) {
        (Some(scalar), _) => Argument::Scalar(scalar.clone()),
        (None, Some((start, length))) if mode(param) == Mode::In => {
            // SAFETY: the memory belongs to an array that lives on, and nobody writes it now.
            Argument::In(unsafe { std::slice::from_raw_parts(*start, *length) })
        }
        (None, Some((start, length))) => {
            // SAFETY: the memory belongs to an array that lives on, and nobody else uses it.
            Argument::Out(unsafe { std::slice::from_raw_parts_mut(*start, *length) })
        }
        (None, None) => Argument::Skip,
    };
    debug_assert_eq!(scalars.len(), interface.params.len());
    scalars.iter().enumerate().map(argument).collect()
}

fn shown(form: &ArrayForm) -> String {
    let order = if form.column_major { "columns" } else { "rows" };
    format!("{} of shape {:?} in {order}", form.element, form.shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_space_is_left_out() {
        let text = "Define f(IN int n, WORK int w, OUT int *m) Calls \"C\" f(n, w, m);";
        let interface = farcall_idl::parse_interface(text).unwrap();
        let step = |names: &[&str]| Step {
            function: "f".to_owned(),
            arguments: (names.iter())
                .map(|name| (name.to_string(), Value::Integer(3)))
                .collect(),
        };
        let n = step(&["n"]);
        let (scalars, _) = arguments(&interface, &n).unwrap();
        assert_eq!(scalars, [Some(Scalar::Int(3)), None, None]);
        let both = step(&["n", "w"]);
        let refused = arguments(&interface, &both).unwrap_err().to_string();
        assert!(refused.contains("omit it"), "{refused}");
    }
}
