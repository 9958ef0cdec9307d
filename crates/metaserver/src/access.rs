//! Decides which clients can connect and whose servers can join.

use crate::Config;
use farcall_access::{Evidence, Refusal, Settings, TokenError, User};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Decides which clients can connect and whose servers can join.
#[derive(Debug)]
pub(crate) struct Access {
    users: farcall_access::Access,
    server_users: Vec<String>,
}

impl Access {
    pub(crate) fn new(config: &Config) -> Result<Access, TokenError> {
        let settings = Settings {
            tokens: config.tokens.clone(),
            ..Settings::default()
        };
        Ok(Access {
            users: farcall_access::Access::new("metaserver", &settings, config.tls.as_ref())?,
            server_users: config.server_users.clone(),
        })
    }

    /// Logs a warning if anybody on a network can join servers.
    pub(crate) fn warn_of_strangers(&self, listen: &[SocketAddr]) {
        let open = listen.iter().find(|at| !at.ip().is_loopback());
        if let Some(address) = open.filter(|_| self.is_open()) {
            tracing::warn!(
                "anybody who can connect to {address} can let servers join, and these servers \
                 receive the calls of others: give users tokens (`farcall access token add`, \
                 --tokens), or certificates (--tls-clients), and name those of servers \
                 (--server-user)"
            );
        }
    }

    /// The user that a token or a certificate identifies. The error is for the client.
    pub(crate) fn user(
        &mut self,
        token: Option<&str>,
        certificate: Option<String>,
        host: IpAddr,
    ) -> Result<String, Refusal> {
        let evidence = Evidence {
            peer: &User::anonymous(),
            certificate,
            token,
            host: Some(host),
            ends: None,
        };
        let user = self.users.user(&evidence, Instant::now())?;
        Ok(user.to_string())
    }

    /// Whether clients need no credentials, so that the metaserver cannot tell users apart.
    pub(crate) fn is_open(&self) -> bool {
        self.users.is_open()
    }

    /// Checks whether the servers of a user can join. The error is for the server.
    pub(crate) fn may_join(&self, user: &str) -> Result<(), String> {
        let is_named = self.server_users.iter().any(|name| name == user);
        match is_named || (self.is_open() && self.server_users.is_empty()) {
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
    use farcall_access::TokenFile;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn with_credentials_only_servers_of_named_users_join() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let [alice, node] = ["alice", "node"].map(|name| TokenFile::add(&path, name).unwrap());
        let mut access = Access::new(&Config {
            tokens: Some(path),
            server_users: vec!["node".into()],
            ..Config::default()
        })
        .unwrap();
        assert_eq!(access.user(Some(&alice), None, HOST), Ok("alice".into()));
        assert!(
            access
                .may_join("alice")
                .unwrap_err()
                .contains("--server-user")
        );
        assert_eq!(access.user(Some(&node), None, HOST), Ok("node".into()));
        assert_eq!(access.may_join("node"), Ok(()));
        assert_eq!(
            access.user(None, Some("cert".into()), HOST),
            Ok("cert".into())
        );
        assert!(
            access
                .user(None, None, HOST)
                .unwrap_err()
                .text
                .contains("FARCALL_TOKEN")
        );
        assert!(
            access
                .user(Some("guess"), None, HOST)
                .unwrap_err()
                .text
                .contains("unknown")
        );
        let mut open = Access::new(&Config::default()).unwrap();
        let anybody = open.user(None, None, HOST).unwrap();
        assert_eq!(open.may_join(&anybody), Ok(()));
    }
}
