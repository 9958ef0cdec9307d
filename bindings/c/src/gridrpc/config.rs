//! The configuration file of GridRPC: the table `[client]` of a TOML file, or a file of Ninf-G with
//! its servers, of which the first one is the default. The environment comes before the file. An
//! unknown key or a time that makes no sense is an error that names the file.

use super::{CONFIGFILE_ERROR, CONFIGFILE_NOT_FOUND, Fault};
use farcall_client::{address_from_environment, default_address};
use serde::Deserialize;
use std::io;

/// The settings of the client in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Config {
    /// The server to use if the environment names none.
    server: Option<String>,
    /// Seconds; 0 is the default.
    pub(super) connect_timeout: f64,
    /// Seconds; 0 for no limit.
    pub(super) timeout: f64,
    /// The servers of a file of Ninf-G: names of hosts, and addresses.
    #[serde(skip)]
    hosts: Vec<(String, String)>,
}

/// The file may have tables for other programs.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    client: Config,
}

impl Config {
    /// Reads `file`, or else the file that `FARCALL_CONFIG` names, or else nothing.
    pub(super) fn read(file: Option<&str>) -> Result<Config, Fault> {
        let named = std::env::var("FARCALL_CONFIG").unwrap_or_default();
        let file = match file {
            Some(file) => file,
            None if named.is_empty() => return Ok(Config::default()),
            None => &named,
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::InvalidData => CONFIGFILE_ERROR,
                _ => CONFIGFILE_NOT_FOUND,
            };
            Fault::new(code, &format!("{file}: {error}"))
        })?;
        let wrong =
            |what: &dyn std::fmt::Display| Fault::new(CONFIGFILE_ERROR, &format!("{file}: {what}"));
        if text
            .lines()
            .find(|line| is_setting(line))
            .is_some_and(|line| line.trim().starts_with('<'))
        {
            return of_ninfg(&text).map_err(|what| wrong(&what));
        }
        let File { client } = toml::from_str(&text).map_err(|error| wrong(&error))?;
        for (name, value) in [
            ("connect_timeout", client.connect_timeout),
            ("timeout", client.timeout),
        ] {
            if !(0.0..1e9).contains(&value) {
                return Err(wrong(&format!("{name} is {value}: give seconds")));
            }
        }
        Ok(client)
    }

    /// The server of the environment, of the file, or this machine.
    pub(super) fn default_server(&self) -> String {
        let environment = address_from_environment();
        let named = environment.or_else(|| self.server.clone());
        named.unwrap_or_else(default_address)
    }

    /// The address of a server that a program names. A file of Ninf-G may state the port of a host.
    pub(super) fn address<'a>(&'a self, name: &'a str) -> &'a str {
        let mut hosts = self.hosts.iter();
        let found = hosts.find(|(host, _)| host.eq_ignore_ascii_case(name));
        found.map_or(name, |(_, address)| address)
    }
}

fn is_setting(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// The settings in a file of Ninf-G: `hostname` and `port` in each section `<SERVER>`.
fn of_ninfg(text: &str) -> Result<Config, String> {
    let mut hosts = Vec::new();
    let mut section: Option<(usize, Vec<(&str, &str)>)> = None;
    let no_end = |first: usize| format!("line {first}: this section has no end `</SERVER>`");
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.eq_ignore_ascii_case("</SERVER>") {
            hosts.extend(section.take().map(|(first, settings)| {
                let no_host = || format!("line {first}: this `<SERVER>` has no hostname");
                host(&settings).ok_or_else(no_host)
            }));
        } else if line.starts_with('<') {
            if let Some((first, _)) = section {
                return Err(no_end(first));
            }
            let is_server = line.eq_ignore_ascii_case("<SERVER>");
            section = is_server.then_some((index + 1, Vec::new()));
        } else if let Some((_, settings)) = &mut section {
            settings.extend(line.split_once(char::is_whitespace));
        }
    }
    if let Some((first, _)) = section {
        return Err(no_end(first));
    }
    let hosts = hosts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(Config {
        server: hosts.first().map(|(_, address)| address.clone()),
        hosts,
        ..Config::default()
    })
}

/// The host of a section `<SERVER>`, and its address.
fn host(settings: &[(&str, &str)]) -> Option<(String, String)> {
    let named = |wanted: &str| {
        let mut settings = settings.iter();
        let (_, value) = settings.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
        Some(value.trim().trim_matches('"'))
    };
    let host = named("hostname")?.to_owned();
    let address = match named("port") {
        Some(port) => format!("{host}:{port}"),
        None => host.clone(),
    };
    Some((host, address))
}
