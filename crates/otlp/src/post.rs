//! One HTTP request with spans, over a connection of its own. All of it has one deadline.

use crate::endpoint::Endpoint;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Bytes of an answer that are read at most.
const MOST_ANSWER: u64 = 64 << 10;

/// Sends a body to a collector. It is an error if the collector has not taken it after this time.
pub(crate) fn post(endpoint: &Endpoint, body: &[u8], patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let mut stream = connect(endpoint, deadline)?;
    stream.write_all(head(endpoint, body.len())?.as_bytes())?;
    stream.write_all(body)?;

    let mut answer = BufReader::new(stream.take(MOST_ANSWER));
    let mut line = Vec::new();
    answer.read_until(b'\n', &mut line)?;
    let status = status(&line).ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    // A connection that is closed before its end would be an error to the collector.
    let _ = io::copy(&mut answer, &mut io::sink());
    match status {
        200..300 => Ok(()),
        _ => Err(io::Error::other(format!("it answers with status {status}"))),
    }
}

/// A connection to the first address that answers.
fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Timed> {
    let addresses = (endpoint.host(), endpoint.port).to_socket_addrs()?;
    let stream = first(addresses.collect(), deadline, TcpStream::connect_timeout)?;
    Ok(Timed { stream, deadline })
}

/// The first connection that succeeds. An address that does not answer leaves the others a share of
/// the time.
fn first<T>(
    addresses: Vec<SocketAddr>,
    deadline: Instant,
    connect: impl Fn(&SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let shares = (1..=addresses.len() as u32).rev();
    for (address, share) in addresses.iter().zip(shares) {
        match connect(address, left(deadline)? / share) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The lines before the body.
fn head(endpoint: &Endpoint, length: usize) -> io::Result<String> {
    let Endpoint {
        authority, path, ..
    } = endpoint;
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/x-protobuf\r\n\
         Content-Length: {length}\r\nConnection: close\r\n"
    );
    for (name, value) in &endpoint.headers {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_name) || value.contains(char::is_control) {
            let text = format!("`{name}` in OTEL_EXPORTER_OTLP_HEADERS is not an HTTP header");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        head += &format!("{name}: {value}\r\n");
    }
    Ok(head + "\r\n")
}

/// The status of `HTTP/1.1 200 OK`.
fn status(line: &[u8]) -> Option<u16> {
    let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
    words.next().filter(|word| word.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

/// The time until a deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

/// A connection of which every part is bounded by one deadline.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.deadline)?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.deadline)?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Unix says "would block" of a socket whose time is over.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
