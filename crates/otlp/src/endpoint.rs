//! Where spans go: the address of a collector, from a configuration or from OpenTelemetry's
//! variables of the environment. An address that `exporter` gets can be used.

use percent_encoding::percent_decode_str;
use std::str::FromStr;

/// The path at which a collector takes traces.
const PATH: &str = "/v1/traces";

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The whole address.
    pub(crate) url: String,
    /// The host, and the port if the address has one.
    pub(crate) authority: String,
    pub(crate) port: u16,
    /// What follows the authority.
    pub(crate) path: String,
    /// Headers of each request.
    pub(crate) headers: Vec<(String, String)>,
}

/// Why spans cannot go to an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot send spans to `{0}`: write the address of a collector as http://HOST:4318; for https, \
     let a collector on this host pass them on"
)]
pub struct EndpointError(String);

impl EndpointError {
    /// The error of an address. A user and a password in it do not get into logs.
    fn of(address: &str) -> EndpointError {
        let host = address.find("://").map_or(0, |at| at + 3);
        EndpointError(match address.rfind('@') {
            Some(at) if at >= host => format!("{}...{}", &address[..host], &address[at..]),
            _ => address.to_owned(),
        })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Reads `http://HOST:PORT`. The path of traces is appended.
    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::of(text.trim_end_matches('/').to_owned() + PATH)
            .ok_or_else(|| EndpointError::of(text))
    }
}

impl Endpoint {
    fn of(url: String) -> Option<Endpoint> {
        let rest = url.strip_prefix("http://")?;
        let (rest, _) = rest.split_once('#').unwrap_or((rest, ""));
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // An address of IPv6 has colons of its own, in brackets.
        let after_host = authority.rfind(']').map_or(0, |end| end + 1);
        let port = match authority[after_host..].rsplit_once(':') {
            Some((_, port)) => port.parse().ok()?,
            None => 80,
        };
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("/{path}"),
        };
        let endpoint = Endpoint {
            authority: authority.to_owned(),
            port,
            path,
            headers: Vec::new(),
            url: url.clone(),
        };
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
        let is_host = !endpoint.host().is_empty() && !authority.contains('@');
        (is_plain && is_host).then_some(endpoint)
    }

    /// The host as a resolver takes it: an address of IPv6 without brackets.
    pub(crate) fn host(&self) -> &str {
        match self.authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.authority.split(':').next().unwrap_or_default(),
        }
    }

    /// What the environment asks for, as OpenTelemetry defines its variables:
    /// `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`,
    /// `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_SDK_DISABLED`. `None` if there is no such address.
    ///
    /// # Errors
    /// Spans cannot go to the address.
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Endpoint>, EndpointError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let endpoint = match (
            variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
        ) {
            (Some(url), _) => {
                let endpoint = Endpoint::of(url.clone());
                endpoint.ok_or_else(|| EndpointError::of(&url))?
            }
            (None, Some(base)) => base.parse()?,
            (None, None) => return Ok(None),
        };
        let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        let headers = headers.split(',').filter_map(|header| {
            let (name, value) = header.split_once('=')?;
            Some((decoded(name.trim()), decoded(value.trim())))
        });
        Ok(Some(Endpoint {
            headers: headers.collect(),
            ..endpoint
        }))
    }
}

/// A text whose special characters are written as `%20`, as in W3C Baggage.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Endpoint>, EndpointError> {
        Endpoint::of_environment(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_names_the_collector() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");
        let found = of(&[base]).unwrap().unwrap();
        assert_eq!(found.url, "http://localhost:4318/v1/traces");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:1/x");
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c = d=e,nothing");
        let found = of(&[base, whole, headers]).unwrap().unwrap();
        assert_eq!(found.url, "http://a:1/x");
        let [one, two] = [("a", "b"), ("c", "d=e")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found.headers, [one, two]);
        assert_eq!(of(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
    }

    #[test]
    fn special_characters_of_headers_are_written_with_escapes() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1");
        for (written, value) in [
            ("Basic%20dXNlcjpz%3D%3d", "Basic dXNlcjpz=="),
            ("a%2Cb", "a,b"),
            ("%C3%A4", "\u{e4}"),
            ("100%", "100%"),
            ("%2", "%2"),
            ("%+f%zz%\u{e4}", "%+f%zz%\u{e4}"),
        ] {
            let header = format!("Authorization={written}");
            let found = of(&[base, ("OTEL_EXPORTER_OTLP_HEADERS", &header)]);
            let headers = found.unwrap().unwrap().headers;
            assert_eq!(headers, [("Authorization".to_owned(), value.to_owned())]);
        }
    }

    #[test]
    fn an_address_has_a_host_a_port_and_a_path() {
        for (text, host, port, path) in [
            ("http://a", "a", 80, "/v1/traces"),
            ("http://a:4318/x", "a", 4318, "/x/v1/traces"),
            ("http://[::1]:4318", "::1", 4318, "/v1/traces"),
            ("http://[::1]/", "::1", 80, "/v1/traces"),
            ("http://a:1?key=b", "a", 1, "/?key=b/v1/traces"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            let found = (endpoint.host(), endpoint.port, endpoint.path.as_str());
            assert_eq!(found, (host, port, path), "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for text in [
            "",
            "localhost:4318",
            "https://a",
            "http://",
            "http:///x",
            "http://a b",
            "http://:4318",
            "http://a:b",
            "http://a:70000",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
        for text in ["http://user:secret@a", "user:secret@a"] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("...@a`") && !error.contains("secret"));
        }
    }
}
