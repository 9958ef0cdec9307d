//! `farcall transaction`

use crate::failure::Failure;
use crate::npy::{self, Array, same_shape};
use crate::picture::Painter;
use crate::target::Target;
use clap::Args;
use farcall_client::{ArrayForm, Playback, Report, Server};
use farcall_idl::Order;
use farcall_plan::{MOST_BYTES, Plan};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Run a transaction that is written down: its calls as one data-flow graph
///
/// Calls that do not need each other run at the same time on several servers; what one writes and
/// another reads stays at a server, or goes from server to server. `Transaction.save` in Python
/// writes such a plan. Its files are beside it, or data:NAME at servers; an input file is never
/// overwritten.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall transaction plan.toml --dry-run --svg graph.svg
  farcall transaction plan.toml --also farcall://node2 --also farcall://node3
  farcall transaction plan.toml --server meta://localhost")]
pub(crate) struct Arguments {
    /// The plan
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
    #[command(flatten)]
    target: Target,
    /// One more server for calls; may be given several times
    #[arg(long, value_name = "URL")]
    also: Vec<String>,
    /// Check the plan against the servers' interfaces, show its calls, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Draw the graph of the calls; the Python package does it, with matplotlib
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    painter: Painter,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = read(&arguments.plan)?;
    let folder = arguments.plan.parent().unwrap_or(Path::new(""));
    refuse_overwriting(&plan, folder)?;
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
        let graph =
            graph.map_err(|error| Failure::failed(format!("no temporary file: {error}")))?;
        arguments
            .painter
            .draw("farcall._graph", [graph.path(), path])?;
    }
    if arguments.dry_run {
        show(&playback, arguments.json);
        return Ok(());
    }
    let report = playback.run()?;
    for (name, file) in &plan.outputs {
        write(&playback, name, (folder, file), &servers[0])?;
    }
    match arguments.json {
        true => println!("{}", to_json(&plan, folder, &report)),
        false => print(&playback, &plan, folder, &report),
    }
    Ok(())
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let length = std::fs::metadata(path).map_err(|error| fail(&error))?.len();
    if length > MOST_BYTES as u64 {
        return Err(fail(&format!("a plan has at most {MOST_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
    Plan::parse(&text).map_err(|error| fail(&error))
}

/// No output is one of the inputs, by whatever name.
fn refuse_overwriting(plan: &Plan, folder: &Path) -> Result<(), Failure> {
    let real = |file: &String| folder.join(file).canonicalize().ok();
    let inputs: BTreeSet<PathBuf> = plan.inputs.values().filter_map(real).collect();
    match plan
        .outputs
        .values()
        .find(|file| real(file).is_some_and(|path| inputs.contains(&path)))
    {
        None => Ok(()),
        Some(file) => Err(Failure::usage(format!(
            "the output {file} is an input file; name another"
        ))),
    }
}

fn load(
    plan: &Plan,
    (folder, server): (&Path, &Server),
    name: &str,
    form: &ArrayForm,
) -> Result<Vec<u8>, String> {
    let file = plan.inputs.get(name).ok_or("it is no input")?;
    let array = match farcall_plan::data(file) {
        Some(data) => get(server, data),
        None => Array::read(&folder.join(file)),
    };
    let array = array.map_err(|error| error.to_string())?;
    if !form.shape.is_empty() && !same_shape(&array.shape, &form.shape) {
        return Err(format!(
            "`{name}`: expected shape {:?}, and {file} has {:?}",
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
    let bytes = form.bytes().map_err(Failure::failed)?;
    let mut elements = vec![0; usize::try_from(bytes).map_err(Failure::failed)?];
    handle.get(&mut elements)?;
    let array = Array::new(element, &form.shape, order_of(form), elements);
    array.ok_or_else(|| Failure::failed(format!("`{name}` are no numbers")))
}

fn write(
    playback: &Playback,
    name: &str,
    (folder, file): (&Path, &str),
    server: &Server,
) -> Result<(), Failure> {
    let Some((form, bytes)) = playback.output(name) else {
        return Err(Failure::failed(format!("`{name}` has not come home")));
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

/// Where an output has gone, for people.
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
        println!("{:>5}  {line}", number + 1);
    }
    println!("servers: {}", servers.join(", "));
}

fn print(playback: &Playback, plan: &Plan, folder: &Path, report: &Report) {
    for (name, file) in &plan.outputs {
        if let Some((form, _)) = playback.output(name) {
            let target = target(folder, file);
            println!("{name} = {} {:?} -> {target}", form.element, form.shape);
        }
    }
    println!(
        "{} calls on {} servers in {:.3} s; {} bytes sent, {} returned, {} from server to server",
        report.calls,
        report.servers,
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
