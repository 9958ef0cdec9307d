//! Programs that know nothing of trunks, over a trunk between network namespaces: iperf3, ssh, scp
//! and a file service. Needs root and the programs (`scripts/setup programs`); prints SKIPPED
//! without them.

use farcall_lab::{Lab, Shape, TrunkProcess};
use farcall_system::trunk;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Once, mpsc};
use std::time::Duration;

const START: Duration = Duration::from_secs(10);

/// Installs missing programs once, as a developer would.
fn has(programs: &[&str]) -> bool {
    static SETUP: Once = Once::new();
    let missing = || {
        let found = |program: &str| Command::new(program).arg("-V").output().is_ok();
        programs.iter().find(|program| !found(program))
    };
    SETUP.call_once(|| {
        if missing().is_some() {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
            let _ = Command::new("timeout")
                .arg("120")
                .arg(script)
                .arg("programs")
                .status();
        }
    });
    if let Some(program) = missing() {
        println!("SKIPPED: {program} is missing: `scripts/setup programs` installs it");
    }
    missing().is_none()
}

/// Topology (b), whose client has two links to the server, with trunks.
fn lab() -> Option<(Lab, Vec<TrunkProcess>)> {
    let lab = trunk::lab(1, Some(Shape::FAST_ETHERNET))?;
    let trunks = trunk::trunks(&lab, &[]);
    Some((lab, trunks))
}

/// A free port of the host.
fn free_port(lab: &Lab, host: usize) -> String {
    let bound = lab.spawn(host, || {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()
    });
    bound.unwrap().join().unwrap().unwrap().port().to_string()
}

/// A server on host 0, which ends on drop.
struct Server(Child);

impl Server {
    /// Starts it, and returns once it has printed `ready` on the piped stream.
    fn start(command: &mut Command, ready: &'static str, on_stderr: bool) -> Server {
        let piped = if on_stderr {
            command.stderr(Stdio::piped())
        } else {
            command.stdout(Stdio::piped())
        };
        let mut child = piped.spawn().unwrap();
        let stream: Box<dyn std::io::Read + Send> = match on_stderr {
            true => Box::new(child.stderr.take().unwrap()),
            false => Box::new(child.stdout.take().unwrap()),
        };
        let server = Server(child);
        let (send, said) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            // Reads to the end, because a full pipe would stop the server.
            lines.for_each(|line| {
                let _ = send.send(line);
            });
        });
        let mut all = Vec::new();
        while let Ok(line) = said.recv_timeout(START) {
            all.push(line);
            if all.last().is_some_and(|line| line.contains(ready)) {
                return server;
            }
        }
        panic!("the server did not get ready: {all:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("farcall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn iperf3_runs_by_tcp_and_udp_in_order() {
    let Some((lab, _trunks)) = has(&["iperf3"]).then(lab).flatten() else {
        return;
    };
    let address = lab.trunk_address(0).to_string();
    let run = |options: &[&str]| {
        let port = free_port(&lab, 0);
        let mut server = lab.command(0, "iperf3");
        server.args(["-s", "-1", "--forceflush", "-B", &address, "-p", &port]);
        let _server = Server::start(&mut server, "Server listening", false);
        let client = ["-c", &address, "-p", &port, "-t", "3", "-J"];
        let text = lab
            .output(1, "iperf3", &[&client, options].concat())
            .unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["end"].take()
    };
    // Figures need a quiet machine (`farcall bench trunk`); here other tests run at the same time.
    let tcp = run(&[]);
    let rate = tcp["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert!(rate > 30e6, "{rate}");
    let udp = run(&["-u", "-b", "40M", "-l", "1400", "--get-server-output"]);
    let lost = udp["sum"]["lost_percent"].as_f64();
    assert!(lost.is_some_and(|lost| lost < 20.0), "{udp}");
    let streams = udp["streams"].as_array().unwrap();
    assert!(
        streams
            .iter()
            .all(|stream| stream["udp"]["out_of_order"] == 0),
        "{udp}"
    );
}

/// A shell server on host 0 that admits clients with the key in the folder.
fn shell_server(lab: &Lab, folder: &Folder) -> (Server, String) {
    for key in ["host", "user"] {
        let make = ["-q", "-t", "ed25519", "-N", "", "-f", &folder.path(key)];
        lab.output(0, "ssh-keygen", &make).unwrap();
    }
    let port = free_port(lab, 0);
    let settings = format!(
        "Port {port}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n\
         Subsystem sftp internal-sftp\n",
        lab.trunk_address(0),
        folder.path("host"),
        folder.path("user.pub"),
    );
    std::fs::write(folder.path("settings"), settings).unwrap();
    // sshd separates its privileges in this folder, which a running service would create.
    std::fs::create_dir_all("/run/sshd").unwrap();
    let mut server = lab.command(0, "/usr/sbin/sshd");
    server.args(["-D", "-e", "-f", &folder.path("settings")]);
    (Server::start(&mut server, "Server listening", true), port)
}

#[test]
fn shells_copies_and_a_file_service_work() {
    let programs = ["ssh", "ssh-keygen", "scp", "sshfs", "/usr/sbin/sshd"];
    let Some((lab, _trunks)) = has(&programs).then(lab).flatten() else {
        return;
    };
    let folder = Folder::new("trunk-programs");
    let (_server, port) = shell_server(&lab, &folder);
    let server = format!("root@{}", lab.trunk_address(0));
    let options = [
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "BatchMode=yes",
        "-o",
        "LogLevel=ERROR",
        "-o",
        &format!("UserKnownHostsFile={}", folder.path("known")),
        "-o",
        &format!("IdentityFile={}", folder.path("user")),
    ];
    let shell = [&options[..], &["-p", &port, &server, "echo $((6 * 7))"]].concat();
    assert_eq!(lab.output(1, "ssh", &shell).unwrap().trim(), "42");

    let bytes: Vec<u8> = (0..4_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let original = folder.path("original");
    std::fs::write(&original, &bytes).unwrap();
    let target = format!("{server}:{}", folder.path("copy"));
    let copy = [&options[..], &["-P", &port, &original, &target]].concat();
    lab.output(1, "scp", &copy).unwrap();
    assert!(
        std::fs::read(folder.path("copy")).unwrap() == bytes,
        "the copy differs"
    );

    if !Path::new("/dev/fuse").exists() {
        println!("SKIPPED: the file service: /dev/fuse is missing");
        return;
    }
    for name in ["served", "mounted"] {
        std::fs::create_dir(folder.path(name)).unwrap();
    }
    std::fs::write(folder.path("served/old"), &bytes).unwrap();
    // The mount is in a mount namespace of the command's own, and ends with it.
    let script = "set -e; mounted=$1; original=$2; what=$3; shift 3
        timeout 60 sshfs \"$what\" \"$mounted\" \"$@\"
        cmp \"$original\" \"$mounted/old\"
        cp \"$original\" \"$mounted/new\"
        mkdir \"$mounted/folder\"; mv \"$mounted/new\" \"$mounted/folder\"
        ls -R \"$mounted\"; umount \"$mounted\"";
    let served = format!("{server}:{}", folder.path("served"));
    let mounted = folder.path("mounted");
    let mount = [
        &[
            "-c", script, "sh", &mounted, &original, &served, "-p", &port,
        ],
        &options[..],
    ]
    .concat();
    let listed = lab.output(1, "sh", &mount).unwrap();
    assert!(listed.contains("old") && listed.contains("new"), "{listed}");
    let moved = std::fs::read(folder.path("served/folder/new")).unwrap();
    assert!(moved == bytes, "the file differs");
}
