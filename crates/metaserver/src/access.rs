//! Who may come in, and whose servers may join.

use crate::Config;
use farcall_server::{TokenError, TokenFile};
use std::net::SocketAddr;

/// Who may come in, and whose servers may join.
#[derive(Debug)]
pub(crate) struct Access {
    tokens: Option<TokenFile>,
    /// Nobody has to prove anything.
    is_open: bool,
    server_users: Vec<String>,
}

/// Who it is where nothing is proved.
const ANYBODY: &str = "anonymous";

impl Access {
    pub(crate) fn new(config: &Config) -> Result<Access, TokenError> {
        let tokens = config.tokens.clone().map(TokenFile::open).transpose()?;
        let certificates = config.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        Ok(Access {
            is_open: tokens.is_none() && certificates.is_none(),
            tokens,
            server_users: config.server_users.clone(),
        })
    }

    /// Says so where anybody on a network may have servers join.
    pub(crate) fn warn_of_strangers(&self, listen: &[SocketAddr]) {
        let open = listen.iter().find(|at| !at.ip().is_loopback());
        if let Some(address) = open.filter(|_| self.is_open) {
            tracing::warn!(
                "everybody who reaches {address} may have servers join, and so get calls of \
                 others: give users tokens (`farcall token add`, --tokens), or certificates \
                 (--tls-clients), and name those of servers (--server-user)"
            );
        }
    }

    /// The user whom a token or a certificate shows. The error is for the client.
    pub(crate) fn user(
        &mut self,
        token: Option<&str>,
        certificate: Option<String>,
    ) -> Result<String, String> {
        if let (Some(tokens), Some(token)) = (&mut self.tokens, token) {
            // A file that cannot be read any more lets nobody in.
            let user = tokens.user(token).map_err(|error| {
                tracing::error!("{error}");
                "the metaserver cannot read its list of tokens".to_string()
            })?;
            let text = "the token is unknown to this metaserver; it may have been withdrawn";
            return user.map(str::to_string).ok_or_else(|| text.to_string());
        }
        match certificate {
            Some(name) => Ok(name),
            None if self.is_open => Ok(ANYBODY.to_string()),
            None => Err(
                "this metaserver asks for a token or a certificate; set FARCALL_TOKEN, or \
                 FARCALL_CERT and FARCALL_KEY"
                    .to_string(),
            ),
        }
    }

    /// Whether nobody has to prove anything, so that users are not told apart.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the servers of a user may join. The error is for the server.
    pub(crate) fn may_join(&self, user: &str) -> Result<(), String> {
        let is_named = self.server_users.iter().any(|name| name == user);
        match is_named || (self.is_open && self.server_users.is_empty()) {
            true => Ok(()),
            false => Err(format!(
                "{user} may not have servers join: those may whom the metaserver's --server-user \
                 names"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_proofs_are_asked_for_only_named_users_have_servers_join() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let [alice, node] = ["alice", "node"].map(|name| TokenFile::add(&path, name).unwrap());
        let mut access = Access::new(&Config {
            tokens: Some(path),
            server_users: vec!["node".into()],
            ..Config::default()
        })
        .unwrap();
        assert_eq!(access.user(Some(&alice), None), Ok("alice".into()));
        assert!(
            access
                .may_join("alice")
                .unwrap_err()
                .contains("--server-user")
        );
        assert_eq!(access.user(Some(&node), None), Ok("node".into()));
        assert_eq!(access.may_join("node"), Ok(()));
        assert_eq!(access.user(None, Some("cert".into())), Ok("cert".into()));
        assert!(
            access
                .user(None, None)
                .unwrap_err()
                .contains("FARCALL_TOKEN")
        );
        assert!(
            access
                .user(Some("guess"), None)
                .unwrap_err()
                .contains("unknown")
        );
        let mut open = Access::new(&Config::default()).unwrap();
        let anybody = open.user(None, None).unwrap();
        assert_eq!(open.may_join(&anybody), Ok(()));
    }
}
