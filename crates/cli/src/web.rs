//! The option `--web`: a server or metaserver shows itself on a page. `farcall_gateway` has the
//! page. This module binds it before the daemon starts, so that a wrong address is an early error.

use crate::failure::Failure;
use crate::gang;
use farcall_access::Tls;
use farcall_gateway::{Page, PageConfig};
use serde_json::{Value, json};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most trunks on a page.
const MOST_TRUNKS: usize = 16;

/// The variable with the word that opens the page without a token. `farcall up` sets it.
pub(crate) const KEY: &str = "FARCALL_PAGE_KEY";

/// Listens for browsers, if this is wanted.
pub(crate) fn bind(
    address: Option<SocketAddr>,
    tls: Option<&Tls>,
) -> Result<Option<Page>, Failure> {
    let Some(listen) = address else {
        return Ok(None);
    };
    let key = std::env::var(KEY).ok().filter(|key| !key.is_empty());
    let config = PageConfig {
        listen,
        tls: tls.cloned(),
        key,
        machine,
    };
    Page::bind(config).map(Some).map_err(Failure::failed)
}

/// What runs on this machine beside the daemon: its trunks and gang jobs.
fn machine() -> Value {
    let status = |name: String| {
        let text = farcall_trunk::ask(&name, "status").ok()?;
        serde_json::from_str(&text).ok()
    };
    let trunks = farcall_trunk::running().unwrap_or_default();
    let trunks: Vec<Value> = trunks
        .into_iter()
        .take(MOST_TRUNKS)
        .filter_map(status)
        .collect();
    json!({ "trunks": trunks, "gang": gang::jobs_here() })
}

/// Shows the daemon that listens on these addresses, and prints the address of the page.
pub(crate) fn show(
    page: Option<Page>,
    addresses: &[String],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Some(page) = page else { return Ok(()) };
    let network = addresses.iter().find(|one| !one.starts_with("unix:"));
    let address = network.ok_or_else(|| {
        Failure::usage("--web needs a TCP address of the daemon: add --listen 127.0.0.1:0")
    })?;
    writeln!(out, "page at {}", page.url()?)?;
    page.show(&own(address)).map_err(Failure::failed)
}

/// The address at which this host reaches a daemon that listens on an address. Certificates name
/// this host `localhost`.
fn own(address: &str) -> String {
    let Some((scheme, socket)) = address.split_once("://") else {
        return address.to_owned();
    };
    let Ok(listens) = socket.parse::<SocketAddr>() else {
        return address.to_owned();
    };
    let is_usual = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ]
    .contains(&listens.ip());
    if !is_usual && !listens.ip().is_unspecified() {
        return address.to_owned();
    }
    let host = match (scheme == "farcalls", listens.is_ipv6()) {
        (true, _) => "localhost",
        (false, true) => "[::1]",
        (false, false) => "127.0.0.1",
    };
    format!("{scheme}://{host}:{}", listens.port())
}

#[cfg(test)]
mod tests {
    use super::own;

    #[test]
    fn a_page_reaches_its_daemon_on_this_host() {
        for (listens, reached) in [
            ("farcall://0.0.0.0:5", "farcall://127.0.0.1:5"),
            ("farcall://[::]:5", "farcall://[::1]:5"),
            ("farcalls://127.0.0.1:5", "farcalls://localhost:5"),
            ("farcalls://10.0.0.7:5", "farcalls://10.0.0.7:5"),
            ("farcalls://127.0.0.10:5", "farcalls://127.0.0.10:5"),
            ("farcalls://[::1]:5", "farcalls://localhost:5"),
        ] {
            assert_eq!(own(listens), reached);
        }
    }
}
