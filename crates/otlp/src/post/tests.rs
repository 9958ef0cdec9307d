//! Requests to a listener that answers wrongly, slowly or not at all. Each of them ends in time,
//! with a reason.

use super::*;
use std::cell::RefCell;
use std::net::TcpListener;
use std::thread;

const LIMIT: Duration = Duration::from_secs(20);

fn endpoint(listener: &TcpListener) -> Endpoint {
    let address = listener.local_addr().unwrap();
    format!("http://{address}").parse().unwrap()
}

/// What `post` returns if the collector answers with these bytes and closes the connection.
fn answered(answer: &'static str) -> Result<(), String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint(&listener);
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let mut length = 0;
        while !request[..length].ends_with(b"body") {
            length += stream.read(&mut request[length..]).unwrap();
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let result = post(&endpoint, b"body", LIMIT);
    let request = collector.join().unwrap();
    assert!(request.contains("\r\nContent-Length: 4\r\n"), "{request}");
    result.map_err(|error| error.to_string())
}

#[test]
fn the_status_decides() {
    for taken in ["HTTP/1.1 200 OK\r\n\r\nmore", "HTTP/1.0 202\n"] {
        assert_eq!(answered(taken), Ok(()), "{taken}");
    }
    let refused = answered("HTTP/1.1 503 \x1b[31m\r\n\r\n");
    assert_eq!(refused, Err("it answers with status 503".to_owned()));
    for other in ["", "\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 many\r\n"] {
        let error = answered(other).unwrap_err();
        assert_eq!(error, "the answer is not HTTP", "{other}");
    }
}

#[test]
fn an_answer_without_end_is_read_in_part() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint(&listener);
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Ends when the other side has closed the connection.
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let error = post(&endpoint, b"body", LIMIT).unwrap_err();
    assert_eq!(error.to_string(), "the answer is not HTTP");
    collector.join().unwrap();
}

#[test]
fn bytes_that_trickle_do_not_extend_the_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint(&listener);
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b"H").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let start = Instant::now();
    let error = post(&endpoint, b"body", Duration::from_millis(300)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() < LIMIT / 2, "{:?}", start.elapsed());
    collector.join().unwrap();
}

#[test]
fn headers_cannot_make_lines_of_their_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bad = [("a", "b\r\nc: d"), ("a b", "c"), ("", "c"), ("a:", "c")];
    for (name, value) in bad {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let bad = Endpoint {
            headers,
            ..endpoint(&listener)
        };
        let error = head(&bad, 1).unwrap_err().to_string();
        assert!(error.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{error}");
    }
    let good = Endpoint {
        headers: vec![("api-key".to_owned(), "a b=c".to_owned())],
        ..endpoint(&listener)
    };
    assert!(head(&good, 1).unwrap().contains("\r\napi-key: a b=c\r\n"));
}

#[test]
fn an_address_that_does_not_answer_leaves_time_for_the_others() {
    let addresses = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"];
    let addresses: Vec<SocketAddr> = addresses.map(|one| one.parse().unwrap()).into();
    let times = RefCell::new(Vec::new());
    let connect = |address: &SocketAddr, time: Duration| {
        times.borrow_mut().push(time);
        match address.ip().to_string().as_str() {
            "192.0.2.3" => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::TimedOut)),
        }
    };
    let deadline = Instant::now() + LIMIT;
    first(addresses.clone(), deadline, connect).unwrap();
    // Nothing has waited, so each address gets its share of the whole time.
    for (time, share) in times.take().iter().zip([3, 2, 1]) {
        assert!(
            *time <= LIMIT / share && !time.is_zero(),
            "{time:?} {share}"
        );
    }
    let error = first(addresses[..2].to_vec(), deadline, connect);
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let none = first(Vec::new(), deadline, connect);
    assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
}
