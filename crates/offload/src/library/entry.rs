//! The functions of a drop-in library: one table of routines, and an entry point for each symbol.
//! An entry point has no state, so that it can be left at any moment.

use super::cblas;
use super::cost;
use super::literal;
use crate::routine::{Role, arguments};
use farcall_idl::{Body, Convention, Interface, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A form of a symbol: what stands before and after the name, and the bytes of an integer.
pub(super) struct Form {
    pub(super) before: &'static str,
    pub(super) after: &'static str,
    pub(super) integer: u32,
}

/// The symbols of a Fortran routine: as compilers name it, with 64-bit integers, and as NumPy and
/// SciPy name it in their packages.
const FORTRAN: &[Form] = &[
    form("", "_", 4),
    form("", "_64_", 8),
    form("scipy_", "_", 4),
    form("scipy_", "_64_", 8),
];

pub(super) const fn form(before: &'static str, after: &'static str, integer: u32) -> Form {
    Form {
        before,
        after,
        integer,
    }
}

/// Bytes of text from which the next function is in another part: about a second for a compiler.
const PART: usize = 200 << 10;

/// Collects the entries of a library.
#[derive(Default)]
pub(super) struct Writer {
    /// The table, one line for each symbol.
    routines: Vec<String>,
    /// The functions. Each part can be compiled by itself.
    parts: Vec<String>,
    /// The part that is being written.
    part: String,
    interfaces: String,
    /// The function that has each symbol.
    symbols: BTreeMap<String, String>,
    /// The text of each function for large calls in this part, and its number. Symbols with
    /// the same parameters share it.
    large: BTreeMap<String, usize>,
}

/// An entry point: its symbol, its declared parameters, and what it does with them.
pub(super) struct Entry<'e> {
    pub(super) symbol: String,
    pub(super) integer: u32,
    /// Declarations and names of the parameters.
    pub(super) params: Vec<(String, String)>,
    /// Statements that make the values to which the addresses point.
    pub(super) values: &'e str,
    /// Statements that make the values that the cost uses.
    pub(super) sizes: &'e str,
    pub(super) cost: &'e str,
    /// The addresses of the arguments, in the order of the interface's `Calls`.
    pub(super) addresses: &'e [String],
}

impl Writer {
    /// Adds the entry points of a function.
    pub(super) fn add(&mut self, interface: &Interface) -> Result<(), String> {
        let Body::Calls {
            convention,
            function,
            ..
        } = &interface.body
        else {
            return Err("it has no symbol".to_string());
        };
        if let Some(first) = self.symbols.get(function) {
            return Err(format!("{first} has its symbol"));
        }
        let cost = interface.calc_order.as_ref();
        let cost = cost.ok_or_else(|| "it states no CalcOrder".to_string())?;
        let (text, used) = (cost::in_c(interface, cost)?, cost::used(cost));
        let number = self.symbols.len();
        let name = interface.qualified_name().into_owned();
        self.symbols.insert(function.clone(), name);
        // Writing to a `String` does not fail.
        let _ = writeln!(
            self.interfaces,
            "static const char interface_{number}[] = {};",
            literal(&interface.text())
        );
        match convention {
            Convention::Fortran => {
                for form in FORTRAN {
                    self.fortran(interface, function, form, number, (&text, &used));
                }
                cblas::add(self, interface, function, number, (&text, &used));
            }
            _ => self.c(interface, function, number, (&text, &used)),
        }
        Ok(())
    }

    fn fortran(
        &mut self,
        interface: &Interface,
        function: &str,
        form: &Form,
        number: usize,
        (cost, used): (&str, &BTreeSet<usize>),
    ) {
        let args = arguments(interface).unwrap_or_default();
        let name = |(place, argument): (usize, &Role)| match argument.param() {
            Some(param) => format!("p_{}", interface.params[param].name),
            None => format!("constant_{place}"),
        };
        let names: Vec<String> = args.iter().enumerate().map(name).collect();
        let mut params: Vec<(String, String)> = names
            .iter()
            .map(|name| (format!("A {name}"), name.clone()))
            .collect();
        // The hidden lengths of characters are passed on and not read: callers in C pass none.
        let is_text = |argument: &&Role| match argument {
            Role::Param(param) => interface.params[*param].ty == Type::Char,
            Role::Letter(_) => true,
            Role::Unused => false,
        };
        for (count, _) in args.iter().filter(is_text).enumerate() {
            params.push((format!("L h{count}"), format!("h{count}")));
        }
        let mut sizes = String::new();
        for &index in used {
            let param = &interface.params[index];
            let ty = c_type(param.ty, form.integer);
            let variable = cost::variable(interface, index);
            let pointer = format!("p_{}", param.name);
            let _ = writeln!(
                sizes,
                "    const double {variable} = *(const {ty} *){pointer};"
            );
        }
        self.entry(
            number,
            &Entry {
                symbol: format!("{}{function}{}", form.before, form.after),
                integer: form.integer,
                params,
                values: "",
                sizes: &sizes,
                cost,
                addresses: &names,
            },
        );
    }

    /// The entry point of a function of C: scalars come by value.
    fn c(
        &mut self,
        interface: &Interface,
        function: &str,
        number: usize,
        (cost, used): (&str, &BTreeSet<usize>),
    ) {
        let args = arguments(interface).unwrap_or_default();
        let (mut params, mut addresses) = (Vec::new(), Vec::new());
        for index in args.iter().filter_map(|argument| argument.param()) {
            let param = &interface.params[index];
            let name = format!("p_{}", param.name);
            if param.is_scalar() {
                let ty = c_type(param.ty, 4);
                params.push((format!("{ty} {name}"), name.clone()));
                addresses.push(format!("&{name}"));
            } else {
                params.push((format!("A {name}"), name.clone()));
                addresses.push(name);
            }
        }
        let mut sizes = String::new();
        for &index in used {
            let variable = cost::variable(interface, index);
            let name = &interface.params[index].name;
            let _ = writeln!(sizes, "    const double {variable} = p_{name};");
        }
        self.entry(
            number,
            &Entry {
                symbol: function.to_string(),
                integer: 4,
                params,
                values: "",
                sizes: &sizes,
                cost,
                addresses: &addresses,
            },
        );
    }

    /// Writes an entry point. `number` is that of the interface.
    pub(super) fn entry(&mut self, number: usize, entry: &Entry<'_>) {
        if self.part.len() >= PART {
            self.parts.push(std::mem::take(&mut self.part));
            self.large.clear();
        }
        let index = self.routines.len();
        let (symbol, integer) = (&entry.symbol, entry.integer);
        self.routines.push(format!(
            "    {{0, 0, \"{symbol}\", interface_{number}, 0, {integer}, 0}},"
        ));
        let list = |pick: fn(&(String, String)) -> &str| {
            let picked: Vec<&str> = entry.params.iter().map(pick).collect();
            picked.join(", ")
        };
        let declared = list(|(declaration, _)| declaration);
        let given = list(|(_, name)| name);
        let types: Vec<&str> = entry
            .params
            .iter()
            .map(|(declaration, name)| {
                declaration
                    .strip_suffix(name.as_str())
                    .unwrap_or(declaration)
                    .trim_end()
            })
            .collect();
        let call = format!("((void (*)({}))real(r))({given})", types.join(", "));
        let large = self.large(&declared, &call, entry);
        let _ = write!(
            self.part,
            "void {symbol}({declared}) {{
    struct farcall_routine *r = &routines[{index}];
{sizes}    const double cost = {cost};
    if (is_large(r, cost) && large_{large}(r, cost, __builtin_return_address(0), {given}))
        return;
    {call};
}}
",
            sizes = entry.sizes,
            cost = entry.cost,
        );
    }

    /// The number of the function for large calls of these parameters.
    fn large(&mut self, declared: &str, call: &str, entry: &Entry<'_>) -> usize {
        let text = format!(
            "(struct farcall_routine *r, double cost, A caller, {declared}) {{
{values}    A args[] = {{{addresses}}}, watch = 0;
    switch (farcall_offload_take(r, cost, args, caller, &watch)) {{
    case DONE: return 1;
    case WATCHED: {call}; farcall_offload_watched(watch); return 1;
    default: return 0;
    }}
}}
",
            values = entry.values,
            addresses = entry.addresses.join(", "),
        );
        if let Some(&known) = self.large.get(&text) {
            return known;
        }
        // The same text may be in an earlier part.
        let number = self.routines.len();
        let _ = write!(
            self.part,
            "static __attribute__((noinline, cold)) int large_{number}{text}"
        );
        self.large.insert(text, number);
        number
    }

    /// The whole text, and the number of its parts.
    pub(super) fn finish(self) -> (String, usize) {
        let Writer {
            routines,
            mut parts,
            part,
            interfaces,
            ..
        } = self;
        parts.push(part);
        let prelude = include_str!("prelude.c");
        let count = routines.len();
        let rows = routines.join("\n");
        let mut text = format!(
            "{prelude}
SHARED struct farcall_routine routines[{count} + 1];
#if !defined PART || PART == 0
{interfaces}
struct farcall_routine routines[{count} + 1] = {{
{rows}
    {{0, 0, 0, 0, 0, 0, 0}}
}};
__attribute__((constructor)) static void add(void) {{
    load();
    farcall_offload_add(routines, {count});
}}
#endif
"
        );
        for (part, functions) in (1..).zip(&parts) {
            let _ = write!(
                text,
                "#if !defined PART || PART == {part}\n{functions}#endif\n"
            );
        }
        (text, 1 + parts.len())
    }
}

/// The type of a scalar in C. `integer` is the size of an `int` of the interface.
pub(super) fn c_type(ty: Type, integer: u32) -> &'static str {
    match (ty, integer) {
        (Type::Int, 8) => "I8",
        (Type::Int, _) => "I4",
        (Type::Char, _) => "char",
        (Type::SignedChar, _) => "int8_t",
        (Type::UnsignedChar, _) => "unsigned char",
        (Type::Short, _) => "int16_t",
        (Type::UnsignedShort, _) => "uint16_t",
        (Type::UnsignedInt, _) => "uint32_t",
        (Type::Long | Type::LongLong, _) => "int64_t",
        (Type::UnsignedLong | Type::UnsignedLongLong, _) => "uint64_t",
        (Type::Float, _) => "float",
        (Type::SComplex, _) => "float _Complex",
        (Type::DComplex, _) => "double _Complex",
        _ => "double",
    }
}
