//! Parses the text form of a platform into the parameters of a topology. The topologies are in
//! their own modules, and each checks its size. An unknown kind or option gets an error that lists
//! the known ones.

use super::{Dragonfly, FatTree, Grid, HyperCrossbar, HyperX, Platform, Ties, Topology};
use crate::error::SpecError;

/// The kinds of platform that a specification can start with, each with an example.
pub const PLATFORM_KINDS: [(&str, &str); 7] = [
    (
        "fat-tree",
        "fat-tree:ports=24,levels=3[,taper=2][,bandwidth=1e9:1e9:2e9]",
    ),
    ("torus", "torus:16x16[,ties=even|parity][,nic=link]"),
    ("mesh", "mesh:8x8x8[,wrap=z]"),
    ("hypercrossbar", "hypercrossbar:4x4x4"),
    (
        "dragonfly",
        "dragonfly:groups=9,routers=4,terminals=2,global=2",
    ),
    ("hyperx", "hyperx:8x8,terminals=8"),
    ("edges", "edges:FILE"),
];

pub(super) fn parse(spec: &str) -> Result<Platform, SpecError> {
    let fail = |reason: String| SpecError::new(spec, reason);
    let (kind, rest) = spec.split_once(':').unwrap_or((spec, ""));
    let mut options = Options::split(rest).map_err(fail)?;
    let bandwidth = options.bandwidths("bandwidth").map_err(fail)?;
    let bandwidth = bandwidth.unwrap_or_else(|| vec![1.0]);
    let latency = options.seconds("latency").map_err(fail)?.unwrap_or(0.0);
    let hop_latency = options.seconds("hop-latency").map_err(fail)?;
    let devices = options.count("devices").map_err(fail)?;
    let device_bandwidth = options.take("device-bandwidth");
    let topology = match kind {
        "fat-tree" => fat_tree(&mut options, &bandwidth),
        "torus" | "mesh" => grid(&mut options, &bandwidth, kind == "torus"),
        "hypercrossbar" => options
            .dims("4x4x4")
            .and_then(|dims| HyperCrossbar::new(&dims, &bandwidth))
            .map(Topology::HyperCrossbar),
        "dragonfly" => dragonfly(&mut options, &bandwidth),
        "hyperx" => hyperx(&mut options, &bandwidth),
        "edges" => {
            let text = "an edge list is a file: read it and parse its text, in Python with \
                        flow.edges";
            Err(text.to_owned())
        }
        other => {
            let known: Vec<&str> = PLATFORM_KINDS.iter().map(|(_, example)| *example).collect();
            Err(format!(
                "unknown platform `{other}`; write one of\n  {}",
                known.join("\n  ")
            ))
        }
    }
    .map_err(fail)?;
    options.finish(kind).map_err(fail)?;
    let platform = Platform::new(topology)
        .with_latency(latency)
        .with_hop_latency(hop_latency.unwrap_or(0.0));
    match (devices, device_bandwidth) {
        (None, None) => Ok(platform),
        (Some(devices), Some(text)) => positive("device-bandwidth", text)
            .and_then(|bandwidth| platform.with_devices(devices, bandwidth))
            .map_err(fail),
        _ => Err(fail(
            "devices and device-bandwidth belong together: `devices=8,device-bandwidth=300GB/s`"
                .to_owned(),
        )),
    }
}

fn fat_tree(options: &mut Options<'_>, bandwidth: &[f64]) -> Result<Topology, String> {
    let ports = options
        .count("ports")?
        .ok_or("fat-tree needs ports=2p, for example ports=24")?;
    let levels = options.count("levels")?.unwrap_or(3);
    let taper = options.count("taper")?.unwrap_or(1);
    FatTree::new(ports, levels, taper, bandwidth).map(Topology::FatTree)
}

fn grid(options: &mut Options<'_>, bandwidth: &[f64], torus: bool) -> Result<Topology, String> {
    let dims = options.dims(if torus { "16x16" } else { "8x8x8" })?;
    let mut wrap = vec![torus; dims.len()];
    if let Some(letters) = options.take("wrap") {
        wrap.fill(false);
        for letter in letters.chars().filter(|_| letters != "none") {
            let dim = "xyzuvw".find(letter).filter(|&d| d < dims.len());
            let dim = dim.ok_or_else(|| {
                let known = &"xyzuvw"[..dims.len().min(6)];
                format!("wrap={letters}: dimensions are `{known}`, or `none`")
            })?;
            wrap[dim] = true;
        }
    }
    let ties = match options.take("ties") {
        None | Some("even") => Ties::Even,
        Some("parity") => Ties::Parity,
        Some(other) => return Err(format!("ties={other}: use `even` or `parity`")),
    };
    let nic = match options.take("nic") {
        None | Some("none") => None,
        Some("link") => Some(bandwidth[0]),
        Some(value) => Some(positive("nic", value)?),
    };
    Grid::new(&dims, &wrap, bandwidth, ties, nic).map(Topology::Grid)
}

fn dragonfly(options: &mut Options<'_>, bandwidth: &[f64]) -> Result<Topology, String> {
    let routers = options
        .count("routers")?
        .ok_or("dragonfly needs routers=, per group")?;
    let terminals = options.count("terminals")?.unwrap_or((routers / 2).max(1));
    let global = options.count("global")?.unwrap_or(terminals);
    let full = u64::from(routers) * u64::from(global) + 1;
    let groups = match options.count("groups")? {
        Some(groups) => groups,
        None => u32::try_from(full).map_err(|_| "too many groups".to_owned())?,
    };
    Dragonfly::new(groups, routers, terminals, global, bandwidth).map(Topology::Dragonfly)
}

fn hyperx(options: &mut Options<'_>, bandwidth: &[f64]) -> Result<Topology, String> {
    let dims = options.dims("8x8")?;
    let terminals = options.count("terminals")?.unwrap_or(1);
    let nic = options
        .take("nic")
        .map(|v| positive("nic", v))
        .transpose()?;
    HyperX::new(&dims, terminals, bandwidth, nic).map(Topology::HyperX)
}

/// Number of nodes of a grid of these dimensions, at most [`super::MAX_SIZE`].
pub(super) fn product(dims: &[u32]) -> Result<u64, String> {
    if dims.is_empty() || dims.len() > 6 {
        return Err("use between one and six dimensions".to_owned());
    }
    let mut nodes = 1u64;
    for &n in dims {
        if n == 0 {
            return Err("every dimension needs at least one node".to_owned());
        }
        nodes *= u64::from(n);
        if nodes > super::MAX_SIZE {
            return Err(format!("more than {} nodes", super::MAX_SIZE));
        }
    }
    Ok(nodes)
}

/// One bandwidth per dimension from one value or as many values as dimensions.
pub(super) fn per_dimension(bandwidth: &[f64], dims: usize) -> Result<Vec<f64>, String> {
    match bandwidth {
        [one] => Ok(vec![*one; dims]),
        many if many.len() == dims => Ok(many.to_vec()),
        many => Err(format!("{} bandwidths for {dims} dimensions", many.len())),
    }
}

/// The letter of a dimension: `x`, `y`, `z`, `u`, `v`, `w`.
pub(super) fn dimension_name(dim: usize) -> char {
    b"xyzuvw"[dim.min(5)] as char
}

fn positive(key: &str, text: &str) -> Result<f64, String> {
    match farcall_quantity::amount(text) {
        Ok(value) if value > 0.0 => Ok(value),
        Ok(_) => Err(format!("{key}={text}: must be above 0")),
        Err(reason) => Err(format!("{key}: {reason}")),
    }
}

/// The comma-separated part of a specification: at most one value without a key, then pairs
/// `key=value`.
pub(crate) struct Options<'a> {
    bare: Option<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
    asked: Vec<&'static str>,
}

impl<'a> Options<'a> {
    pub(crate) fn split(text: &'a str) -> Result<Self, String> {
        let mut options = Self {
            bare: None,
            pairs: Vec::new(),
            asked: Vec::new(),
        };
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.split_once('=') {
                Some((key, value)) => {
                    let key = key.trim();
                    if options.pairs.iter().any(|(k, _)| *k == key) {
                        return Err(format!("`{key}` is given twice"));
                    }
                    options.pairs.push((key, value.trim()));
                }
                None if options.bare.is_none() => options.bare = Some(part),
                None => return Err(format!("`{part}`: expected key=value")),
            }
        }
        Ok(options)
    }

    pub(crate) fn bare(&mut self) -> Option<&'a str> {
        self.bare.take()
    }

    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'a str> {
        self.asked.push(key);
        let at = self.pairs.iter().position(|(k, _)| *k == key)?;
        Some(self.pairs.remove(at).1)
    }

    pub(crate) fn count(&mut self, key: &'static str) -> Result<Option<u32>, String> {
        self.take(key)
            .map(|v| {
                v.parse()
                    .map_err(|_| format!("{key}={v}: expected a whole number"))
            })
            .transpose()
    }

    pub(crate) fn seconds(&mut self, key: &'static str) -> Result<Option<f64>, String> {
        self.take(key)
            .map(|v| farcall_quantity::seconds(v).map_err(|reason| format!("{key}: {reason}")))
            .transpose()
    }

    fn bandwidths(&mut self, key: &'static str) -> Result<Option<Vec<f64>>, String> {
        self.take(key)
            .map(|v| v.split(':').map(|one| positive(key, one)).collect())
            .transpose()
    }

    fn dims(&mut self, example: &str) -> Result<Vec<u32>, String> {
        let text = self
            .bare()
            .ok_or_else(|| format!("sizes are missing, for example {example}"))?;
        text.split('x')
            .map(|n| {
                n.parse()
                    .map_err(|_| format!("`{text}`: expected sizes such as {example}"))
            })
            .collect()
    }

    pub(crate) fn finish(self, kind: &str) -> Result<(), String> {
        if let Some(bare) = self.bare {
            return Err(format!("{kind} does not take `{bare}`"));
        }
        match self.pairs.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!(
                "{kind} has no option `{key}`; it has {}",
                self.asked.join(", ")
            )),
        }
    }
}
