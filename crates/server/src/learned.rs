//! Saves learned values in the state folder: times of functions and rates of links. `server-proto`
//! learns them. Every value is checked when it is read. If a file is missing or damaged, the server
//! starts without it.

use farcall_schedule::{Learned, Predictor, Profile, Throughput};
use farcall_server_proto::{Functions, Links};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread::{self, JoinHandle};

const NAME: &str = "learned.json";
/// Larger files are ignored.
const MOST_BYTES: u64 = 16 << 20;
const SCHEMA: u32 = 1;

/// The file. Every value is checked when it is read, because the file may be truncated or edited.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    /// By qualified name.
    functions: BTreeMap<String, Function>,
    /// Bytes a second, up and down, by the address of the other host.
    links: BTreeMap<IpAddr, [Option<f64>; 2]>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    /// Recent mean in nanoseconds.
    exec: Option<f64>,
    /// By processor elements: octave, mean, variance, calls.
    rates: BTreeMap<u32, Vec<(u8, f64, f64, u32)>>,
}

/// Restores what an earlier server has learned. A missing file is not an error.
pub(crate) fn load(folder: &Path, functions: &mut Functions, links: &mut Links) {
    let path = folder.join(NAME);
    let file = match read(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(
                "{}: {error}; the server starts with no learned times",
                path.display()
            );
            return;
        }
    };
    for (name, function) in file.functions {
        let rates = function.rates.into_iter();
        let predictors = rates.filter_map(|(pes, rates)| Some((pes, predictor(rates)?)));
        let exec = function
            .exec
            .filter(|exec| exec.is_finite() && *exec >= 0.0);
        functions.resume(&name, exec, Profile::resume(predictors));
    }
    for (host, rates) in file.links {
        let [up, down] = rates.map(|rate| rate.and_then(Throughput::of_rate).unwrap_or_default());
        links.resume(host, up, down);
    }
}

fn predictor(rates: Vec<(u8, f64, f64, u32)>) -> Option<Predictor> {
    let learned = rates
        .into_iter()
        .map(|(octave, mean, variance, calls)| Learned {
            octave,
            mean,
            variance,
            calls,
        });
    Predictor::resume(learned)
}

fn read(path: &Path) -> io::Result<File> {
    let mut text = Vec::new();
    let file = fs::File::open(path)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(
            "it is larger than a file of learned times can be",
        ));
    }
    let file: File = serde_json::from_slice(&text)?;
    match file.schema {
        SCHEMA => Ok(file),
        other => Err(io::Error::other(format!(
            "it has schema {other}, expected {SCHEMA}"
        ))),
    }
}

/// Saves what was learned, without letting the server wait for the disk.
#[derive(Default)]
pub(crate) struct Keeper(Option<JoinHandle<()>>);

impl Keeper {
    /// Saves in a thread. While an earlier one still writes, the next time will do.
    pub(crate) fn keep(&mut self, folder: &Path, functions: &Functions, links: &Links) {
        if self.0.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (file, folder) = (File::of(functions, links), folder.to_path_buf());
        let save = move || {
            if let Err(error) = file.save(&folder) {
                let folder = folder.display();
                tracing::warn!("{folder}: learned times cannot be stored: {error}");
            }
        };
        match thread::Builder::new().name("learned".into()).spawn(save) {
            Ok(thread) => self.0 = Some(thread),
            Err(error) => tracing::warn!("learned times cannot be stored: {error}"),
        }
    }

    /// Waits until everything is saved.
    pub(crate) fn wait(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

impl File {
    fn of(functions: &Functions, links: &Links) -> File {
        let of_profile = |profile: &Profile| {
            let predictors = profile.predictors().iter();
            let rates = predictors.map(|(pes, predictor)| {
                let learned = predictor.learned();
                let rates = learned.map(|rate| (rate.octave, rate.mean, rate.variance, rate.calls));
                (*pes, rates.collect())
            });
            rates.collect()
        };
        let functions = functions.learned().map(|(name, exec, profile)| {
            let rates = of_profile(profile);
            (name.into_owned(), Function { exec, rates })
        });
        let links = links.rates();
        let links = links.map(|(host, up, down)| (host, [up.rate(), down.rate()]));
        File {
            schema: SCHEMA,
            functions: functions.collect(),
            links: links.collect(),
        }
    }

    /// Saves it. The file is complete or absent, also after a loss of power.
    fn save(&self, folder: &Path) -> io::Result<()> {
        let beside = folder.join(format!(".{NAME}.{}", std::process::id()));
        let text = serde_json::to_vec(self)?;
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)
            .and_then(|mut out| out.write_all(&text).and_then(|()| out.sync_all()))
            .and_then(|()| fs::rename(&beside, folder.join(NAME)));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("farcall-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn links_are_known_again() {
        let folder = folder("learned");
        let table = Functions::default();
        let mut links = Links::default();
        let host: IpAddr = "192.0.2.1".parse().unwrap();
        let up = Throughput::of_rate(1e8).unwrap();
        links.resume(host, up, Throughput::default());
        let mut keeper = Keeper::default();
        keeper.keep(&folder, &table, &links);
        keeper.wait();
        let (mut again, mut functions) = (Links::default(), Functions::default());
        load(&folder, &mut functions, &mut again);
        let rates: Vec<_> = again
            .rates()
            .map(|(host, up, down)| (host, up.rate(), down.rate()))
            .collect();
        assert_eq!((rates[0].0, rates[0].2), (host, None));
        assert!((rates[0].1.unwrap() / 1e8 - 1.0).abs() < 1e-9);
        assert_eq!(
            fs::read_dir(&folder).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn nobody_waits_for_a_slow_disk() {
        let folder = folder("slow");
        let beside = folder.join(format!(".{NAME}.{}", std::process::id()));
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &beside, fifo, mode, 0).unwrap();
        let (table, links) = (Functions::default(), Links::default());
        let mut keeper = Keeper::default();
        for _ in 0..3 {
            keeper.keep(&folder, &table, &links);
        }
        assert!(
            keeper
                .0
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        );
        let mut text = String::new();
        fs::File::open(&beside)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        keeper.wait();
        // The others were left out, and the next one is saved.
        assert!(!folder.join(NAME).exists() && text.contains("schema"));
        keeper.keep(&folder, &table, &links);
        keeper.wait();
        assert!(folder.join(NAME).exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_that_are_not_ours_do_no_harm() {
        let folder = folder("foreign");
        let sound = concat!(
            r#"{"schema":1,"functions":{"a/b":{"exec":5.0,"rates":{"1":[[3,-20.5,0.1,7]]}}},"#,
            r#""links":{"::1":[1e9,null]}}"#
        );
        let mut texts: Vec<Vec<u8>> = (0..sound.len()).map(|end| sound[..end].into()).collect();
        for (from, to) in [
            ("\"schema\":1", "\"schema\":2"),
            ("5.0", "-1e300"),
            ("\"1\"", "\"0\""),
            ("-20.5", "1e308"),
            ("[3,", "[200,"),
            ("1e9", "-1"),
            ("\"::1\"", "\"host\""),
        ] {
            assert!(sound.contains(from));
            texts.push(sound.replace(from, to).into());
        }
        texts.push(vec![b'['; 1 << 16]);
        for text in texts {
            fs::write(folder.join(NAME), text).unwrap();
            let (mut functions, mut links) = (Functions::default(), Links::default());
            load(&folder, &mut functions, &mut links);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
