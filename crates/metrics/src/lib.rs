//! What Prometheus reads: metrics as text, by HTTP, from a thread of their own.

use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a reader may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request that are read.
const REQUEST: usize = 4 << 10;

/// Listens, and answers each reader with the text that `page` then gives; none tells the reader to
/// come back. Returns the address, whose port may have been left open.
pub fn serve(
    address: SocketAddr,
    page: impl Fn() -> Option<String> + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    std::thread::Builder::new()
        .name("farcall-metrics".to_string())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // A reader that goes away is no concern of the daemon.
                let _ = answer(stream, &page);
            }
        })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, page: &impl Fn() -> Option<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 512];
    while request.len() < REQUEST && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => break,
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let (status, body) = match request.starts_with(b"GET /metrics ") {
        true => match page() {
            Some(text) => ("200 OK", text),
            None => ("503 Service Unavailable", "try again\n".to_string()),
        },
        false => ("404 Not Found", "see /metrics\n".to_string()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// A text in the exposition format of Prometheus, one metric after the other.
#[derive(Debug)]
pub struct Text {
    prefix: &'static str,
    text: String,
}

impl Text {
    /// A text of metrics whose names all begin so.
    pub fn new(prefix: &'static str) -> Text {
        Text {
            prefix,
            text: String::new(),
        }
    }

    /// A metric with its name, kind and help, and one value for each set of labels, written as in
    /// `state="running"`.
    pub fn metric<L: AsRef<str>, V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        values: &[(L, V)],
    ) {
        let prefix = self.prefix;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {prefix}_{name} {help}");
        let _ = writeln!(self.text, "# TYPE {prefix}_{name} {kind}");
        for (labels, value) in values {
            self.value(name, labels.as_ref(), value);
        }
    }

    /// A histogram of seconds: how many were at most as long as each bound, and their sum.
    pub fn histogram(&mut self, name: &str, help: &str, buckets: &[(f64, u64)], sum: f64) {
        let none: [(&str, u64); 0] = [];
        self.metric((name, "histogram", help), &none);
        let mut count = 0;
        for (bound, within) in buckets {
            count += within;
            let bound = match bound.is_finite() {
                true => bound.to_string(),
                false => "+Inf".to_string(),
            };
            self.value(
                &format!("{name}_bucket"),
                &format!("le=\"{bound}\""),
                &count,
            );
        }
        self.value(&format!("{name}_sum"), "", &sum);
        self.value(&format!("{name}_count"), "", &count);
    }

    fn value(&mut self, name: &str, labels: &str, value: &impl Display) {
        let prefix = self.prefix;
        let _ = match labels.is_empty() {
            true => writeln!(self.text, "{prefix}_{name} {value}"),
            false => writeln!(self.text, "{prefix}_{name}{{{labels}}} {value}"),
        };
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A label with its value, for [`Text::metric`].
pub fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_in_the_form_that_prometheus_reads() {
        let mut text = Text::new("farcall_gang");
        text.metric(("jobs", "gauge", "Jobs."), &[("state=\"waiting\"", 2)]);
        text.metric(("switches_total", "counter", "Switches."), &[("", 7)]);
        text.histogram(
            "wait_seconds",
            "Waits.",
            &[(0.1, 2), (f64::INFINITY, 1)],
            1.5,
        );
        assert_eq!(
            text.finish(),
            "# HELP farcall_gang_jobs Jobs.\n# TYPE farcall_gang_jobs gauge\n\
             farcall_gang_jobs{state=\"waiting\"} 2\n\
             # HELP farcall_gang_switches_total Switches.\n\
             # TYPE farcall_gang_switches_total counter\nfarcall_gang_switches_total 7\n\
             # HELP farcall_gang_wait_seconds Waits.\n\
             # TYPE farcall_gang_wait_seconds histogram\n\
             farcall_gang_wait_seconds_bucket{le=\"0.1\"} 2\n\
             farcall_gang_wait_seconds_bucket{le=\"+Inf\"} 3\n\
             farcall_gang_wait_seconds_sum 1.5\nfarcall_gang_wait_seconds_count 3\n"
        );
        assert_eq!(label("user", "a\"b\\c\n"), r#"user="a\"b\\c\n""#);
    }

    #[test]
    fn a_reader_gets_the_page_or_is_told() {
        let address = serve("127.0.0.1:0".parse().unwrap(), || {
            Some("up 1\n".to_string())
        })
        .unwrap();
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nup 1\n"));
        assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        // A flood of bytes without an end is cut off.
        assert!(ask(&"x".repeat(REQUEST)).starts_with("HTTP/1.1 404"));
    }
}
