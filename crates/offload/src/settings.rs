//! What the environment says. The command `farcall offload` sets these variables for its program;
//! who uses a drop-in library in another way sets them alone.

use std::env;
use std::ffi::OsString;

/// `auto`, `always` or `off`.
pub const MODE: &str = "FARCALL_OFFLOAD";
/// Names of routines or modules, with commas between them; only they go to the server.
pub const ONLY: &str = "FARCALL_OFFLOAD_ONLY";
/// `1`: compute each remote call here, too, and compare.
pub const VERIFY: &str = "FARCALL_OFFLOAD_VERIFY";
/// `1`: print statistics on standard error when the program ends.
pub const STATISTICS: &str = "FARCALL_OFFLOAD_STATS";
/// `1`: send nothing, and print on standard error which functions of the program can go.
pub const EXPLAIN: &str = "FARCALL_OFFLOAD_EXPLAIN";
/// The library with the real functions, if the program has loaded none.
pub const REAL: &str = "FARCALL_OFFLOAD_LIBRARY";

/// Operations below which a call never pays: a quarter of a millisecond at most on present
/// processors, and half of the smallest call that has paid in measurements.
const LEAST: f64 = 2e6;

/// Which calls go to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those that pay.
    Auto,
    /// All that can.
    Always,
    /// None.
    Off,
}

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which calls go to the server.
    pub mode: Mode,
    /// The only routines and modules that go, if any are named.
    pub only: Option<Vec<String>>,
    /// Compute each remote call here, too, and compare.
    pub verify: bool,
    /// Print statistics in the end.
    pub statistics: bool,
    /// Print in the end which functions can go.
    pub explain: bool,
    /// The value of [`MODE`], if it is none that this variable has: the mode is the usual one.
    pub unknown_mode: Option<String>,
    /// The variables that are `1` or not set and have another value, which counts as not set.
    pub unknown_flags: Vec<(&'static str, String)>,
}

impl Settings {
    /// The settings of this process. The programs of Farcall itself never offload.
    pub fn of_environment() -> Settings {
        let is_set = |name| env::var(name).is_ok_and(|value| value == "1");
        let only = env::var(ONLY).ok().filter(|list| !list.is_empty());
        let text = env::var_os(MODE).unwrap_or_default();
        let known = mode(&text.to_string_lossy());
        let mode = match known {
            _ if is_farcall() || is_set(EXPLAIN) => Mode::Off,
            known => known.unwrap_or(Mode::Auto),
        };
        let unknown = known.is_none().then(|| text.to_string_lossy().into_owned());
        Settings {
            mode,
            only: only.map(|list| {
                list.split(',')
                    .map(|name| name.trim().to_string())
                    .collect()
            }),
            verify: is_set(VERIFY),
            statistics: is_set(STATISTICS),
            explain: is_set(EXPLAIN),
            unknown_mode: unknown,
            unknown_flags: unknown_flags(|name| env::var_os(name)),
        }
    }

    /// Whether a variable has a value that does nothing.
    pub fn has_unknown_values(&self) -> bool {
        self.unknown_mode.is_some() || !self.unknown_flags.is_empty()
    }

    /// The names in [`ONLY`] that are none of these routines and modules: nothing goes for them.
    pub fn unknown<'s>(&'s self, known: &[(&str, &str)]) -> Vec<&'s str> {
        let is_known = |name: &str| {
            let mut known = known
                .iter()
                .flat_map(|&(module, function)| [module, function]);
            known.any(|known| name.eq_ignore_ascii_case(known))
        };
        let only = self.only.iter().flatten().map(String::as_str);
        only.filter(|name| !name.is_empty() && !is_known(name))
            .collect()
    }

    /// Operations from which the runtime decides about a call of a function of a module.
    pub fn least(&self, module: &str, function: &str) -> f64 {
        let is_wanted = match &self.only {
            None => true,
            Some(only) => only.iter().any(|name| {
                name.eq_ignore_ascii_case(function) || name.eq_ignore_ascii_case(module)
            }),
        };
        match self.mode {
            Mode::Auto if is_wanted => LEAST,
            // Calls without any operation have nothing to compute.
            Mode::Always if is_wanted => f64::MIN_POSITIVE,
            _ => f64::INFINITY,
        }
    }
}

/// The mode that a value of [`MODE`] names. An empty one counts as one that is not set.
fn mode(text: &str) -> Option<Mode> {
    match text {
        "" | "auto" => Some(Mode::Auto),
        "always" => Some(Mode::Always),
        "off" => Some(Mode::Off),
        _ => None,
    }
}

/// The flags with another value than `1`, `0` and an empty one, and these values.
fn unknown_flags(value: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, String)> {
    let flags = [VERIFY, STATISTICS, EXPLAIN].into_iter();
    let values = flags.filter_map(|name| Some((name, value(name)?.to_string_lossy().into())));
    values
        .filter(|(_, value): &(_, String)| !["", "0", "1"].contains(&value.as_str()))
        .collect()
}

/// Whether this process is a server, a worker or another program of Farcall.
fn is_farcall() -> bool {
    let program = env::current_exe().ok();
    let name = program
        .as_deref()
        .and_then(|path| path.file_name()?.to_str());
    matches!(name, Some("farcall" | "farcall-bench"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_flags_that_count_as_not_set_are_told() {
        let values = |name: &str| match name {
            VERIFY => Some("yes".into()),
            STATISTICS => Some("1".into()),
            _ => None,
        };
        assert_eq!(unknown_flags(values), [(VERIFY, "yes".to_owned())]);
        assert!(unknown_flags(|_| Some("0".into())).is_empty());
        assert!(unknown_flags(|_| Some(OsString::new())).is_empty());
    }

    #[test]
    fn names_that_no_library_has_are_told() {
        let settings = Settings {
            mode: Mode::Auto,
            only: Some(["DGESV", "dgsev", "blas", ""].map(str::to_owned).into()),
            verify: false,
            statistics: false,
            explain: false,
            unknown_mode: None,
            unknown_flags: Vec::new(),
        };
        let known = [("lapack", "dgesv"), ("blas", "dgemm")];
        assert_eq!(settings.unknown(&known), ["dgsev"]);
        let all = Settings {
            only: None,
            ..settings
        };
        assert!(all.unknown(&known).is_empty());
    }
}
