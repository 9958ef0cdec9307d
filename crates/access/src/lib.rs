//! Identifies a peer by its token, by its certificate, or by the user of its process on this host.
//!
//! The server and the metaserver ask [`Access`] for the [`User`] of each connection. They decide
//! what a user is allowed to do. [`Accepting`] keeps their logs short.

mod accepting;
mod local;
mod penalties;
mod settings;
mod tokens;
mod user;

pub use accepting::{Accepting, allow_connections};
pub use farcall_rpc_proto::User;
pub use settings::{Settings, Tls, authority_folder, can_be_user};
pub use tokens::{TokenError, TokenFile};
pub use user::{host_user, user_of_peer};

use farcall_scram::{Binding, Exchange, First, ScramError};
use penalties::{Logged, Penalties};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Bytes of a nonce.
const NONCE_BYTES: usize = 18;

/// How a refusal begins that depends only on earlier wrong tokens; the seconds of the wait follow.
const PENALTY: &str = "too many wrong tokens came from this host; try again in ";

/// The seconds that a host must wait because of wrong tokens, in the text of a refusal. The token
/// of the refused client may be right.
pub fn penalty_s(refusal: &str) -> Option<u64> {
    let (seconds, _) = refusal.strip_prefix(PENALTY)?.split_once(' ')?;
    seconds.parse().ok()
}

/// The reason why a client is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The text for the client.
    pub text: String,
    /// The text for the log; `None` if the log has enough lines about this host.
    pub logged: Option<String>,
}

impl Refusal {
    /// A refusal that is logged as it is told.
    pub fn of(text: &str) -> Refusal {
        Refusal {
            text: text.to_string(),
            logged: Some(text.to_string()),
        }
    }
}

/// Identifies clients.
#[derive(Debug)]
pub struct Access {
    /// The service that clients connect to: `server` or `metaserver`.
    service: &'static str,
    tokens: Option<TokenFile>,
    /// Whether clients without credentials are accepted over TCP.
    anonymous: bool,
    /// Users who are allowed to register libraries.
    operators: Vec<User>,
    /// Hosts that have sent wrong credentials.
    penalties: Penalties,
    /// Names of tokens that were accepted before. They are looked at during a penalty.
    accepted: HashSet<String>,
}

/// The evidence of a connection about its client.
#[derive(Debug)]
pub struct Evidence<'e> {
    /// The user if there is no token: the user of a process on this host, or anonymous.
    pub peer: &'e User,
    /// The name in a certificate that the server trusts.
    pub certificate: Option<String>,
    /// What the client says about its token.
    pub claim: Claim<'e>,
    /// What the TLS session of the connection exports, if it is one.
    pub binding: Option<Binding>,
    /// The host of the client; `None` on a Unix socket.
    pub host: Option<IpAddr>,
    /// Both ends of a TCP connection within this host, the own one first.
    pub ends: Option<(SocketAddr, SocketAddr)>,
}

/// What a client says about its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<'e> {
    /// It has none.
    Nothing,
    /// A client of an earlier version has sent the token itself.
    Token,
    /// The first message of a client that proves that it knows its token.
    First(&'e str),
}

/// What the evidence of a client leads to.
#[derive(Debug)]
pub enum Found {
    /// The client is this user.
    User(User),
    /// The client must prove that it knows its token. The text is for the client.
    Challenge(Box<Proving>, String),
}

/// Why evidence identifies nobody.
struct Unknown {
    /// For the client.
    text: String,
    /// For the log, if it differs.
    reason: Option<String>,
    /// Whether the client may have guessed a token.
    is_guess: bool,
}

impl Unknown {
    fn guess(text: String) -> Unknown {
        Unknown {
            is_guess: true,
            ..Unknown::from(text)
        }
    }
}

impl From<String> for Unknown {
    /// What no client can have guessed.
    fn from(text: String) -> Unknown {
        Unknown {
            text,
            reason: None,
            is_guess: false,
        }
    }
}

/// A client that was asked for its proof.
#[derive(Debug)]
pub struct Proving {
    user: String,
    /// The name of its token.
    token: String,
    host: Option<IpAddr>,
    exchange: Exchange,
}

impl Access {
    /// Reads the settings. If they name neither tokens nor certificates of clients, `service`
    /// accepts every client that reaches one of its addresses, unless `anonymous` says otherwise.
    ///
    /// # Errors
    /// The tokens cannot be used.
    pub fn new(
        service: &'static str,
        settings: &Settings,
        tls: Option<&Tls>,
    ) -> Result<Access, TokenError> {
        let tokens = settings.tokens.clone().map(TokenFile::open).transpose()?;
        let certificates = tls.and_then(|tls| tls.clients.as_ref());
        let proofs = tokens.is_some() || certificates.is_some();
        let own = rustix::process::geteuid().as_raw();
        let mut operators = vec![User::of_process(0), User::of_process(own)];
        operators.extend(settings.operators.iter().map(|name| User::named(name)));
        Ok(Access {
            service,
            tokens,
            anonymous: settings.anonymous.unwrap_or(!proofs),
            operators,
            penalties: Penalties::default(),
            accepted: HashSet::new(),
        })
    }

    /// Whether a user is allowed to register libraries.
    pub fn is_operator(&self, user: &User) -> bool {
        self.operators.contains(user)
    }

    /// The user that the evidence identifies, at a time. A token takes precedence over a
    /// certificate. A host that sends wrong tokens must wait longer and longer, except for tokens
    /// that were accepted before.
    ///
    /// # Errors
    /// The evidence identifies no user who is accepted.
    pub fn user(&mut self, evidence: &Evidence<'_>, now: Instant) -> Result<Found, Refusal> {
        let found = match self.penalty(evidence, now) {
            Some(text) => Err(Unknown::from(text)),
            None => self.find(evidence),
        };
        found.map_err(|unknown| self.refusal(unknown, evidence.host, now))
    }

    /// Checks the proof of a client. Returns its user and the signature for it, which proves that
    /// this service knows the token too.
    ///
    /// # Errors
    /// The proof is wrong.
    pub fn check(
        &mut self,
        proving: &Proving,
        proof: &str,
        now: Instant,
    ) -> Result<(User, String), Refusal> {
        match proving.exchange.check(proof) {
            Ok(signature) => {
                // Bounded by the tokens that the file has ever had.
                self.accepted.insert(proving.token.clone());
                Ok((User::named(&proving.user), signature))
            }
            Err(error) => {
                let unknown = Unknown::guess(self.failed(error));
                Err(self.refusal(unknown, proving.host, now))
            }
        }
    }

    fn failed(&self, error: ScramError) -> String {
        match error {
            ScramError::WrongSecret => format!("the token is unknown to this {}", self.service),
            error => error.to_string(),
        }
    }

    fn refusal(&mut self, unknown: Unknown, host: Option<IpAddr>, now: Instant) -> Refusal {
        let Unknown {
            text,
            reason,
            is_guess,
        } = unknown;
        let fail = |host| self.penalties.fail(host, is_guess, now);
        let reason = reason.unwrap_or_else(|| text.clone());
        let logged = match host.map(fail) {
            None | Some(Logged::With(0)) => Some(reason),
            Some(Logged::With(others)) => Some(format!(
                "{reason} ({others} more refusals of this host since the last such line)"
            )),
            Some(Logged::Nothing) => None,
        };
        Refusal { text, logged }
    }

    /// Why the evidence is not looked at now.
    fn penalty(&self, evidence: &Evidence<'_>, now: Instant) -> Option<String> {
        let wait = self.penalties.wait(evidence.host?, now)?;
        let is_known = |first: &str| {
            First::parse(first).is_ok_and(|first| self.accepted.contains(first.name()))
        };
        match evidence.claim {
            Claim::First(first) if !is_known(first) => {}
            _ => return None,
        }
        Some(format!("{PENALTY}{:.0} s", wait.as_secs_f64().ceil()))
    }

    fn find(&mut self, evidence: &Evidence<'_>) -> Result<Found, Unknown> {
        if self.tokens.is_some() {
            match evidence.claim {
                Claim::First(first) => return self.challenge(first, evidence),
                Claim::Token => {
                    let text = format!(
                        "this {} accepts no token that is sent as it is; update the client",
                        self.service
                    );
                    return Err(text.into());
                }
                Claim::Nothing => {}
            }
        }
        let user = self.without_token(evidence)?;
        Ok(Found::User(user))
    }

    /// Asks a client for the proof that it knows its token.
    fn challenge(&mut self, first: &str, evidence: &Evidence<'_>) -> Result<Found, Unknown> {
        let service = self.service;
        let guess = |error| Unknown::guess(self.failed(error));
        let first = First::parse(first).map_err(guess)?;
        let Some(tokens) = &mut self.tokens else {
            return Err(format!("this {service} has no tokens").into());
        };
        // If the file can no longer be read, no token is accepted. That is no fault of the client.
        let found = tokens.find(first.name()).map_err(|error| Unknown {
            text: format!("the {service} cannot read its list of tokens"),
            reason: Some(error.to_string()),
            is_guess: false,
        })?;
        let unknown = || {
            let text = "it may have been withdrawn";
            Unknown::guess(format!("the token is unknown to this {service}; {text}"))
        };
        let (user, verifier) = found.ok_or_else(unknown)?;
        let token = first.name().to_string();
        let nonce = tokens::random::<NONCE_BYTES>().map_err(|error| error.to_string())?;
        let made = first.challenge(verifier, &nonce, evidence.binding.as_ref());
        let (exchange, text) = made.map_err(|error| Unknown::guess(self.failed(error)))?;
        let proving = Proving {
            user,
            token,
            host: evidence.host,
            exchange,
        };
        Ok(Found::Challenge(Box::new(proving), text))
    }

    fn without_token(&self, evidence: &Evidence<'_>) -> Result<User, String> {
        let service = self.service;
        if let Some(name) = &evidence.certificate {
            return Ok(User::named(name));
        }
        match evidence.peer.is_anonymous() && !self.anonymous {
            true if self.tokens.is_some() => Err(format!(
                "this {service} asks for a token; set FARCALL_TOKEN"
            )),
            true => Err(format!(
                "this {service} asks for a certificate of its clients; set FARCALL_CERT and \
                 FARCALL_KEY, and connect to farcalls://"
            )),
            false if !evidence.peer.is_anonymous() => Ok(evidence.peer.clone()),
            false => {
                let owner = evidence
                    .ends
                    .and_then(|(own, peer)| local::owner(own, peer));
                Ok(owner.unwrap_or_else(User::anonymous))
            }
        }
    }

    /// Reads the tokens again now, so that an operator who asks for it learns of an error.
    ///
    /// # Errors
    /// The file can no longer be used, and no token is accepted until it can.
    pub fn reread(&mut self) -> Result<(), TokenError> {
        self.tokens.as_mut().map_or(Ok(()), TokenFile::reread)
    }

    /// The users with tokens, sorted by name. Nobody has one if the service has no list of them.
    pub fn users_with_tokens(&self) -> Vec<&str> {
        self.tokens.as_ref().map_or_else(Vec::new, TokenFile::users)
    }

    /// Whether the service accepts every client that reaches it over TCP.
    pub fn is_open(&self) -> bool {
        self.anonymous
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_scram::{Client, Salted, Secret};
    use std::time::Duration;

    /// Asks with a token, as a client does.
    fn ask(
        access: &mut Access,
        token: Option<&str>,
        evidence: &Evidence<'_>,
        now: Instant,
    ) -> Result<User, Refusal> {
        let secret = token.map(Secret::of_token);
        let begun = secret
            .as_ref()
            .map(|secret| Client::new(&secret.name, &[7; 18], false));
        let claim = match &begun {
            Some((_, first)) => Claim::First(first),
            None => Claim::Nothing,
        };
        let evidence = Evidence {
            claim,
            certificate: evidence.certificate.clone(),
            ..*evidence
        };
        let (proving, challenge) = match access.user(&evidence, now)? {
            Found::User(user) => return Ok(user),
            Found::Challenge(proving, challenge) => (proving, challenge),
        };
        let (secret, (client, _)) = (secret.unwrap(), begun.unwrap());
        let derive = |salt: &[u8], count| Salted::new(&secret.secret, salt, count);
        let (expected, proof) = client.answer(&challenge, None, derive).unwrap();
        let (user, signature) = access.check(&proving, &proof, now)?;
        assert_eq!(expected.check(&signature), Ok(()));
        Ok(user)
    }

    fn evidence(host: Option<IpAddr>, certificate: Option<&str>) -> Evidence<'static> {
        static ANONYMOUS: std::sync::LazyLock<User> = std::sync::LazyLock::new(User::anonymous);
        Evidence {
            peer: &ANONYMOUS,
            certificate: certificate.map(str::to_string),
            claim: Claim::Nothing,
            binding: None,
            host,
            ends: None,
        }
    }

    fn user(access: &mut Access, token: Option<&str>, name: Option<&str>) -> Result<User, String> {
        let found = ask(access, token, &evidence(None, name), Instant::now());
        found.map_err(|refusal| refusal.text)
    }

    #[test]
    fn who_guesses_waits_and_who_was_accepted_before_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let [alice, bob] = ["alice", "bob"].map(|name| TokenFile::add(&path, name).unwrap());
        let settings = Settings {
            tokens: Some(path),
            ..Settings::default()
        };
        let mut access = Access::new("server", &settings, None).unwrap();
        let start = Instant::now();
        let mut ask = |token: &str, seconds: u64| {
            let evidence = evidence(Some(IpAddr::from([192, 0, 2, 7])), None);
            let now = start + Duration::from_secs(seconds);
            ask(&mut access, Some(token), &evidence, now)
        };
        assert!(ask(&alice, 0).is_ok());
        let lines = (0..5000).filter_map(|_| ask("guess", 1).unwrap_err().logged);
        assert_eq!(lines.count(), 3);
        let refusal = ask(&bob, 1).unwrap_err();
        assert!(
            refusal.text.contains("try again in 1 s"),
            "{}",
            refusal.text
        );
        assert_eq!(penalty_s(&refusal.text), Some(1));
        assert!(ask(&alice, 1).is_ok(), "the token was accepted before");
        assert!(ask(&bob, 3).is_ok());
        assert_eq!(penalty_s(&ask("guess", 4).unwrap_err().text), None);
    }

    #[test]
    fn nobody_waits_because_the_list_of_tokens_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let alice = TokenFile::add(&path, "alice").unwrap();
        let settings = Settings {
            tokens: Some(path.clone()),
            ..Settings::default()
        };
        let mut access = Access::new("server", &settings, None).unwrap();
        let now = Instant::now();
        let evidence = evidence(Some(IpAddr::from([192, 0, 2, 7])), None);
        let list = std::fs::read(&path).unwrap();
        std::fs::write(&path, "broken\n").unwrap();
        let refusals = (0..20).map(|_| ask(&mut access, Some(&alice), &evidence, now).unwrap_err());
        let refusals: Vec<Refusal> = refusals.collect();
        for refusal in &refusals {
            assert_eq!(refusal.text, "the server cannot read its list of tokens");
        }
        let logged: Vec<&String> = refusals
            .iter()
            .filter_map(|one| one.logged.as_ref())
            .collect();
        assert_eq!(logged.len(), 3);
        assert!(logged[0].contains("tokens"), "{logged:?}");
        assert!(logged[0].contains(":1: expected"), "{logged:?}");
        std::fs::write(&path, list).unwrap();
        assert!(ask(&mut access, Some(&alice), &evidence, now).is_ok());
    }

    #[test]
    fn a_token_takes_precedence_and_a_wrong_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = TokenFile::open(folder.path().join("tokens")).unwrap_err();
        assert!(file.to_string().contains("tokens"));
        let path = folder.path().join("tokens");
        let token = TokenFile::add(&path, "alice").unwrap();
        file = TokenFile::add(&path, "no name").unwrap_err();
        assert!(file.to_string().contains("no name"));
        let mut access = Access {
            service: "server",
            tokens: Some(TokenFile::open(path).unwrap()),
            anonymous: false,
            operators: Vec::new(),
            penalties: Penalties::default(),
            accepted: HashSet::new(),
        };
        assert_eq!(
            user(&mut access, Some(&token), None),
            Ok(User::named("alice"))
        );
        let both = user(&mut access, Some(&token), Some("bob"));
        assert_eq!(both, Ok(User::named("alice")));
        assert_eq!(user(&mut access, None, Some("bob")), Ok(User::named("bob")));
        let unknown = user(&mut access, Some("guess"), Some("bob")).unwrap_err();
        assert!(unknown.contains("unknown"));
        let old = Evidence {
            claim: Claim::Token,
            ..evidence(None, None)
        };
        let refusal = access.user(&old, Instant::now()).unwrap_err();
        assert!(
            refusal.text.contains("update the client"),
            "{}",
            refusal.text
        );
        assert!(
            user(&mut access, None, None)
                .unwrap_err()
                .contains("FARCALL_TOKEN")
        );
    }

    #[test]
    fn without_tokens_every_client_is_accepted() {
        let mut access = Access::new("server", &Settings::default(), None).unwrap();
        assert_eq!(user(&mut access, None, None), Ok(User::anonymous()));
        let surplus = user(&mut access, Some("of another server"), None);
        assert_eq!(surplus, Ok(User::anonymous()));
    }
}
