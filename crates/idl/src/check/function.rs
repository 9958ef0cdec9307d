//! Checks one function: parameters, callbacks, body, and names that nothing uses. `parameter`
//! checks a single parameter, and `resolve` its expressions. A function without an error can be
//! called as its interface says, as far as the text can tell.

use super::Checker;
use super::resolve::{Kind, Resolver, Shape};
use crate::diagnostic::Diagnostic;
use crate::parser::{self, Function, Name, Parameter};
use crate::{Body, Callback, Constant, ElementRef, Interface, Mode, Op, Param, Passed};
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
        let callbacks = self.callbacks(&callbacks);
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
            repeatable: options.repeatable.unwrap_or(false),
            element_refs,
            body: body?,
        };
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
            let dims = resolver.dimensions(parameter);
            params[index].dims = dims;
        }
        params
    }

    fn callbacks(&mut self, callbacks: &[parser::Callback]) -> Vec<Callback> {
        let mut checked = Vec::with_capacity(callbacks.len());
        for callback in callbacks {
            let (name, parameters) = (&callback.name, &callback.params);
            self.distinct(parameters.iter().map(|parameter| &parameter.name));
            let params = self.parameters(parameters, None);
            for (parameter, param) in parameters.iter().zip(&params) {
                if param.is_texts() || param.is_fixed_texts() {
                    let message = format!("callback `{}` has an array of strings", name.text);
                    self.error(&parameter.span, message);
                }
            }
            checked.push(Callback {
                name: name.text.clone(),
                params,
                args: callback.args.iter().map(passed).collect(),
                returns: callback.returns,
            });
        }
        checked
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
            let message = format!("`{}` is not a parameter", name.text);
            let diagnostic = Diagnostic::error(name.span.clone(), message);
            self.findings
                .push(diagnostic.suggest(&name.text, names.iter().copied()));
        }
        found
    }

    /// Index of the parameter that receives the return value of the function.
    fn value(&mut self, name: &Name, names: &[&str], params: &[Param]) -> Option<usize> {
        let index = self.argument(name, names)?;
        let one = |param: &Param| {
            let one_element = param
                .dims
                .iter()
                .all(|dim| dim.range.is_none() && *dim.size.ops() == [Op::Const(1)]);
            param.mode == Mode::Out && !param.dims.is_empty() && one_element
        };
        if params.get(index).is_some_and(one) {
            return Some(index);
        }
        let message = format!("`{}` cannot take the value of the function", name.text);
        let help = format!("declare it as `OUT double *{}`", name.text);
        self.findings
            .push(Diagnostic::error(name.span.clone(), message).help(help));
        None
    }

    /// Warns about parameters that nothing uses, because they are probably a mistake.
    fn unused(&mut self, parameters: &[Parameter], interface: &Interface) {
        let Body::Calls { args, returns, .. } = &interface.body else {
            return;
        };
        for (index, parameter) in parameters.iter().enumerate() {
            let passed = args.contains(&Passed::Param(index)) || *returns == Some(index);
            if passed || is_used(interface, index) {
                continue;
            }
            let message = format!("`{}` is not used", parameter.name.text);
            let help = "pass it to the function or leave it out";
            self.warn(&parameter.name.span, message, help);
        }
    }
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
