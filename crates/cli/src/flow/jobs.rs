//! The jobs of `--job`: several programs at once, each with its pattern, size, start and placement.
//! It parses the options; `farcall_flow` places the jobs and runs them.

use crate::failure::Failure;
use farcall_flow::{Job, Pattern, Placement, Workload};

/// The jobs as a workload, with the nodes of their ranks.
pub(super) fn read(specs: &[String], nodes: usize) -> Result<(Workload, Placement), Failure> {
    let parsed: Vec<Spec> = specs
        .iter()
        .map(|spec| {
            Spec::parse(spec).map_err(|reason| Failure::usage(format!("--job {spec}: {reason}")))
        })
        .collect::<Result<_, _>>()?;
    let places: Vec<(u32, &str)> = parsed
        .iter()
        .map(|job| (job.ranks, job.placement))
        .collect();
    let placement = Placement::of_jobs(&places, nodes)
        .map_err(|error| Failure::usage(format!("--job: {error}")))?;
    let mut jobs = Vec::new();
    for job in &parsed {
        let pattern = Pattern::parse(job.pattern, job.ranks, job.size);
        let workload = Workload::Pattern(pattern.map_err(Failure::usage)?);
        let start = job.start;
        jobs.push(Job { workload, start });
    }
    Ok((Workload::Jobs(jobs), placement))
}

/// One job, as in `ranks=64,pattern=allreduce:ring,size=1MB,start=1ms,placement=random:1`.
struct Spec<'a> {
    ranks: u32,
    pattern: &'a str,
    size: f64,
    start: f64,
    placement: &'a str,
}

impl<'a> Spec<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let (mut ranks, mut pattern, mut size) = (None, None, None);
        let (mut start, mut placement) = (0.0, "regular");
        let mut given = Vec::new();
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{part}`: expected key=value"))?;
            if given.contains(&key) {
                return Err(format!("`{key}` is given twice"));
            }
            given.push(key);
            match key {
                "ranks" => {
                    let number = value.parse().ok().filter(|&ranks: &u32| ranks > 0);
                    ranks = Some(number.ok_or_else(|| {
                        format!("ranks={value}: expected a whole number above 0")
                    })?);
                }
                "pattern" => {
                    let files = ["file:", "goal:", "chakra:"];
                    if files.iter().any(|kind| value.starts_with(kind)) {
                        return Err(format!(
                            "pattern={value}: a job takes no pattern or trace from a file. Use \
                             --pattern for one, or `farcall.flow.jobs` in Python for several"
                        ));
                    }
                    pattern = Some(value);
                }
                "size" => size = Some(farcall_quantity::volume(value)?),
                "start" => start = farcall_quantity::seconds(value)?,
                "placement" => placement = value,
                _ => {
                    let known = "ranks, pattern, size, start and placement";
                    return Err(format!("there is no `{key}`; a job has {known}"));
                }
            }
        }
        let missing = |key: &str| format!("{key}= is missing");
        Ok(Self {
            ranks: ranks.ok_or_else(|| missing("ranks"))?,
            pattern: pattern.ok_or_else(|| missing("pattern"))?,
            size: size.ok_or_else(|| missing("size"))?,
            start,
            placement,
        })
    }
}
