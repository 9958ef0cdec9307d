//! What an operator has set, and SIGHUP: the server opens its audit log anew, and reads its
//! certificates, its tokens and its configuration again. Whatever cannot be read stays as it was.

use crate::audit::Audit;
use crate::config::Config;
use crate::socket::Socket;
use farcall_access::{Access, Found, Proving, Refusal, Tls, User};
use farcall_otlp::Exporter;
use farcall_record::Line;
use farcall_recorder::Recorder;
use farcall_server_proto::{ConnectionKey, Event, Identity, Refused, Shown, TracedCall};
use farcall_tls::Identity as Certificate;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long an ending server waits for its last spans.
const LAST_SPANS: Duration = Duration::from_secs(1);

/// Reads the configuration again.
pub(crate) type Reread = Box<dyn Fn() -> Result<Config, String>>;

/// Where the server writes what it does.
pub(crate) struct Logs {
    /// The audit log.
    pub(crate) audit: Option<Audit>,
    /// The record of calls.
    pub(crate) recorder: Option<Recorder>,
    /// The spans of calls.
    pub(crate) spans: Option<Exporter<Box<TracedCall>>>,
}

/// What an operator has set.
pub(super) struct Operator {
    pub(super) config: Config,
    pub(super) access: Access,
    pub(super) logs: Logs,
    reread: Option<Reread>,
    /// Clients that were asked for a proof.
    proving: HashMap<ConnectionKey, Box<Proving>>,
}

impl Operator {
    pub(super) fn new(config: Config, access: Access, logs: Logs) -> Operator {
        Operator {
            config,
            access,
            logs,
            reread: None,
            proving: HashMap::new(),
        }
    }

    /// Adds a line to the audit log, if there is one.
    pub(super) fn record(&mut self, told: &farcall_server_proto::Audit) {
        if let Some(audit) = &mut self.logs.audit {
            audit.write(told);
        }
    }

    /// Adds a line to the record of calls, if there is one.
    pub(super) fn note(&mut self, line: Line) {
        if let Some(recorder) = &mut self.logs.recorder {
            recorder.record(line);
        }
    }

    /// Sends the spans of a call.
    pub(super) fn trace(&self, traced: Box<TracedCall>) {
        if let Some(spans) = &self.logs.spans {
            spans.send(traced);
        }
    }

    /// Writes what is left. The server ends.
    pub(super) fn end_logs(&mut self) {
        self.logs.recorder = None;
        if let Some(spans) = &self.logs.spans {
            spans.flush(LAST_SPANS);
        }
    }

    /// Identifies a client by its token, certificate or process. A client that reads a lent array
    /// has no rights of its own.
    pub(super) fn identify(
        &mut self,
        socket: &Socket,
        connection: ConnectionKey,
        shown: &Shown,
    ) -> Event {
        let now = Instant::now();
        let proving = self.proving.remove(&connection);
        let found = match (shown, proving) {
            _ if socket.lacks_tls() => Err(Refusal::of(
                "this address speaks TLS; connect to farcalls://",
            )),
            (Shown::Loan, _) => Ok((User::reader(), None)),
            (Shown::Proof(proof), Some(proving)) => {
                let checked = self.access.check(&proving, proof, now);
                checked.map(|(user, signature)| (user, Some(signature)))
            }
            (shown, _) => match self.access.user(&socket.evidence(shown), now) {
                Ok(Found::User(user)) => Ok((user, None)),
                Ok(Found::Challenge(proving, text)) => {
                    self.proving.insert(connection, proving);
                    return Event::Challenged(connection, text);
                }
                Err(refusal) => Err(refusal),
            },
        };
        let is_lent = *shown == Shown::Loan;
        let found = found.map(|(user, signature)| Identity {
            is_operator: !is_lent && self.access.is_operator(&user),
            user,
            signature,
        });
        let refused = |Refusal { text, logged }| Refused { text, logged };
        Event::Authenticated(connection, found.map_err(refused))
    }

    /// Forgets a connection that has ended.
    pub(super) fn forget(&mut self, connection: ConnectionKey) {
        self.proving.remove(&connection);
    }

    /// Sets how the configuration is read again.
    pub(super) fn reread_with(&mut self, reread: Reread) {
        self.reread = Some(reread);
    }

    /// Reads again what may have changed. `identity` is the server's certificate, which its
    /// listeners share.
    pub(super) fn reload(&mut self, identity: Option<&Certificate>) {
        tracing::info!("SIGHUP: reading certificates, tokens and the configuration again");
        let fresh = self.reread.as_ref().map(|reread| reread());
        let fresh = match fresh.map(|read| read.and_then(|config| self.checked(config))) {
            Some(Ok(config)) => Some(config),
            Some(Err(error)) => {
                tracing::error!("{error}; the server goes on with what it has");
                None
            }
            None => None,
        };
        let asked = self.asks_for_certificates();
        self.reload_certificate(fresh.as_ref().and_then(|fresh| fresh.tls.clone()), identity);
        if let Some(config) = fresh {
            self.reconfigure(&config, asked != self.asks_for_certificates());
        }
        if let Err(error) = self.access.reread() {
            tracing::error!(
                "tokens: {error}; clients with tokens are refused until the file can be used"
            );
        }
        if let Some(Err(error)) = self.logs.audit.as_mut().map(Audit::reopen) {
            tracing::error!("{error}");
        }
    }

    /// Checks that the folders that users read and functions write now show no new secret.
    fn checked(&self, fresh: Config) -> Result<Config, String> {
        let next = Config {
            access: fresh.access.clone(),
            tls: fresh.tls.clone(),
            ..self.config.clone()
        };
        let checked = next.check_folders();
        checked.map(|()| fresh).map_err(|error| error.to_string())
    }

    /// Reads the certificate again, from other files if the configuration names some now.
    fn reload_certificate(&mut self, fresh: Option<Tls>, identity: Option<&Certificate>) {
        let (Some(current), Some(identity)) = (&self.config.tls, identity) else {
            return;
        };
        let tls = fresh.unwrap_or_else(|| current.clone());
        match tls.reload(identity) {
            Ok(()) => self.config.tls = Some(tls),
            Err(error) => {
                tracing::error!("TLS: {error}; the server goes on with the certificate that it has")
            }
        }
    }

    /// Whether certificates name clients.
    fn asks_for_certificates(&self) -> bool {
        let tls = self.config.tls.as_ref();
        tls.is_some_and(|tls| tls.clients.is_some())
    }

    /// Applies the settings that may change while the server runs, and names the others.
    /// `is_new`: the TLS settings that hold now may admit others than those before.
    fn reconfigure(&mut self, config: &Config, is_new: bool) {
        let mut access = config.access.clone();
        access.audit.clone_from(&self.config.access.audit);
        if is_new || access != self.config.access {
            match Access::new("server", &access, self.config.tls.as_ref()) {
                Ok(made) => (self.access, self.config.access) = (made, access),
                Err(error) => tracing::error!("tokens: {error}; who may connect has not changed"),
            }
        }
        let changed = self.config.differences(config);
        if !changed.is_empty() {
            tracing::warn!(
                "these settings have changed and hold after a restart (`farcall serve \
                 --takeover` starts a server in the place of this one): {}",
                changed.join(", ")
            );
        }
    }
}
