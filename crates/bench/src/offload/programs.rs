//! The programs of `benches/offload`: compiled once, and run plain or under `farcall offload`. This
//! module starts them and reads their figures and statistics; it decides nothing.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use tempfile::TempDir;

/// The folder of the sources, in the folder of the project.
const SOURCES: &str = "benches/offload";

/// The compiled programs.
pub(super) struct Programs {
    folder: TempDir,
    farcall: PathBuf,
}

/// A program that has ended.
pub(super) struct Ran {
    /// Seconds from its start to its end.
    pub(super) seconds: f64,
    output: Output,
}

/// What the statistics tell about one routine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) remote: f64,
    pub(super) bytes: f64,
}

impl Programs {
    /// Compiles the programs.
    pub(super) fn make() -> Result<Programs, Failure> {
        let farcall = crate::program::farcall()?;
        let folder = crate::signals::folder()?;
        let built = farcall.parent().unwrap_or(Path::new("."));
        let openblas = ["-l:libopenblas.so.0".to_owned()];
        let farcall_library = [
            "-Ibindings/c/include".to_owned(),
            format!("-L{}", built.display()),
            format!("-Wl,-rpath,{}", built.canonicalize()?.display()),
            "-lfarcall".to_owned(),
        ];
        compile("program", folder.path(), &openblas)?;
        compile("estimate", folder.path(), &farcall_library)?;
        Ok(Programs { folder, farcall })
    }

    /// The compiled program without Farcall.
    pub(super) fn plain(&self, words: &[&str]) -> Result<Ran, Failure> {
        let mut command = Command::new(self.program());
        command.args(words);
        run(command)
    }

    /// The compiled program under `farcall offload`.
    pub(super) fn offloaded(
        &self,
        server: &str,
        mode: &str,
        words: &[&str],
    ) -> Result<Ran, Failure> {
        let mut command = Command::new(&self.farcall);
        command.args(offload(server, mode));
        command.arg(self.program()).args(words);
        run(command)
    }

    /// Nanoseconds of an estimate.
    pub(super) fn estimate(&self, server: &str) -> Result<f64, Failure> {
        let mut command = Command::new(self.folder.path().join("estimate"));
        command.arg(server);
        run(command)?.printed()
    }

    pub(super) fn program(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    pub(super) fn farcall(&self) -> &Path {
        &self.farcall
    }
}

impl Ran {
    /// The figure that the program prints.
    pub(super) fn printed(&self) -> Result<f64, Failure> {
        let text = self.text();
        let figure = text.trim().parse();
        figure.map_err(|_| Failure::failed(format!("the program printed {text:?}, not a figure")))
    }

    /// What the program prints.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The statistics, by routine.
    pub(super) fn counts(&self) -> BTreeMap<String, Counts> {
        let text = String::from_utf8_lossy(&self.output.stderr);
        let rows = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let counts = Counts {
                remote: words.get(2)?.parse().ok()?,
                bytes: words.get(7)?.parse().ok()?,
            };
            Some((words[0].to_owned(), counts))
        });
        rows.collect()
    }

    /// This run, if Farcall has counted calls of a routine in it. A program without the drop-in
    /// libraries would run like the plain one, and lose nothing.
    pub(super) fn with_calls_of(self, routine: &str) -> Result<Ran, Failure> {
        match self.counts().contains_key(routine) {
            true => Ok(self),
            false => Err(Failure::failed(format!(
                "`farcall offload` has seen no call of {routine}: {}",
                String::from_utf8_lossy(&self.output.stderr).trim()
            ))),
        }
    }

    /// Bytes of all routines. A program whose calls all stayed has no such figure: few bytes are
    /// better, and this would be the best.
    pub(super) fn bytes(&self) -> f64 {
        let bytes: f64 = self.counts().values().map(|counts| counts.bytes).sum();
        if bytes > 0.0 { bytes } else { f64::NAN }
    }
}

/// The words before a program that run it under `farcall offload`.
pub(super) fn offload<'w>(server: &'w str, mode: &'w str) -> [&'w str; 6] {
    ["offload", "--stats", mode, "--server", server, "--"]
}

fn compile(name: &str, folder: &Path, libraries: &[String]) -> Result<(), Failure> {
    let source = Path::new(SOURCES).join(format!("{name}.c"));
    if !source.is_file() {
        return Err(Failure::usage(format!(
            "{} is not there: run this in the folder of the project",
            source.display()
        )));
    }
    let mut command = Command::new("cc");
    command.args(["-O2", "-o"]).arg(folder.join(name));
    command.arg(&source).args(libraries);
    let status = command.status().map_err(|error| {
        Failure::failed(format!(
            "cannot run the C compiler `cc`: {error}; install gcc"
        ))
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::failed(format!(
            "cannot compile {}: see above; `make build` makes the libraries",
            source.display()
        ))),
    }
}

/// Runs a program to its end.
pub(super) fn run(mut command: Command) -> Result<Ran, Failure> {
    // Threads of OpenBLAS wait for each other in loops. If anything else runs on the machine, times
    // then differ by far more than the bars.
    command.env("OPENBLAS_NUM_THREADS", "1");
    let told = format!("{command:?}");
    let start = Instant::now();
    let output = farcall_lab::output_of(command)?;
    let seconds = start.elapsed().as_secs_f64();
    match output.status.success() {
        true => Ok(Ran { seconds, output }),
        false => Err(Failure::failed(format!(
            "{told} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn calls_that_all_stay_have_no_bytes() {
        let ran = |remote, bytes| Ran {
            seconds: 1.0,
            output: Output {
                status: ExitStatus::from_raw(0),
                stdout: Vec::new(),
                stderr: format!(
                    "farcall offload: process 1\n\
                     function local remote refused failed here there bytes gain\n\
                     dgemm 0 {remote} 0 0 0.1 0.0 {bytes} 0.0\n"
                )
                .into(),
            },
        };
        assert_eq!(ran(2, 800).bytes(), 800.0);
        assert_eq!(ran(2, 800).counts()["dgemm"].remote, 2.0);
        assert!(ran(0, 0).bytes().is_nan());
    }

    #[test]
    fn a_program_whose_calls_nobody_counts_was_not_offloaded() {
        let ran = || Ran {
            seconds: 1.0,
            output: Output {
                status: ExitStatus::from_raw(0),
                stdout: Vec::new(),
                stderr: "dgemm 7 0 0 0 0.1 0.0 0 0.0\n".into(),
            },
        };
        assert!(ran().with_calls_of("dgemm").is_ok());
        let error = ran().with_calls_of("dgesv").err().unwrap();
        assert!(error.to_string().contains("no call of dgesv"), "{error}");
    }
}
