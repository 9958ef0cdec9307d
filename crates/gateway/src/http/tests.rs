//! A gateway whose server is not there, over real sockets. Tests with a server are in
//! `testing/e2e`.

use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn who_sends_all_before_it_reads_sees_why_it_was_refused() {
    let gateway = Gateway::bind(Config {
        listen: ([127, 0, 0, 1], 0).into(),
        server: "farcall://127.0.0.1:1".to_owned(),
        own_identity: false,
        origins: Vec::new(),
        tls: None,
        plain: false,
        limits: Limits::default(),
    });
    let gateway = gateway.unwrap();
    let address = gateway.address;
    std::thread::spawn(move || gateway.run());
    let mut stream = TcpStream::connect(address).unwrap();
    let body = vec![b' '; 32 << 20];
    let head = format!(
        "POST /v1/call/f HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(
        answer.contains("cannot connect to farcall://127.0.0.1:1"),
        "{answer}"
    );
}

#[test]
fn a_page_whose_name_points_to_this_host_reads_nothing() {
    let origins = [HeaderValue::from_static("https://lab.example.org")];
    let is_refused = |method: Method, path: &str, headers: &[(HeaderName, &str)]| {
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        may_be_renamed(&request.body(Body::empty()).unwrap(), &origins)
    };
    let host = |name: &'static str| (header::HOST, name);
    let list = "/v1/functions";
    let evil = "evil.example.org:3719";
    assert!(is_refused(Method::GET, list, &[host(evil)]));
    assert!(is_refused(Method::GET, list, &[]));
    for name in [
        "127.0.0.1:3719",
        "localhost:3719",
        "[::1]:3719",
        "lab.example.org",
    ] {
        assert!(!is_refused(Method::GET, list, &[host(name)]), "{name}");
    }
    let token = (header::AUTHORIZATION, "Bearer token");
    assert!(!is_refused(Method::GET, list, &[host(evil), token]));
    assert!(!is_refused(Method::GET, "/healthz", &[host(evil)]));
    // A browser says from which page a call comes, so that its origin is checked.
    assert!(!is_refused(Method::POST, "/v1/call/f", &[host(evil)]));
}
