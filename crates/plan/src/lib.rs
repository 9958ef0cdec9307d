//! A transaction saved as text: calls with their scalars, the names of the arrays that pass from
//! call to call, and the files that arrays are read from and written to.
//!
//! ```toml
//! schema = 1
//!
//! [inputs]
//! a = "a.npy"
//!
//! [outputs]
//! c = "c.npy"
//!
//! [[calls]]
//! function = "blas/dgemm"
//! arguments = { transa = "N", transb = "N", m = 2, n = 2, k = 2, alpha = 1.0, a = "a", lda = 2 }
//! ```
//!
//! The interfaces decide whether an argument is a scalar or the name of an array. A plan can come
//! from anybody, so this crate checks its bounds before anything is done with it.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path};

/// Longest text of a plan, in bytes.
pub const MOST_BYTES: usize = 4 << 20;
/// Largest number of calls in a plan.
pub const MOST_CALLS: usize = 10_000;
/// Largest number of files of a plan, for inputs and for outputs separately.
pub const MOST_FILES: usize = 10_000;
/// Longest name of an array or a function, in bytes.
const MOST_NAME: usize = 200;
/// The version of the format.
const SCHEMA: u32 = 1;

/// A transaction saved as text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    schema: u32,
    /// Arrays that are read from files, by name. A value is a path relative to the plan's folder,
    /// or named data at servers (see [`data`]).
    #[serde(default)]
    pub inputs: BTreeMap<String, String>,
    /// Arrays that are written to files at the end, in the same form.
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
    /// The calls, in the order in which they were made.
    #[serde(default)]
    pub calls: Vec<Step>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The function: `module/name`, or only `name`.
    pub function: String,
    /// Scalars and names of arrays, by parameter. Work space is left out.
    #[serde(default)]
    pub arguments: BTreeMap<String, Value>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// An integer.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// A text, a complex number in the form of the command line, or the name of an array.
    Text(String),
    /// An array of texts.
    Texts(Vec<String>),
}

/// The reason why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The text is too long.
    #[error("a plan has at most {MOST_BYTES} bytes")]
    Length,
    /// The text does not have the format of a plan.
    #[error("{0}")]
    Form(String),
    /// The plan has another version of the format.
    #[error("the plan has schema {0}, but this farcall knows only schema {SCHEMA}; update farcall")]
    Schema(u32),
    /// The plan has too many entries.
    #[error("the plan has {given} {what}; at most {most} are allowed")]
    TooMany {
        /// The kind of entries.
        what: &'static str,
        /// The number of entries.
        given: usize,
        /// The largest number allowed.
        most: usize,
    },
    /// A name is not allowed.
    #[error(
        "{what} `{name}`: this name is not allowed; use up to {MOST_NAME} bytes of letters, \
         digits, `_`, `-`, `.` and `/`"
    )]
    Name {
        /// The kind of thing that it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A file is written twice, or is both read and written.
    #[error("the file `{0}` is named twice; write each array to a separate file")]
    File(String),
}

impl Plan {
    /// A plan of these calls.
    pub fn new(
        inputs: BTreeMap<String, String>,
        outputs: BTreeMap<String, String>,
        calls: Vec<Step>,
    ) -> Plan {
        Plan {
            schema: SCHEMA,
            inputs,
            outputs,
            calls,
        }
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// The reason why the text is not a plan.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        if text.len() > MOST_BYTES {
            return Err(PlanError::Length);
        }
        let plan: Plan = toml::from_str(text).map_err(|error| {
            let text = error.to_string();
            PlanError::Form(text.trim_end().to_string())
        })?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), PlanError> {
        if self.schema != SCHEMA {
            return Err(PlanError::Schema(self.schema));
        }
        for (what, given, most) in [
            ("calls", self.calls.len(), MOST_CALLS),
            ("inputs", self.inputs.len(), MOST_FILES),
            ("outputs", self.outputs.len(), MOST_FILES),
        ] {
            if given > most {
                return Err(PlanError::TooMany { what, given, most });
            }
        }
        for array in self.inputs.keys().chain(self.outputs.keys()) {
            check_name("the array", array)?;
        }
        for call in &self.calls {
            check_name("the function", &call.function)?;
            for argument in call.arguments.keys() {
                check_name("the argument", argument)?;
            }
        }
        // Named data can be both read and written: writing creates a new version and keeps the one
        // that was read.
        let files = self.inputs.values().filter(|file| data(file).is_none());
        let mut files: BTreeSet<&String> = files.collect();
        match self.outputs.values().find(|file| !files.insert(file)) {
            Some(file) => Err(PlanError::File(file.clone())),
            None => Ok(()),
        }
    }
}

/// Whether a path leads to a place below its folder, as far as the name tells.
pub fn is_below(file: &str) -> bool {
    let mut parts = Path::new(file).components();
    parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// The name in `data:NAME`, which means named data at servers instead of a file.
pub fn data(file: &str) -> Option<&str> {
    file.strip_prefix("data:")
}

/// Checks that a name is allowed in plans.
///
/// # Errors
/// The name is not allowed.
pub fn check_name(what: &'static str, name: &str) -> Result<(), PlanError> {
    let is_letter = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    match (1..=MOST_NAME).contains(&name.len()) && name.chars().all(is_letter) {
        true => Ok(()),
        false => Err(PlanError::Name {
            what,
            name: name.escape_debug().to_string(),
        }),
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schema = {}", self.schema)?;
        for (head, files) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            if !files.is_empty() {
                writeln!(f, "\n[{head}]")?;
            }
            for (array, file) in files {
                writeln!(f, "{} = {}", quoted(array), quoted(file))?;
            }
        }
        for call in &self.calls {
            writeln!(f, "\n[[calls]]\nfunction = {}", quoted(&call.function))?;
            writeln!(f, "[calls.arguments]")?;
            for (argument, value) in &call.arguments {
                writeln!(f, "{} = {value}", quoted(argument))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(value) => write!(f, "{value}"),
            Value::Real(value) => f.write_str(&toml::Value::Float(*value).to_string()),
            Value::Text(text) => f.write_str(&quoted(text)),
            Value::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                write!(f, "[{}]", texts.join(", "))
            }
        }
    }
}

/// A key or text, in quotes unless it is a key that needs none.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Plan {
        let arguments = [
            ("n", Value::Integer(-3)),
            ("alpha", Value::Real(1.0)),
            ("tiny", Value::Real(1e-300)),
            ("trans", Value::Text("N".to_string())),
            ("text", Value::Text("\"a\\\n\u{1}é".to_string())),
            ("texts", Value::Texts(vec!["x".to_string(), String::new()])),
            ("a", Value::Text("a".to_string())),
        ];
        let arguments = arguments.map(|(name, value)| (name.to_string(), value));
        let file = |name: &str, file: &str| (name.to_string(), file.to_string());
        Plan::new(
            [file("a", "a.npy"), file("b/1.x", "folder/b.npy")].into(),
            [file("a", "out.npy")].into(),
            vec![
                Step {
                    function: "blas/dgemm".to_string(),
                    arguments: arguments.into(),
                },
                Step {
                    function: "f".to_string(),
                    arguments: BTreeMap::new(),
                },
            ],
        )
    }

    #[test]
    fn a_plan_that_is_written_reads_back_equal() {
        let text = example().to_string();
        assert_eq!(Plan::parse(&text), Ok(example()), "{text}");
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_known() {
        for file in ["a.npy", "./a.npy", "results/a.npy", "..a", "a..npy"] {
            assert!(is_below(file), "{file}");
        }
        for file in ["/a.npy", "../a.npy", "results/../../a.npy", "results/.."] {
            assert!(!is_below(file), "{file}");
        }
    }

    #[test]
    fn inline_tables_are_read_as_well() {
        let text = "schema = 1\n[[calls]]\nfunction = \"f\"\narguments = { n = 1, x = \"a\" }\n";
        let plan = Plan::parse(text).unwrap();
        assert_eq!(plan.calls[0].arguments["n"], Value::Integer(1));
        assert_eq!(plan.calls[0].arguments["x"], Value::Text("a".to_string()));
    }

    #[test]
    fn a_text_that_is_not_a_plan_is_refused() {
        let parse = |text: &str| Plan::parse(text).unwrap_err().to_string();
        assert!(parse("").contains("schema"));
        assert!(parse("schema = 2").contains("update farcall"));
        assert!(parse("schema = 1\nother = 1").contains("other"));
        assert!(parse("schema = 1\n[inputs]\n\"a b\" = \"x\"").contains("letters"));
        let twice = "schema = 1\n[inputs]\na = \"x\"\n[outputs]\na = \"x\"";
        assert!(parse(twice).contains("named twice"));
        let same_data = twice.replace("\"x\"", "\"data:x\"");
        assert!(Plan::parse(&same_data).is_ok());
        let wrong = "schema = 1\n[[calls]]\nfunction = \"f\"\narguments = { n = [1] }";
        assert!(parse(wrong).contains("arguments") || parse(wrong).contains("n ="));
        let call = "[[calls]]\nfunction = \"f\"\n";
        let many = format!("schema = 1\n{}", call.repeat(MOST_CALLS + 1));
        assert!(parse(&many).contains("at most 10000"));
        assert_eq!(
            Plan::parse(&" ".repeat(MOST_BYTES + 1)),
            Err(PlanError::Length)
        );
    }
}
