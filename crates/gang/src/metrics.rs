//! What Prometheus reads: a text that the daemon renews, served by a thread of its own.

use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a reader may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of a request that are read.
const REQUEST: usize = 4 << 10;

/// The text as it was last made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page(Arc<Mutex<String>>);

impl Page {
    /// Listens, and serves the page from now on.
    pub(crate) fn serve(address: SocketAddr) -> io::Result<Page> {
        let listener = TcpListener::bind(address)?;
        let page = Page::default();
        let served = page.clone();
        std::thread::Builder::new()
            .name("farcall-metrics".to_string())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    // A reader that goes away is no concern of the daemon.
                    let _ = served.answer(stream);
                }
            })?;
        Ok(page)
    }

    /// Shows another text from now on.
    pub(crate) fn show(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
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
            true => {
                let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                ("200 OK", text.clone())
            }
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
}

/// A text in the exposition format of Prometheus, one metric after the other.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// A metric with one value for each set of labels, written as in `state="running"`.
    pub(crate) fn metric<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        values: &[(&str, V)],
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP farcall_gang_{name} {help}");
        let _ = writeln!(self.0, "# TYPE farcall_gang_{name} {kind}");
        for (labels, value) in values {
            let _ = match labels.is_empty() {
                true => writeln!(self.0, "farcall_gang_{name} {value}"),
                false => writeln!(self.0, "farcall_gang_{name}{{{labels}}} {value}"),
            };
        }
    }

    pub(crate) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_in_the_form_that_prometheus_reads() {
        let mut text = Text::default();
        text.metric(("jobs", "gauge", "Jobs."), &[("state=\"waiting\"", 2)]);
        text.metric(("switches_total", "counter", "Switches."), &[("", 7)]);
        assert_eq!(
            text.finish(),
            "# HELP farcall_gang_jobs Jobs.\n# TYPE farcall_gang_jobs gauge\n\
             farcall_gang_jobs{state=\"waiting\"} 2\n\
             # HELP farcall_gang_switches_total Switches.\n\
             # TYPE farcall_gang_switches_total counter\nfarcall_gang_switches_total 7\n"
        );
    }
}
