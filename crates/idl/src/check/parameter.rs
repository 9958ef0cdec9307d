//! Checks one parameter: which modes and types can be combined. `resolve` checks its dimensions.
//! The parameter that it returns is valid only if no error was reported.

use super::Checker;
use crate::diagnostic::Diagnostic;
use crate::parser::Parameter;
use crate::{Mode, Param, Type};
use alloc::format;
use alloc::vec::Vec;

impl Checker<'_> {
    /// The parameter without its dimensions.
    pub(super) fn header(&mut self, parameter: &Parameter) -> Param {
        let name = &parameter.name;
        let scalar = parameter.dims.is_empty();
        let mode = parameter.mode.unwrap_or(Mode::In);
        if parameter.mode.is_none() && !scalar {
            let message = format!("array `{}` has no mode and is taken as IN", name.text);
            self.warn(&name.span, message, "write IN, OUT, INOUT or WORK");
        }
        let ty = parameter.ty.unwrap_or(Type::Int);
        if parameter.ty.is_none() {
            let message = format!("`{}` has no type and is taken as int", name.text);
            self.warn(&name.span, message, "write the type");
        }
        if scalar {
            self.scalar(parameter, mode, ty);
        } else if matches!(ty, Type::String | Type::FixedString | Type::Filename) {
            self.texts(parameter, mode, ty);
        } else if ty.size().is_none() {
            let message = format!("there are no arrays of {}", ty.name());
            let help = "use a two-dimensional array of char";
            self.findings
                .push(Diagnostic::error(parameter.span.clone(), message).help(help));
        }
        Param {
            name: name.text.clone(),
            mode,
            allocate: parameter.allocate,
            count: None,
            broadcast: parameter.broadcast,
            ty,
            dims: Vec::new(),
        }
    }

    fn texts(&mut self, parameter: &Parameter, mode: Mode, ty: Type) {
        let name = &parameter.name.text;
        let has_length = ty == Type::FixedString;
        let (message, help) = if mode == Mode::Work {
            (
                format!("the array of strings `{name}` cannot be WORK"),
                format!("write `WORK char {name}[n][length]`"),
            )
        } else if has_length && parameter.dims.len() == 1 {
            (
                format!("`{name}` has a length and no dimension"),
                match mode {
                    Mode::In => format!("write `IN string {name}`"),
                    _ => format!(
                        "write `{} string[64] *{name}`, an array of one",
                        mode.name()
                    ),
                },
            )
        } else if parameter
            .dims
            .last()
            .is_some_and(|dim| has_length && dim.size.is_none())
        {
            (
                format!("the length of the strings `{name}` is missing"),
                format!("write `{} string[64] {name}[n]`", mode.name()),
            )
        } else if parameter.dims.iter().any(|dim| dim.range.is_some()) {
            (
                format!("the array of strings `{name}` cannot have a range"),
                "leave it out, because all of them travel".into(),
            )
        } else {
            return;
        };
        self.findings
            .push(Diagnostic::error(parameter.span.clone(), message).help(help));
    }

    fn scalar(&mut self, parameter: &Parameter, mode: Mode, ty: Type) {
        let file = matches!(ty, Type::Filename | Type::FilePointer);
        let is_work = mode == Mode::Work && ty.size().is_some();
        if mode == Mode::In || is_work || (file && mode != Mode::Work) {
            return;
        }
        let name = &parameter.name.text;
        let message = format!("scalar `{name}` cannot be {}", mode.name());
        let help = match ty {
            Type::String => format!(
                "write `{} string[64] *{name}`, an array of one",
                mode.name()
            ),
            _ => format!(
                "write `{} {} *{name}`, an array of one element",
                mode.name(),
                ty.name()
            ),
        };
        self.findings
            .push(Diagnostic::error(parameter.span.clone(), message).help(help));
    }
}
