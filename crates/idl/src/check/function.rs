//! Checks one function: parameters, callbacks, body, and names that nothing uses. `parameter`
//! checks a single parameter, and `resolve` its expressions. A function without an error can be
//! called as its interface says, as far as the text can tell.

use super::resolve::{Kind, Resolver, Shape};
use super::{Checker, MAX_INTERFACE};
use crate::diagnostic::Diagnostic;
use crate::parser::{self, Dimension, Function, Name, Parameter, Span};
use crate::{Body, Callback, Constant, ElementRef, Interface, Mode, Op, Order, Param, Passed};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Checker<'_> {
    /// The interface, or `None` if an error was reported for it.
    pub(super) fn function(
        &mut self,
        function: Function,
        (module, class): (Option<&str>, Option<&str>),
    ) -> Option<Interface> {
        let errors = self.findings.errors();
        let Function {
            name,
            span,
            params: parameters,
            callbacks,
            options,
            body,
        } = function;
        self.distinct(
            parameters
                .iter()
                .map(|param| &param.name)
                .chain(callbacks.iter().map(|callback| &callback.name)),
        );
        let mut element_refs = Vec::new();
        let params = self.parameters(&parameters, Some(&mut element_refs));
        let callbacks = self.callbacks(callbacks, &params);
        let shapes: Vec<Shape> = parameters.iter().map(Shape::of).collect();
        let mut cost = |checker: &mut Self, expression: Option<parser::Expression>, kind| {
            let elements = Some(&mut element_refs);
            let mut resolver = Resolver {
                checker,
                params: &params,
                shapes: &shapes,
                elements,
            };
            expression.and_then(|expression| resolver.expression(&expression, kind))
        };
        let calc_order = cost(self, options.calc_order, Kind::Real);
        let comm_order = cost(self, options.comm_order, Kind::Real);
        let fewest_elements = cost(self, options.fewest_elements, Kind::Integer);
        let processor_elements = cost(self, options.processor_elements, Kind::Integer);
        let body = self.body(body, &parameters, &params, &callbacks);
        let interface = Interface {
            module: module.map(Into::into),
            class: class.map(Into::into),
            name: name.text,
            description: options.description,
            params,
            callbacks,
            required: options.required,
            backend: options.backend,
            shrink: options.shrink.unwrap_or(false),
            language: options.language,
            calc_order,
            comm_order,
            processor_elements,
            fewest_elements,
            gpus: options.gpus.unwrap_or(0),
            repeatable: options.repeatable.unwrap_or(false),
            release: options.release,
            element_refs,
            body: body?,
        };
        self.allocated(&parameters, &interface);
        self.bounded(&name.span, &interface);
        if self.findings.errors() > errors || self.findings.has_error_in(&span) {
            return None;
        }
        self.unused(&parameters, &interface);
        Some(interface)
    }

    fn distinct<'n>(&mut self, names: impl Iterator<Item = &'n Name>) {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.text.as_str()) {
                self.error(
                    &name.span,
                    format!("there are two parameters `{}`", name.text),
                );
            }
        }
    }

    pub(super) fn parameters(
        &mut self,
        parameters: &[Parameter],
        mut elements: Option<&mut Vec<ElementRef>>,
    ) -> Vec<Param> {
        let mut params: Vec<Param> = parameters
            .iter()
            .map(|parameter| self.header(parameter))
            .collect();
        let shapes: Vec<Shape> = parameters.iter().map(Shape::of).collect();
        for (index, parameter) in parameters.iter().enumerate() {
            let elements = elements.as_deref_mut();
            let mut resolver = Resolver {
                checker: self,
                params: &params,
                shapes: &shapes,
                elements,
            };
            let (dims, count) = resolver.dimensions(parameter);
            params[index].dims = dims;
            params[index].count = count;
        }
        params
    }

    /// Checks callbacks. Their dimensions can also name scalars of the function, whose parameters
    /// are `of`.
    fn callbacks(&mut self, callbacks: Vec<parser::Callback>, of: &[Param]) -> Vec<Callback> {
        let mut checked = Vec::with_capacity(callbacks.len());
        for callback in callbacks {
            let (name, mut parameters) = (&callback.name, callback.params);
            self.distinct(parameters.iter().map(|parameter| &parameter.name));
            let declared = parameters.len();
            let outer = self.outer(&mut parameters, of);
            let params = self.parameters(&parameters, None);
            for (parameter, param) in parameters[..declared].iter().zip(&params) {
                if !param.is_passed() {
                    let message = format!("callback `{}` has WORK memory", name.text);
                    self.error(&parameter.span, message);
                }
                if param.count.is_some() || (param.allocate && has_range(param)) {
                    let message = format!("callback `{}` cannot allocate memory", name.text);
                    self.error(&parameter.span, message);
                }
                if param.is_fixed_texts() || (param.is_texts() && param.mode != Mode::In) {
                    let message = format!("callback `{}` returns strings", name.text);
                    self.error(&parameter.span, message);
                }
            }
            checked.push(Callback {
                name: name.text.clone(),
                params,
                outer,
                args: callback.args.iter().map(passed).collect(),
                returns: callback.returns,
            });
        }
        checked
    }

    /// Adds the scalars of the function that the dimensions of a callback use to its parameters.
    fn outer(&self, parameters: &mut Vec<Parameter>, of: &[Param]) -> Vec<usize> {
        let mut outer = Vec::new();
        let dims = parameters.iter().flat_map(|parameter| &parameter.dims);
        for name in dims.flat_map(Dimension::names) {
            let text = &self.text[name];
            let is_own = parameters
                .iter()
                .any(|parameter| parameter.name.text == *text);
            let has_value = |param: &Param| param.is_scalar() && param.mode != Mode::Work;
            let index = of
                .iter()
                .position(|param| param.name == *text && has_value(param));
            if let Some(index) = index.filter(|index| !is_own && !outer.contains(index)) {
                outer.push(index);
            }
        }
        parameters.extend(outer.iter().map(|&index| Parameter::hidden(&of[index])));
        outer
    }

    fn body(
        &mut self,
        body: parser::Body,
        parameters: &[Parameter],
        params: &[Param],
        callbacks: &[Callback],
    ) -> Option<Body> {
        let (convention, function, args, returns) = match body {
            parser::Body::Code(code) => return Some(Body::Code(code)),
            parser::Body::Calls {
                convention,
                function,
                args,
                returns,
            } => (convention, function, args, returns),
        };
        let names: Vec<&str> = parameters
            .iter()
            .map(|parameter| parameter.name.text.as_str())
            .collect();
        let names: Vec<&str> = names
            .into_iter()
            .chain(callbacks.iter().map(|callback| callback.name.as_str()))
            .collect();
        let args: Vec<Option<Passed>> = (args.into_iter())
            .map(|arg| match arg {
                parser::Passed::Name(name) => self.argument(&name, &names).map(Passed::Param),
                parser::Passed::Constant(constant) => Some(Passed::Constant(constant)),
            })
            .collect();
        let args = args.into_iter().collect::<Option<Vec<Passed>>>()?;
        let returns = match returns {
            None => None,
            Some(name) => Some(self.value(&name, &names, params)?),
        };
        Some(Body::Calls {
            convention,
            function: function.text,
            args,
            returns,
        })
    }

    fn argument(&mut self, name: &Name, names: &[&str]) -> Option<usize> {
        let found = names.iter().position(|known| *known == name.text);
        if found.is_none() {
            let names = names.iter().copied();
            self.findings.not_a_parameter(&name.text, &name.span, names);
        }
        found
    }

    /// Index of the parameter that receives the return value of the function.
    fn value(&mut self, name: &Name, names: &[&str], params: &[Param]) -> Option<usize> {
        let index = self.argument(name, names)?;
        let is_value = |param: &Param| {
            let is_pointer = param.allocate && (param.count.is_some() || has_range(param));
            // The names of files, and texts without a length, are no results.
            let has_size = param.ty.size().is_some();
            param.mode == Mode::Out && has_size && (is_pointer || is_one(param))
        };
        if params.get(index).is_some_and(is_value) {
            return Some(index);
        }
        let message = format!("`{}` cannot take the value of the function", name.text);
        let help = format!("declare it as `OUT double *{}`", name.text);
        self.findings
            .push(Diagnostic::error(name.span.clone(), message).help(help));
        None
    }

    /// Refuses an interface that no caller could read.
    fn bounded(&mut self, name: &Span, interface: &Interface) {
        let length = interface.public_text().len();
        if length > MAX_INTERFACE {
            let message = format!(
                "the interface has {length} bytes as text, and callers read {MAX_INTERFACE}"
            );
            self.error(name, message);
        }
    }

    /// Checks results that the library allocates.
    fn allocated(&mut self, parameters: &[Parameter], interface: &Interface) {
        let is_c = interface.order() == Order::RowMajor && !interface.is_python();
        for (index, parameter) in parameters.iter().enumerate() {
            let param = &interface.params[index];
            if !interface.is_allocated(index) {
                if param.allocate && param.mode == Mode::Out && !interface.is_parallel() {
                    let message = "`allocate` has no effect: the function gets memory for it";
                    let help = "if it allocates the result, write its length, as in `x[n : n]`";
                    self.warn(&parameter.span, message, help);
                }
                continue;
            }
            let mut ranges = param.dims.iter().filter_map(|dim| dim.range.as_ref());
            let is_head = ranges.all(|range| range.start.is_none() && range.step.is_none());
            let has_rest = param.dims.iter().skip(1).any(|dim| dim.range.is_some());
            let counts_one = param
                .count
                .is_none_or(|count| is_one(&interface.params[count]));
            let message = if !is_c {
                "only functions in C can allocate their results"
            } else if param.is_fixed_texts() && !is_one(param) {
                "a function allocates one text, not an array of texts"
            } else if !is_head || has_rest {
                "the range of an allocated result is `[most : count]` in its first dimension"
            } else if !counts_one {
                "the number of elements of an allocated result is one number"
            } else {
                continue;
            };
            self.error(&parameter.span, message);
        }
    }

    /// Warns about parameters that nothing uses, because they are probably a mistake.
    fn unused(&mut self, parameters: &[Parameter], interface: &Interface) {
        let Body::Calls { args, returns, .. } = &interface.body else {
            return;
        };
        for (index, parameter) in parameters.iter().enumerate() {
            let counts = interface
                .params
                .iter()
                .any(|param| param.count == Some(index));
            let passed = args.contains(&Passed::Param(index)) || *returns == Some(index) || counts;
            // A function of Python returns what it does not take.
            let returned = interface.is_python() && interface.params[index].mode == Mode::Out;
            if passed || returned || is_used(interface, index) {
                continue;
            }
            let message = format!("`{}` is not used", parameter.name.text);
            let help = "pass it to the function or leave it out";
            self.warn(&parameter.name.span, message, help);
        }
    }
}

/// Whether an array has one element, or one text.
fn is_one(param: &Param) -> bool {
    let lengths = usize::from(param.is_fixed_texts());
    let dims = &param.dims[..param.dims.len().saturating_sub(lengths)];
    let mut sizes = dims.iter().map(|dim| dim.size.ops());
    !dims.is_empty() && !has_range(param) && sizes.all(|size| *size == [Op::Const(1)])
}

fn has_range(param: &Param) -> bool {
    param.dims.iter().any(|dim| dim.range.is_some())
}

/// Whether an expression of the interface uses the parameter.
fn is_used(interface: &Interface, index: usize) -> bool {
    let uses = |expr: &crate::Expr| {
        expr.ops()
            .iter()
            .any(|op| matches!(op, Op::Param(param) if usize::from(*param) == index))
    };
    let dims = interface.params.iter().flat_map(|param| &param.dims);
    let ranges = dims.clone().filter_map(|dim| dim.range.as_ref());
    let elements = &interface.element_refs;
    dims.map(|dim| &dim.size).any(uses)
        || ranges.clone().any(|range| uses(&range.end))
        || ranges
            .clone()
            .any(|range| range.start.as_ref().is_some_and(uses))
        || ranges
            .clone()
            .any(|range| range.step.as_ref().is_some_and(uses))
        || elements
            .iter()
            .any(|element| element.param == index || uses(&element.index))
        || [
            &interface.calc_order,
            &interface.comm_order,
            &interface.processor_elements,
            &interface.fewest_elements,
        ]
        .into_iter()
        .flatten()
        .any(uses)
}

/// What the library passes to a callback: a parameter, or a pointer that nobody reads.
fn passed(param: &Option<usize>) -> Passed {
    param.map_or(Passed::Constant(Constant::Null), Passed::Param)
}

/// The name of a mode or type, quoted for a message.
pub(super) fn quoted(name: &str) -> String {
    format!("`{name}`")
}
