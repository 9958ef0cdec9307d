//! The one HTTP server of the product, on a thread of its own: no reader can hold up a daemon, nor
//! another reader.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use farcall_metrics::{Answer, CONTENT_TYPE, Text};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// How long a daemon may take to tell how it stands.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a reader may take to ask.
const ASKING: Duration = Duration::from_secs(5);
/// How long a reader may stay.
const STAY: Duration = Duration::from_secs(60);
/// Readers at a time; more wait to be let in.
const MOST_READERS: usize = 64;
/// Time after which it is tried again to let one in, where the system refused.
const RETRY: Duration = Duration::from_millis(100);

/// Serves `/metrics` from a thread of its own. For each reader `ask` is called, which passes the
/// numbers to the [`Answer`], at once or by the daemon's own thread; a reader whose answer is
/// dropped is told to come again.
///
/// # Errors
/// The system refuses a thread, or what the thread needs.
pub fn serve(
    listener: TcpListener,
    ask: impl Fn(Answer) + Send + Sync + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ask = Arc::new(ask);
    let metrics = move || {
        let ask = Arc::clone(&ask);
        async move { metrics(&*ask).await }
    };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "see /metrics\n"));
    let run = move || runtime.block_on(accept(listener, router));
    let thread = std::thread::Builder::new().name("farcall-web".to_string());
    thread.spawn(run).map(drop)
}

async fn metrics(ask: &impl Fn(Answer)) -> Response {
    let (sender, answer) = oneshot::channel::<Text>();
    ask(Box::new(|text| drop(sender.send(text))));
    match timeout(PATIENCE, answer).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.encode()).into_response(),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "try again\n").into_response(),
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let places = Arc::new(Semaphore::new(MOST_READERS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(ASKING)
            .keep_alive(false)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(router.clone()),
            );
        tokio::spawn(async move {
            // A reader that goes away is no concern of the daemon.
            let _ = timeout(STAY, connection).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    fn start(ask: impl Fn(Answer) + Send + Sync + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, ask).unwrap();
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // What is left unread of a flood is answered by a reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn up(answer: Answer) {
        let mut text = Text::new("farcall");
        text.gauge("up", "Up.", 1u64);
        answer(text);
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn a_reader_gets_the_page_or_is_told() {
        let address = start(up);
        let answer = ask(address, GET);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with("farcall_up 1\n# EOF\n"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
        // A flood of bytes without an end is cut off.
        assert!(!ask(address, &"x".repeat(1 << 20)).starts_with("HTTP/1.1 200"));
        assert!(ask(start(drop), GET).starts_with("HTTP/1.1 503"));
    }

    #[test]
    fn a_reader_that_sends_a_byte_now_and_then_holds_up_nobody() {
        let address = start(up);
        let mut slow = TcpStream::connect(address).unwrap();
        let drips = std::thread::spawn(move || {
            for _ in 0..60 {
                if slow.write_all(b"x").is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        assert!(ask(address, GET).ends_with("farcall_up 1\n# EOF\n"));
        assert!(!drips.is_finished());
    }
}
