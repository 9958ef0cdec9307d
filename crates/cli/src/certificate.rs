//! `farcall certificate`

use crate::failure::Failure;
use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use time::{Duration, OffsetDateTime};

const AUTHORITY: &str = "authority";
/// For how long the authority and what it signs are valid.
const AUTHORITY_DAYS: i64 = 3650;
const DAYS: i64 = 730;

/// Make certificates for TLS, signed by an authority of your own
///
/// A folder holds the authority (authority.pem, authority.key), made with the first certificate,
/// and what it has signed. Who has certificates of another authority needs none of this: name them
/// in the server's configuration.
#[derive(Args)]
#[command(after_help = "Example:
  farcall certificate server certificates node7.lab.example 10.0.0.7
  farcall certificate client certificates alice
  farcall serve libraries/lapack.idl --listen 0.0.0.0:3717 \\
      --tls certificates --tls-clients certificates/authority.pem

  # elsewhere, with authority.pem, alice.pem and alice.key
  export FARCALL_CA=authority.pem FARCALL_CERT=alice.pem FARCALL_KEY=alice.key
  farcall ls farcalls://node7.lab.example")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the certificate of a server: server.pem and server.key
    #[command(
        after_help = "Example:\n  farcall certificate server certificates localhost 10.0.0.7"
    )]
    Server {
        /// Folder of the certificates
        folder: PathBuf,
        /// Names and addresses by which clients know the server
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Make the certificate of a client: NAME.pem and NAME.key
    #[command(after_help = "Example:\n  farcall certificate client certificates alice")]
    Client {
        /// Folder of the certificates
        folder: PathBuf,
        /// Name of the user, as a DNS name is written
        name: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Server { folder, hosts } => {
            let usage = ExtendedKeyUsagePurpose::ServerAuth;
            issue(folder, "server", hosts, usage)
        }
        Command::Client { folder, name } => {
            if [AUTHORITY, "server"].contains(&name.as_str()) {
                return Err(Failure::usage(format!(
                    "`{name}` is the name of another file"
                )));
            }
            let usage = ExtendedKeyUsagePurpose::ClientAuth;
            issue(folder, name, std::slice::from_ref(name), usage)
        }
    }
}

fn issue(
    folder: &Path,
    file: &str,
    names: &[String],
    usage: ExtendedKeyUsagePurpose,
) -> Result<(), Failure> {
    let mut params = CertificateParams::new(names).map_err(Failure::usage)?;
    describe(&mut params, &names[0], DAYS);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let authority = authority(folder)?;
    let key = KeyPair::generate().map_err(Failure::failed)?;
    let certificate = params
        .signed_by(&key, &authority)
        .map_err(Failure::failed)?;
    write_pair(folder, file, &certificate.pem(), &key)
}

/// The authority of a folder, made where there is none. What it signs names it and its key, so that
/// its own certificate need not be read.
fn authority(folder: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let mut params = CertificateParams::new([]).map_err(Failure::failed)?;
    describe(&mut params, "Farcall authority", AUTHORITY_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let path = folder.join(AUTHORITY).with_extension("key");
    let key = match path.exists() {
        true => {
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            KeyPair::from_pem(&text).map_err(|error| failed(&path, error))?
        }
        false => {
            fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
            let key = KeyPair::generate().map_err(Failure::failed)?;
            let certificate = params.self_signed(&key).map_err(Failure::failed)?;
            write_pair(folder, AUTHORITY, &certificate.pem(), &key)?;
            key
        }
    };
    Ok(Issuer::new(params, key))
}

fn describe(params: &mut CertificateParams, name: &str, days: i64) {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Clocks differ a little.
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = params.not_before + Duration::days(days);
}

/// Writes a certificate and its key; neither may be there before.
fn write_pair(folder: &Path, name: &str, pem: &str, key: &KeyPair) -> Result<(), Failure> {
    for (end, text, mode) in [("pem", pem, 0o644), ("key", &key.serialize_pem(), 0o600)] {
        let path = folder.join(format!("{name}.{end}"));
        let mut options = OpenOptions::new();
        let write = options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()));
        match write {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let text = "is there already; remove it first to have a new one";
                return Err(Failure::failed(format!("{} {text}", path.display())));
            }
            other => other.map_err(|error| failed(&path, error))?,
        }
        println!("{}", path.display());
    }
    Ok(())
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}
