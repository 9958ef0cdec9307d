//! `farcall up --lab`: the whole stack on one machine, in hosts that are network namespaces. The
//! crate `lab` makes the hosts and starts the parts. This module says where they are, and how to
//! become a client.

use super::Arguments;
use crate::failure::Failure;
use farcall_lab::stack::{SITES, Stack, StackShape, client, head, name_of};
use std::io::Write;
use std::os::unix::net::UnixStream;

/// What the servers serve if no interface is named.
const INTERFACES: [&str; 2] = ["lapack", "scalapack"];

pub(super) fn run(arguments: &Arguments, signals: &UnixStream) -> Result<(), Failure> {
    // A lab that was killed has left its folder.
    farcall_lab::remove_folders(&std::env::temp_dir())?;
    let prefix = format!("{}-", farcall_lab::folder_name());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir()?;
    let interfaces = match arguments.files.as_slice() {
        [] => INTERFACES.map(String::from).to_vec(),
        named => named.to_vec(),
    };
    let shape = StackShape {
        farcall: &std::env::current_exe()?,
        folder: folder.path(),
        interfaces: &interfaces,
        allow_code: arguments.allow_code,
        secret: &super::key()?,
        log: arguments.log(),
    };
    let mut out = std::io::stdout();
    // Where a line cannot be written, the next one after the start ends the lab in order.
    let mut tell = |line: &str| drop(writeln!(out, "{line}"));
    let mut stack = Stack::start(&shape, &mut tell).map_err(Failure::failed)?;
    writeln!(out, "{}", directions(&stack)).map_err(Failure::unsaid)?;
    out.flush().map_err(Failure::unsaid)?;
    while !super::signalled(signals, super::TICK)? {
        if let Some(what) = stack.ended().map_err(Failure::failed)? {
            let text = format!("{what} has ended; the lab ends with it");
            return Err(Failure::failed(text));
        }
    }
    Ok(())
}

/// What the user can do now.
fn directions(stack: &Stack) -> String {
    let enter = |host| format!("sudo ip netns exec {}", stack.lab().host(host));
    let mut lines = vec![
        "ready; in another shell, calls of the client behind the long line:".to_string(),
        format!(
            "  {} env FARCALL_METASERVER={} farcall ls",
            enter(client()),
            stack.metaserver()
        ),
    ];
    for (site, name) in (0..SITES).map(|site| (site, name_of(site))) {
        lines.push(format!(
            "on the first node of site {name}, the gang and the trunk:"
        ));
        lines.push(format!("  {} farcall gang ps", enter(head(site))));
        lines.push(format!(
            "  {} farcall trunk status --watch",
            enter(head(site))
        ));
    }
    lines.push("Ctrl-C ends the lab".to_string());
    lines.join("\n")
}
