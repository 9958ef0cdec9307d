//! The host that a request names. A web page can have a name that was made to point to this host.

use std::net::IpAddr;

/// Whether a host is an address, and not a name that somebody else may have made.
pub(crate) fn is_plain(host: &str) -> bool {
    // An address of IPv6 is in brackets, and browsers leave out the usual port.
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    let bare = bare.unwrap_or_default();
    bare == "localhost" || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn addresses_are_plain_with_and_without_a_port() {
        for host in [
            "localhost",
            "127.0.0.1:8080",
            "192.0.2.7",
            "[::1]:80",
            "[2001:db8::7]",
        ] {
            assert!(is_plain(host), "{host}");
        }
        for host in [
            "",
            "[",
            "example.org",
            "example.org:80",
            "[example.org]",
            "127.0.0.1.x",
        ] {
            assert!(!is_plain(host), "{host}");
        }
    }
}
