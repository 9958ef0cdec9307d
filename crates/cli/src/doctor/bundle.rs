//! `farcall doctor --bundle`: one JSON file with what a report of a fault needs.
//!
//! It contains no secrets. Files with credentials are never read. The texts that it contains, such
//! as the configuration and the log, lose everything that looks like a secret, so a harmless long
//! word may be missing too.

use super::Finding;
use crate::failure::{self, Failure};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes from the end of a log.
const LOG_BYTES: u64 = 64 << 10;
/// Most bytes of a configuration file.
const CONFIG_BYTES: u64 = 1 << 20;
/// Variables whose values say how Farcall runs.
const VARIABLES: [&str; 12] = [
    "CC",
    "FARCALL_CONFIG",
    "FARCALL_LIBRARY_PATH",
    "FARCALL_LOG",
    "FARCALL_METASERVER",
    "FARCALL_PYTHON",
    "FARCALL_SERVER",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
];
/// Parts of names whose values are secrets.
const SECRETIVE: [&str; 8] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "apikey",
    "api_key",
    "authorization",
];
/// Variables whose names end as those of secrets do: the current folder, and the one before it.
const FOLDERS: [&str; 2] = ["PWD", "OLDPWD"];
/// Shortest word of letters and digits that is taken for a secret.
const SHORTEST: usize = 24;
const REMOVED: &str = "<removed>";

/// Writes the bundle, for its owner alone.
pub(super) fn write(
    path: &Path,
    findings: &[Finding],
    status: Option<String>,
    (config, log): (Option<&Path>, Option<&Path>),
) -> Result<(), Failure> {
    let secrets = Secrets::of_environment();
    let read = |path: &Path, from_end| {
        let text = match tail(path, from_end) {
            Ok(text) => secrets.removed_from(&text),
            Err(error) => {
                failure::say(format_args!(
                    "warning: cannot read {}: {error}; the bundle is without this file",
                    path.display()
                ));
                format!("cannot be read: {error}")
            }
        };
        json!({ "file": path, "lines": text.lines().collect::<Vec<_>>() })
    };
    let status = status.map(|text| secrets.removed_from(&text));
    let bundle = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "findings": super::to_json(findings, |text| secrets.removed_from(text))["findings"],
        "system": system(),
        "limits": limits(),
        "environment": environment(&secrets),
        "configuration": config.map(|path| read(path, CONFIG_BYTES)),
        "log": log.map(|path| read(path, LOG_BYTES)),
        "server": status.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))),
    });
    let text = format!("{bundle:#}\n");
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        let written = file.write_all(text.as_bytes());
        // Half a bundle says nothing, and would be in the way of the next one.
        written.inspect_err(|_| drop(std::fs::remove_file(path)))
    });
    written.map_err(|error| Failure::cannot("write the bundle", path.display(), &error))
}

/// The last bytes of a file, as text.
fn tail(path: &Path, most: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Half a line could hide what it begins with.
    Ok(match (length > most, text.split_once('\n')) {
        (true, Some((_, whole))) => whole.to_owned(),
        (true, None) => String::new(),
        (false, _) => text,
    })
}

fn system() -> Value {
    let name = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let first_lines = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().take(20).map(str::to_owned).collect::<Vec<_>>()
    };
    json!({
        "kernel": text(name.release()),
        "kernel_version": text(name.version()),
        "machine": text(name.machine()),
        "system": first_lines("/etc/os-release"),
        "memory": first_lines("/proc/meminfo").into_iter().take(3).collect::<Vec<_>>(),
        "load": first_lines("/proc/loadavg"),
        "control_groups": first_lines("/proc/self/cgroup"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "user": rustix::process::geteuid().as_raw(),
    })
}

fn limits() -> Value {
    let all = [
        ("open_files", Resource::Nofile),
        ("processes", Resource::Nproc),
        ("memory", Resource::As),
        ("locked_memory", Resource::Memlock),
        ("stack", Resource::Stack),
        ("file_size", Resource::Fsize),
        ("core", Resource::Core),
    ];
    let limits = all.map(|(name, resource)| {
        let limit = getrlimit(resource);
        (name, json!([limit.current, limit.maximum]))
    });
    json!(BTreeMap::from(limits))
}

fn environment(secrets: &Secrets) -> Value {
    let known = VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some((*name, secrets.removed_from(&value)))
    });
    json!(known.collect::<BTreeMap<_, _>>())
}

/// What must not be in a bundle.
struct Secrets {
    /// Values of variables.
    known: Vec<String>,
}

fn is_secretive(name: &str) -> bool {
    let name = name.to_lowercase();
    let ends = ["key", "pass", "pwd"].iter().any(|end| name.ends_with(end));
    ends || SECRETIVE.iter().any(|part| name.contains(part))
}

impl Secrets {
    fn of_environment() -> Secrets {
        Secrets::of(std::env::vars_os())
    }

    fn of(variables: impl Iterator<Item = (OsString, OsString)>) -> Secrets {
        let secrets = variables.filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let is_secret = is_secretive(&name) && !FOLDERS.contains(&name.as_str());
            (is_secret && value.len() > 3).then_some(value)
        });
        Secrets {
            known: secrets.collect(),
        }
    }

    fn removed_from(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            text = text.replace(secret.as_str(), REMOVED);
        }
        let mut lines = Vec::new();
        let mut in_key = false;
        for line in text.lines() {
            in_key |= line.contains("-----BEGIN ");
            let ends = line.contains("-----END ");
            lines.push(match in_key {
                true => REMOVED.to_owned(),
                false => without_words(&without_passwords(&without_values(line))),
            });
            in_key &= !ends;
        }
        lines.join("\n")
    }
}

/// `name = value` and `name: value` without the value, if the name is that of a secret. The value
/// of a setting that names a file stays.
fn without_values(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, after) = rest.split_at(at);
        let name = before.trim_end().trim_end_matches(['"', '\'']);
        let is_part = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let name = name.rsplit(is_part).next().unwrap_or_default();
        let value = after[1..].trim_start().trim_start_matches(['"', '\'', '[']);
        kept.push_str(before);
        kept.push_str(&after[..1]);
        let is_path = value.starts_with(['/', '.']);
        if is_secretive(name) && !is_path && !value.is_empty() {
            return format!("{kept} {REMOVED}");
        }
        rest = &after[1..];
    }
    kept + rest
}

/// URLs without the part before `@`.
fn without_passwords(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        kept.push_str(before);
        kept.push_str("://");
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        let url = &after[..end.unwrap_or(after.len())];
        rest = match url.rfind('@') {
            Some(at) => {
                kept.push_str(REMOVED);
                &after[at..]
            }
            None => after,
        };
    }
    kept + rest
}

/// A line without long words of letters and digits, as tokens, keys and hashes are.
fn without_words(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-');
    let mut kept = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        kept.push_str(before);
        let is_path = word.starts_with('/') || before.ends_with(['.', '~']);
        match is_path {
            true => {
                let parts = word.split('/');
                let parts = parts.map(|part| if looks_secret(part) { REMOVED } else { part });
                kept.push_str(&parts.collect::<Vec<_>>().join("/"));
            }
            false if looks_secret(word) => kept.push_str(REMOVED),
            false => kept.push_str(word),
        }
        rest = after;
    }
    kept + rest
}

fn looks_secret(word: &str) -> bool {
    let has = |test: fn(&char) -> bool| word.chars().any(|c| test(&c));
    let is_hex = word.chars().all(|c| c.is_ascii_hexdigit());
    let is_mixed = has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase);
    word.len() >= SHORTEST && has(char::is_ascii_digit) && (is_hex || is_mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        let secrets = Secrets {
            known: vec!["hunter2".to_owned()],
        };
        let token = "3b1c0d5f".repeat(8);
        let base64 = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let text = format!(
            "pes = 3\n\
             tokens = \"/etc/farcall/tokens\"\n\
             password = \"short\"\n\
             the word hunter2 is known\n\
             store postgres://me:pa@ss@db.example/farcall answers\n\
             {token} alice\n\
             said {base64} and left\n\
             -----BEGIN PRIVATE KEY-----\nMIIEvQ\nIBADAN\n-----END PRIVATE KEY-----\n\
             /usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 failed\n\
             Authorization: Bearer abc"
        );
        let kept = secrets.removed_from(&text);
        for gone in [
            "short", "hunter2", "pa@ss", "me:", &token, base64, "MIIEvQ", "IBADAN", "abc",
        ] {
            assert!(!kept.contains(gone), "{gone} in {kept}");
        }
        for stays in [
            "pes = 3",
            "/etc/farcall/tokens",
            "@db.example/farcall answers",
            " alice",
            "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0 failed",
        ] {
            assert!(kept.contains(stays), "{stays} not in {kept}");
        }
    }

    #[test]
    fn the_current_folder_is_no_secret() {
        let variables = [
            ("PWD", "/etc/farcall"),
            ("OLDPWD", "/srv/farcall"),
            ("DATABASE_PWD", "hunter2"),
        ];
        let variables =
            variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let secrets = Secrets::of(variables.into_iter());
        assert_eq!(secrets.known, ["hunter2"]);
        let line = "tokens = \"/etc/farcall/tokens\"";
        assert_eq!(secrets.removed_from(line), line);
    }
}
