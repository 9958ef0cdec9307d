//! The CBLAS names of BLAS 3. Their arguments are those of Fortran in the same order, after the
//! order of the matrices: characters are constants, and scalars come by value except complex ones.
//! Matrices by rows are the transposes of matrices by columns, so that other arguments describe the
//! same computation.

use super::cost;
use super::entry::{Entry, Form, Writer, c_type, form};
use crate::routine::arguments;
use farcall_idl::{Interface, Param, Type};
use std::collections::BTreeSet;
use std::fmt::Write;

/// The symbols of a routine of CBLAS.
const FORMS: &[Form] = &[
    form("cblas_", "", 4),
    form("cblas_", "64_", 8),
    form("scipy_cblas_", "", 4),
    form("scipy_cblas_", "64_", 8),
];

/// What changes for matrices by rows.
struct ByRows {
    /// The routines without the letter of the precision.
    names: &'static [&'static str],
    /// Arguments that change places.
    swaps: &'static [(&'static str, &'static str)],
    /// Characters that become their opposites.
    flips: &'static [&'static str],
    /// What a matrix that is not transposed becomes.
    transposed: char,
    /// A complex scalar that becomes its conjugate.
    conjugate: Option<&'static str>,
}

const BY_ROWS: &[ByRows] = &[
    ByRows {
        names: &["gemm"],
        swaps: &[("transa", "transb"), ("m", "n"), ("a", "b"), ("lda", "ldb")],
        flips: &[],
        transposed: 'T',
        conjugate: None,
    },
    ByRows {
        names: &["symm", "hemm", "trmm", "trsm"],
        swaps: &[("m", "n")],
        flips: &["side", "uplo"],
        transposed: 'T',
        conjugate: None,
    },
    ByRows {
        names: &["syrk", "syr2k"],
        swaps: &[],
        flips: &["uplo", "trans"],
        transposed: 'T',
        conjugate: None,
    },
    ByRows {
        names: &["herk"],
        swaps: &[],
        flips: &["uplo", "trans"],
        transposed: 'C',
        conjugate: None,
    },
    ByRows {
        names: &["her2k"],
        swaps: &[],
        flips: &["uplo", "trans"],
        transposed: 'C',
        conjugate: Some("alpha"),
    },
];

/// Adds the names of CBLAS for a routine, if it is one of BLAS 3.
pub(super) fn add(
    writer: &mut Writer,
    interface: &Interface,
    function: &str,
    number: usize,
    (cost, used): (&str, &BTreeSet<usize>),
) {
    let args = arguments(interface).unwrap_or_default();
    let family = function.get(1..).unwrap_or_default();
    let Some(rule) = BY_ROWS.iter().find(|rule| rule.names.contains(&family)) else {
        return;
    };
    let is_real = function.starts_with(['s', 'd']);
    let cost = format!("(order == 101 || order == 102) ? {cost} : 0");
    for form in FORMS {
        let mut parts = Parts::default();
        parts
            .params
            .push(("int order".to_string(), "order".to_string()));
        for index in args.iter().filter_map(|argument| argument.param()) {
            parts.add(rule, &interface.params[index], form.integer, is_real);
        }
        let mut sizes = String::new();
        for &index in used {
            let param = &interface.params[index];
            let value = rule.value(&param.name, param.ty, is_real);
            let variable = cost::variable(interface, index);
            // Writing to a `String` does not fail.
            let _ = writeln!(sizes, "    const double {variable} = {value};");
        }
        writer.entry(
            number,
            &Entry {
                symbol: format!("{}{function}{}", form.before, form.after),
                integer: form.integer,
                params: parts.params,
                values: &parts.values,
                sizes: &sizes,
                cost: &cost,
                addresses: &parts.addresses,
            },
        );
    }
}

/// What the parameters of an entry point become.
#[derive(Default)]
struct Parts {
    params: Vec<(String, String)>,
    values: String,
    addresses: Vec<String>,
}

impl Parts {
    fn add(&mut self, rule: &ByRows, param: &Param, integer: u32, is_real: bool) {
        let name = &param.name;
        let ty = match param.ty {
            Type::Char => "int",
            ty => c_type(ty, integer),
        };
        let by_address = !param.is_scalar() || ty.ends_with("_Complex");
        let ty = if by_address { "A" } else { ty };
        let declaration = format!("{ty} p_{name}");
        self.params.push((declaration, format!("p_{name}")));
        let value = rule.value(name, param.ty, is_real);
        let ty = if param.ty == Type::Char { "char" } else { ty };
        let values = &mut self.values;
        // Writing to a `String` does not fail.
        let _ = match rule.conjugate.filter(|conjugate| conjugate == name) {
            None => writeln!(values, "    {ty} f_{name} = {value};"),
            Some(_) => {
                let part = match param.ty {
                    Type::SComplex => "float",
                    _ => "double",
                };
                writeln!(
                    values,
                    "    const {part} *x_{name} = p_{name};\n    {part} y_{name}[2] = \
                     {{x_{name}[0], order == 101 ? -x_{name}[1] : x_{name}[1]}};\n    A \
                     f_{name} = y_{name};"
                )
            }
        };
        self.addresses.push(match by_address {
            true => format!("f_{name}"),
            false => format!("&f_{name}"),
        });
    }
}

impl ByRows {
    /// The value of Fortran's argument, in C.
    fn value(&self, name: &str, ty: Type, is_real: bool) -> String {
        let columns = match ty {
            Type::Char => format!("letter(p_{name})"),
            _ => format!("p_{name}"),
        };
        let pair = self.swaps.iter().find_map(|&(a, b)| match name {
            _ if name == a => Some(b),
            _ if name == b => Some(a),
            _ => None,
        });
        let rows = match pair {
            Some(pair) if ty == Type::Char => format!("letter(p_{pair})"),
            Some(pair) => format!("p_{pair}"),
            None if name == "side" && self.flips.contains(&name) => {
                format!("other_side({columns})")
            }
            None if self.flips.contains(&name) => {
                let is_real = u8::from(is_real);
                format!("other({columns}, '{}', {is_real})", self.transposed)
            }
            None => return columns,
        };
        format!("order == 101 ? {rows} : {columns}")
    }
}
