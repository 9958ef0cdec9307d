//! The sockets of a gateway, its addresses and its bounds. A request is checked in this order:
//! where it comes from, who calls, whether there is room, its body. So somebody whom the server
//! refuses takes no room from callers.

use crate::arguments::carried;
use crate::body::{self, SENDING, in_pieces, pass_over};
use crate::call::{Done, Slot, Waiter, Wanted};
use crate::failure::Failure;
use crate::functions::described;
use crate::host::is_plain;
use crate::openapi::{describe, openapi};
use crate::users::{self, Caller, Door, Guest, Users};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use farcall_access::Tls;
use farcall_client::{Server, TraceContext};
use farcall_tls::{FileError, Identity};
use farcall_web::{Bounds, accept};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower_http::cors::{AllowOrigin, CorsLayer};

/// The header with the span that has caused a request.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Longest time until a request has its headers.
pub(crate) const ASKING: Duration = Duration::from_secs(10);
/// Time for which a connection takes further requests.
pub(crate) const KEEPING: Duration = Duration::from_secs(60);
/// Time after which idle users are forgotten.
pub(crate) const TIDYING: Duration = Duration::from_secs(30);
/// Time in which calls that are under way can be answered when the gateway ends.
const ENDING: Duration = Duration::from_secs(2);

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Address of the server or the metaservers.
    pub server: String,
    /// Whether callers without a token act as the gateway itself: with its token, its certificate
    /// or its user of this host.
    pub own_identity: bool,
    /// Origins of web pages that may call.
    pub origins: Vec<String>,
    /// Files for TLS.
    pub tls: Option<Tls>,
    /// Whether tokens may travel without TLS over a network.
    pub plain: bool,
    /// The bounds.
    pub limits: Limits,
}

impl Config {
    /// Checks that a gateway with these settings gives nobody the identity of another one.
    ///
    /// # Errors
    /// Tokens would travel without TLS, or the server would take callers for the gateway.
    pub fn check(&self) -> Result<(), GatewayError> {
        if self.tls.is_none() && !self.plain && !self.listen.ip().is_loopback() {
            return Err(GatewayError::Plain(self.listen));
        }
        match users::mistakes(&self.server) && !self.own_identity {
            true => Err(GatewayError::Mistaken(self.server.clone())),
            false => Ok(()),
        }
    }
}

/// The bounds of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a request, and of all arrays of a call.
    pub bytes: u64,
    /// Most calls at a time.
    pub calls: usize,
    /// Most calls of one user at a time.
    pub user_calls: usize,
    /// Most users with a connection to the server.
    pub users: usize,
    /// Most HTTP connections at a time.
    pub connections: usize,
    /// Longest time of a call.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 64 << 20,
            calls: 32,
            user_calls: 8,
            users: 100,
            connections: 256,
            time: Duration::from_secs(300),
        }
    }
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is not free, or not of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Tokens would travel without TLS.
    #[error(
        "at {0} tokens would travel over a network without TLS; add --tls FOLDER, or --plain if a \
         proxy in front of the gateway adds TLS"
    )]
    Plain(SocketAddr),
    /// Tokens would travel to a page without TLS.
    #[error(
        "--web {0}: tokens would travel over a network without TLS; add --tls FOLDER, or listen on \
         127.0.0.1"
    )]
    PagePlain(SocketAddr),
    /// The server would take callers for the gateway.
    #[error(
        "at {0} the server would take callers without a token for the user of the gateway; name a \
         TCP address, or add --own-identity if this is wanted"
    )]
    Mistaken(String),
    /// A certificate or a key cannot be used.
    #[error("{0}")]
    Files(#[from] FileError),
    /// An origin cannot be one.
    #[error(
        "--allow-origin {0}: expected the origin of a web page, such as https://lab.example.org"
    )]
    Origin(String),
    /// The system cannot create a thread or a signal handler.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// A gateway that listens.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    runtime: Runtime,
    tls: Option<(Identity, Tls)>,
    origins: Vec<HeaderValue>,
    signals: Signals,
    shared: Arc<Shared>,
}

/// The signals that the gateway handles.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// A gateway that was started at a terminal ends when the terminal closes.
    at_terminal: bool,
}

/// What a signal asks for.
enum Asked {
    End,
    Reload,
}

impl Signals {
    /// Handles the signals from now on. Must be called in a runtime.
    fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            at_terminal: io::stderr().is_terminal(),
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hangup.recv() => match self.at_terminal {
                true => Asked::End,
                false => Asked::Reload,
            },
        }
    }
}

/// What all requests use.
#[derive(Debug)]
struct Shared {
    users: Arc<Users>,
    calls: Arc<Semaphore>,
    origins: Vec<HeaderValue>,
    /// Whether somebody without a token has the identity of the gateway because only programs of
    /// this host reach it.
    trusts_host: bool,
    limits: Limits,
    /// True once the gateway ends.
    ending: watch::Sender<bool>,
}

impl Gateway {
    /// Listens.
    ///
    /// # Errors
    /// The settings do not go together, or the address is not free.
    pub fn bind(config: Config) -> Result<Gateway, GatewayError> {
        config.check()?;
        let Config { listen, limits, .. } = config;
        let door = Door {
            address: config.server,
            own_identity: config.own_identity,
            key: None,
            authorities: None,
        };
        let origins = config.origins.into_iter().map(origin);
        let origins: Vec<HeaderValue> = origins.collect::<Result<_, _>>()?;
        let load = |tls: Tls| tls.identity().map(|identity| (identity, tls));
        let tls = config.tls.map(load).transpose()?;
        let failed = |source| GatewayError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits.calls + limits.connections)
            .build()?;
        let signals = {
            let _runtime = runtime.enter();
            Signals::catch()?
        };
        let users = Users::new(door, limits.users, limits.user_calls);
        Ok(Gateway {
            address: listener.local_addr()?,
            listener,
            runtime,
            tls,
            origins: origins.clone(),
            signals,
            shared: Arc::new(Shared {
                users: Arc::new(users),
                calls: Arc::new(Semaphore::new(limits.calls)),
                origins,
                trusts_host: config.own_identity && listen.ip().is_loopback(),
                limits,
                ending: watch::Sender::new(false),
            }),
        })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Answers requests until SIGINT or SIGTERM. Reads its certificate again after SIGHUP.
    ///
    /// # Errors
    /// The system cannot handle signals.
    pub fn run(self) -> io::Result<()> {
        let Gateway {
            listener,
            runtime,
            tls,
            mut signals,
            shared,
            ..
        } = self;
        let router = router(&shared, self.origins);
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let bounds = Bounds {
                connections: shared.limits.connections,
                asking: ASKING,
                keeping: KEEPING,
                answering: SENDING + shared.limits.time + SENDING,
            };
            let identity = tls.as_ref().map(|(identity, _)| identity.clone());
            let serving = serve_on(listener, router, bounds, identity);
            tokio::pin!(serving);
            let mut tidying = tokio::time::interval(TIDYING);
            loop {
                tokio::select! {
                    () = &mut serving => {}
                    _ = tidying.tick() => shared.users.tidy(),
                    asked = signals.next() => match asked {
                        Asked::End => break,
                        Asked::Reload => reload(tls.as_ref()),
                    },
                }
            }
            // Calls under way are answered: the gateway ends.
            let _ = shared.ending.send(true);
            let all = u32::try_from(shared.limits.calls).unwrap_or(u32::MAX);
            let _ = timeout(ENDING, shared.calls.acquire_many(all)).await;
            io::Result::Ok(())
        })?;
        runtime.shutdown_timeout(ENDING);
        Ok(())
    }
}

/// Answers requests, over TLS if there is an identity.
pub(crate) async fn serve_on(
    listener: tokio::net::TcpListener,
    router: Router,
    bounds: Bounds,
    identity: Option<Identity>,
) {
    match identity {
        None => accept(listener, router, bounds, |stream| async { Ok(stream) }).await,
        Some(identity) => {
            let secure = |stream| TlsAcceptor::from(identity.server_config()).accept(stream);
            accept(listener, router, bounds, secure).await;
        }
    }
}

pub(crate) fn reload(tls: Option<&(Identity, Tls)>) {
    if let Some((identity, tls)) = tls
        && let Err(error) = tls.reload(identity)
    {
        tracing::error!("the certificate stays as it is: {error}");
    }
}

/// An origin as browsers write it.
fn origin(text: String) -> Result<HeaderValue, GatewayError> {
    let host = text.split_once("://").map(|(_, host)| host);
    let is_origin = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', '@']));
    let value = HeaderValue::from_str(&text).ok().filter(|_| is_origin);
    value.ok_or(GatewayError::Origin(text))
}

fn router(shared: &Arc<Shared>, origins: Vec<HeaderValue>) -> Router {
    let timing = HeaderName::from_static("server-timing");
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([header::CONTENT_TYPE, header::AUTHORIZATION, TRACEPARENT])
        .expose_headers([timing, header::RETRY_AFTER])
        .max_age(Duration::from_secs(600));
    let unknown = async || {
        let text = "there is no such address; see /openapi.json, /v1/functions and /v1/call/NAME";
        Failure::new(StatusCode::NOT_FOUND, "NotFound", text)
    };
    let wrong = async || {
        let text = "there is no such method here; see /openapi.json";
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "NotAllowed", text)
    };
    Router::new()
        .route("/healthz", get(async || "alive\n"))
        .route("/openapi.json", get(document))
        .route("/v1/functions", get(list))
        .route("/v1/functions/{*name}", get(function))
        .route("/v1/call/{*name}", post(call))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong)
        .layer(cors)
        .layer(from_fn_with_state(Arc::clone(shared), check_origin))
        .with_state(Arc::clone(shared))
}

/// Refuses requests of web pages that may not call. A browser would keep the answer from such a
/// page, and yet the call would run.
async fn check_origin(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let is_renamed = shared.trusts_host && may_be_renamed(&request, &shared.origins);
    match request.headers().get(header::ORIGIN) {
        Some(origin) if !shared.origins.contains(origin) => {
            let text = "web pages of this origin may not call; the operator of the gateway can \
                        allow it with --allow-origin";
            Err(Failure::new(StatusCode::FORBIDDEN, "NotAllowed", text))
        }
        _ if is_renamed => {
            let text = "a web page may ask whose name was made to point to this host; use the \
                        address of the gateway, or send a token, or name its host with \
                        --allow-origin";
            Err(Failure::new(StatusCode::FORBIDDEN, "NotAllowed", text))
        }
        _ => Ok(next.run(request).await),
    }
}

/// Whether a request can be that of a web page whose name was made to point to this host. It could
/// read the answer. A browser leaves out the origin only if a page reads from its own host.
fn may_be_renamed(request: &Request, origins: &[HeaderValue]) -> bool {
    let headers = request.headers();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_safe = !reads
        || request.uri().path() == "/healthz"
        || headers.contains_key(header::ORIGIN)
        || headers.contains_key(header::AUTHORIZATION);
    let host = headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let is_named = |origin: &HeaderValue| {
        let origin = origin.to_str().ok();
        origin.is_some_and(|origin| origin.split("://").nth(1) == Some(host))
    };
    !is_safe && !is_plain(host) && !origins.iter().any(is_named)
}

/// Who calls, as the request says.
pub(crate) fn caller(headers: &HeaderMap) -> Result<Caller, Failure> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let token = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
    });
    let refuse = || {
        let text = "the header Authorization is not `Bearer TOKEN`, with a token of the server";
        Failure::new(StatusCode::UNAUTHORIZED, "Refused", text)
    };
    token.map(Some).ok_or_else(refuse)
}

/// A connection for the caller, and a place for a call.
async fn enter(
    shared: &Shared,
    headers: &HeaderMap,
) -> Result<(Guest, OwnedSemaphorePermit), Failure> {
    let caller = caller(headers)?;
    let users = Arc::clone(&shared.users);
    let guest = blocking(move || users.enter(&caller)).await?;
    let place = Arc::clone(&shared.calls).try_acquire_owned();
    let most = shared.limits.calls;
    let full = |_| {
        Failure::busy(format!(
            "{most} calls are running, as many as may; try again"
        ))
    };
    Ok((guest, place.map_err(full)?))
}

/// Runs on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        tracing::error!("a request failed inside the gateway: {error}");
        let text = "the gateway failed; please report this with its log";
        Err(Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Internal",
            text,
        ))
    })
}

/// Asks the server for a document.
async fn ask(
    shared: &Shared,
    headers: &HeaderMap,
    question: impl FnOnce(&Server) -> Result<Value, Failure> + Send + 'static,
) -> Result<Response, Failure> {
    let (guest, place) = enter(shared, headers).await?;
    let answer = blocking(move || {
        let answer = question(&guest.server);
        drop(place);
        answer
    });
    Ok(answer_json(&answer.await?))
}

/// An answer of JSON.
pub(crate) fn answer_json(value: &Value) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    (json, value.to_string()).into_response()
}

async fn list(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Failure> {
    ask(&shared, &headers, |server| {
        let functions = server.functions()?;
        let functions = functions.iter();
        let functions = functions.map(|one| json!({ "name": one.name, "title": one.title }));
        Ok(json!({ "functions": functions.collect::<Vec<Value>>() }))
    })
    .await
}

async fn function(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let Path(name) = name.map_err(|error| Failure::bad(error.body_text()))?;
    ask(&shared, &headers, move |server| {
        let function = server.function(&name)?;
        Ok(describe(function.interface(), function.text()))
    })
    .await
}

async fn document(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    ask(&shared, &headers, |server| {
        let functions = described(server)?;
        let interfaces = functions.iter().map(|one| one.interface());
        Ok(openapi(interfaces.filter(|one| carried(one).is_ok())))
    })
    .await
}

/// How arrays come back.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    arrays: Arrays,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Arrays {
    #[default]
    Lists,
    Base64,
}

async fn call(
    State(shared): State<Arc<Shared>>,
    name: Result<Path<String>, PathRejection>,
    form: Result<Query<Form>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let mut body = body.into_data_stream();
    let entered = async {
        let Path(name) = name.map_err(|error| Failure::bad(error.body_text()))?;
        let Query(form) = form.map_err(|error| Failure::bad(error.body_text()))?;
        check_type(&headers)?;
        Ok((name, form, enter(&shared, &headers).await?))
    };
    let (name, form, (guest, place)) = match entered.await {
        Ok(entered) => entered,
        Err(failure) => {
            pass_over(&headers, &mut body).await;
            return Err(failure);
        }
    };
    let limits = shared.limits;
    let body = body::receive(limits.bytes, &headers, body).await?;
    let wanted = Wanted {
        guest,
        name,
        body,
        is_binary: form.arrays == Arrays::Base64,
        most_bytes: limits.bytes,
        limit: limits.time,
        trace: cause(&headers),
    };
    let slot = Arc::new(Slot::default());
    let _waiter = Waiter(Arc::clone(&slot));
    let mut ending = shared.ending.subscribe();
    let done = blocking(move || Ok((wanted.run(&slot)?, place)));
    let (done, place) = tokio::select! {
        done = done => done?,
        _ = ending.wait_for(|ends| *ends) => {
            return Err(Failure::busy("the gateway ends; the call was given up"));
        }
    };
    Ok(answer(done, place))
}

/// The span that has caused a request. A header that is none is ignored, as the W3C asks.
fn cause(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TRACEPARENT)?.to_str().ok()?.parse().ok()
}

/// The answer to a call, which keeps its place until its results have left: they take memory.
fn answer(done: Done, place: OwnedSemaphorePermit) -> Response {
    let times = done.outcome.times;
    let parts = [
        ("send", times.send),
        ("exec", times.exec),
        ("recv", times.recv),
        ("other", times.other),
        ("total", times.total),
    ];
    let parts = parts.map(|(name, seconds)| format!("{name};dur={:.3}", seconds * 1e3));
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/json".to_owned()),
        (header::CONTENT_LENGTH.as_str(), done.text.len().to_string()),
        ("server-timing", parts.join(", ")),
    ];
    (headers, in_pieces(done.text, (done.guest, place))).into_response()
}

/// A web page cannot send this type to another origin without asking first.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), Failure> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    match essence.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => {
            let text = "the arguments are a JSON object; send Content-Type: application/json";
            Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "BadRequest",
                text,
            ))
        }
    }
}

#[cfg(test)]
mod tests;
