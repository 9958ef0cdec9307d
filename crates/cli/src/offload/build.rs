//! `farcall offload build`: compiles a drop-in library from interface files with the system's C
//! compiler. `farcall_offload::library` writes the C text.

use super::RUNTIME;
use crate::failure::Failure;
use crate::installed;
use crate::library::interface;
use clap::Args;
use farcall_idl::Document;
use farcall_library::Catalog;
use farcall_offload::library;
use farcall_quantity::counted;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};

/// Make a drop-in library of the functions in interface files
///
/// The library has the names of the functions and takes their calls. It goes on to the real
/// functions for calls that do not pay. Functions that never pay, such as BLAS 1 and 2, and those
/// that must not run twice are left out. This needs a C compiler.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall offload build libraries/lapack.idl libraries/blas.idl -o dropin
  farcall offload build lapack.idl -o dropin --as liblapack.so.3
  LD_LIBRARY_PATH=dropin FARCALL_SERVER=host ./solver")]
pub(super) struct Arguments {
    /// Interface files, or the names of those that come with Farcall
    #[arg(required = true, value_name = "FILE", value_parser = interface)]
    files: Vec<PathBuf>,
    /// Folder for the library and libfarcall.so.1, which it loads; it is made if needed
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Also make the library under this name, in the place of the real one. It then loads the
    /// libraries of the interface files, and functions that it lacks are found there
    #[arg(long = "as", value_name = "NAME")]
    names: Vec<String>,
    /// Also take functions that never pay. Then `--always` tests their interfaces, too
    #[arg(long)]
    all: bool,
    /// List the functions that are left out, with the reasons
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let catalog = Catalog::load(&arguments.files).map_err(Failure::failed)?;
    let documents: Vec<&Document> = catalog.files().map(|(_, document)| document).collect();
    let least_intensity = match arguments.all {
        true => 0.0,
        false => library::LEAST_INTENSITY,
    };
    let made = library::text(documents.iter().copied(), least_intensity);
    if arguments.verbose {
        for (function, reason) in &made.left_out {
            println!("{function}: left out: {reason}");
        }
    }
    if made.covered.is_empty() {
        let text = "no function of these files can pay; `--verbose` lists the reasons";
        return Err(Failure::failed(text));
    }
    let folder = &arguments.output;
    fs::create_dir_all(folder).map_err(|error| Failure::cannot("make", folder.display(), error))?;
    put_runtime(folder)?;
    let module = documents
        .iter()
        .find_map(|document| document.module.as_deref());
    let stem = format!("libfarcall_{}", module.unwrap_or("functions"));
    let source = folder.join(format!("{stem}.c"));
    fs::write(&source, &made.c)
        .map_err(|error| Failure::cannot("write", source.display(), error))?;
    let (own, needed) = (folder.join(format!("{stem}.so")), needed(&catalog)?);
    let names = arguments.names.iter().map(|name| folder.join(name));
    let named = names.map(|library| (library, &needed[..]));
    let mut libraries = std::iter::once((own.clone(), &[][..])).chain(named);
    let objects = (0..made.parts).map(|part| folder.join(format!("{stem}.{part}.o")));
    let objects: Vec<PathBuf> = objects.collect();
    let linked = compile(&source, &objects).and_then(|()| {
        libraries.try_for_each(|(library, needed)| link(&objects, &library, needed))
    });
    for object in &objects {
        let _ = fs::remove_file(object);
    }
    linked?;
    println!(
        "{} in {}, {} left out",
        counted(made.covered.len(), "function"),
        own.display(),
        made.left_out.len(),
    );
    Ok(())
}

/// Copies the client library into the folder, unless it is there or in the folder above: the
/// drop-in library looks in both.
fn put_runtime(folder: &Path) -> Result<(), Failure> {
    let runtime = installed::library(RUNTIME)?;
    let is_runtime = |path: PathBuf| path.canonicalize().is_ok_and(|path| path == runtime);
    let copy = folder.join(RUNTIME);
    if is_runtime(copy.clone()) {
        return Ok(());
    }
    // Programs may have the old one loaded, so that it must not change.
    let _ = fs::remove_file(&copy);
    if is_runtime(folder.join("..").join(RUNTIME)) {
        return Ok(());
    }
    fs::copy(&runtime, &copy).map_err(|error| Failure::cannot("write", copy.display(), error))?;
    Ok(())
}

/// Options of the linker for the libraries that have the real functions.
fn needed(catalog: &Catalog) -> Result<Vec<String>, Failure> {
    let mut needed = vec!["-Wl,--no-as-needed".to_string()];
    for (source, document) in catalog.files() {
        let options = farcall_library::link_options(source, document);
        needed.extend(options.map_err(Failure::failed)?);
    }
    Ok(needed)
}

/// Compiles the parts of a text, as many at a time as there are processors. A bar at the terminal
/// shows how many are done.
fn compile(source: &Path, objects: &[PathBuf]) -> Result<(), Failure> {
    // More optimisation takes twice as long, and the entry points are as fast.
    let options = ["-O1", "-foptimize-sibling-calls", "-fPIC", "-c"];
    let style = ProgressStyle::with_template("compiling {bar:30} {pos}/{len}, {elapsed}");
    let target = ProgressDrawTarget::stderr();
    let bar = ProgressBar::with_draw_target(Some(objects.len() as u64), target);
    let bar = bar.with_style(style.map_err(Failure::failed)?);
    let left = Mutex::new(objects.iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((part, object)) = next() {
            run_compiler(object, |command| {
                command.args(options).arg(format!("-DPART={part}"));
                command.arg("-o").args([object, source])
            })?;
            bar.inc(1);
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let done: Result<(), Failure> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let join = |worker: ScopedJoinHandle<'_, _>| {
            let panicked = || Err(Failure::failed("a thread has panicked"));
            worker.join().unwrap_or_else(|_| panicked())
        };
        workers.into_iter().map(join).fold(Ok(()), Result::and)
    });
    bar.finish_and_clear();
    done
}

/// Makes a drop-in library of compiled functions.
fn link(objects: &[PathBuf], library: &Path, needed: &[String]) -> Result<(), Failure> {
    run_compiler(library, |command| {
        command
            .args(["-shared", "-Wl,-z,relro,-z,now", "-o"])
            .arg(library)
            .args(objects)
            .args(["-Wl,-rpath,$ORIGIN:$ORIGIN/..", "-lm", "-ldl"])
            .args(needed)
    })
}

/// Runs the C compiler, which makes a file.
fn run_compiler(
    made: &Path,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(), Failure> {
    let compiler = farcall_library::compiler();
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap_or("cc");
    let status = with(Command::new(program).args(words))
        .status()
        .map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::NotFound => {
                    "; install one (`apt-get install gcc libc6-dev`) or name it in CC"
                }
                _ => "",
            };
            Failure::failed(format!(
                "cannot run the C compiler `{compiler}`: {error}{remedy}"
            ))
        })?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::failed(format!(
            "`{compiler}` cannot make {}; see above",
            made.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_in_the_place_of_the_real_one_finds_it_where_a_server_does() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("lib")).unwrap();
        fs::write(at("heat.c"), "void heat_(void) {}").unwrap();
        run_compiler(&at("lib/libheat.so"), |command| {
            let command = command.args(["-shared", "-fPIC", "-o"]);
            command.arg(at("lib/libheat.so")).arg(at("heat.c"))
        })
        .unwrap();
        fs::copy(at("lib/libheat.so"), at("libheat.so")).unwrap();
        for name in ["./libheat.so", "libheat.so", "-Llib -lheat -lm"] {
            let file = at("heat.idl");
            let define = "Define heat(IN int n) Repeatable \"yes\" Calls \"FORTRAN\" heat();";
            fs::write(&file, format!("Library \"{name}\"; {define}")).unwrap();
            let catalog = Catalog::load(&[file]).unwrap();
            let needed = needed(&catalog).unwrap();
            link(&[], &at("libdrop.so"), &needed).unwrap();
        }
    }
}
