//! `farcall plan`: runs, checks or draws a transaction that is saved as text. It never overwrites a
//! file that the plan reads.

use crate::document;
use crate::failure::{self, Failure};
use crate::npy;
use crate::picture::Painter;
use crate::plain;
use crate::results::{also_read, check_files};
use crate::target::Target;
use clap::{Args, Subcommand};
use farcall_client::{ArrayForm, Playback, Report, Server, plan_may_write};
use farcall_idl::Order;
use farcall_npy::{Array, same_shape};
use farcall_plan::{MOST_BYTES, Plan};
use farcall_quantity::counted;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Run a transaction that is saved as a plan
#[derive(Args)]
#[command(after_help = "Example:\n  farcall plan run plan.toml --server meta://localhost")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(RunArguments),
}

/// Run the calls of a plan as one data-flow graph
///
/// Calls that do not depend on each other run at the same time on several servers. An array that
/// one call writes and another reads remains at a server, or goes from server to server. The method
/// `Transaction.save` in Python writes a plan. The plan names its files relative to its own folder,
/// and named data as data:NAME. The command never overwrites an input file.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall plan run plan.toml --dry-run --svg graph.svg
  farcall plan run plan.toml a=@other.npy -o x=x.npy
  farcall plan run plan.toml --also farcall://node2 --also farcall://node3
  farcall plan run plan.toml --server meta://localhost")]
struct RunArguments {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    /// Array to use for an input instead of the one that the plan names: NAME=@FILE.npy, or
    /// NAME=data:DATA for named data
    #[arg(value_name = "NAME=VALUE")]
    inputs: Vec<String>,
    /// File to use instead of the one that the plan names for an output; may be given several times
    #[arg(short, long = "output", value_name = "NAME=FILE.npy")]
    output: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Another server for the calls; may be given several times
    #[arg(long, value_name = "URL")]
    also: Vec<String>,
    /// Check the plan against the interfaces of the servers and show its calls, but run nothing
    #[arg(long)]
    dry_run: bool,
    /// Draw the graph of the calls; this needs the Python package and matplotlib
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    painter: Painter,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Run(arguments) = &arguments.command;
    run_plan(arguments)
}

fn run_plan(arguments: &RunArguments) -> Result<(), Failure> {
    let mut plan = read(&arguments.plan)?;
    let folder = arguments.plan.parent().unwrap_or(Path::new(""));
    check_places(&plan, folder, &arguments.output)?;
    replace(&mut plan.inputs, "@FILE.npy", &arguments.inputs)?;
    replace(&mut plan.outputs, "FILE.npy", &arguments.output)?;
    check_outputs(&plan, &arguments.plan, arguments.svg.as_deref())?;
    let mut servers = vec![arguments.target.connect(None)?];
    for also in &arguments.also {
        servers.push(arguments.target.connect(Some(also))?);
    }
    let mut load = |name: &str, form: &ArrayForm| load(&plan, (folder, &servers[0]), name, form);
    let mut playback = Playback::record(&plan, &servers, &mut load)?;
    if let Some(path) = &arguments.svg {
        let graph = tempfile::NamedTempFile::new().and_then(|mut file| {
            file.write_all(playback.dot().as_bytes())?;
            Ok(file)
        });
        let graph = graph.map_err(|error| Failure::cannot("make", "a temporary file", error))?;
        arguments
            .painter
            .draw("farcall._graph", [graph.path(), path])?;
    }
    if arguments.dry_run {
        show(&playback, arguments.json);
        return Ok(());
    }
    let report = playback.run()?;
    let outputs = plan.outputs.iter();
    failure::of_all(
        outputs.map(|(name, file)| write(&playback, name, (folder, file), &servers[0])),
    )?;
    match arguments.json {
        true => println!("{}", to_json(&plan, folder, &report)),
        false => print(&playback, &plan, folder, &report),
    }
    Ok(())
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::cannot("read", path.display(), error).into_usage();
    let text = document::read(path, MOST_BYTES).map_err(|error| fail(&error))?;
    Plan::parse(&text).map_err(|error| fail(&error))
}

/// A plan can come from anybody, so it writes below its own folder. `words` name other files.
fn check_places(plan: &Plan, folder: &Path, words: &[String]) -> Result<(), Failure> {
    let is_named = |name: &str| {
        let mut names = words.iter().filter_map(|word| word.split_once('='));
        names.any(|(known, _)| known == name)
    };
    let mut files = plan.outputs.iter();
    let outside = files.find(|(name, file)| {
        let is_file = farcall_plan::data(file).is_none();
        is_file && !is_named(name) && !plan_may_write(folder, file)
    });
    outside.map_or(Ok(()), |(name, file)| {
        let text = "a plan writes below its own folder";
        Err(Failure::usage(format!(
            "the output `{name}` goes to {file}: {text}; name another place with -o {name}=FILE"
        )))
    })
}

/// Replaces files of a plan by those of `NAME=VALUE` words. `form` is how a word has a file.
fn replace(
    files: &mut BTreeMap<String, String>,
    form: &str,
    words: &[String],
) -> Result<(), Failure> {
    let mut replaced = BTreeSet::new();
    for word in words {
        let wrong = || Failure::usage(format!("`{word}`: write NAME={form} or NAME=data:DATA"));
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        let known: Vec<&str> = files.keys().map(String::as_str).collect();
        if !known.contains(&name) {
            let known = known.join(", ");
            let text = format!("`{word}`: the plan has no array `{name}` here; it has: {known}");
            return Err(Failure::usage(text));
        }
        if !replaced.insert(name) {
            return Err(Failure::usage(format!("`{name}` is given twice")));
        }
        let path = match form.starts_with('@') {
            true => value.strip_prefix('@'),
            false => Some(value),
        };
        let path = path.filter(|path| !path.is_empty());
        let file = match (farcall_plan::data(value), path) {
            (Some(_), _) => value.to_string(),
            // The files of a plan are relative to its folder, those of the command line are not.
            (None, Some(path)) => std::path::absolute(path)?.to_string_lossy().into_owned(),
            (None, None) => return Err(wrong()),
        };
        files.insert(name.to_string(), file);
    }
    Ok(())
}

/// Fails if an output or the picture cannot be written, or is the plan, one of its input files or
/// another output, also under another name.
fn check_outputs(plan: &Plan, path: &Path, picture: Option<&Path>) -> Result<(), Failure> {
    if picture.is_some_and(|picture| picture.extension() != Some("svg".as_ref())) {
        return Err(Failure::usage("--svg must end in .svg"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let files = plan.outputs.values();
    let files = files.filter(|file| farcall_plan::data(file).is_none());
    let mut files: Vec<PathBuf> = files.map(|file| folder.join(file)).collect();
    files.iter().try_for_each(|file| npy::check_name(file))?;
    files.extend(picture.map(Path::to_path_buf));
    check_files(&files)?;
    let outputs = || files.iter().map(PathBuf::as_path);
    let inputs = plan.inputs.values().map(|file| folder.join(file));
    let (file, what) = match (also_read(outputs(), [path]), also_read(outputs(), inputs)) {
        (Some(file), _) => (file, "the plan"),
        (None, Some(file)) => (file, "an input file of the plan"),
        (None, None) => return Ok(()),
    };
    Err(Failure::usage(format!(
        "the output {} is {what}; name another file",
        file.display()
    )))
}

fn load(
    plan: &Plan,
    (folder, server): (&Path, &Server),
    name: &str,
    form: &ArrayForm,
) -> Result<Vec<u8>, String> {
    let file = plan.inputs.get(name).ok_or("the plan has no such input")?;
    let array = match farcall_plan::data(file) {
        Some(data) => get(server, data),
        None => npy::read(&folder.join(file)),
    };
    let array = array.map_err(|error| error.to_string())?;
    if !form.shape.is_empty() && !same_shape(&array.shape, &form.shape) {
        return Err(format!(
            "`{name}`: expected shape {:?}, but {file} has {:?}",
            form.shape, array.shape
        ));
    }
    let order = order_of(form);
    let element = form.ty().map_err(|error| error.to_string())?;
    array
        .into_bytes(element, order)
        .map_err(|error| format!("`{name}` ({file}): {error}"))
}

/// Named data at servers.
fn get(server: &Server, name: &str) -> Result<Array, Failure> {
    let name = name.parse().map_err(Failure::failed)?;
    let handle = server.data(&name)?;
    let form = handle.form();
    let element = form.ty().map_err(Failure::failed)?;
    let elements = handle.fetch()?;
    let array = Array::new(element, form.shape.clone(), order_of(form), elements);
    array.ok_or_else(|| Failure::failed(format!("named data `{name}` are not numbers")))
}

fn write(
    playback: &Playback,
    name: &str,
    (folder, file): (&Path, &str),
    server: &Server,
) -> Result<(), Failure> {
    let Some((form, bytes)) = playback.output(name) else {
        return Err(Failure::failed(format!(
            "the output `{name}` has not come back"
        )));
    };
    if let Some(data) = farcall_plan::data(file) {
        server.put_named(form.clone(), bytes, data, false)?;
        return Ok(());
    }
    let element = form.ty().map_err(Failure::failed)?;
    npy::write(
        &folder.join(file),
        element,
        &form.shape,
        order_of(form),
        bytes,
    )
}

fn order_of(form: &ArrayForm) -> Order {
    match form.column_major {
        true => Order::ColumnMajor,
        false => Order::RowMajor,
    }
}

/// The place of an output, for people.
fn target(folder: &Path, file: &str) -> String {
    match farcall_plan::data(file) {
        Some(_) => file.to_string(),
        None => folder.join(file).display().to_string(),
    }
}

fn show(playback: &Playback, as_json: bool) {
    let servers = playback.servers().iter().map(Server::address);
    let servers: Vec<String> = servers.map(ToString::to_string).collect();
    if as_json {
        let calls = playback.lines();
        println!(
            "{}",
            json!({ "schema": 1, "calls": calls, "servers": servers })
        );
        return;
    }
    for (number, line) in playback.lines().iter().enumerate() {
        plain::say(format_args!("{:>5}  {line}", number + 1));
    }
    plain::say(format_args!("servers: {}", servers.join(", ")));
}

fn print(playback: &Playback, plan: &Plan, folder: &Path, report: &Report) {
    for (name, file) in &plan.outputs {
        if let Some((form, _)) = playback.output(name) {
            let target = target(folder, file);
            plain::say(format_args!(
                "{name} = {} {:?} -> {target}",
                form.element, form.shape
            ));
        }
    }
    println!(
        "{} on {} in {:.3} s; {} bytes sent, {} returned, {} from server to server",
        counted(report.calls, "call"),
        counted(report.servers, "server"),
        report.total,
        report.sent_bytes,
        report.returned_bytes,
        report.passed_bytes
    );
}

fn to_json(plan: &Plan, folder: &Path, report: &Report) -> Value {
    let outputs = plan.outputs.iter();
    let outputs: serde_json::Map<String, Value> = outputs
        .map(|(name, file)| (name.clone(), json!(target(folder, file))))
        .collect();
    json!({
        "schema": 1, "calls": report.calls, "servers": report.servers, "total_s": report.total,
        "sent_bytes": report.sent_bytes, "returned_bytes": report.returned_bytes,
        "passed_bytes": report.passed_bytes, "outputs": outputs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_a_file_for_an_array_of_the_plan_that_no_other_word_names() {
        let replaced = |words: &str| {
            let mut files = BTreeMap::from([("x".to_owned(), "x.npy".to_owned())]);
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            replace(&mut files, "FILE.npy", &words).map(|()| files["x"].clone())
        };
        assert_eq!(replaced("x=/a.npy").unwrap(), "/a.npy");
        for (words, why) in [
            ("x=/a.npy x=/b.npy", "`x` is given twice"),
            ("x=", "write NAME=FILE.npy"),
            ("y=/a.npy", "no array `y`"),
        ] {
            let refused = replaced(words).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
