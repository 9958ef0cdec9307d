//! `farcall trunk up`: starts a trunk. It turns options into a configuration, and the crate `trunk`
//! does the work. A wrong option is refused before an interface is made.

use crate::document;
use crate::failure::Failure;
use crate::log::Log;
use crate::notify;
use clap::{Args, ValueEnum};
use farcall_trunk::{Config, Daemon, FaultPlan, LinkConfig, Policy};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Combine links into one virtual interface
///
/// Name only the links of this machine. The trunk finds its peers and measures the speed of each
/// link. The command prints `NAME up` when the interface exists, and runs until Ctrl-C, SIGTERM,
/// SIGHUP or `farcall trunk down`. It needs root; if a right is missing, the error names it.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall trunk up --link eth1 --link eth2 --address 10.7.0.1/24
  farcall trunk up --link eth1 --link eth2=100M --address fd07::1/64 --key-file trunk.key")]
pub(crate) struct Arguments {
    /// An Ethernet interface, and its line rate if the interface does not report one (bits/s: 100M,
    /// 2.5G); may be given several times
    #[arg(long = "link", value_name = "IF[=RATE]", required = true, value_parser = link)]
    links: Vec<LinkConfig>,
    /// Name of the virtual interface
    #[arg(long, value_name = "NAME", default_value = "fc0")]
    name: String,
    /// IP address of the virtual interface with the length of its prefix; may be given several
    /// times
    #[arg(long = "address", value_name = "CIDR", value_parser = cidr)]
    addresses: Vec<(IpAddr, u8)>,
    /// How to distribute frames over the links
    #[arg(long, value_enum, default_value_t = PolicyName::MaxMin)]
    policy: PolicyName,
    /// Seconds over which the policies traffic, link-count and round-robin measure
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    hbspan: Duration,
    /// Send lost frames again [default: on with max-min, off with other policies]
    #[arg(long, value_name = "on|off", value_parser = switch)]
    repair: Option<bool>,
    /// Deliver frames in the order in which they were sent; `off` is for comparisons with bonding
    #[arg(long, value_name = "on|off", value_parser = switch, hide = true)]
    order: Option<bool>,
    /// File with a key that all nodes share: frames are encrypted, and nodes without it stay out.
    /// No other user may be able to read it (mode 600)
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDR/metrics, and the health at /healthz and /readyz
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    log: Log,
    /// Inject faults into a link, for tests: IF:loss=0.5%,delay=1ms,duplicate=1%,reorder=1%
    #[arg(long = "fault", value_name = "PLAN", hide = true, value_parser = fault)]
    faults: Vec<(String, FaultPlan)>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyName {
    /// The receiver grants rates that are max-min fair
    MaxMin,
    /// RI2N++: weights follow the traffic that arrives
    Traffic,
    /// RI2N+: weights follow the number of peers on a link
    LinkCount,
    /// RI2N: each link in turn
    RoundRobin,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.log.init();
    let config = configuration(arguments)?;
    let daemon = Daemon::start(&config).map_err(Failure::failed)?;
    notify::says_ready(format_args!("{} up", config.name))?;
    daemon.run().map_err(Failure::failed)
}

fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
    let mut links = arguments.links.clone();
    for (name, plan) in &arguments.faults {
        let link = links.iter_mut().find(|link| link.name == *name);
        let link =
            link.ok_or_else(|| Failure::usage(format!("--fault {name}: no --link has this name")))?;
        link.faults = Some(*plan);
    }
    Ok(Config {
        name: arguments.name.clone(),
        links,
        addresses: arguments.addresses.clone(),
        policy: match arguments.policy {
            PolicyName::MaxMin => Policy::MaxMin,
            PolicyName::Traffic => Policy::Traffic,
            PolicyName::LinkCount => Policy::LinkCount,
            PolicyName::RoundRobin => Policy::RoundRobin,
        },
        repair: arguments.repair,
        order: arguments.order.unwrap_or(true),
        span: arguments.hbspan,
        key: arguments.key_file.as_deref().map(key).transpose()?,
        metrics: arguments.metrics,
    })
}

/// The least and the most bytes of a key.
const KEY: std::ops::RangeInclusive<usize> = 16..=4096;

fn key(path: &Path) -> Result<Vec<u8>, Failure> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("--key-file {}: {error}", path.display()))
    };
    let file = File::open(path).map_err(|error| fail(&error))?;
    let found = file.metadata().map_err(|error| fail(&error))?;
    let own = rustix::process::geteuid().as_raw();
    if found.is_file() && ![0, own].contains(&found.uid()) {
        return Err(fail(&format!(
            "it belongs to user {}, who could change the key: `chown {own} {}`, and make a new key \
             if that user should not know it",
            found.uid(),
            path.display()
        )));
    }
    if found.is_file() && found.mode() & 0o077 != 0 {
        return Err(fail(&format!(
            "other users can read or change it (mode {:o}), and a key must be secret: \
             `chmod 600 {}`, and make a new key if somebody may have read it",
            found.mode() & 0o777,
            path.display()
        )));
    }
    // Blanks around the key do not count, and nobody writes as many as the key may have bytes.
    let wrong = || fail(&"a key must have 16 to 4096 bytes; `openssl rand -hex 32` makes one");
    let bytes = document::bytes_of(file, 2 * KEY.end()).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => wrong(),
        _ => fail(&error),
    })?;
    let key = bytes.trim_ascii();
    match KEY.contains(&key.len()) {
        true => Ok(key.to_vec()),
        false => Err(wrong()),
    }
}

fn link(text: &str) -> Result<LinkConfig, String> {
    let (name, rate) = match text.split_once('=') {
        None => (text, None),
        Some((name, rate)) => (name, Some(bit_rate(rate)?)),
    };
    Ok(LinkConfig {
        name: name.to_owned(),
        rate,
        faults: None,
    })
}

fn bit_rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.find(|letter: char| letter.is_ascii_alphabetic()) {
        None => (text, 1.0),
        Some(at) => match &text[at..] {
            "K" | "k" => (&text[..at], 1e3),
            "M" => (&text[..at], 1e6),
            "G" => (&text[..at], 1e9),
            _ => {
                return Err(format!(
                    "`{text}` is not a rate: write it as 100M or 2.5G (bits/s)"
                ));
            }
        },
    };
    match number.parse::<f64>().map(|number| number * unit) {
        Ok(rate) if (1e4..=1e13).contains(&rate) => Ok(rate),
        _ => Err(format!(
            "`{text}` is not a rate from 10K to 10000G (bits/s)"
        )),
    }
}

fn cidr(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("`{text}`: write ADDRESS/BITS, such as 10.7.0.1/24 or fd07::1/64");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse() {
        Ok(bits) if bits <= most => Ok((address, bits)),
        _ => Err(wrong()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let span = Duration::from_millis(10)..=Duration::from_secs(3600);
    match crate::seconds::seconds(text)? {
        time if span.contains(&time) => Ok(time),
        _ => Err(format!("`{text}`: write 0.01 to 3600 seconds")),
    }
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| format!("`{text}`: write ADDRESS:PORT, such as 127.0.0.1:9117");
    text.parse().map_err(wrong)
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn fault(text: &str) -> Result<(String, FaultPlan), String> {
    let wrong = || format!("`{text}`: write IF:loss=0.5%,delay=1ms");
    let (name, rest) = text.split_once(':').ok_or_else(wrong)?;
    let mut plan = FaultPlan::default();
    for part in rest.split(',') {
        let (what, value) = part.split_once('=').ok_or_else(wrong)?;
        let share = || {
            let percent = value.strip_suffix('%')?.parse::<f64>().ok()?;
            (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
        };
        match what {
            "loss" => plan.loss = share().ok_or_else(wrong)?,
            "duplicate" => plan.duplication = share().ok_or_else(wrong)?,
            "reorder" => plan.reordering = share().ok_or_else(wrong)?,
            "delay" => {
                let delay = farcall_quantity::duration(value).ok();
                let delay = delay.filter(|delay| *delay <= Duration::from_secs(1));
                plan.delay = delay.ok_or_else(wrong)?.as_nanos() as u64;
            }
            "seed" => plan.seed = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    Ok((name.to_owned(), plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_may_name_their_rate() {
        assert_eq!(link("eth1").map(|link| link.rate), Ok(None));
        assert_eq!(link("eth1=2.5G").map(|link| link.rate), Ok(Some(2.5e9)));
        assert!(link("eth1=fast").is_err() && link("eth1=-1M").is_err());
    }

    #[test]
    fn a_key_is_the_whole_file_but_for_blanks_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            allow(&path, 0o600);
            key(&path)
        };
        assert_eq!(read(b"\n 0123456789abcdef\n").unwrap(), b"0123456789abcdef");
        let mut long = vec![b'k'; *KEY.end()];
        assert!(read(&long).is_ok());
        // No part of a longer one is taken.
        long.extend([b' '; 5000]);
        long.push(b'k');
        for wrong in [&long[..], b"short", &[b'k'; 5000]] {
            assert!(read(wrong).is_err());
        }
    }

    fn allow(path: &Path, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        for mode in [0o604, 0o640, 0o620, 0o644] {
            allow(&path, mode);
            let told = format!("{:?}", key(&path).unwrap_err());
            let wanted = format!("(mode {mode:o})");
            assert!(
                told.contains(&wanted) && told.contains("chmod 600"),
                "{told}"
            );
        }
        for mode in [0o600, 0o400] {
            allow(&path, mode);
            assert_eq!(key(&path).unwrap(), b"0123456789abcdef");
        }
    }

    #[test]
    fn a_key_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        allow(&path, 0o600);
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
            println!("SKIPPED: only root can give a file away");
            return;
        }
        let told = format!("{:?}", key(&path).unwrap_err());
        assert!(
            told.contains("belongs to user 65534") && told.contains("chown 0"),
            "{told}"
        );
    }

    #[test]
    fn addresses_need_their_prefix() {
        assert!(cidr("10.7.0.1/24").is_ok() && cidr("fd07::1/64").is_ok());
        assert!(cidr("10.7.0.1").is_err() && cidr("10.7.0.1/33").is_err());
        let told = socket_address("9117").unwrap_err();
        assert!(told.contains("ADDRESS:PORT"), "{told}");
    }

    #[test]
    fn faults_are_read() {
        let (name, plan) = fault("eth1:loss=0.5%,delay=1.5ms,seed=7").unwrap();
        assert_eq!(
            (name.as_str(), plan.loss, plan.delay, plan.seed),
            ("eth1", 0.005, 1_500_000, 7)
        );
        assert!(fault("eth1:loss=2").is_err());
    }
}
