//! The environment of workers: the variables of the server that functions may see.
//!
//! A server has secrets in its environment, such as `FARCALL_TOKEN` or the keys of a cloud. A
//! function gets only the variables that say where programs and libraries are, which language and
//! time zone to use, and how many threads, and those that the operator names.

use farcall_library::THREAD_VARIABLES;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Variables that every worker gets.
const NAMES: [&str; 16] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "FARCALL_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "RUST_BACKTRACE",
    "LLVM_PROFILE_FILE",
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
    "CUDA_VISIBLE_DEVICES",
    "FARCALL_CUDA",
];
/// First parts of the names of variables that every worker gets.
const FAMILIES: [&str; 8] = [
    "LC_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "OPENBLAS_",
    "MKL_",
    "BLIS_",
    "PYTHON",
];
/// The same for workers of several processes: settings of launchers and of MPI.
const PARALLEL_FAMILIES: [&str; 12] = [
    "SLURM_", "PMI_", "PMIX_", "PRTE_", "HYDRA_", "MPICH_", "MPIEXEC_", "OMPI_", "I_MPI_", "UCX_",
    "FI_", "PBS_",
];

/// A token of the user of the server for Slurm.
const SLURM_TOKEN: &str = "SLURM_JWT";

/// The variables of a worker.
pub(crate) struct Environment<'e> {
    /// Names of further variables that the operator lets functions see.
    pub(crate) named: &'e [String],
    /// Whether the worker has several processes.
    pub(crate) is_parallel: bool,
    /// Threads of the library at the beginning.
    pub(crate) threads: u32,
    /// The worker's folder.
    pub(crate) folder: &'e Path,
    /// The names of its GPUs. `None` if the server does not share out GPUs.
    pub(crate) gpus: Option<String>,
}

impl Environment<'_> {
    /// The variables, chosen from those of the server.
    pub(crate) fn variables(
        &self,
        of_server: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let mut home = None;
        let mut chosen: Vec<(OsString, OsString)> = Vec::new();
        for (name, value) in of_server {
            if name == "HOME" {
                home = Some(value.clone());
            }
            if self.shows(&name) {
                chosen.push((name, value));
            }
        }
        // Packages that the server's user has installed for itself remain importable.
        let base = home.map(|home| Path::new(&home).join(".local").into_os_string());
        let is_set = chosen.iter().any(|(name, _)| name == "PYTHONUSERBASE");
        let base = base.filter(|_| !is_set);
        chosen.extend(base.map(|base| ("PYTHONUSERBASE".into(), base)));
        let own = THREAD_VARIABLES.map(|name| (name, self.threads.to_string().into()));
        let folders = ["HOME", "TMPDIR"].map(|name| (name, self.folder.as_os_str().to_owned()));
        // Fortran's own buffer would hold lines back until the process ends.
        let unbuffered = ("GFORTRAN_UNBUFFERED_PRECONNECTED", "y".into());
        let gpus = self
            .gpus
            .iter()
            .map(|names| ("CUDA_VISIBLE_DEVICES", names.into()));
        let own = own.into_iter().chain(folders).chain([unbuffered]);
        for (name, value) in own.chain(gpus) {
            chosen.retain(|(known, _)| known != name);
            chosen.push((name.into(), value));
        }
        chosen
    }

    fn shows(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else {
            return false;
        };
        let begins = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
        NAMES.contains(&name)
            || self.named.iter().any(|named| named == name)
            || begins(&FAMILIES)
            || self.is_parallel && begins(&PARALLEL_FAMILIES) && name != SLURM_TOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_several_processes_see_no_token_for_slurm() {
        let shown = |named: &[String]| {
            let environment = Environment {
                named,
                is_parallel: true,
                threads: 1,
                folder: Path::new("/folder"),
                gpus: None,
            };
            let names = ["SLURM_JOB_ID", SLURM_TOKEN].map(OsStr::new);
            names.map(|name| environment.shows(name))
        };
        assert_eq!(shown(&[]), [true, false]);
        assert_eq!(shown(&[SLURM_TOKEN.to_string()]), [true, true]);
    }

    #[test]
    fn secrets_of_the_server_stay_there() {
        let named = ["LICENSE_SERVER".to_string()];
        let environment = Environment {
            named: &named,
            is_parallel: false,
            threads: 3,
            folder: Path::new("/folder"),
            gpus: Some("1".to_string()),
        };
        let of_server = [
            ("PATH", "/bin"),
            ("HOME", "/home/alice"),
            ("LC_ALL", "C"),
            ("OMP_NUM_THREADS", "64"),
            ("OMP_SCHEDULE", "static"),
            ("FARCALL_TOKEN", "secret"),
            ("FARCALL_KEY", "/keys/alice.key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("SLURM_JOB_ID", "7"),
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("LICENSE_SERVER", "host"),
        ];
        let of_server = of_server.map(|(name, value)| (name.into(), value.into()));
        let variables = environment.variables(of_server.into_iter());
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.to_str().unwrap())
        };
        assert_eq!(value("PATH"), Some("/bin"));
        assert_eq!(value("LC_ALL"), Some("C"));
        assert_eq!(value("OMP_SCHEDULE"), Some("static"));
        assert_eq!(value("LICENSE_SERVER"), Some("host"));
        assert_eq!(value("OMP_NUM_THREADS"), Some("3"));
        assert_eq!(value("CUDA_VISIBLE_DEVICES"), Some("1"));
        assert_eq!(value("HOME"), Some("/folder"));
        assert_eq!(value("PYTHONUSERBASE"), Some("/home/alice/.local"));
        for name in [
            "FARCALL_TOKEN",
            "FARCALL_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "SLURM_JOB_ID",
        ] {
            assert_eq!(value(name), None, "{name}");
        }
    }
}
