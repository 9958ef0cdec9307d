//! The option `--web`: a server or metaserver shows itself on a page. `farcall_gateway` has the
//! page. This module binds it before the daemon starts, so that a wrong address is an early error.

use crate::failure::Failure;
use crate::gang;
use farcall_access::Tls;
use farcall_gateway::{GatewayError, Page, PageConfig};
use serde_json::{Value, json};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// Most trunks on a page.
const MOST_TRUNKS: usize = 16;

/// Time between two looks whether an address is free.
const PAUSE: Duration = Duration::from_millis(200);

/// The variable with the word that opens the page without a token. `farcall up` sets it.
pub(crate) const KEY: &str = "FARCALL_PAGE_KEY";

/// A page.
pub(crate) enum Bound {
    /// It listens.
    Listens(Page),
    /// The previous server still has its address.
    Waits(PageConfig),
}

/// Listens for browsers, if this is wanted. A server that takes over waits for the address of the
/// previous one.
pub(crate) fn bind(
    address: Option<SocketAddr>,
    tls: Option<&Tls>,
    takeover: bool,
) -> Result<Option<Bound>, Failure> {
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
    match Page::bind(config.clone()) {
        Ok(page) => Ok(Some(Bound::Listens(page))),
        Err(GatewayError::Listen { source, .. })
            if takeover && source.kind() == ErrorKind::AddrInUse =>
        {
            Ok(Some(Bound::Waits(config)))
        }
        Err(error @ GatewayError::Listen { .. }) => Err(Failure::failed(format!("--web: {error}"))),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// The daemon listens on a Unix socket alone, which its page cannot use.
pub(crate) fn needs_tcp() -> Failure {
    Failure::usage("--web needs a TCP address of the daemon: add --listen 127.0.0.1:0")
}

/// Whether somebody listens at an address of this host.
pub(crate) fn is_used(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// Begins something on a thread of its own when the previous server has left an address.
pub(crate) fn when_free(
    address: SocketAddr,
    what: &'static str,
    begin: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    tracing::info!("{what} at {address}: when the previous server has left this address");
    let wait = move || {
        while is_used(address) {
            std::thread::sleep(PAUSE);
        }
        if let Err(failure) = begin() {
            tracing::error!("{failure}");
        }
    };
    std::thread::Builder::new().spawn(wait)?;
    Ok(())
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
    page: Option<Bound>,
    addresses: &[String],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let Some(page) = page else { return Ok(()) };
    let network = addresses.iter().find(|one| !one.starts_with("unix:"));
    let address = own(network.ok_or_else(needs_tcp)?);
    match page {
        Bound::Listens(page) => {
            writeln!(out, "page at {}", page.url()?).map_err(Failure::unsaid)?;
            page.show(&address).map_err(Failure::failed)
        }
        Bound::Waits(config) => {
            let listen = config.listen;
            writeln!(out, "page at {}", config.url(listen)).map_err(Failure::unsaid)?;
            when_free(listen, "the page", move || {
                let page = Page::bind(config).map_err(Failure::failed)?;
                page.show(&address).map_err(Failure::failed)
            })
        }
    }
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
