//! The HTTP server for metrics and for the health of a daemon. It runs on a separate thread, so
//! that a slow reader delays neither the daemon nor other readers. [`accept`] is its loop, which
//! the gateway uses too: it bounds connections, headers and times.
//!
//! `/healthz` and `/readyz` ask the daemon as `/metrics` does, so that a daemon that hangs is not
//! healthy.

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
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

/// Time within which the daemon must provide its metrics.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time within which a reader must send its request.
const ASKING: Duration = Duration::from_secs(5);
/// Longest time of a connection.
const STAY: Duration = Duration::from_secs(60);
/// Largest number of connections at a time. Further readers wait.
const MOST_READERS: usize = 64;
/// Most bytes of the headers of a request.
const MOST_HEADERS: usize = 64 << 10;
/// Time between attempts to accept a connection after the system failed to.
const RETRY: Duration = Duration::from_millis(100);

/// Serves `/metrics`, `/healthz` and `/readyz` from a separate thread. It calls `ask` for each
/// request; `ask` passes the numbers to the [`Answer`], either at once or from the daemon's own
/// thread. If the [`Answer`] is dropped, the reader is asked to try again later.
///
/// # Errors
/// The system cannot create the thread or its resources.
pub fn serve(
    listener: TcpListener,
    ask: impl Fn(Answer) + Send + Sync + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ask = Arc::new(ask);
    let page = |show: fn(Text) -> Response| {
        let ask = Arc::clone(&ask);
        get(move || async move { answer(&*ask, show).await })
    };
    let router = Router::new()
        .route("/metrics", page(metrics))
        .route("/healthz", page(health))
        .route("/readyz", page(readiness))
        .fallback(async || {
            (
                StatusCode::NOT_FOUND,
                "see /metrics, /healthz and /readyz\n",
            )
        });
    let bounds = Bounds {
        connections: MOST_READERS,
        asking: ASKING,
        keeping: Duration::ZERO,
        answering: STAY,
    };
    let run = move || {
        runtime.block_on(async {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                accept(listener, router, bounds, async |stream| Ok(stream)).await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("farcall-web".to_string());
    thread.spawn(run).map(drop)
}

/// Asks the daemon, and shows what it says.
async fn answer(ask: &impl Fn(Answer), show: fn(Text) -> Response) -> Response {
    let (sender, answer) = oneshot::channel::<Text>();
    ask(Box::new(|text| drop(sender.send(text))));
    match timeout(PATIENCE, answer).await {
        Ok(Ok(text)) => show(text),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the daemon does not answer; try again\n",
        )
            .into_response(),
    }
}

fn metrics(text: Text) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text.encode()).into_response()
}

fn health(_: Text) -> Response {
    "alive\n".into_response()
}

fn readiness(text: Text) -> Response {
    match text.unready() {
        None => "ready\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// The bounds of an HTTP server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections at a time. Others wait.
    pub connections: usize,
    /// Longest time until a connection is secured, and then until a request has its headers. These
    /// have at most 64 KiB.
    pub asking: Duration,
    /// Time for which a connection takes further requests; zero for one request.
    pub keeping: Duration,
    /// Longest time of a connection after that.
    pub answering: Duration,
}

/// Answers requests until the future is dropped. `secure` makes the stream of a connection, for
/// example by TLS. Connections that are open then end with the runtime.
pub async fn accept<S, F>(
    listener: tokio::net::TcpListener,
    router: Router,
    bounds: Bounds,
    secure: impl Fn(TcpStream) -> F,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(bounds.connections));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let (stream, router) = (secure(stream), router.clone());
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = timeout(bounds.asking, stream).await {
                answer_all(stream, router, bounds).await;
            }
            drop(place);
        });
    }
}

/// Answers the requests of one connection.
async fn answer_all<S>(stream: S, router: Router, bounds: Bounds)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.asking)
        .max_buf_size(MOST_HEADERS)
        .keep_alive(!bounds.keeping.is_zero())
        // A reader that has sent its only request may say so, as `nc -N` does, and still reads. Of
        // one that can ask again, the end means that it has gone, and its calls end.
        .half_close(bounds.keeping.is_zero())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // The daemon ignores a reader that disconnects.
    if !bounds.keeping.is_zero() {
        if timeout(bounds.keeping, connection.as_mut()).await.is_ok() {
            return;
        }
        connection.as_mut().graceful_shutdown();
    }
    let _ = timeout(bounds.answering, connection).await;
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
        // The server resets the connection if it has not read all of the request.
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
    fn a_reader_gets_the_page_or_an_error() {
        let address = start(up);
        let answer = ask(address, GET);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\nfarcall_up 1\n"), "{answer}");
        assert!(answer.ends_with("farcall_ready 1\n# EOF\n"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
        // The server cuts off a request that does not end.
        assert!(!ask(address, &"x".repeat(1 << 20)).starts_with("HTTP/1.1 200"));
        assert!(ask(start(drop), GET).starts_with("HTTP/1.1 503"));
    }

    #[test]
    fn a_reader_that_says_no_more_gets_the_page() {
        let mut stream = TcpStream::connect(start(up)).unwrap();
        stream.write_all(GET.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }

    #[test]
    fn health_and_readiness_differ() {
        let get = |address, path: &str| {
            let answer = ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head[9..12].to_owned(), body.to_owned())
        };
        let answer = |status: &str, body: &str| (status.to_owned(), body.to_owned());
        let ready = start(up);
        assert_eq!(get(ready, "/healthz"), answer("200", "alive\n"));
        assert_eq!(get(ready, "/readyz"), answer("200", "ready\n"));
        let draining = start(|answer| {
            let mut text = Text::new("farcall");
            text.not_ready("it drains");
            answer(text);
        });
        assert_eq!(get(draining, "/healthz"), answer("200", "alive\n"));
        assert_eq!(get(draining, "/readyz"), answer("503", "it drains\n"));
        assert!(get(draining, "/metrics").1.contains("\nfarcall_ready 0\n"));
        // A daemon that hangs.
        assert_eq!(get(start(drop), "/healthz").0, "503");
    }

    #[test]
    fn a_slow_reader_does_not_delay_others() {
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
        assert!(ask(address, GET).ends_with("farcall_ready 1\n# EOF\n"));
        assert!(!drips.is_finished());
    }
}
