//! Decides which clients can connect and whose servers can join. The crate `access` identifies
//! users; this module applies the metaserver's settings to them. If the metaserver has tokens or
//! certificates, a server joins only for a user whom the settings name.

use crate::Config;
use farcall_access::{Claim, Evidence, Found, Proving, Refusal, Settings, TokenError, User};
use std::net::IpAddr;
use std::path::Path;
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

    /// Logs a warning if anybody on a network can join servers, or if some that should cannot.
    pub(crate) fn warn(&self, config: &Config) {
        for obstacle in self.obstacles(config) {
            tracing::warn!("{obstacle}");
        }
        let open = config.listen.iter().find(|at| !at.ip().is_loopback());
        if let Some(address) = open.filter(|_| self.is_open()) {
            tracing::warn!(
                "anybody who can connect to {address} can let servers join, and these servers \
                 receive the calls of others: give users tokens (`farcall access token add`, \
                 --tokens), or certificates (--tls-clients), and name those of servers \
                 (--server-user)"
            );
        }
    }

    /// Why no server can join, or none of a user.
    fn obstacles(&self, config: &Config) -> Vec<String> {
        let names = &self.server_users;
        if self.is_open() && !names.is_empty() {
            return vec![format!(
                "no server can join: --server-user names {}, but without --tokens or --tls-clients \
                 nobody has a name; add one of them, or leave --server-user out",
                names.join(", ")
            )];
        }
        if !self.is_open() && names.is_empty() {
            return vec![
                "no server can join: name the users whose servers may (--server-user)".to_string(),
            ];
        }
        let tls = config.tls.as_ref();
        if tls.is_some_and(|tls| tls.clients.is_some()) {
            // Each name may be one of a certificate.
            return Vec::new();
        }
        let known = self.users.users_with_tokens();
        let unknown = names.iter().filter(|name| !known.contains(&name.as_str()));
        let file = config.tokens.as_deref().unwrap_or_else(|| Path::new(""));
        let file = file.display();
        let told = unknown.map(|name| {
            format!(
                "no server of {name} (--server-user) can join: {name} has no token in {file}; make \
                 one with `farcall access token add {file} {name}`"
            )
        });
        told.collect()
    }

    /// Reads the tokens again now, so that an operator who asks for it learns of an error.
    ///
    /// # Errors
    /// The file can no longer be used, and no token is accepted until it can.
    pub(crate) fn reread(&mut self) -> Result<(), TokenError> {
        self.users.reread()
    }

    /// The user that the evidence identifies, or the challenge for a client that has a token. The
    /// error is for the client.
    pub(crate) fn user(
        &mut self,
        claim: Claim<'_>,
        (certificate, binding): (Option<String>, Option<[u8; 32]>),
        host: IpAddr,
    ) -> Result<Found, Refusal> {
        let evidence = Evidence {
            peer: &User::anonymous(),
            certificate,
            claim,
            binding,
            host: Some(host),
            ends: None,
        };
        self.users.user(&evidence, Instant::now())
    }

    /// Checks the proof of a client. Returns its user and the signature for it.
    pub(crate) fn check(
        &mut self,
        proving: &Proving,
        proof: &str,
    ) -> Result<(User, String), Refusal> {
        self.users.check(proving, proof, Instant::now())
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
    use farcall_scram::{Client, Salted, Secret};

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// The user of a client with these credentials.
    fn user(
        access: &mut Access,
        token: Option<&str>,
        certificate: Option<&str>,
    ) -> Result<String, String> {
        let secret = token.map(Secret::of_token);
        let begun = secret
            .as_ref()
            .map(|secret| Client::new(&secret.name, &[7; 18], false));
        let claim = match &begun {
            Some((_, first)) => Claim::First(first),
            None => Claim::Nothing,
        };
        let found = access.user(claim, (certificate.map(str::to_string), None), HOST);
        let (proving, challenge) = match found.map_err(|refusal| refusal.text)? {
            Found::User(user) => return Ok(user.to_string()),
            Found::Challenge(proving, challenge) => (proving, challenge),
        };
        let (secret, (client, _)) = (secret.unwrap(), begun.unwrap());
        let derive = |salt: &[u8], count| Salted::new(&secret.secret, salt, count);
        let (_, proof) = client.answer(&challenge, None, derive).unwrap();
        let checked = access.check(&proving, &proof);
        checked
            .map(|(user, _)| user.to_string())
            .map_err(|refusal| refusal.text)
    }

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
        assert_eq!(user(&mut access, Some(&alice), None), Ok("alice".into()));
        let refusal = access.may_join("alice").unwrap_err();
        assert!(refusal.contains("--server-user"), "{refusal}");
        assert_eq!(user(&mut access, Some(&node), None), Ok("node".into()));
        assert_eq!(access.may_join("node"), Ok(()));
        assert_eq!(user(&mut access, None, Some("cert")), Ok("cert".into()));
        let refusal = user(&mut access, None, None).unwrap_err();
        assert!(refusal.contains("FARCALL_TOKEN"), "{refusal}");
        let refusal = user(&mut access, Some("guess"), None).unwrap_err();
        assert!(refusal.contains("unknown"), "{refusal}");
        let mut open = Access::new(&Config::default()).unwrap();
        let anybody = user(&mut open, None, None).unwrap();
        assert_eq!(open.may_join(&anybody), Ok(()));
    }

    #[test]
    fn an_operator_learns_of_tokens_that_cannot_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let alice = TokenFile::add(&path, "alice").unwrap();
        let config = Config {
            tokens: Some(path.clone()),
            ..Config::default()
        };
        let mut access = Access::new(&config).unwrap();
        assert!(access.reread().is_ok());
        assert_eq!(user(&mut access, Some(&alice), None), Ok("alice".into()));
        std::fs::remove_file(&path).unwrap();
        assert!(access.reread().is_err());
        assert!(user(&mut access, Some(&alice), None).is_err());
    }

    #[test]
    fn servers_that_cannot_join_are_told_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        TokenFile::add(&path, "node").unwrap();
        let told = |tokens: bool, names: &[&str]| {
            let config = Config {
                tokens: tokens.then(|| path.clone()),
                server_users: names.iter().map(ToString::to_string).collect(),
                ..Config::default()
            };
            Access::new(&config).unwrap().obstacles(&config).join("\n")
        };
        assert_eq!(told(false, &[]), "");
        assert_eq!(told(true, &["node"]), "");
        let nobody = told(true, &[]);
        assert!(nobody.contains("name the users"), "{nobody}");
        let nameless = told(false, &["node"]);
        assert!(nameless.contains("nobody has a name"), "{nameless}");
        let unknown = told(true, &["node", "noed"]);
        assert!(unknown.contains("noed has no token"), "{unknown}");
        assert_eq!(unknown.lines().count(), 1);
    }
}
