//! Addresses of the form `ssh://[user@]host[:port]`: a server that the user's own OpenSSH reaches.
//! This module reads and prints them and makes the commands of `ssh`; it starts none.
//!
//! Invariant: no part of an address can be an option of `ssh`, or more than one word of the other
//! host's shell.

use super::split_port;
use std::fmt;
use std::process::Command;

/// The interfaces that are served where no server runs, unless the address names others.
const SERVED: &str = "lapack+blas";
/// Longest time to connect that OpenSSH is told, in seconds.
const MOST_TO_CONNECT_S: u64 = 1_000_000;

/// A host that `ssh` reaches, and what to do there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SshAddress {
    /// `host` or `user@host`; ssh may know the host by another name.
    to: String,
    port: Option<u16>,
    /// Interfaces to serve if no server runs there, with `+` between them.
    serve: Option<String>,
    /// The Unix socket of the server there.
    unix: Option<String>,
    /// The program `farcall` there.
    farcall: Option<String>,
}

impl SshAddress {
    /// Reads what follows `ssh://`.
    pub(super) fn parse(text: &str) -> Result<SshAddress, &'static str> {
        let (place, query) = match text.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (text, None),
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        let (user, rest) = match place.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, place),
        };
        let (host, port) = split_port(rest)?;
        let is_name = |text: &str| !text.is_empty() && !text.starts_with('-') && is_plain(text);
        if host.is_empty() {
            return Err("the host is missing");
        }
        // An IPv6 address has colons, and may have a zone after a percent sign.
        if !is_name(&host.replace([':', '%'], "")) {
            return Err("the host contains a character that is not allowed in host names");
        }
        if !user.is_none_or(is_name) {
            return Err("the user may have letters, digits, and . _ - only");
        }
        let port = port.map(str::parse).transpose();
        let mut address = SshAddress {
            to: user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}")),
            port: port.map_err(|_| "the port must be a number from 0 to 65535")?,
            serve: None,
            unix: None,
            farcall: None,
        };
        for setting in query.into_iter().flat_map(|query| query.split('&')) {
            address.set(setting)?;
        }
        Ok(address)
    }

    fn set(&mut self, setting: &str) -> Result<(), &'static str> {
        const UNKNOWN: &str = "after `?` it may have serve=NAME+NAME, unix=/PATH and farcall=PATH";
        let (name, value) = setting.split_once('=').ok_or(UNKNOWN)?;
        let place = match name {
            "serve" => &mut self.serve,
            "unix" => &mut self.unix,
            "farcall" => &mut self.farcall,
            _ => return Err(UNKNOWN),
        };
        let is_path = |c: char| is_allowed(c) || matches!(c, '/' | '+' | '~');
        if value.is_empty() || value.starts_with('-') || !value.chars().all(is_path) {
            return Err("values after `?` may have letters, digits, and . _ - + / ~ only");
        }
        *place = Some(value.to_owned());
        Ok(())
    }

    /// The command of `ssh` that runs `farcall relay` on the other host.
    pub(crate) fn relay(&self, connect_s: u64) -> Command {
        let mut relay = "exec $FARCALL relay".to_owned();
        match &self.unix {
            Some(path) => relay.push_str(&format!(" --unix {path}")),
            None => {
                let served = self.serve.as_deref().unwrap_or(SERVED).split('+');
                served.for_each(|name| relay.push_str(&format!(" --serve {name}")));
            }
        }
        // OpenSSH refuses a time that is too long for it.
        let timeout = format!("ConnectTimeout={}", connect_s.min(MOST_TO_CONNECT_S));
        self.command(&["-o", &timeout], &relay)
    }

    /// The command of `ssh`, with further options, that runs a line of the shell on the other host.
    /// In the line, `$FARCALL` is the program there. `FARCALL_SSH` may name another program than
    /// `ssh`, with options.
    pub fn command(&self, options: &[&str], line: &str) -> Command {
        let mut command = ssh();
        command.arg("-T");
        command.args(options);
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
        // Shells that nobody logs in to often lack the folders where pip and cargo put programs.
        let path = "PATH=$PATH:$HOME/.local/bin:$HOME/.cargo/bin";
        let farcall = self.farcall.as_deref().unwrap_or("farcall");
        let there = format!("exec sh -c '{path}; FARCALL={farcall}; {line}'");
        command.args(["--", &self.to, &there]);
        command
    }

    /// The same host, with the socket at which a server listens there.
    pub fn at_socket(&self, path: &str) -> SshAddress {
        SshAddress {
            unix: Some(path.to_owned()),
            serve: None,
            ..self.clone()
        }
    }

    /// `host` or `user@host`.
    pub fn to(&self) -> &str {
        &self.to
    }
}

/// The program of ssh, which Ctrl-C does not end: the program itself can then end its calls.
#[cfg(unix)]
fn ssh() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec ${FARCALL_SSH:-ssh} \"$@\"", "ssh"]);
    command
}

/// The program of ssh, which Ctrl-C does not end: the program itself can then end its calls.
#[cfg(windows)]
fn ssh() -> Command {
    use std::os::windows::process::CommandExt;

    /// Ctrl-C at the console does not reach the process.
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
    let named = std::env::var("FARCALL_SSH").unwrap_or_default();
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).creation_flags(CREATE_NEW_PROCESS_GROUP);
    command
}

fn is_plain(text: &str) -> bool {
    text.chars().all(is_allowed)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, host) = match self.to.rsplit_once('@') {
            Some((user, host)) => (format!("{user}@"), host),
            None => (String::new(), self.to.as_str()),
        };
        match host.contains(':') {
            true => write!(f, "ssh://{user}[{host}]")?,
            false => write!(f, "ssh://{user}{host}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        let settings = [
            ("serve", &self.serve),
            ("unix", &self.unix),
            ("farcall", &self.farcall),
        ];
        let set = settings
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)));
        for (index, (name, value)) in set.enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_what_ssh_is_told() {
        let words = |text| {
            let command = SshAddress::parse(text).unwrap().relay(7);
            let words = command
                .get_args()
                .map(|word| word.to_str().unwrap())
                .skip_while(|word| *word != "-T")
                .skip(1);
            words.collect::<Vec<_>>().join(" ")
        };
        let relay = |program: &str, end: &str| {
            let path = "PATH=$PATH:$HOME/.local/bin:$HOME/.cargo/bin";
            format!("exec sh -c '{path}; FARCALL={program}; exec $FARCALL relay {end}'")
        };
        let first = "-o ConnectTimeout=7";
        let usual = relay("farcall", "--serve lapack --serve blas");
        assert_eq!(words("host"), format!("{first} -- host {usual}"));
        let fft = relay("/opt/farcall", "--serve fft");
        assert_eq!(
            words("ann@far.example:2222/?serve=fft&farcall=/opt/farcall"),
            format!("{first} -p 2222 -- ann@far.example {fft}")
        );
        let patient = SshAddress::parse("host").unwrap().relay(u64::MAX);
        let mut patient = patient.get_args().map(|word| word.to_str().unwrap());
        assert!(patient.any(|word| word == "ConnectTimeout=1000000"));
        let running = relay("farcall", "--unix /run/farcall.sock");
        assert_eq!(
            words("[fe80::1%eth0]?unix=/run/farcall.sock"),
            format!("{first} -- fe80::1%eth0 {running}")
        );
    }

    #[test]
    fn nothing_of_an_address_is_an_option_or_a_command() {
        for text in [
            "-oProxyCommand=x",
            "-l@host",
            "host;reboot",
            "host name",
            "$(x)",
            "a'b@host",
            "host?farcall=-x",
            "host?farcall=a b",
            "host?serve=a;b",
            "host?serve='x'",
            "host?unix=`x`",
            "host?other=1",
            "host?serve",
            "",
            "@host",
            "host:99999",
        ] {
            assert!(SshAddress::parse(text).is_err(), "{text}");
        }
    }
}
