//! Identifies a peer by its token, by its certificate, or by the user of its process on this host.
//!
//! The server and the metaserver ask [`Access`] for the [`User`] of each connection. They decide
//! what a user is allowed to do.

mod settings;
mod tokens;
mod user;

pub use farcall_rpc_proto::User;
pub use settings::{Settings, Tls, authority_folder};
pub use tokens::{TokenError, TokenFile};
pub use user::{host_user, user_of_peer};

/// The reason why a client is refused, as a text for the client.
pub type Refusal = String;

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
}

/// The evidence of a connection about its client.
#[derive(Debug)]
pub struct Evidence<'e> {
    /// The user if there is no token: the user of a process on this host, or anonymous.
    pub peer: &'e User,
    /// The name in a certificate that the server trusts.
    pub certificate: Option<String>,
    /// The token that the client sent.
    pub token: Option<&'e str>,
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
        })
    }

    /// Whether a user is allowed to register libraries.
    pub fn is_operator(&self, user: &User) -> bool {
        self.operators.contains(user)
    }

    /// The user that the evidence identifies. A token takes precedence over a certificate.
    ///
    /// # Errors
    /// The evidence identifies no user who is accepted.
    pub fn user(&mut self, evidence: &Evidence<'_>) -> Result<User, Refusal> {
        let service = self.service;
        if let (Some(tokens), Some(token)) = (&mut self.tokens, evidence.token) {
            // If the file can no longer be read, no token is accepted.
            let user = tokens.user(token).map_err(|error| {
                tracing::error!("{error}");
                format!("the {service} cannot read its list of tokens")
            })?;
            let unknown =
                || format!("the token is unknown to this {service}; it may have been withdrawn");
            return user.map(User::named).ok_or_else(unknown);
        }
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
            false => Ok(evidence.peer.clone()),
        }
    }

    /// Whether the service accepts every client that reaches it over TCP.
    pub fn is_open(&self) -> bool {
        self.anonymous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(access: &mut Access, token: Option<&str>, name: Option<&str>) -> Result<User, String> {
        access.user(&Evidence {
            peer: &User::anonymous(),
            certificate: name.map(str::to_string),
            token,
        })
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
