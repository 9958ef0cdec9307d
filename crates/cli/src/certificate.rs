//! `farcall access certificate`: makes a certificate authority, and certificates of servers and
//! clients that it signs. A file that exists is never overwritten. The key of the authority gets a
//! folder of its own, because a server does not need it.

use crate::failure::{self, Failure};
use clap::{Args, Subcommand};
use farcall_access::authority_folder;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::path::PathBuf;
use time::{Duration, OffsetDateTime};

const AUTHORITY: &str = "authority";
/// The folder of revoked certificates.
const REVOKED: &str = "revoked";
/// How long the authority and its certificates are valid.
const AUTHORITY_DAYS: i64 = 3650;
const DAYS: i64 = 730;

/// Make certificates for TLS, signed by an authority of your own
///
/// A folder has the certificate of the authority (authority.pem) and the certificates that it has
/// signed. The command makes the authority with the first certificate. Its key is in a folder
/// beside this one, whose name ends with `-authority`: move that folder to a safe place after use.
/// If you have certificates of another authority, name them in the server's configuration instead.
#[derive(Args)]
#[command(after_help = "Example:
  farcall access certificate server certificates node7.lab.example 10.0.0.7
  farcall access certificate client certificates alice
  farcall access certificate revoke certificates alice
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
        after_help = "Example:\n  farcall access certificate server certificates localhost 10.0.0.7"
    )]
    Server {
        /// Folder of the certificates
        folder: PathBuf,
        /// Names and addresses that clients use for the server
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Make the certificate of a client: NAME.pem and NAME.key
    #[command(after_help = "Example:\n  farcall access certificate client certificates alice")]
    Client {
        /// Folder of the certificates
        folder: PathBuf,
        /// Name of the user, in the form of a DNS name
        name: String,
    },
    /// Revoke a certificate: servers refuse it after they have read revoked.pem
    #[command(
        after_help = "Example:\n  farcall access certificate revoke certificates alice\n  kill \
                      -HUP $(pidof farcall)"
    )]
    Revoke {
        /// Folder of the certificates
        folder: PathBuf,
        /// Name of the user, or `server`
        name: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Server { folder, hosts } => {
            hosts.iter().try_for_each(|host| check_host(host))?;
            let usage = ExtendedKeyUsagePurpose::ServerAuth;
            issue(folder, "server", hosts, usage)
        }
        Command::Client { folder, name } => {
            check_name(name)?;
            let usage = ExtendedKeyUsagePurpose::ClientAuth;
            issue(folder, name, std::slice::from_ref(name), usage)
        }
        Command::Revoke { folder, name } => revoke(folder, name),
    }
}

/// Refuses names for which no client can ask, such as one with a port.
fn check_host(host: &str) -> Result<(), Failure> {
    match farcall_tls::is_server_name(host) {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "`{host}` cannot be the name of a server in a certificate: write a DNS name such as \
             `node7.lab.example` or `*.lab.example`, or an address such as `10.0.0.7` or `::1`, \
             without a port, brackets or `farcalls://`. Write a name with other letters than those \
             of ASCII as `xn--...`"
        ))),
    }
}

/// Refuses names whose files have another meaning, names that are those of other users, and names
/// that a server does not find in a certificate.
fn check_name(name: &str) -> Result<(), Failure> {
    /// Most bytes of the common name of a certificate.
    const MOST: usize = 64;
    if [AUTHORITY, REVOKED, "server", "anonymous"].contains(&name) {
        return Err(Failure::usage(format!(
            "`{name}` is a reserved name; choose another name for the user"
        )));
    }
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        let is_plain = bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    // A name that ends with a number is an address.
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = name.rsplit('.').next().is_some_and(is_number);
    match name.len() <= MOST && name.split('.').all(is_label) && !is_address {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "`{name}` cannot be the name of a user in a certificate: write up to {MOST} letters, \
             digits, - and _, with dots between them, such as `alice` or `alice.lab.example`"
        ))),
    }
}

/// Moves a certificate to the folder of revoked ones, and signs the list of all of them.
fn revoke(folder: &Path, name: &str) -> Result<(), Failure> {
    let revoked = folder.join(REVOKED);
    let serial = |path: &Path| farcall_tls::serial_number(path).map_err(Failure::failed);
    if [AUTHORITY, REVOKED].contains(&name) || name.contains('/') {
        return Err(Failure::usage(format!(
            "`{name}` is not the name of a certificate that can be revoked; write the name of a \
             user, or `server`"
        )));
    }
    let certificate = folder.join(format!("{name}.pem"));
    let exists = certificate.exists();
    if !exists && !is_revoked(&revoked, name) {
        return Err(Failure::failed(format!(
            "{} does not exist, so there is no certificate to revoke; check the folder and the \
             name",
            certificate.display()
        )));
    }
    let authority = authority(folder)?;
    // A command that was interrupted has moved the certificate, and the list may lack it.
    if exists {
        let number = serial(&certificate)?;
        fs::create_dir_all(&revoked).map_err(|error| failed(&revoked, error))?;
        let number: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        let to = revoked.join(format!("{name}-{number}.pem"));
        fs::rename(&certificate, &to).map_err(|error| failed(&to, error))?;
    }
    let now = OffsetDateTime::now_utc();
    let mut revoked_certs = Vec::new();
    for entry in fs::read_dir(&revoked).map_err(|error| failed(&revoked, error))? {
        let path = entry.map_err(|error| failed(&revoked, error))?.path();
        revoked_certs.push(RevokedCertParams {
            serial_number: SerialNumber::from_slice(&serial(&path)?),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
    }
    let list = CertificateRevocationListParams {
        this_update: now,
        next_update: now + Duration::days(AUTHORITY_DAYS),
        crl_number: SerialNumber::from(now.unix_timestamp() as u64),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&authority).map_err(Failure::failed)?;
    let pem = list.pem().map_err(Failure::failed)?;
    let (path, new) = (folder.join("revoked.pem"), folder.join("revoked.pem.new"));
    // Servers read the old list or the new one, also after a loss of power.
    let written = File::create(&new).and_then(|mut file| fill(&mut file, &pem));
    written.map_err(|error| failed(&new, error))?;
    fs::rename(&new, &path).map_err(|error| failed(&path, error))?;
    println!("{}", path.display());
    failure::say(format_args!(
        "farcall: put {} beside the certificates of each server, and send SIGHUP to the server",
        path.display()
    ));
    Ok(())
}

/// Whether a certificate of this name is in the folder of revoked ones.
fn is_revoked(revoked: &Path, name: &str) -> bool {
    let is_of_name = |file: &str| {
        let rest = file.strip_prefix(name)?.strip_prefix('-')?;
        let number = rest.strip_suffix(".pem")?;
        Some(number.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    let mut files = fs::read_dir(revoked).into_iter().flatten().flatten();
    files.any(|file| is_of_name(&file.file_name().to_string_lossy()) == Some(true))
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

/// The authority of a folder; this function makes it if the folder has none. A certificate names
/// the authority and its key, so that nothing has to read the authority's own certificate.
fn authority(folder: &Path) -> Result<Issuer<'static, KeyPair>, Failure> {
    let mut params = CertificateParams::new([]).map_err(Failure::failed)?;
    describe(&mut params, "Farcall authority", AUTHORITY_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let apart = authority_folder(folder);
    let [old, new] = [folder, &apart].map(|folder| folder.join("authority.key"));
    let path = if old.exists() {
        failure::say(format_args!(
            "farcall: {} is the key of the authority, which the server does not need: move it to \
             {}",
            old.display(),
            new.display()
        ));
        old
    } else {
        new
    };
    let key = match path.exists() {
        true => {
            let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
            KeyPair::from_pem(&text).map_err(|error| failed(&path, error))?
        }
        false if folder.join("authority.pem").exists() => {
            let text = format!(
                "{} is missing: the key of the authority in {}. Put the folder with the key back \
                 for this command. Or remove authority.pem to make another authority, which \
                 nobody trusts yet",
                path.display(),
                folder.join("authority.pem").display()
            );
            return Err(Failure::failed(text));
        }
        false => {
            fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
            let mut private = DirBuilder::new();
            let made = private.recursive(true).mode(0o700).create(&apart);
            made.map_err(|error| failed(&apart, error))?;
            let key = KeyPair::generate().map_err(Failure::failed)?;
            let certificate = params.self_signed(&key).map_err(Failure::failed)?;
            write_both(
                &folder.join("authority.pem"),
                &certificate.pem(),
                &path,
                &key,
            )?;
            key
        }
    };
    Ok(Issuer::new(params, key))
}

fn describe(params: &mut CertificateParams, name: &str, days: i64) {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // The clocks of two hosts differ a little.
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = params.not_before + Duration::days(days);
}

/// Writes a certificate and its key; neither file may exist.
fn write_pair(folder: &Path, name: &str, pem: &str, key: &KeyPair) -> Result<(), Failure> {
    let [certificate, private] = ["pem", "key"].map(|kind| folder.join(format!("{name}.{kind}")));
    // A key may be left of a revoked certificate. A new certificate beside it would be of no use.
    for path in [&certificate, &private] {
        if path.symlink_metadata().is_ok() {
            return Err(is_there(path));
        }
    }
    write_both(&certificate, pem, &private, key)
}

/// Writes a certificate and its key, or neither: one without the other keeps the next attempt from
/// making both. Prints their names when both are there, because a command whose output nobody reads
/// can end at its first line.
fn write_both(certificate: &Path, pem: &str, private: &Path, key: &KeyPair) -> Result<(), Failure> {
    write(certificate, pem, 0o644)?;
    if let Err(failure) = write(private, &key.serialize_pem(), 0o600) {
        let _ = fs::remove_file(certificate);
        return Err(failure);
    }
    println!("{}\n{}", certificate.display(), private.display());
    Ok(())
}

fn is_there(path: &Path) -> Failure {
    let text = "is there already; remove it first to make a new one";
    Failure::failed(format!("{} {text}", path.display()))
}

/// Writes a file that does not exist yet.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => is_there(path),
        _ => failed(path, error),
    })?;
    if let Err(error) = fill(&mut file, text) {
        // A part of a file would keep the next attempt from making it.
        let _ = fs::remove_file(path);
        return Err(failed(path, error));
    }
    Ok(())
}

/// Writes a text, which is on the disk then: a full one may say so only at the end.
fn fill(file: &mut File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn failed(path: &Path, error: impl Display) -> Failure {
    Failure::cannot("use", path.display(), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_whose_key_cannot_be_written_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, missing) = (folder.path().join("a.pem"), folder.path().join("b/a.key"));
        let key = KeyPair::generate().unwrap();
        assert!(write_both(&certificate, "pem", &missing, &key).is_err());
        assert!(!certificate.exists());
        let private = folder.path().join("a.key");
        write_both(&certificate, "pem", &private, &key).unwrap();
        assert_eq!(fs::read_to_string(&certificate).unwrap(), "pem");
        assert!(write_both(&certificate, "other", &private, &key).is_err());
        assert_eq!(fs::read_to_string(&certificate).unwrap(), "pem");
    }
}
