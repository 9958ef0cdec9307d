//! An sshd of the benchmark's own, on a free port of the loopback, with keys of its own. It and its
//! files end with the benchmark.

use crate::failure::Failure;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/sbin/sshd";

/// A running sshd.
pub(super) struct Sshd {
    process: Child,
    folder: TempDir,
}

impl Sshd {
    /// Starts it; `None` if OpenSSH is missing.
    pub(super) fn start() -> Result<Option<Sshd>, Failure> {
        if !Path::new(PROGRAM).exists() {
            return Ok(None);
        }
        let folder = crate::signals::folder()?;
        let path = folder.path().display();
        for key in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            let status = keygen.arg(folder.path().join(key)).status()?;
            if !status.success() {
                return Err(Failure::failed(format!("ssh-keygen: {status}")));
            }
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let text = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {path}/host\nPidFile none\nStrictModes no\n\
             AuthorizedKeysFile {path}/user.pub\nPermitRootLogin yes\nUsePAM no\n\
             SetEnv XDG_RUNTIME_DIR={path}\n"
        );
        fs::write(folder.path().join("sshd_config"), text)?;
        let text = format!(
            "Host bench\nHostName 127.0.0.1\nPort {port}\nIdentityFile {path}/user\n\
             IdentitiesOnly yes\nUserKnownHostsFile {path}/known\nBatchMode yes\n\
             StrictHostKeyChecking accept-new\nLogLevel ERROR\n"
        );
        fs::write(folder.path().join("ssh_config"), text)?;
        if rustix::process::geteuid().is_root() {
            // sshd separates its privileges in this folder.
            fs::create_dir_all("/run/sshd")?;
        }
        let mut command = Command::new(PROGRAM);
        command.args(["-D", "-e", "-f"]);
        command.arg(folder.path().join("sshd_config"));
        command.stderr(Stdio::piped());
        let mut process = farcall_child::spawn(command)?;
        let mut line = String::new();
        let mut said = BufReader::new(process.stderr.take().unwrap_or_else(|| {
            unreachable!("the standard error output is a pipe");
        }));
        said.read_line(&mut line)?;
        // Later words must find a reader.
        std::thread::spawn(move || said.lines().for_each(drop));
        if !line.contains("listening") {
            return Err(Failure::failed(format!("sshd: {}", line.trim())));
        }
        Ok(Some(Sshd { process, folder }))
    }

    /// The configuration by which ssh finds it as the host `bench`.
    pub(super) fn config(&self) -> String {
        self.folder.path().join("ssh_config").display().to_string()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // If it has ended, this only collects its status.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
