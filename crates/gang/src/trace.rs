//! Writes the trace: a line for each gang switch, from which charts of slices and times are made.
//! The Python package draws them. The file has only whole lines, and a full disk does not stop gang
//! jobs.

use std::fs::File;
use std::io::{self, LineWriter, Write};
use std::path::Path;

/// When the steps of one gang switch ended at the root daemon, in nanoseconds of the monotonic
/// clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) start: u64,
    pub(crate) stopped: u64,
    pub(crate) frozen: u64,
    pub(crate) saved: u64,
    pub(crate) restored: u64,
    pub(crate) run: u64,
}

impl Times {
    /// Nanoseconds spent in stopping, coming to rest, saving, restoring and running.
    pub(crate) fn steps(&self) -> [u64; 5] {
        let ends = [
            self.stopped,
            self.frozen,
            self.saved,
            self.restored,
            self.run,
        ];
        let mut before = self.start;
        ends.map(|end| {
            let step = end.saturating_sub(before);
            before = end;
            step
        })
    }
}

/// The file of `--trace`. It contains only whole lines, even if the daemon is killed.
pub(crate) struct Trace(LineWriter<File>);

impl Trace {
    pub(crate) fn create(path: &Path) -> io::Result<Trace> {
        let mut file = LineWriter::new(File::create(path)?);
        writeln!(
            file,
            "switch,start_ns,stopped_ns,frozen_ns,saved_ns,restored_ns,run_ns,out,in,nodes"
        )?;
        Ok(Trace(file))
    }

    /// Writes a line. A full disk must not stop gang jobs, so errors are ignored. `nodes` has the
    /// nodes of each incoming gang job, joined by `+`.
    pub(crate) fn write(
        &mut self,
        number: u64,
        times: &Times,
        (out, into): (&[u64], &[u64]),
        nodes: &[String],
    ) {
        let list = |jobs: &[u64]| {
            let jobs: Vec<String> = jobs.iter().map(u64::to_string).collect();
            jobs.join(" ")
        };
        let Times {
            start,
            stopped,
            frozen,
            saved,
            restored,
            run,
        } = times;
        let _ = writeln!(
            self.0,
            "{number},{start},{stopped},{frozen},{saved},{restored},{run},{},{},{}",
            list(out),
            list(into),
            nodes.join(" ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_file_at_once() {
        let path = std::env::temp_dir().join(format!("farcall-trace-{}", std::process::id()));
        let mut trace = Trace::create(&path).unwrap();
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        assert_eq!(lines(), 1);
        trace.write(1, &Times::default(), (&[], &[1]), &["node".to_owned()]);
        assert_eq!(lines(), 2);
        std::fs::remove_file(&path).unwrap();
    }
}
