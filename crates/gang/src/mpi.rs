//! What processes of MPI get from their node. With the channels of a gang job as their network,
//! environment variables let an MPI load the provider of libfabric that comes with Farcall, and use
//! nothing else. The provider itself is in `bindings/fabric`.

use std::path::{Path, PathBuf};

/// What processes of MPI get from this node.
#[derive(Debug)]
pub(crate) struct ForMpi {
    /// This program and its arguments as a PMIx server; none if there is no libpmix.
    pub(crate) pmix: Option<Vec<String>>,
    /// The network interface that they use between nodes, if they do not choose it.
    pub(crate) interface: Option<String>,
    /// The folder with the provider that carries them over channels; none if it is not installed.
    pub(crate) fabric: Option<PathBuf>,
}

/// What makes each MPI take the provider and no transport of its own: libfabric in general, MPICH,
/// Intel MPI, and Open MPI. Above `MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD`, if a user sets it, MPICH
/// would read and write the memory of others, which the provider cannot; `pipeline` only sends.
const CHOICE: [(&str, &str); 9] = [
    ("FI_PROVIDER", "farcall"),
    ("MPIR_CVAR_CH4_NETMOD", "ofi"),
    ("MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL", "pipeline"),
    ("I_MPI_FABRICS", "ofi"),
    ("I_MPI_OFI_PROVIDER", "farcall"),
    ("OMPI_MCA_pml", "cm"),
    ("OMPI_MCA_mtl", "ofi"),
    ("OMPI_MCA_mtl_ofi_provider_include", "farcall"),
    ("OMPI_MCA_btl", "self"),
];

/// The variable with the number of the channel that the provider opens.
const CHANNEL: &str = "FARCALL_FABRIC_CHANNEL";

/// The variables of a process whose program uses `channels` channels itself. `path` is the value of
/// `FI_PROVIDER_PATH` that the user has set.
///
/// # Errors
/// Returns the cause in words if this node does not have the provider.
pub(crate) fn variables(
    folder: Option<&Path>,
    path: Option<&str>,
    channels: u8,
) -> Result<Vec<(&'static str, String)>, String> {
    let folder = folder.ok_or(
        "`--network farcall` needs libfarcall-fi.so, which is not installed on this node: it is \
         beside the farcall command or in ../lib/farcall. `make build` makes it if the headers of \
         libfabric are there (Debian: libfabric-dev)",
    )?;
    let folder = folder.display();
    let path = match path {
        Some(path) if !path.is_empty() => format!("{folder}:{path}"),
        _ => folder.to_string(),
    };
    let choice = CHOICE.map(|(name, value)| (name, value.to_string()));
    let mut variables = choice.to_vec();
    variables.push(("FI_PROVIDER_PATH", path));
    variables.push((CHANNEL, channels.max(1).to_string()));
    Ok(variables)
}

/// Takes out of an environment what an outer gang job has set for its own processes, whose
/// channels are not those of a gang job that one of them begins.
pub(crate) fn leave_outer(environment: &mut Vec<String>) {
    let is = |pair: &String, (name, value): (&str, &str)| {
        pair.split_once('=')
            .is_some_and(|pair| pair == (name, value))
    };
    let names_channel = |pair: &String| pair.split('=').next() == Some(CHANNEL);
    if !environment.iter().any(names_channel) {
        return;
    }
    environment.retain(|pair| !names_channel(pair) && !CHOICE.iter().any(|one| is(pair, *one)));
    let mut rest = None;
    environment.retain(|pair| match pair.strip_prefix("FI_PROVIDER_PATH=") {
        Some(path) => {
            // The folder of the provider comes first, and then what the user has set.
            rest = path.split_once(':').map(|(_, rest)| rest.to_string());
            false
        }
        None => true,
    });
    environment.extend(rest.map(|path| format!("FI_PROVIDER_PATH={path}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_job_has_nothing_of_the_network_of_the_outer_one() {
        let mut users = vec!["PATH=/bin".to_string(), "I_MPI_FABRICS=shm".to_string()];
        let same = users.clone();
        leave_outer(&mut users);
        assert_eq!(users, same);
        for path in [None, Some("/opt/prov:/opt/more")] {
            let outer = variables(Some(Path::new("/lib/farcall")), path, 1).expect("a folder");
            let outer = outer.iter().map(|(name, value)| format!("{name}={value}"));
            let mut inner: Vec<String> = outer.chain(same.clone()).collect();
            leave_outer(&mut inner);
            let kept = path.map(|path| format!("FI_PROVIDER_PATH={path}"));
            let expected: Vec<String> = same.iter().cloned().chain(kept).collect();
            assert_eq!(inner, expected);
        }
    }

    #[test]
    fn the_provider_comes_before_those_of_the_user() {
        let folder = Some(Path::new("/lib/farcall"));
        let found = variables(folder, Some("/opt/prov"), 2).expect("there is a folder");
        let of = |name: &str| {
            let mut pairs = found.iter().filter(|(other, _)| *other == name);
            pairs.next().map(|(_, value)| value.as_str())
        };
        assert_eq!(of("FI_PROVIDER_PATH"), Some("/lib/farcall:/opt/prov"));
        assert_eq!(of("FARCALL_FABRIC_CHANNEL"), Some("2"));
        assert_eq!(of("FI_PROVIDER"), Some("farcall"));
        let missing = variables(None, None, 1).expect_err("there is no folder");
        assert!(missing.contains("libfarcall-fi.so"), "{missing}");
    }
}
