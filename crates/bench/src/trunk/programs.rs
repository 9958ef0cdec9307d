//! Real programs on trunks with unlike links: a network file service, and MPI's all-to-all. The
//! file service is NFS, with a server (nfs-ganesha) and clients (libnfs) that need nothing of the
//! kernel. If a program is missing, the benchmark prints a line that says so.

use super::{Arguments, Program, row};
use crate::failure::Failure;
use crate::progress;
use crate::table::{Better, Row};
use farcall_lab::{Daemon, Lab, Shape, TOPOLOGIES, Topology};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// (c) has equal hosts. In (d) and (f) a client has one link only.
const UNLIKE: [usize; 3] = [2, 3, 5];
const SHAPE: Shape = Shape::FAST_ETHERNET;
/// The policies that are compared. `None` is one link without a trunk, which all hosts have.
const SYSTEMS: [Option<&str>; 4] = [Some("max-min"), Some("traffic"), Some("round-robin"), None];
/// Bytes of the file that each client copies.
const FILE: usize = 48 << 20;
const START: Duration = Duration::from_secs(20);
const MPI: &str = "benches/trunk/alltoall.c";

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for what in ["NFS", "MPI"] {
        if !arguments.begins(what) {
            continue;
        }
        let folder = crate::signals::folder()?;
        if let Err(why) = prepare(what, folder.path()) {
            progress::left_out(format_args!("{what}: skipped: {why}"));
            continue;
        }
        for topology in UNLIKE.map(|index| &TOPOLOGIES[index]) {
            for system in SYSTEMS
                .iter()
                .filter(|one| arguments.peers || **one == SYSTEMS[0])
            {
                let rate = one_run(farcall, folder.path(), (what, topology, *system))?;
                let name = format!(
                    "{what} ({}) {}",
                    topology.name,
                    system.unwrap_or("one link")
                );
                let link = ("one link", SHAPE.ideal() / 1e6);
                rows.push(row(
                    name,
                    "MB/s",
                    vec![rate / 1e6],
                    link,
                    (Better::Higher, None),
                ));
            }
        }
    }
    Ok(rows)
}

/// Bytes a second of all clients of the file service, or of all processes of MPI, together.
fn one_run(
    farcall: &Program,
    folder: &Path,
    (what, topology, system): (&str, &Topology, Option<&str>),
) -> Result<f64, Failure> {
    let lab = Lab::build(topology.links, Some(SHAPE))?;
    let _trunks = match system {
        Some(policy) => lab.start_trunks(farcall, &["--policy", policy])?,
        None => Vec::new(),
    };
    let interface = if system.is_some() { "fc0" } else { "link0" };
    let address = |host| match system {
        Some(_) => lab.trunk_address(host),
        None => lab.link_address(host, 0),
    };
    match what {
        "NFS" => files(&lab, folder, address(0)),
        _ => all_to_all(&lab, folder, interface, &address),
    }
}

/// Makes what the programs need in a folder.
fn prepare(what: &str, folder: &Path) -> Result<(), Failure> {
    let told = |command: &mut Command, missing: &str| -> Result<(), Failure> {
        let output = command.stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(Failure::failed(
                String::from_utf8_lossy(&output.stderr).trim(),
            )),
            Err(_) => Err(Failure::failed(format!("install {missing}"))),
        }
    };
    if what == "MPI" {
        let mut build = Command::new("mpicc.mpich");
        build
            .args(["-O2", "-o"])
            .arg(folder.join("alltoall"))
            .arg(MPI);
        told(&mut build, "mpich")?;
        // Hydra starts processes on other hosts with it: `-x HOST COMMAND...`. Host h of the lab
        // has an address that ends with h + 1.
        let script = "#!/bin/sh\n[ \"$1\" = -x ] && shift\nhost=$((${1##*.} - 1))\nshift\n\
                      exec ip netns exec \"$LAB-h$host\" sh -c \"$*\"\n";
        let path = folder.join("on-host");
        std::fs::write(&path, script)?;
        return told(Command::new("chmod").arg("+x").arg(path), "coreutils");
    }
    told(
        Command::new("ganesha.nfsd").arg("-v"),
        "nfs-ganesha and nfs-ganesha-vfs",
    )?;
    if Command::new("nfs-cp")
        .stdin(Stdio::null())
        .output()
        .is_err()
    {
        return Err(Failure::failed("install libnfs-utils"));
    }
    std::fs::write(folder.join("data"), vec![0x55; FILE])?;
    let plugins = std::env::var("GANESHA_PLUGINS").unwrap_or_else(|_| GANESHA.into());
    let path = folder.display();
    let settings = format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 2049; Enable_NLM = false; \
         Enable_RQUOTA = false; Plugins_Dir = \"{plugins}\"; }}\n\
         NFSV4 {{ Graceless = true; Minor_Versions = 0; UseGetpwnam = true; \
         Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {path}; Pseudo = /export; Access_Type = RO; \
         Squash = None; SecType = sys; Protocols = 4; FSAL {{ Name = VFS; }} }}\n"
    );
    Ok(std::fs::write(folder.join("ganesha.conf"), settings)?)
}

/// Where Debian keeps the plug-ins of nfs-ganesha.
const GANESHA: &str = "/usr/lib/x86_64-linux-gnu/ganesha";

/// Every client copies the file at the same time.
fn files(lab: &Lab, folder: &Path, server: Ipv4Addr) -> Result<f64, Failure> {
    let mut command = lab.command(0, "sh");
    // The shell says when the server listens, and becomes the server.
    // A benchmark that is killed ends the shell by a signal.
    let script = "ganesha.nfsd -F -f \"$0/ganesha.conf\" -L \"$0/log\" -p \"$0/pid\" & \
                  trap 'kill $!; exit 1' TERM; \
                  until grep -q 'SERVER INITIALIZED' \"$0/log\" 2>/dev/null; do sleep 0.1; done; \
                  echo listening on nfs; wait; rm -f \"$0/log\"";
    command.args(["-c", script]).arg(folder);
    let _ = std::fs::remove_file(folder.join("log"));
    let service = Daemon::start(command)?;
    let url = format!("nfs://{server}/export/data?version=4&nfsport=2049");
    let copy = |host: usize| -> Result<Child, Failure> {
        let target = folder.join(format!("copy{host}"));
        // nfs-cp overwrites nothing.
        let _ = std::fs::remove_file(&target);
        let mut command = lab.command(host, "nfs-cp");
        command.arg(&url).arg(target);
        command.stdout(Stdio::null());
        Ok(farcall_child::spawn(command)?)
    };
    let begun = Instant::now();
    let clients = (1..lab.hosts())
        .map(copy)
        .collect::<Result<Vec<Child>, Failure>>();
    let copied = clients.and_then(|clients| {
        for mut client in clients {
            if !client.wait()?.success() {
                return Err(Failure::failed("nfs-cp failed"));
            }
        }
        Ok(((lab.hosts() - 1) * FILE) as f64 / begun.elapsed().as_secs_f64())
    });
    let pid = std::fs::read_to_string(folder.join("pid")).unwrap_or_default();
    // The server ends with its shell, which waits for it.
    let _ = Command::new("kill").arg(pid.trim()).output();
    drop(service);
    copied
}

/// Every host exchanges messages with every other.
fn all_to_all(
    lab: &Lab,
    folder: &Path,
    interface: &str,
    address: &dyn Fn(usize) -> Ipv4Addr,
) -> Result<f64, Failure> {
    let hosts: Vec<String> = (0..lab.hosts())
        .map(|host| address(host).to_string())
        .collect();
    let prefix = lab.host(0);
    let mut command = lab.command(0, "mpiexec.mpich");
    command
        .env("LAB", prefix.trim_end_matches("-h0"))
        .env("FI_PROVIDER", "tcp")
        .env("FI_TCP_IFACE", interface)
        .env("UCX_TLS", "tcp,self")
        .env("UCX_NET_DEVICES", interface)
        .args(["-launcher", "ssh", "-launcher-exec"])
        .arg(folder.join("on-host"))
        .args(["-iface", interface, "-hosts", &hosts.join(",")])
        .args(["-n", &hosts.len().to_string(), "-ppn", "1"])
        // Processes of MPI poll. All hosts share the processors of this machine.
        .args(["nice", "-n", "19"])
        .arg(folder.join("alltoall"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = farcall_child::spawn(command)?;
    let end = Instant::now() + START * 3;
    while run.try_wait()?.is_none() {
        if Instant::now() > end {
            run.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = run.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let log = String::from_utf8_lossy(&output.stderr);
        Failure::failed(format!("MPI printed `{}` {}", text.trim(), log.trim()))
    })
}
