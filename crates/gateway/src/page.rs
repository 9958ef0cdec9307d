//! The page: people watch a server or a metaserver in a browser, and cancel calls or drain servers.
//! The page is a client of its own server. It connects as the user whose token the browser has, so
//! that users see and do there what they may see and do anyhow.
//!
//! A token travels in a header alone, never in an address or a cookie. So no other web page can use
//! it, and requests of other origins are refused.

use crate::failure::Failure;
use crate::host::is_plain;
use crate::http::{
    ASKING, GatewayError, KEEPING, TIDYING, answer_json, blocking, caller, check_type, reload,
    serve_on,
};
use crate::users::{Door, Guest, Users};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use farcall_access::Tls;
use farcall_client::{Address, AskSnapshot, JobId, Server};
use farcall_web::Bounds;
use futures_util::stream::unfold;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep_until;

/// Time between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest time of one stream of snapshots. The browser then asks anew, so that a withdrawn token
/// ends soon.
const STREAM: Duration = Duration::from_secs(300);
/// Most connections of browsers.
const MOST_CONNECTIONS: usize = 256;
/// Most users who watch.
const MOST_USERS: usize = 64;
/// Most streams and requests of one user at a time.
const MOST_STREAMS: usize = 16;

/// What browsers load, and its type.
const FILES: [(&str, &str, &str); 3] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("page/page.html"),
    ),
    (
        "/page.js",
        "text/javascript; charset=utf-8",
        include_str!("page/page.js"),
    ),
    (
        "/page.css",
        "text/css; charset=utf-8",
        include_str!("page/page.css"),
    ),
];

/// Nothing but the files of this server runs in the page, and nothing may embed it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The settings of a page.
#[derive(Clone, Debug)]
pub struct PageConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Files for TLS.
    pub tls: Option<Tls>,
    /// A word with which the browser acts as the user of this process.
    pub key: Option<String>,
    /// Tells operators what runs on this machine beside the server.
    pub machine: fn() -> Value,
}

impl PageConfig {
    /// The URL of the page at an address.
    pub fn url(&self, address: SocketAddr) -> String {
        let scheme = match self.tls {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{address}/")
    }
}

/// A page that listens.
#[derive(Debug)]
pub struct Page {
    listener: TcpListener,
    config: PageConfig,
}

impl Page {
    /// Listens.
    ///
    /// # Errors
    /// Tokens would travel without TLS, or the address is not free.
    pub fn bind(config: PageConfig) -> Result<Page, GatewayError> {
        let address = config.listen;
        if config.tls.is_none() && !address.ip().is_loopback() {
            return Err(GatewayError::PagePlain(address));
        }
        let failed = |source| GatewayError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true)?;
        Ok(Page { listener, config })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say it.
    pub fn url(&self) -> io::Result<String> {
        Ok(self.config.url(self.listener.local_addr()?))
    }

    /// Shows the server or metaserver at an address, from a thread of its own, until the process
    /// ends. Over TLS, it trusts the authority whose certificate is beside that of the server.
    ///
    /// # Errors
    /// The certificate cannot be used, or the system refuses a thread.
    pub fn show(self, server: &str) -> Result<(), GatewayError> {
        let Page { listener, config } = self;
        let machine = config.machine;
        let beside = |tls: &Tls| tls.certificate.with_file_name("authority.pem");
        let authorities = config.tls.as_ref().map(beside);
        let load = |tls: Tls| tls.identity().map(|identity| (identity, tls));
        let tls = config.tls.map(load).transpose()?;
        let door = Door {
            address: server.to_owned(),
            own_identity: false,
            key: config.key,
            authorities: authorities.filter(|file| file.exists()),
        };
        let users = Arc::new(Users::new(door, MOST_USERS, MOST_STREAMS));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MOST_USERS)
            .build()?;
        let run = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let mut hangup = signal(SignalKind::hangup())?;
            let bounds = Bounds {
                connections: MOST_CONNECTIONS,
                asking: ASKING,
                keeping: KEEPING,
                answering: STREAM,
            };
            let identity = tls.as_ref().map(|(identity, _)| identity.clone());
            let serving = serve_on(listener, router(&users, machine), bounds, identity);
            tokio::pin!(serving);
            let mut tidying = tokio::time::interval(TIDYING);
            loop {
                tokio::select! {
                    () = &mut serving => return io::Result::Ok(()),
                    _ = tidying.tick() => users.tidy(),
                    _ = hangup.recv() => reload(tls.as_ref()),
                }
            }
        };
        let run = move || {
            if let Err(error) = runtime.block_on(run) {
                tracing::error!("the page has ended: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("farcall-page".to_owned());
        Ok(thread.spawn(run).map(drop)?)
    }
}

fn router(users: &Arc<Users>, machine: fn() -> Value) -> Router {
    let beside = move |State(users), headers| beside(users, headers, machine);
    let mut router = Router::new()
        .route("/v1/watch", get(watch))
        .route("/v1/machine", get(beside))
        .route("/v1/cancel", post(cancel))
        .route("/v1/drain", post(drain))
        .with_state(Arc::clone(users));
    for (path, kind, text) in FILES {
        let file = move || async move { ([(header::CONTENT_TYPE, kind)], text) };
        router = router.route(path, get(file));
    }
    router
        .fallback(async || (StatusCode::NOT_FOUND, "the page is at /\n"))
        .layer(from_fn(guard))
}

/// Refuses requests that other web pages make, and tells browsers to be strict.
async fn guard(request: Request, next: Next) -> Response {
    let mut response =
        match request.uri().path().starts_with("/v1/") && is_foreign(request.headers()) {
            true => {
                let text = "requests of other web pages are refused; open the page itself, by the \
                        address of the host if you have no token";
                Failure::new(StatusCode::FORBIDDEN, "NotAllowed", text).into_response()
            }
            false => next.run(request).await,
        };
    let strict = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in strict {
        let value = axum::http::HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether another web page made a request. A page whose name was made to point to this host is
/// another one too; it cannot know a token.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text("host").unwrap_or_default();
    let origin = text("origin").map(|origin| origin.split("://").nth(1));
    let crosses = matches!(text("sec-fetch-site"), Some("cross-site" | "same-site"));
    let is_known = text("authorization").is_some() || is_plain(host);
    crosses || !is_known || origin.is_some_and(|origin| origin != Some(host))
}

/// What a browser wants to watch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    from: u64,
    most: u32,
    search: String,
    /// One of the servers of a metaserver.
    server: Option<String>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            from: 0,
            most: 100,
            search: String::new(),
            server: None,
        }
    }
}

type Refused = axum::extract::rejection::QueryRejection;

/// Streams snapshots to a browser as server-sent events, until it leaves.
async fn watch(
    State(users): State<Arc<Users>>,
    wanted: Result<Query<Wanted>, Refused>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Query(wanted) = wanted.map_err(|error| Failure::bad(error.body_text()))?;
    let asked = AskSnapshot {
        from: wanted.from,
        most: wanted.most,
        search: wanted.search,
    };
    let (guest, server) = enter(users, &headers, wanted.server).await?;
    let first = snapshot(&server, &asked).await?;
    let start = tokio::time::Instant::now();
    let watcher = Watcher {
        _guest: guest,
        server,
        asked,
        end: start + STREAM,
    };
    let stream = unfold(Some((watcher, first, start)), async |state| {
        let (watcher, text, now) = state?;
        let event = io::Result::Ok(format!("data: {text}\n\n"));
        Some((event, watcher.next(now + PERIOD).await))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// Somebody who watches.
struct Watcher {
    _guest: Guest,
    server: Server,
    asked: AskSnapshot,
    end: tokio::time::Instant,
}

impl Watcher {
    /// The next snapshot, at `at` or later. The stream ends if there is none; the browser then asks
    /// anew, and learns why.
    async fn next(
        self,
        at: tokio::time::Instant,
    ) -> Option<(Watcher, String, tokio::time::Instant)> {
        if at > self.end {
            return None;
        }
        sleep_until(at).await;
        let text = snapshot(&self.server, &self.asked).await.ok()?;
        Some((self, text, at.max(tokio::time::Instant::now() - PERIOD / 2)))
    }
}

async fn snapshot(server: &Server, asked: &AskSnapshot) -> Result<String, Failure> {
    let (server, asked) = (server.clone(), asked.clone());
    blocking(move || Ok(server.snapshot(&asked)?)).await
}

/// What runs on the machine beside the server, for operators of the server.
async fn beside(
    users: Arc<Users>,
    headers: HeaderMap,
    machine: fn() -> Value,
) -> Result<Response, Failure> {
    let (guest, server) = enter(users, &headers, None).await?;
    let told = blocking(move || {
        let nothing = AskSnapshot {
            most: 0,
            ..AskSnapshot::default()
        };
        let seen: Value = serde_json::from_str(&server.snapshot(&nothing)?).unwrap_or_default();
        drop(guest);
        Ok((seen["viewer"]["operator"] == true).then(machine))
    });
    let told = told.await?.ok_or_else(|| {
        let text = "trunks and gangs of the machine are shown to operators of the server";
        Failure::new(StatusCode::FORBIDDEN, "NotAllowed", text)
    })?;
    Ok(answer_json(&told))
}

/// A connection for the browser's user: to the server itself, or to one that it names.
async fn enter(
    users: Arc<Users>,
    headers: &HeaderMap,
    behind: Option<String>,
) -> Result<(Guest, Server), Failure> {
    let caller = caller(headers)?;
    blocking(move || {
        let guest = users.enter(&caller)?;
        let server = match behind {
            None => guest.server.clone(),
            Some(address) => known(&guest.server, address)?,
        };
        Ok((guest, server))
    })
    .await
}

/// One of the servers that a metaserver knows. No browser can make this process connect elsewhere.
fn known(metaserver: &Server, address: String) -> Result<Server, Failure> {
    let asked = AskSnapshot {
        search: address.clone(),
        ..AskSnapshot::default()
    };
    let text = metaserver.snapshot(&asked)?;
    let seen: Value = serde_json::from_str(&text).unwrap_or_default();
    let rows = seen["servers"]["rows"].as_array();
    let is_known = rows.is_some_and(|rows| rows.iter().any(|row| row["address"] == *address));
    let parsed: Option<Address> = address.parse().ok().filter(|_| is_known);
    let parsed = parsed.ok_or_else(|| {
        let text = format!("the metaserver knows no server at {address}");
        Failure::new(StatusCode::NOT_FOUND, "NotFound", text)
    })?;
    Ok(metaserver.behind(&parsed)?)
}

/// What a browser wants to end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    job: Option<String>,
    server: Option<String>,
}

/// Cancels a durable call.
async fn cancel(
    State(users): State<Arc<Users>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let target = target(&headers, body).await?;
    let job: Option<JobId> = target.job.and_then(|job| job.parse().ok());
    let job = job.ok_or_else(|| Failure::bad("the field job is not a job id"))?;
    let (guest, server) = enter(users, &headers, target.server).await?;
    let status = blocking(move || {
        let status = server.job(job).cancel()?;
        drop(guest);
        Ok(status)
    });
    Ok(answer_json(&json!({ "state": status.await?.state.name() })))
}

/// Drains a server.
async fn drain(
    State(users): State<Arc<Users>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let target = target(&headers, body).await?;
    let (guest, server) = enter(users, &headers, target.server).await?;
    let calls = blocking(move || {
        let calls = server.drain()?;
        drop(guest);
        Ok(calls)
    });
    Ok(answer_json(&json!({ "calls": calls.await? })))
}

async fn target(headers: &HeaderMap, body: Body) -> Result<Target, Failure> {
    check_type(headers)?;
    let body = axum::body::to_bytes(body, 4096).await;
    let body = body.map_err(|error| Failure::bad(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| Failure::bad(error.to_string()))
}
