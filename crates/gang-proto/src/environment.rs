//! The environment variables that a gang job keeps if its processes run as another user than the
//! one who submitted it. All others may hold secrets of the submitter.

use crate::JobSpec;

/// Names that go to another user.
const NAMES: [&str; 7] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
];
/// Beginnings of names that go to another user: the settings of threads and of MPI.
const BEGINNINGS: [&str; 11] = [
    "LC_",
    "OMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "MPICH_",
    "MPIR_",
    "I_MPI_",
    "OMPI_",
    "FI_",
    "UCX_",
];

impl JobSpec {
    /// Removes the variables that must not go to another user.
    pub fn keep_public_environment(&mut self) {
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().len();
        self.environment.retain(|pair| {
            let name = &pair[..name(pair)];
            NAMES.contains(&name) || BEGINNINGS.iter().any(|start| name.starts_with(start))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    #[test]
    fn secrets_stay() {
        let variables = [
            "PATH=/bin",
            "FARCALL_TOKEN=x",
            "AWS_SECRET_ACCESS_KEY=y",
            "HOME=/root",
            "OMP_NUM_THREADS=2",
            "LC_ALL=C",
            "PATHS=/",
        ];
        let mut spec = JobSpec {
            environment: variables.map(ToOwned::to_owned).into(),
            ..JobSpec::default()
        };
        spec.keep_public_environment();
        let kept = ["PATH=/bin", "OMP_NUM_THREADS=2", "LC_ALL=C"];
        assert_eq!(spec.environment, kept);
    }
}
