//! Who may come in, and as whom.

mod tokens;

pub use tokens::{TokenError, TokenFile};

use crate::config;
use farcall_rpc_proto::User;

/// Why a client is refused, for the client.
pub(crate) type Refusal = String;

/// Decides who a client is.
pub(crate) struct Access {
    tokens: Option<TokenFile>,
    /// Whether clients may come over TCP that prove nothing.
    anonymous: bool,
    /// Users who may register libraries.
    operators: Vec<User>,
}

/// What a connection shows of its client.
#[derive(Debug)]
pub(crate) struct Evidence<'e> {
    /// Who it is without a token: the user of a process of this host, or anybody.
    pub(crate) peer: &'e User,
    /// The name in a certificate that the server believes.
    pub(crate) certificate: Option<String>,
    pub(crate) token: Option<&'e str>,
}

impl Access {
    /// Without tokens and without certificates of clients everybody may come in who reaches an
    /// address of the server, unless it is told otherwise.
    pub(crate) fn new(config: &config::Config) -> Result<Access, TokenError> {
        let access = &config.access;
        let tokens = access.tokens.clone().map(TokenFile::open).transpose()?;
        let certificates = config.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        let proofs = tokens.is_some() || certificates.is_some();
        let anonymous = access.anonymous.unwrap_or(!proofs);
        let own = rustix::process::geteuid().as_raw();
        let mut operators = vec![User::of_process(0), User::of_process(own)];
        operators.extend(access.operators.iter().map(|name| User::named(name)));
        Ok(Access {
            tokens,
            anonymous,
            operators,
        })
    }

    /// Whether a user may register libraries.
    pub(crate) fn is_operator(&self, user: &User) -> bool {
        self.operators.contains(user)
    }

    /// The user whom the evidence shows. A token comes first, then a certificate.
    pub(crate) fn user(&mut self, evidence: &Evidence<'_>) -> Result<User, Refusal> {
        if let (Some(tokens), Some(token)) = (&mut self.tokens, evidence.token) {
            // A file that cannot be read any more lets nobody in.
            let user = tokens.user(token).map_err(|error| {
                tracing::error!("{error}");
                "the server cannot read its list of tokens".to_string()
            })?;
            let text = "the token is unknown to this server; it may have been withdrawn";
            return user.map(User::named).ok_or_else(|| text.to_string());
        }
        if let Some(name) = &evidence.certificate {
            return Ok(User::named(name));
        }
        let anonymous = evidence.peer.is_anonymous();
        match anonymous && !self.anonymous {
            true if self.tokens.is_some() => {
                Err("this server asks for a token; set FARCALL_TOKEN".to_string())
            }
            true => Err(
                "this server asks for a certificate of its clients; set FARCALL_CERT \
                         and FARCALL_KEY, and connect to farcalls://"
                    .to_string(),
            ),
            false => Ok(evidence.peer.clone()),
        }
    }

    /// Whether anybody may come in who reaches the server over TCP.
    pub(crate) fn is_open(&self) -> bool {
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
    fn a_token_comes_before_a_certificate_and_a_wrong_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = TokenFile::open(folder.path().join("tokens")).unwrap_err();
        assert!(file.to_string().contains("tokens"));
        let path = folder.path().join("tokens");
        let token = TokenFile::add(&path, "alice").unwrap();
        file = TokenFile::add(&path, "no name").unwrap_err();
        assert!(file.to_string().contains("no name"));
        let mut access = Access {
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
    fn without_tokens_everybody_may_come_in() {
        let mut access = Access::new(&config::Config::default()).unwrap();
        assert_eq!(user(&mut access, None, None), Ok(User::anonymous()));
        let surplus = user(&mut access, Some("of another server"), None);
        assert_eq!(surplus, Ok(User::anonymous()));
    }
}
