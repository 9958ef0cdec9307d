//! Writes the canonical text of an interface.
//!
//! The text parses back to an equal interface. A server sends an interface to a client as this
//! text; there is no other encoding.

use crate::{
    Body, Class, Constant, Dim, Document, Expr, Interface, Library, Param, Passed, Range,
    StringLengths,
};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::{self, Write};

mod expression;

use expression::Scope;

impl Interface {
    /// The whole interface as text, with its module.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(module) = &self.module {
            text.push_str("Module ");
            text.push_str(module);
            text.push_str(";\n");
        }
        match &self.class {
            None => text.push_str(&self.to_string()),
            // Writing to a `String` does not fail.
            Some(class) => drop({
                let _ = writeln!(text, "DefClass {class}\n{{");
                let _ = self.write_as(&mut text, "DefMethod");
                writeln!(text, "}}")
            }),
        }
        text
    }

    /// The text for a caller: [`Interface::text`] without the C text of a body, the names of object
    /// files, and what only the library or the server sees. The value of a callback is an OUT
    /// parameter, and the description is the [public one](Interface::public_description).
    pub fn public_text(&self) -> String {
        let mut public = self.clone();
        match &mut public.body {
            Body::Code(code) => code.text.clear(),
            Body::Calls { args, .. } => args.retain(|arg| arg.param().is_some()),
        }
        public.release = None;
        public.required.clear();
        public.description = self.public_description();
        public.gpus = 0;
        for callback in &mut public.callbacks {
            callback.args = (0..callback.passed()).map(Passed::Param).collect();
            callback.returns = None;
        }
        public.text()
    }

    /// The description for a caller. It ends with the number of GPUs that a call needs, if any.
    pub fn public_description(&self) -> Option<String> {
        let gpus = match self.gpus {
            0 => return self.description.clone(),
            1 => "(1 GPU)".to_string(),
            gpus => format!("({gpus} GPUs)"),
        };
        Some(match &self.description {
            Some(text) => format!("{text} {gpus}"),
            None => gpus,
        })
    }

    /// An expression of this interface as text.
    pub fn expr_text(&self, expr: &Expr) -> String {
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = self.scope().write(&mut text, expr);
        text
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            params: &self.params,
            elements: &self.element_refs,
        }
    }
}

/// Writes `Define` and the text after it, without the module.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_as(f, "Define")
    }
}

impl Interface {
    fn write_as(&self, f: &mut impl Write, keyword: &str) -> fmt::Result {
        write!(f, "{keyword} {}(", self.name)?;
        let scope = self.scope();
        let mut first = true;
        for param in &self.params {
            separate(f, &mut first)?;
            write_param(f, param, &scope)?;
        }
        for callback in &self.callbacks {
            separate(f, &mut first)?;
            if let Some(value) = callback.returns {
                write!(f, "{} ", callback.params[value].ty.name())?;
            }
            write!(f, "{}(", callback.name)?;
            let scope = Scope {
                params: &callback.params,
                elements: &[],
            };
            let mut first_inside = true;
            for arg in &callback.args {
                separate_by_comma(f, &mut first_inside)?;
                match arg.param() {
                    Some(param) => write_param(f, &callback.params[param], &scope)?,
                    None => f.write_str("void *user")?,
                }
            }
            if callback.args.is_empty() {
                f.write_str("void")?;
            }
            f.write_str(")")?;
        }
        f.write_str(")\n")?;
        self.write_options(f, &scope)?;
        self.write_body(f)
    }

    fn write_options(&self, f: &mut impl Write, scope: &Scope<'_>) -> fmt::Result {
        if let Some(description) = &self.description {
            write_string(f, "    ", description, "\n")?;
        }
        write_common_options(
            f,
            &self.required,
            self.backend.as_deref(),
            self.shrink,
            self.language.as_deref(),
        )?;
        for (name, expr) in [
            ("CalcOrder", &self.calc_order),
            ("CommOrder", &self.comm_order),
            ("ProcessorElements", &self.processor_elements),
        ] {
            if let Some(expr) = expr {
                write!(f, "    {name} ")?;
                if let (Some(fewest), "ProcessorElements") = (&self.fewest_elements, name) {
                    scope.write(f, fewest)?;
                    f.write_str(", ")?;
                }
                scope.write(f, expr)?;
                f.write_str("\n")?;
            }
        }
        if self.gpus > 0 {
            writeln!(f, "    Gpus {}", self.gpus)?;
        }
        if self.repeatable {
            f.write_str("    Repeatable \"yes\"\n")?;
        }
        if let Some(release) = &self.release {
            write_string(f, "    Release ", release, "\n")?;
        }
        Ok(())
    }

    fn write_body(&self, f: &mut impl Write) -> fmt::Result {
        let (convention, function, args, returns) = match &self.body {
            Body::Code(code) => return writeln!(f, "{{{}}}", code.text),
            Body::Calls {
                convention,
                function,
                args,
                returns,
            } => (convention, function, args, returns),
        };
        write!(f, "    Calls \"{}\" ", convention.name())?;
        if let Some(returns) = returns {
            write!(f, "{} = ", self.argument_name(*returns))?;
        }
        write!(f, "{function}(")?;
        let mut first = true;
        for arg in args {
            separate_by_comma(f, &mut first)?;
            match arg {
                Passed::Param(param) => f.write_str(self.argument_name(*param))?,
                Passed::Constant(constant) => write_constant(f, constant)?,
            }
        }
        f.write_str(");\n")
    }

    /// Name of an entry of a call's argument list: a parameter or, with a larger number, a
    /// callback.
    pub fn argument_name(&self, arg: usize) -> &str {
        if let Some(param) = self.params.get(arg) {
            return &param.name;
        }
        let callback = self.callbacks.get(arg - self.params.len());
        callback.map_or("", |callback| callback.name.as_str())
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            writeln!(f, "Module {module};")?;
        }
        for library in &self.libraries {
            match library {
                Library::Library(name) => write_string(f, "Library ", name, ";\n")?,
                Library::File(name) => write_string(f, "LibFile ", name, ";\n")?,
            }
        }
        let settings = [
            ("Compiler ", &self.compiler),
            ("Linker ", &self.linker),
            ("FortranFormat ", &self.fortran_format),
        ];
        for (keyword, value) in settings {
            if let Some(value) = value {
                write_string(f, keyword, value, ";\n")?;
            }
        }
        for options in &self.compile_options {
            write_string(f, "CompileOptions ", options, ";\n")?;
        }
        if self.string_lengths == StringLengths::JustAfter {
            f.write_str("FortranStringConvention justAfter;\n")?;
        }
        for code in &self.globals {
            writeln!(f, "Globals {{{}}}", code.text)?;
        }
        for interface in &self.interfaces {
            write!(f, "\n{interface}")?;
        }
        for class in &self.classes {
            write!(f, "\n{class}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "DefClass {}", self.name)?;
        if let Some(description) = &self.description {
            write_string(f, "    ", description, "\n")?;
        }
        let (backend, language) = (self.backend.as_deref(), self.language.as_deref());
        write_common_options(f, &self.required, backend, self.shrink, language)?;
        f.write_str("{\n")?;
        if let Some(state) = &self.state {
            writeln!(f, "DefState {{{}}}", state.text)?;
        }
        for method in &self.methods {
            method.write_as(f, "DefMethod")?;
        }
        f.write_str("}\n")
    }
}

fn separate(f: &mut impl Write, first: &mut bool) -> fmt::Result {
    f.write_str(if *first { "\n    " } else { ",\n    " })?;
    *first = false;
    Ok(())
}

fn separate_by_comma(f: &mut impl Write, first: &mut bool) -> fmt::Result {
    f.write_str(if *first { "" } else { ", " })?;
    *first = false;
    Ok(())
}

fn write_constant(f: &mut impl Write, constant: &Constant) -> fmt::Result {
    match constant {
        Constant::Integer(value) => write!(f, "{value}"),
        Constant::Real(value) => write!(f, "{value:?}"),
        Constant::Character(code @ (b'\'' | b'\\')) => write!(f, "'\\{}'", char::from(*code)),
        Constant::Character(code) => write!(f, "'{}'", char::from(*code)),
        Constant::Text(text) => write_string(f, "", text, ""),
        Constant::Null => f.write_str("NULL"),
    }
}

fn write_common_options(
    f: &mut impl Write,
    required: &[String],
    backend: Option<&str>,
    shrink: bool,
    language: Option<&str>,
) -> fmt::Result {
    for file in required {
        write_string(f, "    Required ", file, "\n")?;
    }
    if let Some(backend) = backend {
        write_string(f, "    Backend ", backend, "\n")?;
    }
    if shrink {
        f.write_str("    Shrink \"yes\"\n")?;
    }
    if let Some(language) = language {
        write_string(f, "    Language ", language, "\n")?;
    }
    Ok(())
}

fn write_param(f: &mut impl Write, param: &Param, scope: &Scope<'_>) -> fmt::Result {
    f.write_str(param.mode.name())?;
    if param.allocate {
        f.write_str(" allocate")?;
    }
    if param.broadcast {
        f.write_str(" broadcast")?;
    }
    write!(f, " {}", param.ty.name())?;
    let dims = match param.dims.split_last() {
        Some((length, dims)) if param.is_fixed_texts() => {
            write_dim(f, length, scope)?;
            dims
        }
        _ => &param.dims,
    };
    write!(f, " {}", param.name)?;
    for (position, dim) in dims.iter().enumerate() {
        match param.count.filter(|_| position == 0) {
            Some(count) => {
                f.write_str("[")?;
                scope.write(f, &dim.size)?;
                write!(f, ":{}]", scope.params[count].name)?;
            }
            None => write_dim(f, dim, scope)?,
        }
    }
    Ok(())
}

fn write_dim(f: &mut impl Write, dim: &Dim, scope: &Scope<'_>) -> fmt::Result {
    f.write_str("[")?;
    scope.write(f, &dim.size)?;
    if let Some(Range { start, end, step }) = &dim.range {
        f.write_str(":")?;
        if start.is_some() || step.is_some() {
            match start {
                Some(start) => scope.write(f, start)?,
                None => f.write_str("0")?,
            }
            f.write_str(",")?;
        }
        scope.write(f, end)?;
        if let Some(step) = step {
            f.write_str(",")?;
            scope.write(f, step)?;
        }
    }
    f.write_str("]")
}

/// Writes a string literal. It uses only escapes that the lexer can read.
fn write_string(f: &mut impl Write, before: &str, text: &str, after: &str) -> fmt::Result {
    f.write_str(before)?;
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            other => f.write_char(other)?,
        }
    }
    f.write_str("\"")?;
    f.write_str(after)
}
