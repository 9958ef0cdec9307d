//! The results of a call: files, or a line for each array. `npy` and `texts` convert the elements.
//! Stored arrays are left out, because they remain at the server.

use crate::failure::{self, Failure};
use crate::npy;
use crate::plain::one_line;
use crate::texts;
use farcall_client::{Interface, Outcome, Receipt, Scalar};
use farcall_gateway::Shown;
use farcall_idl::{ArrayLayout, Layout, Order, Param};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most elements of an array that are printed for people.
pub(crate) const SHOWN: usize = 8;

/// The file that a path names, also under another name; none if it is a device, which takes more
/// than one array.
pub(crate) fn regular(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = path.canonicalize() {
        return real.is_file().then_some(real);
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// Refuses files that cannot be written, and one file for two arrays, before a call computes what
/// they should have.
pub(crate) fn check_files<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
) -> Result<(), Failure> {
    let mut files = BTreeSet::new();
    for path in paths {
        let path = path.as_ref();
        check_file(path)?;
        if regular(path).is_some_and(|real| !files.insert(real)) {
            let text = "another array is written to this file; name one file for each";
            return Err(Failure::cannot("write", path.display(), text).into_usage());
        }
    }
    Ok(())
}

/// The first file to write that is also read, under this or another name.
pub(crate) fn also_read<'w>(
    written: impl IntoIterator<Item = &'w Path>,
    read: impl IntoIterator<Item: AsRef<Path>>,
) -> Option<&'w Path> {
    let read = read.into_iter().filter_map(|file| regular(file.as_ref()));
    let read: BTreeSet<PathBuf> = read.collect();
    let is_read = |file: &&Path| regular(file).is_some_and(|real| read.contains(&real));
    written.into_iter().find(is_read)
}

fn check_file(path: &Path) -> Result<(), Failure> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::cannot("write", path.display(), error).into_usage()
    };
    if path.to_string_lossy().contains("://") {
        return Err(fail(
            &"this is an address; write NAME=@ADDRESS without -o, and the server writes there",
        ));
    }
    if path == Path::new("") {
        return Err(Failure::usage("the name of a file to write is empty"));
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return Err(fail(&"there is no such folder"));
    }
    if path.is_dir() {
        return Err(fail(&"this is a folder; add the name of a file"));
    }
    // A link to a file that is not there yet leads to a folder that is not looked at.
    let (place, what) = match path.symlink_metadata() {
        Ok(_) => (path, Access::WRITE_OK),
        Err(_) => (
            folder.unwrap_or(Path::new(".")),
            Access::WRITE_OK | Access::EXEC_OK,
        ),
    };
    match access(place, what) {
        Err(error) if error != Errno::NOENT => Err(fail(&std::io::Error::from(error))),
        _ => Ok(()),
    }
}

/// The arrays of a call that is over.
pub(crate) struct Results<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) scalars: &'a [Option<Scalar>],
    pub(crate) layout: &'a Layout,
    /// Bytes of each array parameter.
    pub(crate) arrays: &'a BTreeMap<usize, Vec<u8>>,
    /// Files for some of those that come back.
    pub(crate) outputs: &'a BTreeMap<usize, PathBuf>,
}

impl Results<'_> {
    /// The arrays that come back, and do not stay at the server.
    fn returned(&self) -> impl Iterator<Item = (&Param, ArrayLayout, &[u8])> {
        let arrays = self.layout.arrays.iter();
        arrays
            .filter(|array| array.mode.is_returned())
            .filter_map(|array| {
                let bytes_of = |param| self.arrays.get(&param).map(Vec::as_slice);
                let bytes = bytes_of(array.param)?;
                let (array, bytes) = self.interface.shown(array, bytes, bytes_of);
                Some((&self.interface.params[array.param], array, bytes))
            })
    }

    /// Files that the call has written: the argument, and its files.
    fn written(&self) -> impl Iterator<Item = (&Param, &[String])> {
        let params = self.interface.params.iter().zip(self.scalars);
        let returned = params.filter(|(param, _)| param.mode.is_returned());
        returned.filter_map(|(param, scalar)| match scalar {
            Some(Scalar::Text(path)) if param.is_file() => {
                Some((param, std::slice::from_ref(path)))
            }
            Some(Scalar::Texts(paths)) if param.is_files() => Some((param, paths.as_slice())),
            _ => None,
        })
    }

    /// Writes all files that can be written, because they may have hours of work.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let order = self.interface.order();
        failure::of_all(self.returned().map(|(param, array, bytes)| {
            match self.outputs.get(&array.param) {
                Some(path) if param.is_fixed_texts() => texts::write(path, &array, bytes),
                Some(path) => npy::write(path, param.ty, &array.shape(order), order, bytes),
                None => Ok(()),
            }
        }))
    }

    /// An array of strings that no file gets, and of which not all bytes can be printed.
    pub(crate) fn inexact(&self) -> Option<&str> {
        let mut printed = self.returned().filter(|(param, array, _)| {
            param.is_fixed_texts() && !self.outputs.contains_key(&array.param)
        });
        let inexact = printed.find(|(_, array, bytes)| {
            let length = array.text_length();
            !texts::is_exact(bytes, length)
        });
        inexact.map(|(param, ..)| param.name.as_str())
    }

    /// Says which strings were not printed as they are.
    pub(crate) fn warn_of_inexact(&self) {
        if let Some(name) = self.inexact() {
            failure::say(format_args!(
                "warning: `{name}` has strings that are not UTF-8, whose bytes cannot be printed; \
                 -o {name}=FILE writes them"
            ));
        }
    }

    pub(crate) fn print(&self, receipts: &[(usize, Receipt)]) {
        let order = self.interface.order();
        for (param, paths) in self.written() {
            println!("{} -> {}", param.name, paths.join(", "));
        }
        for (param, receipt) in receipts {
            let name = &self.interface.params[*param].name;
            let address = one_line(&receipt.address.to_string());
            println!("{name} -> {address} ({} bytes)", receipt.bytes);
        }
        for (param, array, bytes) in self.returned() {
            let shape = shape(param, &array, order);
            match self.outputs.get(&array.param) {
                Some(path) => println!("{} {shape:?} -> {}", param.name, path.display()),
                None => {
                    let preview = match param.is_fixed_texts() {
                        true => texts::preview(&array, bytes, SHOWN),
                        false => npy::preview(param.ty, bytes, SHOWN),
                    };
                    println!("{} {shape:?} = {preview}", param.name);
                }
            }
        }
    }

    pub(crate) fn to_json(&self, outcome: &Outcome) -> Value {
        let order = self.interface.order();
        let results = self.returned().map(|(param, array, bytes)| {
            let file = self.outputs.get(&array.param);
            let shape = shape(param, &array, order);
            let mut value = json!({ "type": param.ty.name(), "shape": shape, "file": file });
            if file.is_none() {
                value["values"] = match param.is_fixed_texts() {
                    true => texts::to_json(&array, bytes),
                    false => json!(Shown::new(param.ty, &shape, order, bytes, false)),
                };
            }
            (param.name.as_str(), value)
        });
        let files = self.written().map(|(param, paths)| {
            let value = match param.is_files() {
                true => json!({ "type": "filename", "files": paths }),
                false => json!({ "type": "filename", "file": paths[0] }),
            };
            (param.name.as_str(), value)
        });
        let receipts = outcome.receipts.iter().map(|(param, receipt)| {
            let value = json!({
                "type": self.interface.params[*param].ty.name(),
                "address": receipt.address,
                "bytes": receipt.bytes,
                "sha256": receipt.sha256,
                "version": receipt.version,
            });
            (self.interface.params[*param].name.as_str(), value)
        });
        let results = results.chain(receipts).chain(files);
        let results: BTreeMap<&str, Value> = results.collect();
        let times = outcome.times;
        json!({
            "schema": 1,
            "function": self.interface.qualified_name(),
            "library": outcome.library.as_deref(),
            "threads": outcome.threads,
            "results": results,
            "send_s": times.send,
            "exec_s": times.exec,
            "recv_s": times.recv,
            "other_s": times.other,
            "total_s": times.total,
        })
    }
}

/// The shape as people see it. That of an array of strings leaves out the length of the strings.
fn shape(param: &Param, array: &ArrayLayout, order: Order) -> Vec<u64> {
    match param.is_fixed_texts() {
        true => texts::shape(array),
        false => array.shape(order),
    }
}

pub(crate) fn print_times(outcome: &Outcome) {
    let times = outcome.times;
    for (name, seconds) in [
        ("SEND", times.send),
        ("EXEC", times.exec),
        ("RECV", times.recv),
        ("OTHER", times.other),
        ("total", times.total),
    ] {
        println!("{name:6} {:12.6} s", seconds);
    }
}
