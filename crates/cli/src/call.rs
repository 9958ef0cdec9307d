//! `farcall call`: reads arguments from words and files, calls, and prints or writes the results.
//! `jobs::submit` uses the same arguments.

use crate::arrays::{self, Remote};
use crate::failure::{self, Failure};
use crate::npy;
use crate::objects;
use crate::plain;
use crate::progress;
use crate::results::{self, Results, check_files, print_times};
use crate::seconds::above_zero;
use crate::target::Target;
use crate::texts;
use crate::trace_out;
use clap::Args;
use farcall_client::{
    Argument, Callback, CallbackArguments, CallbackError, DurableCall, Error, Function, Interface,
    LaidOut, Outcome, Output, ReservationName, Scalar, zeroed,
};
use farcall_idl::{Mode, Param, Type};
use farcall_npy::{Array, same_shape};
use serde_json::json;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Call a function
///
/// Give each argument as NAME=VALUE. A scalar is a number or a text. An array is @FILE.npy, or
/// numbers with commas between them, in the order of the function: by columns for Fortran, else by
/// rows. An array of strings is @FILE, whose lines are the strings, or strings with commas between
/// them. handle:ID is a stored array and data:NAME is named data, which `farcall data put` has
/// stored. @ADDRESS is an array outside of Farcall, such as @https://HOST/a.npy, which the server
/// reads; for an OUT array, the server writes the result there. Options follow the address:
/// @s3://BUCKET/KEY#columns=rain&format=csv. A parameter of type filename takes the path of a file
/// on this machine, and the file travels.
///
/// OUT arrays may be left out; -o writes them to files. The command prints the arguments of
/// callbacks on standard error.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall call ddot n=3 x=1,2,3 incx=1 y=4,5,6 incy=1
  farcall call dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 -o b=x.npy --time
  farcall call dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --trace-out t.json
  farcall call dgesv n=100 nrhs=1 a=@a.npy lda=100 b=@b.npy ldb=100 --before 2.5
  farcall call mean n=366 x=@https://data.example.org/2024.csv#columns=rain
  farcall call summary table=weather.csv summary=out.csv")]
pub(crate) struct Arguments {
    /// Name of the function, with or without its module, or object:ID.METHOD for a method
    function: String,
    /// Arguments by name; the command never overwrites an input file
    #[arg(value_name = "NAME=VALUE")]
    arguments: Vec<String>,
    /// File for an OUT or INOUT array; may be given several times. NAME may be left out if the
    /// function returns one array
    #[arg(short, long = "output", value_name = "[NAME=]FILE.npy")]
    output: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Use this reservation, which `farcall reservation make` has made
    #[arg(long, value_name = "ID")]
    reservation: Option<ReservationName>,
    /// Ask the server to promise that the call ends within so many seconds, or to refuse it with
    /// the time that it can promise
    #[arg(long, value_name = "SECONDS", value_parser = above_zero, conflicts_with = "reservation")]
    before: Option<Duration>,
    /// Print on standard error what the library prints
    #[arg(long)]
    show_output: bool,
    /// Show the times of the call: send, compute, receive
    #[arg(long)]
    time: bool,
    /// Write the times of the call to this file, which ui.perfetto.dev opens
    #[arg(long, value_name = "FILE.json")]
    trace_out: Option<PathBuf>,
    /// Show an estimate of the call (bytes, memory, time), and do not make the call
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object, with all values of the arrays that -o does not write to files
    #[arg(long)]
    json: bool,
}

/// An array that the user gave.
enum Given {
    Array(Array),
    /// Elements in the order in which the function has them, for an array of any shape.
    List(Array),
    Texts(Vec<String>),
}

/// Elements of an array of this shape.
fn count(shape: &[u64]) -> u64 {
    shape
        .iter()
        .fold(1, |count, length| count.saturating_mul(*length))
}

/// The arguments of one call, checked against the interface.
pub(crate) struct Call {
    function: Function,
    laid_out: LaidOut,
    /// Bytes of each array parameter.
    arrays: BTreeMap<usize, Vec<u8>>,
    /// Stored arrays, named data and addresses, by parameter.
    handles: BTreeMap<usize, Remote>,
    outputs: BTreeMap<usize, PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let server = arguments.target.connect(None)?;
    let function = objects::function(&server, &arguments.function)?;
    let function = function.with_reservation(arguments.reservation.clone());
    let function = function.with_deadline(arguments.before);
    if arguments.dry_run {
        return print_estimate(&function, &arguments);
    }
    let function = function.with_output(arguments.show_output.then(|| Output::new(write)));
    let function = match arguments.trace_out {
        Some(_) => function.with_trace(farcall_client::new_trace()),
        None => function,
    };
    if let Some(problem) = farcall_client::collector_problem() {
        failure::say(format_args!("warning: {problem}"));
    }
    let mut call = Call::prepare(function, &arguments)?;
    let outcome = call.run()?;
    let results = call.results();
    let written = results.write();
    let trace = arguments.trace_out.as_deref();
    let traced = trace.map(|path| trace_out::write(path, &call.function, &outcome));
    // A file that cannot be written does not take the other results with it.
    let none = BTreeMap::new();
    let shown = match &written {
        Ok(()) => results,
        Err(_) => Results {
            outputs: &none,
            ..results
        },
    };
    if arguments.json {
        println!("{}", shown.to_json(&outcome));
    } else {
        shown.print(&outcome.receipts);
        if arguments.time {
            if let Some(library) = &outcome.library {
                plain::say(format_args!("library {library}"));
            }
            if let Some(threads) = outcome.threads {
                println!("threads {threads}");
            }
            print_times(&outcome);
        }
    }
    shown.warn_of_inexact();
    written?;
    // Nor does a trace.
    traced.unwrap_or(Ok(()))
}

/// Prints what the library prints on standard error; the results are on standard output.
fn write(line: &str) -> Result<(), CallbackError> {
    // Progress is often written over itself.
    let parts: Vec<String> = line.split('\r').map(plain::text).collect();
    // The call goes on where the line cannot be written.
    let _ = write!(std::io::stderr(), "{}", parts.join("\r"));
    Ok(())
}

/// A callback: prints a line with its scalars on standard error, and returns nothing.
fn show(arguments: &mut CallbackArguments<'_>) -> Result<(), CallbackError> {
    let interface = arguments.interface();
    let shown = interface.params.iter().zip(arguments.scalars());
    let shown = shown.filter(|(param, _)| param.is_passed());
    let shown = shown.filter_map(|(param, scalar)| {
        let value = match scalar.as_ref()? {
            Scalar::Int(value) => value.to_string(),
            Scalar::Float(value) => value.to_string(),
            Scalar::Complex { re, im } => format!("{re}{im:+}i"),
            Scalar::Text(text) => text.clone(),
            Scalar::Texts(texts) => texts.join(","),
        };
        Some(format!("{}={value}", param.name))
    });
    let shown: Vec<String> = shown.collect();
    failure::say(format_args!("{} {}", interface.name, shown.join(" ")));
    Ok(())
}

impl Call {
    fn prepare(function: Function, arguments: &Arguments) -> Result<Call, Failure> {
        let interface = function.interface();
        refuse_answers(interface)?;
        let values = named(&arguments.arguments, interface, "NAME=VALUE")?;
        let outputs = outputs(&arguments.output, interface)?;
        let trace = arguments.trace_out.as_deref();
        check_files(outputs.values().map(PathBuf::as_path).chain(trace))?;
        refuse_overwriting(
            interface,
            &values,
            outputs.values().map(Path::new).chain(trace),
        )?;
        Call::read(function, values, outputs)
    }

    /// A durable call.
    pub(crate) fn to_submit(function: Function, words: &[String]) -> Result<Call, Failure> {
        let values = named(words, function.interface(), "NAME=VALUE")?;
        Call::read(function, values, BTreeMap::new())
    }

    fn read(
        function: Function,
        mut values: BTreeMap<usize, String>,
        outputs: BTreeMap<usize, PathBuf>,
    ) -> Result<Call, Failure> {
        let interface = function.interface();
        require(&function, &values, |index| {
            needs_value(&interface.params[index])
        })?;
        let scalars = scalars(interface, &mut values)?;
        let (mut given, mut handles) = (BTreeMap::new(), BTreeMap::new());
        for (param, text) in values {
            let declared = &interface.params[param];
            let array = match arrays::named(&text) {
                _ if declared.is_fixed_texts() => {
                    Given::Texts(texts::parse(&text, &declared.name)?)
                }
                Some(id) => {
                    handles.insert(param, id.map_err(Failure::usage)?);
                    continue;
                }
                None if text.starts_with('@') => Given::Array(read_array(&text, &declared.name)?),
                None => Given::List(read_array(&text, &declared.name)?),
            };
            given.insert(param, array);
        }
        if let Some(param) = outputs.keys().find(|param| handles.contains_key(param)) {
            let name = &interface.params[*param].name;
            return Err(Failure::usage(format!(
                "-o {name}: the array stays elsewhere; `farcall data get` writes one at the server \
                 to a file"
            )));
        }
        Call::lay_out(function, scalars, given, handles, outputs)
    }

    fn lay_out(
        function: Function,
        scalars: Vec<Option<Scalar>>,
        given: BTreeMap<usize, Given>,
        handles: BTreeMap<usize, Remote>,
        outputs: BTreeMap<usize, PathBuf>,
    ) -> Result<Call, Failure> {
        let interface = function.interface();
        let order = interface.order();
        let mut arrays = BTreeMap::new();
        let (mut shapes, mut texts) = (BTreeMap::new(), BTreeMap::new());
        for (param, array) in given {
            let (array, is_list) = match array {
                Given::Texts(given) => {
                    texts.insert(param, given);
                    continue;
                }
                Given::Array(array) => (array, false),
                Given::List(array) => (array, true),
            };
            shapes.insert(param, (array.shape.clone(), is_list));
            arrays.insert(param, array_bytes(interface, param, array)?);
        }
        let elements = interface
            .element_values(&scalars, |param| {
                arrays.get(&param).map_or(&[], Vec::as_slice)
            })
            .map_err(Failure::usage)?;
        let laid_out = function.lay_out(scalars, elements);
        let laid_out = laid_out.map_err(|error| match error {
            Error::Argument { source, .. } => Failure::usage(source),
            other => Failure::from(other),
        })?;
        for array in &laid_out.layout().arrays {
            let expected = array.shape(order);
            if let Some((shape, is_list)) = shapes.get(&array.param)
                && !same_shape(shape, &expected)
                && !(*is_list && count(shape) == count(&expected))
            {
                let name = &interface.params[array.param].name;
                return Err(Failure::usage(format!(
                    "`{name}`: expected shape {expected:?}, given {shape:?}"
                )));
            }
            let given = texts.remove(&array.param);
            let is_missing = array.mode == Mode::Out && !handles.contains_key(&array.param);
            if (is_missing || given.is_some())
                && let Entry::Vacant(free) = arrays.entry(array.param)
            {
                free.insert(zeroed(array.client_bytes)?);
            }
            if let Some((texts, fields)) = given.zip(arrays.get_mut(&array.param)) {
                let texts = texts.iter().map(String::as_bytes);
                let written = array.write_texts(&interface.params[array.param], texts, fields);
                written.map_err(Failure::usage)?;
            }
        }
        Ok(Call {
            laid_out,
            function,
            arrays,
            handles,
            outputs,
        })
    }

    fn run(&mut self) -> Result<Outcome, Failure> {
        let mut arrays: BTreeMap<usize, &mut Vec<u8>> = self
            .arrays
            .iter_mut()
            .map(|(param, bytes)| (*param, bytes))
            .collect();
        let params = &self.function.interface().params;
        let mut arguments: Vec<Argument<'_>> = Vec::with_capacity(params.len());
        for (index, param) in params.iter().enumerate() {
            arguments.push(
                match (&self.laid_out.scalars()[index], arrays.remove(&index)) {
                    (Some(_), _) => Argument::Skip,
                    (None, Some(bytes)) if param.mode.is_returned() => Argument::Out(bytes),
                    (None, Some(bytes)) => Argument::In(bytes),
                    (None, None) => without_bytes(&self.handles, index),
                },
            );
        }
        for _ in &self.function.interface().callbacks {
            arguments.push(Argument::Function(Callback::new(show)));
        }
        if !std::io::stderr().is_terminal() {
            let laid_out = self.laid_out.clone();
            return Ok(self.function.call_laid_out(laid_out, &mut arguments)?);
        }
        let laid_out = self.laid_out.clone();
        // SAFETY: the arrays are borrowed until the end of this function, and so is the call.
        let pending = unsafe { self.function.start_laid_out(laid_out, &mut arguments) }?;
        progress::show(&pending)?;
        Ok(pending.wait()?)
    }

    pub(crate) fn submit(&self, keep: Option<Duration>) -> Result<DurableCall, Failure> {
        let params = self.function.interface().params.iter().enumerate();
        let scalars = self.laid_out.scalars();
        let argument =
            |(index, param): (usize, &Param)| match (&scalars[index], self.arrays.get(&index)) {
                (Some(_), _) => Argument::Skip,
                (None, Some(bytes)) if param.mode.is_sent() => Argument::In(bytes),
                _ => without_bytes(&self.handles, index),
            };
        let arguments = params.map(argument);
        let mut arguments: Vec<Argument<'_>> = arguments.collect();
        for _ in &self.function.interface().callbacks {
            arguments.push(Argument::Function(Callback::new(show)));
        }
        let laid_out = self.laid_out.clone();
        Ok(self
            .function
            .submit_laid_out(laid_out, &mut arguments, keep)?)
    }

    fn results(&self) -> Results<'_> {
        Results {
            interface: self.function.interface(),
            scalars: self.laid_out.scalars(),
            layout: self.laid_out.layout(),
            arrays: &self.arrays,
            outputs: &self.outputs,
        }
    }
}

/// Fails if the function computes with what a callback returns. Integers, such as a flag that stops
/// a computation, are 0.
fn refuse_answers(interface: &Interface) -> Result<(), Failure> {
    let mut callbacks = interface.callbacks.iter();
    let answers = |param: &Param| param.mode == Mode::Out && !param.ty.is_integer();
    match callbacks.find(|callback| callback.params.iter().any(answers)) {
        None => Ok(()),
        Some(callback) => Err(Failure::usage(format!(
            "the function computes with the results of its callback `{}`, and a command has none: \
             call it from a program",
            callback.name
        ))),
    }
}

/// An array that is not on this machine, or nothing.
fn without_bytes(handles: &BTreeMap<usize, Remote>, param: usize) -> Argument<'static> {
    let handle = handles.get(&param);
    handle.map_or(Argument::Skip, Remote::argument)
}

/// The scalars among arguments by name, and the elements that decide sizes. All other arrays may be
/// left out.
pub(crate) fn sizes(
    function: &Function,
    words: &[String],
) -> Result<(Vec<Option<Scalar>>, Vec<i64>), Failure> {
    let interface = function.interface();
    let mut values = named(words, interface, "NAME=VALUE")?;
    require(function, &values, |index| {
        let param = &interface.params[index];
        param.is_passed() && (param.is_value() || decides_sizes(interface, index))
    })?;
    let scalars = scalars(interface, &mut values)?;
    let mut arrays = BTreeMap::new();
    for (param, text) in values {
        if decides_sizes(interface, param) && arrays::named(&text).is_none() {
            let name = &interface.params[param].name;
            arrays.insert(
                param,
                array_bytes(interface, param, read_array(&text, name)?)?,
            );
        }
    }
    let bytes = |param| arrays.get(&param).map_or(&[][..], Vec::as_slice);
    let elements = interface.element_values(&scalars, bytes);
    Ok((scalars, elements.map_err(Failure::usage)?))
}

/// Prints the estimate of a call.
fn print_estimate(function: &Function, arguments: &Arguments) -> Result<(), Failure> {
    let (scalars, elements) = sizes(function, &arguments.arguments)?;
    let plan = function.estimate(&scalars, &elements)?;
    if arguments.json {
        let plan = json!({
            "schema": 1,
            "function": function.qualified_name(),
            "library": function.library(),
            "sent_bytes": plan.sent_bytes,
            "returned_bytes": plan.returned_bytes,
            "server_bytes": plan.memory_bytes,
            "operations": plan.operations,
            "latency_s": plan.latency,
            "send_s": plan.send,
            "wait_s": plan.wait,
            "exec_s": plan.exec,
            "exec_factor": plan.factor,
            "recv_s": plan.recv,
            "total_s": plan.total(),
        });
        println!("{plan}");
    } else {
        plain::say(function.qualified_name());
        for line in plan.to_string().lines() {
            plain::say(format_args!("  {line}"));
        }
    }
    Ok(())
}

/// Whether elements of the array decide the size of another array.
fn decides_sizes(interface: &Interface, param: usize) -> bool {
    let references = &interface.element_refs;
    references.iter().any(|reference| reference.param == param)
}

/// Fails with the names of the parameters that are needed and missing.
fn require(
    function: &Function,
    values: &BTreeMap<usize, String>,
    is_needed: impl Fn(usize) -> bool,
) -> Result<(), Failure> {
    let params = &function.interface().params;
    let missing: Vec<&str> = (0..params.len())
        .filter(|index| is_needed(*index) && !values.contains_key(index))
        .map(|index| params[index].name.as_str())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "missing arguments: `{}`\nthe interface is\n{}",
        missing.join("`, `"),
        function.text()
    )))
}

/// The elements of an array in the type of the parameter.
fn array_bytes(interface: &Interface, param: usize, array: Array) -> Result<Vec<u8>, Failure> {
    let Param { name, ty, .. } = &interface.params[param];
    let bytes = array.into_bytes(*ty, interface.order());
    bytes.map_err(|error| Failure::usage(format!("`{name}`: {error}")))
}

/// Files for OUT and INOUT arrays, by parameter.
pub(crate) fn outputs(
    words: &[String],
    interface: &Interface,
) -> Result<BTreeMap<usize, PathBuf>, Failure> {
    let mut outputs = BTreeMap::new();
    let words = words.iter().map(|word| match word.contains('=') {
        true => Ok(word.clone()),
        false => Ok(format!("{}={word}", only_result(interface, word)?)),
    });
    let words: Vec<String> = words.collect::<Result<_, Failure>>()?;
    for (param, file) in named(&words, interface, "-o NAME=FILE.npy")? {
        let Param { name, mode, .. } = &interface.params[param];
        if !mode.is_returned() {
            return Err(Failure::usage(format!(
                "-o {name}: the function does not return this argument"
            )));
        }
        if interface.params[param].is_value() {
            return Err(Failure::usage(format!(
                "-o {name}: this argument is a file, and its value is the name of the file: write \
                 {name}={file} without -o"
            )));
        }
        if !interface.params[param].is_fixed_texts() {
            npy::check_name(Path::new(&file))?;
        }
        outputs.insert(param, PathBuf::from(file));
    }
    check_files(outputs.values())?;
    Ok(outputs)
}

/// The name of the array that a function returns, if it returns one.
fn only_result<'a>(interface: &'a Interface, file: &str) -> Result<&'a str, Failure> {
    let is_result = |param: &&Param| !param.is_value() && param.mode.is_returned();
    let results = interface.params.iter().filter(is_result);
    let names: Vec<&str> = results.map(|param| param.name.as_str()).collect();
    match names[..] {
        [name] => Ok(name),
        [] => Err(Failure::usage(format!(
            "-o {file}: the function returns no array; leave -o out"
        ))),
        _ => Err(Failure::usage(format!(
            "-o {file}: the function returns {} arrays ({}); write -o NAME=FILE.npy",
            names.len(),
            names.join(", ")
        ))),
    }
}

/// `name=value` words by parameter index.
fn named(
    words: &[String],
    interface: &Interface,
    form: &str,
) -> Result<BTreeMap<usize, String>, Failure> {
    let mut values = BTreeMap::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("`{word}`: write {form}")))?;
        let index = interface.param(name).ok_or_else(|| {
            let names: Vec<&str> = interface.params.iter().map(|p| p.name.as_str()).collect();
            let close = farcall_spelling::closest(name, names.iter().copied(), 1);
            let hint = close.map_or_else(String::new, |known| format!("did you mean `{known}`? "));
            Failure::usage(format!(
                "the function has no argument `{name}`; {hint}it has: {}",
                names.join(", ")
            ))
        })?;
        if !interface.params[index].is_passed() {
            let text = format!("`{name}` is work space of the function: leave it out");
            return Err(Failure::usage(text));
        }
        if values.insert(index, value.to_string()).is_some() {
            return Err(Failure::usage(format!("`{name}` is given twice")));
        }
    }
    Ok(values)
}

fn needs_value(param: &Param) -> bool {
    param.is_passed() && (param.is_value() || param.mode.is_sent())
}

/// Takes the scalars out of the values.
fn scalars(
    interface: &Interface,
    values: &mut BTreeMap<usize, String>,
) -> Result<Vec<Option<Scalar>>, Failure> {
    let scalar = |(index, param): (usize, &Param)| {
        if !param.is_value() || !param.is_passed() {
            return Ok(None);
        }
        let text = values.remove(&index).expect("checked to be there");
        if param.is_texts() {
            let texts = Scalar::Texts(texts::parse(&text, &param.name)?);
            return texts
                .convert_written(param)
                .map(Some)
                .map_err(Failure::usage);
        }
        parse_scalar(&text, param).map(Some)
    };
    interface.params.iter().enumerate().map(scalar).collect()
}

fn parse_scalar(text: &str, param: &Param) -> Result<Scalar, Failure> {
    let number = || match text.parse::<i128>() {
        Ok(value) => match i64::try_from(value) {
            Ok(value) => Some(Scalar::Int(value)),
            // A float may hold it.
            Err(_) => Some(value as f64)
                .filter(|float| *float as i128 == value)
                .map(Scalar::Float),
        },
        Err(_) => npy::real(text).map(Scalar::Float),
    };
    let scalar = match param.ty {
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer => {
            Some(Scalar::Text(text.to_string()))
        }
        Type::Char if text.len() == 1 => Some(Scalar::Text(text.to_string())),
        Type::SComplex | Type::DComplex => match text.split_once(',') {
            Some((re, im)) => match (npy::real(re), npy::real(im)) {
                (Some(re), Some(im)) => Some(Scalar::Complex { re, im }),
                _ => None,
            },
            None => number(),
        },
        _ => number(),
    };
    let scalar = scalar.ok_or_else(|| {
        let (name, ty) = (&param.name, param.ty.name());
        // A number that the type of the library may hold, but no scalar of a call.
        let range = param.ty.integer_range();
        let range = range.filter(|_| text.parse::<i128>().is_ok());
        let range = range.map_or_else(String::new, |(least, most)| format!(" ({least} to {most})"));
        Failure::usage(format!("`{name}`: expected {ty}{range}, given `{text}`"))
    })?;
    scalar.convert_written(param).map_err(Failure::usage)
}

fn read_array(text: &str, name: &str) -> Result<Array, Failure> {
    npy::parse(text).map_err(|failure| failure.of(format_args!("`{name}`")))
}

/// Refuses to write an array, or the times of the call, to a file of the call; and a result to a
/// file that the call reads.
fn refuse_overwriting<'a>(
    interface: &Interface,
    values: &BTreeMap<usize, String>,
    outputs: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let arrays = values.values().filter_map(|text| text.strip_prefix('@'));
    let arrays = arrays.filter_map(|file| Path::new(file).canonicalize().ok());
    let mut inputs: Vec<PathBuf> = arrays.collect();
    let sent = files(interface, values, Mode::is_sent)?;
    inputs.extend(sent.into_iter().filter_map(|(_, real)| real));
    let is_input = |real: &Option<PathBuf>| real.as_ref().is_some_and(|real| inputs.contains(real));
    let refused = |path: &Path, what: &str| {
        let text = format!("this is {what} of the call; name another file");
        Failure::cannot("write", path.display(), text).into_usage()
    };
    let results = files(interface, values, |mode| mode == Mode::Out)?;
    if let Some((text, _)) = results.iter().find(|(_, real)| is_input(real)) {
        return Err(refused(Path::new(text), "an input file"));
    }
    for path in outputs {
        let real = results::regular(path);
        if is_input(&real) {
            return Err(refused(path, "an input file"));
        }
        if real.is_some() && results.iter().any(|(_, other)| *other == real) {
            return Err(refused(path, "another result"));
        }
    }
    Ok(())
}

/// The files of this machine that are arguments with such a mode: as the user writes them, and the
/// files that these names mean.
fn files(
    interface: &Interface,
    values: &BTreeMap<usize, String>,
    has_mode: fn(Mode) -> bool,
) -> Result<Vec<(String, Option<PathBuf>)>, Failure> {
    let mut names = Vec::new();
    for (param, text) in values {
        let param = &interface.params[*param];
        match param.is_files() {
            _ if !has_mode(param.mode) => {}
            true => names.extend(texts::parse(text, &param.name)?),
            false if param.is_file() => names.push(text.clone()),
            false => {}
        }
    }
    let real = |name: String| {
        let real = results::regular(Path::new(&name));
        (name, real)
    };
    Ok(names.into_iter().map(real).collect())
}

#[cfg(test)]
mod tests;
