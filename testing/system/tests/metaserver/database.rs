//! Starts a PostgreSQL for one test, in a temporary folder. If the machine has none, the error says
//! so, and the test decides what to do. The database ends with its test.

use farcall_system::{BOUND, wait_until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// A running database, or one that was stopped.
pub(crate) struct Database {
    folder: TempDir,
    programs: PathBuf,
    child: Option<Child>,
}

/// The folder of PostgreSQL's programs, which Debian does not put on the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    folders
        .filter(|folder| folder.join("initdb").exists())
        .max()
}

impl Database {
    /// Starts a database. The error is the reason why there can be none.
    pub(crate) fn start() -> Result<Database, String> {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
        let setup = Command::new(setup)
            .arg("postgres")
            .stdout(Stdio::null())
            .output();
        let programs = programs().ok_or_else(|| {
            let said = setup.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
            format!(
                "PostgreSQL is not installed: {}",
                said.unwrap_or_default().trim()
            )
        })?;
        let folder = TempDir::new().unwrap();
        let mut database = Database {
            folder,
            programs,
            child: None,
        };
        database.own()?;
        let made = database
            .command("initdb")
            .args(["-A", "trust", "-U", "farcall", "--no-sync", "-D"])
            .arg(database.folder.path().join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        database.run();
        Ok(database)
    }

    /// PostgreSQL does not run as root, so the folder then belongs to its own user.
    fn own(&self) -> Result<(), String> {
        // SAFETY: a plain system call.
        if unsafe { libc::getuid() } != 0 {
            return Ok(());
        }
        let given = Command::new("chown")
            .arg("postgres")
            .arg(self.folder.path())
            .status();
        match given.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err("there is no user `postgres`".to_string()),
        }
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        // SAFETY: a plain system call.
        let mut command = match unsafe { libc::getuid() } {
            0 => {
                let mut command = Command::new("setpriv");
                command.args([
                    "--reuid",
                    "postgres",
                    "--regid",
                    "postgres",
                    "--init-groups",
                ]);
                command.arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts it, or starts it again.
    pub(crate) fn run(&mut self) {
        let folder = self.folder.path().to_path_buf();
        let mut command = self.command("postgres");
        command.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"]);
        command.arg(format!("unix_socket_directories={}", folder.display()));
        command.arg("-D").arg(folder.join("data"));
        // A signal to the test's terminal is meant for the test.
        command.process_group(0);
        self.child = Some(command.spawn().unwrap());
        wait_until("PostgreSQL answers", || {
            let asked = self
                .command("pg_isready")
                .arg("-q")
                .arg("-h")
                .arg(&folder)
                .status();
            asked.unwrap().success()
        });
    }

    /// Kills it.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // SAFETY: a plain system call; the process is a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGQUIT) };
        let end = Instant::now() + BOUND;
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::yield_now();
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Its address for metaservers.
    pub(crate) fn store(&self) -> String {
        let folder = self.folder.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://farcall@{folder}/postgres")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.stop();
    }
}
