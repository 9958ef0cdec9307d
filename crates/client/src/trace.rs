//! The client's part of a trace: what has caused a call, and the span of the call.
//!
//! The span that has caused a call is the one that the caller names, or the one in the environment
//! variable `TRACEPARENT`. If the environment names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`),
//! each call has a span of its own, and begins a trace if nothing has caused it. Otherwise the
//! server hears of the cause, if there is one, and this module does nothing else.

use crate::error::Error;
use crate::outcome::Outcome;
use farcall_otlp::{Endpoint, Exporter, Role, Settings, Span, part_id};
use farcall_rpc_proto::TraceContext;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How long the end of the program waits for the last spans. On Windows it does not wait, because
/// the exporter's thread has ended by then.
#[cfg(unix)]
const LAST: std::time::Duration = std::time::Duration::from_secs(2);

/// The exporter that the environment asks for, and the process that has started it.
static EXPORTER: OnceLock<Option<(Exporter<Span>, u32)>> = OnceLock::new();

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn exporter() -> Option<&'static Exporter<Span>> {
    let exporter = EXPORTER.get_or_init(|| {
        // An address that cannot be used must not fail calls.
        let endpoint = Endpoint::of_environment(variable).ok().flatten()?;
        let name = variable("OTEL_SERVICE_NAME").filter(|name| !name.is_empty());
        let name = name.or_else(|| {
            let program = std::env::current_exe().ok()?;
            Some(program.file_name()?.to_string_lossy().into_owned())
        });
        let settings = Settings {
            endpoint,
            resource: vec![("service.name", name.unwrap_or_else(|| "farcall".into()))],
        };
        let exporter = Exporter::start(settings, 1, |span, spans| spans.push(span)).ok()?;
        // SAFETY: the function only waits, for a bounded time.
        #[cfg(unix)]
        unsafe {
            libc::atexit(flush_at_exit);
        }
        Some((exporter, std::process::id()))
    });
    exporter.as_ref().map(|(exporter, _)| exporter)
}

/// Sends the last spans of the program. A forked child has no thread that could.
#[cfg(unix)]
extern "C" fn flush_at_exit() {
    if let Some(Some((exporter, process))) = EXPORTER.get()
        && *process == std::process::id()
    {
        exporter.flush(LAST);
    }
}

/// The span in the environment, if there is a valid one.
pub(crate) fn of_environment() -> Option<TraceContext> {
    variable("TRACEPARENT")?.parse().ok()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The system always has random bytes after its start. Without them, there is no trace.
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// Why no spans go to the collector that the environment names. Calls are made without them.
pub fn collector_problem() -> Option<String> {
    let endpoint = Endpoint::of_environment(variable);
    endpoint.err().map(|error| error.to_string())
}

/// The context of a new trace, for a caller that wants to find its calls in the records of servers.
/// `None` if the call has one anyway: from the environment, or because the environment names a
/// collector.
pub fn new_trace() -> Option<TraceContext> {
    match exporter().is_some() || of_environment().is_some() {
        true => None,
        false => TraceContext::new(random(), random()),
    }
}

/// The place of a call in its trace, and its span if the client makes spans.
pub(crate) struct CallSpan {
    context: TraceContext,
    own: Option<Own>,
}

/// The span of a call that is under way. A call that is dropped was given up.
struct Own {
    exporter: &'static Exporter<Span>,
    context: TraceContext,
    parent: Option<[u8; 8]>,
    name: String,
    /// Nanoseconds since 1970 at the start.
    unix: u64,
    start: Instant,
    is_over: bool,
}

impl CallSpan {
    /// Begins a call with this cause; `None` if the call belongs to no trace.
    pub(crate) fn begin(
        cause: Option<TraceContext>,
        what: &str,
        function: &str,
    ) -> Option<CallSpan> {
        let is_wanted = cause.is_none_or(|cause| cause.is_sampled());
        let Some(exporter) = exporter().filter(|_| is_wanted) else {
            return cause.map(|context| CallSpan { context, own: None });
        };
        let context = match cause {
            Some(cause) => cause.under(random()),
            None => TraceContext::new(random(), random())?,
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let own = Own {
            exporter,
            context,
            parent: cause.map(|cause| cause.span()),
            name: format!("{what} {function}"),
            unix: since.unwrap_or_default().as_nanos() as u64,
            start: Instant::now(),
            is_over: false,
        };
        let own = Some(own);
        Some(CallSpan { context, own })
    }

    /// What travels with the call.
    pub(crate) fn context(&self) -> TraceContext {
        self.context
    }

    /// The call has this result.
    pub(crate) fn end(mut self, result: Result<Outcome, Error>) -> Result<Outcome, Error> {
        if let Some(own) = &mut self.own {
            if let Some(placement) = result.as_ref().ok().and_then(|one| one.placement) {
                own.tell_placement(placement.chosen_s);
            }
            own.end(result.as_ref().err().map(ToString::to_string));
        }
        result.map(|outcome| Outcome {
            trace: Some(self.context),
            ..outcome
        })
    }

    /// The request has ended, with this error if it has failed.
    pub(crate) fn close(mut self, error: Option<&Error>) {
        if let Some(own) = &mut self.own {
            own.end(error.map(ToString::to_string));
        }
    }
}

impl Own {
    fn end(&mut self, failure: Option<String>) {
        self.is_over = true;
        let nanos = self.start.elapsed().as_nanos() as u64;
        self.exporter.send(Span {
            trace: self.context.trace(),
            id: self.context.span(),
            parent: self.parent,
            name: std::mem::take(&mut self.name),
            role: Role::Client,
            from_to: [self.unix, self.unix + nanos],
            attributes: Vec::new(),
            failure,
        });
    }

    /// The choice of the server, which is the first thing that a placed call does.
    fn tell_placement(&self, seconds: f64) {
        self.exporter.send(Span {
            trace: self.context.trace(),
            id: part_id(self.context.span(), 1),
            parent: Some(self.context.span()),
            name: "choose the server".to_owned(),
            role: Role::Client,
            from_to: [self.unix, self.unix + (seconds * 1e9) as u64],
            attributes: Vec::new(),
            failure: None,
        });
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Some("the call was given up".to_owned()));
        }
    }
}
