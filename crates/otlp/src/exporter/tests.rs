//! An exporter, and a collector that decodes what arrives. The collector is away or refuses, too.

use super::*;
use crate::{Role, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(20);

/// Takes one request, and answers with this status.
fn take(listener: &TcpListener, status: &str) -> (String, ExportTraceServiceRequest) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    (head, ExportTraceServiceRequest::decode(&body[..]).unwrap())
}

fn span(number: u8) -> Span {
    Span {
        trace: [1; 16],
        id: [number; 8],
        parent: (number > 1).then_some([1; 8]),
        name: format!("span {number}"),
        role: Role::Part,
        from_to: [10, 20],
        attributes: vec![("bytes", Value::Int(7)), ("time", Value::Float(0.5))],
        failure: (number == 2).then(|| "it failed".to_owned()),
    }
}

fn exporter(listener: &TcpListener) -> Exporter<u8> {
    let address = listener.local_addr().unwrap();
    let settings = Settings {
        endpoint: format!("http://{address}").parse().unwrap(),
        resource: vec![("service.name", "test".to_owned())],
    };
    Exporter::start(settings, 1, |number, spans| spans.push(span(number))).unwrap()
}

#[test]
fn a_collector_gets_every_span() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(&listener);
    exporter.send(1);
    exporter.send(2);
    let collector = thread::spawn(move || take(&listener, "200 OK"));
    exporter.flush(LIMIT);
    let (head, request) = collector.join().unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("application/x-protobuf"), "{head}");
    let [of_resource] = &request.resource_spans[..] else {
        panic!("{request:?}")
    };
    let name = &of_resource.resource.as_ref().unwrap().attributes[0];
    assert_eq!(name.key, "service.name");
    let spans = &of_resource.scope_spans[0].spans;
    assert_eq!(spans.len(), 2);
    assert_eq!(
        (spans[0].name.as_str(), spans[0].parent_span_id.len()),
        ("span 1", 0)
    );
    assert_eq!(spans[1].parent_span_id, spans[0].span_id);
    assert_eq!(spans[1].status.as_ref().unwrap().message, "it failed");
    assert_eq!(
        spans[1].end_time_unix_nano - spans[1].start_time_unix_nano,
        10
    );
    assert_eq!(exporter.counts(), Counts { sent: 2, lost: 0 });
}

#[test]
fn a_collector_that_refuses_or_is_away_delays_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(&listener);
    exporter.send(1);
    let collector = thread::spawn(move || {
        take(&listener, "503 Service Unavailable");
        listener
    });
    exporter.flush(LIMIT);
    assert_eq!(exporter.counts(), Counts { sent: 0, lost: 1 });
    // It takes no requests any more, but the queue is bounded: what does not fit is lost at once.
    let listener = collector.join().unwrap();
    let many = 3 * WAITING as u64;
    let start = Instant::now();
    for _ in 0..many {
        exporter.send(3);
    }
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    assert!(exporter.counts().lost > WAITING as u64 / 2);
    drop(listener);
}
