//! Values of a configuration file that can be read and make no sense. The error names the setting.

use super::Config;
use crate::sources::Sources;
use farcall_access::can_be_user;
use farcall_server_proto::DurableLimits;
use serde::{Deserialize, Deserializer, de::Error as _};

/// Bytes that a worker needs. A smaller number without a unit probably means megabytes.
const LEAST_MEMORY: u64 = 64_000_000;

/// What the addresses of sources begin with, before the colon: what the connector knows, which is a
/// Python program of its own.
const SCHEMES: [&str; 8] = [
    "file",
    "flight",
    "folder",
    "http",
    "https",
    "postgresql",
    "s3",
    "sqlite",
];

/// What the reader of the file says, and what an operator can write instead.
const EXPECTED: [(&str, &str); 9] = [
    ("expected usize", "expected a whole number of 0 or more"),
    ("expected u64", "expected a whole number of 0 or more"),
    (
        "expected u32",
        "expected a whole number from 0 to 4294967295",
    ),
    (
        "expected i32",
        "expected a whole number from -2147483648 to 2147483647",
    ),
    ("expected f64", "expected a number without a unit"),
    ("expected a boolean", "expected true or false"),
    (
        "expected a sequence",
        "expected a list, such as [\"one\", \"two\"]",
    ),
    (
        "invalid socket address syntax",
        "expected an IP address and a port, such as 127.0.0.1:3717",
    ),
    (
        "invalid IP address syntax",
        "expected a network, such as 10.1.0.0/16, or 10.1.2.3/32 for one host",
    ),
];

/// What is wrong in a file, in one line: where it is, and what can be there.
pub(super) fn mistake(error: &toml::de::Error, text: &str) -> String {
    let mut what = error.message().to_string();
    for (said, meant) in EXPECTED {
        what = what.replace(said, meant);
    }
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else { return what };
    let number = before.matches('\n').count();
    let line = text.lines().nth(number).unwrap_or_default().trim();
    format!("line {}, `{line}`: {what}", number + 1)
}

impl Config {
    pub(super) fn check_values(&self) -> Result<(), String> {
        if self.limits.connections == 0 {
            let text = "limits.connections = 0 lets no client connect: write 1 or more";
            return Err(text.to_string());
        }
        let share = self.limits.reserve_share;
        if share > 1.0 {
            return Err(format!(
                "limits.reserve_share = {share} is more than all processor elements: write a \
                 number from 0 to 1"
            ));
        }
        let DurableLimits {
            keep_h, longest_h, ..
        } = self.jobs;
        // The default ends with a shorter `longest_h`.
        if keep_h > longest_h && keep_h != DurableLimits::default().keep_h {
            return Err(format!(
                "jobs.keep_h = {keep_h} is above jobs.longest_h = {longest_h}: results are kept \
                 for at most {longest_h} h; lower the one or raise the other"
            ));
        }
        let mut variables = self.workers.environment.iter();
        if let Some(name) = variables.find(|name| name.is_empty() || name.contains('=')) {
            return Err(format!(
                "workers.environment: no variable has the name `{name}`: write its name alone, and \
                 set its value where the server is started"
            ));
        }
        check_sources(&self.sources)?;
        let mut operators = self.access.operators.iter();
        match operators.find(|name| !can_be_user(name)) {
            Some(name) => Err(format!(
                "access.operators: no user can have the name `{name}`: write the name of a token \
                 or certificate, or `uid:` and the number of a user"
            )),
            None => Ok(()),
        }
    }
}

/// Fails if a source can never be read. The text does not have the address, which can contain a
/// password.
fn check_sources(sources: &Sources) -> Result<(), String> {
    let is_known = |address: &str| {
        let (scheme, _) = address.split_once(':').unwrap_or_default();
        SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    };
    match sources.iter().find(|(_, one)| !is_known(&one.address)) {
        Some((name, _)) => Err(format!(
            "sources.{name}.address: no server reads such an address: write one that begins with \
             {}:",
            SCHEMES.join(":, ")
        )),
        None => Ok(()),
    }
}

/// Reads the limit on the memory of a worker.
pub(super) fn worker_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = toml::Value::deserialize(deserializer)?;
    let has_unit = value.is_str();
    let bytes = farcall_quantity::size(value).map_err(D::Error::custom)?;
    match bytes {
        1..LEAST_MEMORY if !has_unit => Err(D::Error::custom(format!(
            "workers.memory = {bytes} is in bytes, and too little for a worker: write a unit, such \
             as \"{bytes}MB\""
        ))),
        _ => Ok(bytes),
    }
}
