//! How `farcall serve` joins metaservers: at which address clients find the server, and what to
//! tell the operator if they cannot. The reports and the lease are those of
//! `farcall_server::member`.

use super::Arguments;
use crate::failure::Failure;
use farcall_client::{Address, Credentials, Options};
use farcall_server::member::Member;
use farcall_server::{Config, Server};
use std::net::IpAddr;
use std::thread::JoinHandle;

/// The metaservers to join. They are checked before the server starts: it must not end a server
/// that it takes over from, and then fail itself.
pub(super) fn metaservers(arguments: &Arguments, config: &Config) -> Result<Vec<Address>, Failure> {
    let named = arguments.metaserver.iter().filter(|one| !one.is_empty());
    let metaservers = named.map(|one| metaserver_address(one));
    let metaservers: Vec<Address> = metaservers.collect::<Result<_, _>>()?;
    let is_reachable = arguments.advertise.is_some() || !config.listen.is_empty();
    if !metaservers.is_empty() && !is_reachable {
        let text = "--metaserver needs a TCP address at which clients reach the server: add \
                    --listen ADDRESS:PORT";
        return Err(Failure::usage(text));
    }
    Ok(metaservers)
}

/// Joins the metaservers.
pub(super) fn join(
    metaservers: Vec<Address>,
    advertised: Option<&Address>,
    server: &mut Server,
) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut listens = server.addresses().iter();
    let listens = listens.find(|one| !one.starts_with("unix:"));
    let address = advertised.map(Address::to_string).or(listens.cloned());
    let Some(address) = address.filter(|_| !metaservers.is_empty()) else {
        return Ok(Vec::new());
    };
    let number = server.number();
    let start = |metaserver| {
        if advertised.is_none() && is_hidden(&address, &metaserver) {
            tracing::warn!(
                "the metaserver tells clients the address {address}, at which they reach only \
                 their own host; listen at another one with --listen, or name one with --advertise"
            );
        }
        let member = Member {
            metaserver,
            server: number,
            address: address.clone(),
            options: Options {
                credentials: Credentials::from_environment(),
                ..Options::default()
            },
        };
        Ok(member.start(server.subscribe())?)
    };
    metaservers.into_iter().map(start).collect()
}

/// Whether the metaserver tells clients of other hosts an address at which each host has only
/// itself.
fn is_hidden(address: &str, metaserver: &Address) -> bool {
    let own = address.parse();
    own.is_ok_and(|own| is_of_this_host(&own) && !is_of_this_host(metaserver))
}

fn is_of_this_host(address: &Address) -> bool {
    match address {
        Address::Tcp { host, .. } | Address::Tls { host, .. } => {
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        Address::Unix(_) | Address::Ssh(_) => false,
    }
}

/// The address of a metaserver; its scheme may be left out.
fn metaserver_address(text: &str) -> Result<Address, Failure> {
    let full = match text.contains("://") {
        true => text.to_string(),
        false => format!("meta://{text}"),
    };
    full.parse().map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_at_the_loopback_is_hidden_from_the_clients_of_other_hosts() {
        for (own, metaserver, is_told) in [
            ("farcall://127.0.0.1:3717", "meta://host0", true),
            ("farcalls://127.0.0.1:3717", "metas://192.0.2.1", true),
            ("farcall://[::1]:3717", "192.0.2.1", true),
            ("farcall://127.0.0.1:3717", "meta://localhost", false),
            ("farcall://127.0.0.1:3717", "127.0.0.2:5", false),
            ("farcall://0.0.0.0:3717", "meta://host0", false),
            ("farcall://192.0.2.2:3717", "meta://host0", false),
        ] {
            let metaserver = metaserver_address(metaserver).unwrap();
            assert_eq!(is_hidden(own, &metaserver), is_told, "{own} {metaserver}");
        }
    }
}
