//! Shows the interface of a function to people and to programs: its text, its help and its Python
//! signature. `farcall_idl` parses it. Shapes are in NumPy's order.

use crate::array;
use farcall_idl::{Body, Mode, Order, Param};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fmt::Write;

/// One parameter of a function.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// The name in the interface file.
    name: String,
    /// IN, OUT, INOUT or WORK.
    mode: &'static str,
    /// The name of the type in the interface language.
    r#type: &'static str,
    /// The NumPy type of the elements; `None` for texts.
    dtype: Option<String>,
    /// The shape: expressions of the other parameters, in NumPy's order; empty for a scalar.
    shape: Vec<String>,
    /// For texts of fixed length: the most bytes of each text, as an expression.
    length: Option<String>,
    /// For a size: the arrays that determine it, if it is left out.
    inferred_from: Vec<String>,
}

#[pymethods]
impl Parameter {
    fn __repr__(&self) -> String {
        let shape = if self.shape.is_empty() {
            String::new()
        } else {
            self.shape_text()
        };
        format!("<{} {} {}{shape}>", self.mode, self.r#type, self.name)
    }
}

impl Parameter {
    fn new(interface: &farcall_idl::Interface, param: &Param) -> Parameter {
        let (dims, length) = match param.dims.split_last() {
            Some((length, dims)) if param.is_fixed_texts() => (dims, Some(length)),
            _ => (&param.dims[..], None),
        };
        let length = length.map(|dim| interface.expr_text(&dim.size));
        let mut shape: Vec<String> = dims
            .iter()
            .map(|dim| interface.expr_text(&dim.size))
            .collect();
        if interface.order() == Order::ColumnMajor {
            shape.reverse();
        }
        Parameter {
            name: param.name.clone(),
            mode: param.mode.name(),
            r#type: param.ty.name(),
            dtype: match param.is_fixed_texts() {
                true => None,
                false => param.ty.size().map(|_| array::dtype_name(param.ty)),
            },
            shape,
            length,
            inferred_from: Vec::new(),
        }
    }

    fn shape_text(&self) -> String {
        match &self.shape[..] {
            [size] => format!("({size},)"),
            sizes => format!("({})", sizes.join(", ")),
        }
    }

    /// The arrays from which the size is taken, for a reader.
    fn inferred(&self) -> String {
        match self.inferred_from.as_slice() {
            [] => String::new(),
            arrays => format!("; taken from {} if left out", arrays.join(" or ")),
        }
    }

    fn what(&self) -> String {
        let element = self.dtype.as_deref().unwrap_or("str");
        match self.shape.is_empty() {
            true => self.r#type.to_owned(),
            false if self.dtype.is_none() => {
                let kind = if self.mode == "IN" {
                    "sequence"
                } else {
                    "list"
                };
                let length = self.length.as_ref();
                let most = length.map(|length| format!(", each of at most {length} bytes"));
                format!(
                    "str {kind} of shape {}{}",
                    self.shape_text(),
                    most.unwrap_or_default()
                )
            }
            false => format!("{element} array of shape {}", self.shape_text()),
        }
    }
}

/// The interface of a function.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// The name without the module.
    name: String,
    /// The module, if it has one.
    module: Option<String>,
    /// What the function does, in one line.
    description: Option<String>,
    /// The parameters in order, including work space.
    parameters: Vec<Parameter>,
    /// The callbacks; a caller passes them after the parameters.
    callbacks: Vec<Interface>,
    /// The calling convention, which decides the order of memory: C, C++ or FORTRAN.
    convention: &'static str,
    /// Whether a call may run again after a failure.
    repeatable: bool,
    /// The interface in the interface language.
    text: String,
}

#[pymethods]
impl Interface {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<interface {}>", self.signature())
    }

    /// The signature, description and parameters as `help` shows them.
    pub(crate) fn help(&self) -> String {
        let mut text = format!("{}\n", self.signature());
        if let Some(description) = &self.description {
            let _ = write!(text, "\n{description}\n");
        }
        text.push('\n');
        let width = self
            .parameters
            .iter()
            .map(|param| param.name.len())
            .chain(self.callbacks.iter().map(|callback| callback.name.len()))
            .max()
            .unwrap_or(0);
        for param in self.passed() {
            let _ = writeln!(
                text,
                "{:width$}  {:5}  {}",
                param.name,
                param.mode,
                param.what() + &param.inferred()
            );
        }
        for callback in &self.callbacks {
            let names: Vec<&str> = callback.passed().map(|p| &p.name[..]).collect();
            let names = names.join(", ");
            let _ = writeln!(text, "{:width$}  callable ({names})", callback.name);
        }
        if self.convention == "FORTRAN" && self.parameters.iter().any(|p| p.shape.len() > 1) {
            text.push_str("\nPass matrices in Fortran order; the call copies others.\n");
        }
        text
    }
}

impl Interface {
    pub(crate) fn new(interface: &farcall_idl::Interface) -> Interface {
        let convention = match &interface.body {
            Body::Calls { convention, .. } => convention.name(),
            Body::Code(_) => "C",
        };
        Interface {
            name: interface.name.clone(),
            module: interface.module.clone(),
            description: interface.description.clone(),
            parameters: parameters(interface),
            callbacks: interface
                .callbacks
                .iter()
                .map(|callback| Interface::new(&callback.interface(interface)))
                .collect(),
            convention,
            repeatable: interface.repeatable,
            text: interface.public_text(),
        }
    }

    /// The name of a parameter in Python; a keyword of Python gets an underscore.
    pub(crate) fn python_name(name: &str) -> String {
        match KEYWORDS.contains(&name) {
            true => format!("{name}_"),
            false => name.to_owned(),
        }
    }

    fn passed(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters
            .iter()
            .filter(|param| param.mode != Mode::Work.name())
    }

    /// An `inspect.Signature`. The annotation of an argument describes it. OUT arguments may be
    /// left out by name; a signature cannot say so for those that others follow.
    pub(crate) fn python_signature<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let inspect = py.import("inspect")?;
        let class = inspect.getattr("Parameter")?;
        let kind = class.getattr("POSITIONAL_OR_KEYWORD")?;
        let params = self.passed().map(|param| {
            let what = format!("{} {}", param.mode, param.what());
            (Interface::python_name(&param.name), what)
        });
        let callbacks = self.callbacks.iter().map(|callback| {
            let name = Interface::python_name(&callback.name);
            (name, "callable".to_owned())
        });
        let parameter = |(name, what): (String, String)| {
            let annotation = PyDict::new(py);
            annotation.set_item("annotation", what)?;
            class.call((name, &kind), Some(&annotation))
        };
        let parameters = params.chain(callbacks).map(parameter);
        let parameters = parameters.collect::<PyResult<Vec<_>>>()?;
        inspect.getattr("Signature")?.call1((parameters,))
    }

    fn signature(&self) -> String {
        let callbacks = self.callbacks.iter().map(|callback| &callback.name);
        let names: Vec<String> = self
            .passed()
            .map(|param| &param.name)
            .chain(callbacks)
            .map(|name| Interface::python_name(name))
            .collect();
        let module = self
            .module
            .iter()
            .map(|module| format!("{module}/"))
            .collect::<String>();
        format!("{module}{}({})", self.name, names.join(", "))
    }
}

fn parameters(interface: &farcall_idl::Interface) -> Vec<Parameter> {
    let params = interface.params.iter();
    let mut made: Vec<Parameter> = params.map(|p| Parameter::new(interface, p)).collect();
    let has_shape = |param: &&Param| param.ty.size().is_some() && !param.is_fixed_texts();
    let given = interface.params.iter().filter(|param| param.is_passed());
    let given = given.filter(has_shape);
    for array in given {
        for size in array.determines() {
            let names = &mut made[size].inferred_from;
            if !names.contains(&array.name) {
                names.push(array.name.clone());
            }
        }
    }
    made
}

/// The keywords of Python.
const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];
