//! Tests that one user, job or daemon of a gang cannot harm another, on purpose or by accident, and
//! what a user sees after a daemon was killed. Those with several users need root.

use farcall_system::gang::{Node, farcall_as, lines, processes, text};
use farcall_system::program::example;
use farcall_system::{farcall, wait_until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;

fn is_root() -> bool {
    // SAFETY: a plain system call.
    let is_root = unsafe { libc::getuid() } == 0;
    if !is_root {
        println!("SKIPPED: only root has processes of several users");
    }
    is_root
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of slices of each job, by its number.
fn slices(daemon: &Node) -> Vec<(u64, u64)> {
    let rows = daemon.jobs();
    let rows = rows.iter();
    rows.map(|row| {
        (
            row["id"].as_u64().expect("a number"),
            row["slices"].as_u64().expect("a number"),
        )
    })
    .collect()
}

#[test]
fn without_a_secret_only_the_same_user_can_join() {
    let none = [("FARCALL_TOKEN", "")];
    let root = Node::start_with(&["--node", "a", "--slots", "2"], &none);
    let file = root.state().join("farcall/gang-token");
    let mode = std::fs::metadata(&file).expect("the secret").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    // Another user has other secrets.
    let control = format!("@farcall-stranger-{}", std::process::id());
    let mut stranger = farcall();
    stranger
        .args(["gang", "daemon", "--node", "x", "--listen", "127.0.0.1:0"])
        .args(["--control", &control, "--parent"])
        .arg(root.address())
        .env(
            "XDG_STATE_HOME",
            tempfile::tempdir().expect("a folder").path(),
        )
        .env("FARCALL_TOKEN", "")
        .stdout(Stdio::null());
    let refused = stranger.output().expect("runs");
    let told = text(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        told.contains("differs from the token of the daemon"),
        "{told}"
    );
    let state = root.state().to_string_lossy().into_owned();
    let same = [("FARCALL_TOKEN", ""), ("XDG_STATE_HOME", state.as_str())];
    let options = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let _other = Node::start_with(&options, &same);
    wait_until("the same user's daemon joins", || root.nodes() == 2);
    let shared = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, shared).expect("own file");
    let mut command = farcall();
    let output = command
        .args(["gang", "ps", "--daemon", root.address()])
        .envs(same)
        .output()
        .expect("runs");
    assert!(text(&output.stderr).contains("others can read or change this file"));
}

/// A daemon says at the start what cannot work, or would let strangers in.
#[test]
fn settings_that_cannot_hold_are_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = format!("@farcall-settings-{}", std::process::id());
    let told = |token: &str, options: &[&str]| {
        let mut command = farcall();
        command.args(["gang", "daemon", "--control", &control]);
        command.env("XDG_STATE_HOME", folder.path());
        command.env("FARCALL_TOKEN", token).stdout(Stdio::null());
        let output = command.args(options).output().expect("runs");
        assert!(!output.status.success());
        text(&output.stderr)
    };
    for token in ["", " ", "guess"] {
        let told = told(token, &["--listen", "0.0.0.0:0"]);
        assert!(told.contains("of 16 bytes at least"), "{told}");
    }
    let options = ["--listen", "127.0.0.1:0", "--parent", "127.0.0.1:1"];
    let given = ["--memory", "1GB", "--slice", "20ms"];
    let told = told("", &[&options[..], &given].concat());
    assert!(told.contains("--slice, --memory has no effect"), "{told}");
    if !is_root() {
        return;
    }
    let mut command = farcall_as(NOBODY);
    command.args(["gang", "daemon", "--listen", "127.0.0.1:0"]);
    command.args(["--control", &control, "--tcp-user", "root"]);
    let output = command.output().expect("runs");
    let told = text(&output.stderr);
    assert!(
        told.contains("--tcp-user: this daemon runs as user"),
        "{told}"
    );
}

/// The commands of a user give no job, and so no environment, to the daemon of another one.
#[test]
fn a_job_does_not_go_to_the_daemon_of_another_user() {
    if !is_root() {
        return;
    }
    let daemon = Node::start_as(NOBODY, &["--slots", "2"], &[]);
    for user in [0, 1234] {
        let gang = |words: &[&str]| {
            let mut command = farcall_as(user);
            command.arg("gang").arg(words[0]);
            command.args(["--control", daemon.control()]);
            command.args(&words[1..]).output().expect("it runs")
        };
        let told = text(&gang(&["run", "-n", "1", "true"]).stderr);
        assert!(told.contains("runs as user 65534"), "{told}");
        let told = text(&gang(&["checkpoint", "1", "/tmp/never"]).stderr);
        assert!(told.contains("runs as user 65534"), "{told}");
        assert!(gang(&["ps"]).status.success());
    }
}

/// A daemon with the rights that its unit for systemd leaves it starts the programs of users.
#[test]
fn the_rights_of_the_unit_suffice_for_the_jobs_of_users() {
    if !is_root() {
        return;
    }
    let unit = include_str!("../../../docs/farcall-gang.service");
    let mut lines = unit.lines();
    let rights = lines.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let rights = rights.expect("a line of the unit").to_lowercase();
    let rights = rights.replace("cap_", "+").replace(' ', ",");
    let bound = format!("--bounding-set=-all,{rights}");
    let node = Node::start_by(&["setpriv", "--no-new-privs", &bound], &["--slots", "2"]);
    let own = [
        "run",
        "--quiet",
        "--user",
        "65534:65534",
        "-n",
        "1",
        "--",
        "sh",
        "-c",
        "id -u > /dev/stdout",
    ];
    let output = node.gang(&own).current_dir("/").output().expect("it runs");
    assert_eq!(text(&output.stdout), "65534\n", "{}", text(&output.stderr));
    // The error names the folder, if that is the cause.
    let folder = tempfile::tempdir().expect("a folder");
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), private).expect("own folder");
    let mut command = node.gang(&own);
    let output = command.current_dir(folder.path()).output().expect("runs");
    let told = text(&output.stderr);
    let wanted = format!("cannot start in the folder {}", folder.path().display());
    assert!(told.contains(&wanted), "{told}");
}

/// The daemon may be protected from a lack of memory, and the programs of users are not.
#[test]
fn the_kernel_ends_jobs_before_their_daemon() {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").expect("a number");
    let own: i32 = own.trim().parse().expect("a number");
    let node = Node::start(&["--slots", "1"]);
    let show = [
        "run",
        "--quiet",
        "-n",
        "1",
        "--",
        "cat",
        "/proc/self/oom_score_adj",
    ];
    let output = node.gang(&show).output().expect("it runs");
    let wanted = (own + 500).min(1000).to_string();
    assert_eq!(lines(&output), [wanted], "{}", text(&output.stderr));
}

#[test]
fn files_of_a_job_have_the_permissions_that_its_user_wants() {
    let node = Node::start(&["--slots", "1"]);
    let command = node.gang(&["run", "--quiet", "-n", "1", "--", "sh", "-c", "umask"]);
    let variables = command.get_envs();
    let variables = variables.filter_map(|(name, value)| Some((name, value?)));
    let mut masked = Command::new("sh");
    masked.args(["-c", "umask 027; exec \"$@\"", "sh"]);
    masked.arg(command.get_program()).args(command.get_args());
    let output = masked.envs(variables).output().expect("it runs");
    assert_eq!(lines(&output), ["0027"], "{}", text(&output.stderr));
}

#[test]
fn variables_that_are_no_text_stay_behind_and_are_named() {
    use std::os::unix::ffi::OsStrExt;
    let node = Node::start(&["--slots", "1"]);
    let mut command = node.gang(&["run", "--quiet", "-n", "1", "--", "sh", "-c", "echo $LATIN"]);
    command.env("LATIN", std::ffi::OsStr::from_bytes(b"na\xefve"));
    let output = command.output().expect("it runs");
    assert_eq!(lines(&output), [""]);
    let told = "the job does not get the environment variable `LATIN`, which is not UTF-8";
    assert!(
        text(&output.stderr).contains(told),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_script_whose_interpreter_is_missing_names_it() {
    let node = Node::start(&["--slots", "1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("solve");
    std::fs::write(&script, "#!/opt/none/python3 -u\n").expect("room");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("own file");
    let output = node.run(&["-n", "1", "--", script.to_str().expect("plain")]);
    let told = text(&output.stderr);
    let wanted = "its interpreter `/opt/none/python3` is not on this node";
    assert!(told.contains(wanted), "{told}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_folder_whose_name_is_no_text_is_a_failure_of_farcall() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join(std::ffi::OsStr::from_bytes(b"na\xefve"));
    std::fs::create_dir(&folder).expect("a folder");
    let mut command = farcall();
    command.args(["gang", "run", "-n", "1", "--", "true"]);
    let output = command.current_dir(&folder).output().expect("it runs");
    let told = text(&output.stderr);
    assert!(told.contains("its name is not UTF-8"), "{told}");
    assert_eq!(output.status.code(), Some(125));
}

/// The shared memory of its own does not lead a job out of the root folder of its daemon.
#[test]
fn the_jobs_of_a_daemon_with_another_root_folder_stay_there() {
    if !is_root() {
        return;
    }
    let script = r#"
        mount --rbind / "$0" && mount -t tmpfs inside "$0/mnt" && echo here > "$0/mnt/inside" &&
        exec chroot "$0" "$@""#;
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("plain");
    let words = ["unshare", "--mount", "sh", "-c", script, place];
    let node = Node::start_by(&words, &["--slots", "2"]);
    for more in [&[][..], &["--mpi", "none"]] {
        let job = ["-n", "1", "--", "cat", "/mnt/inside"];
        let output = node.run(&[more, &job].concat());
        assert_eq!(text(&output.stdout), "here\n", "{}", text(&output.stderr));
    }
}

/// A node whose daemon runs as another user gets no secrets of the environment.
#[test]
fn the_environment_does_not_go_to_other_users() {
    if !is_root() {
        return;
    }
    let root = Node::start(&["--node", "a", "--slots", "2"]);
    let show = [
        "-n",
        "4",
        "--",
        "sh",
        "-c",
        "echo $SECRET,$OMP_NUM_THREADS,$FARCALL_TOKEN",
    ];
    let run = || {
        let mut command = root.gang(&["run", "--quiet"]);
        let command = command.args(show).current_dir("/");
        let command = command.env("SECRET", "s").env("OMP_NUM_THREADS", "3");
        command.env("FARCALL_TOKEN", "t").output().expect("runs")
    };
    assert_eq!(lines(&run()), ["s,3,t"; 4]);
    let options = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let _other = Node::start_as(NOBODY, &options, &[]);
    wait_until("it has joined", || root.nodes() == 2);
    let output = run();
    assert_eq!(lines(&output), [",3,"; 4], "{}", text(&output.stderr));
}

/// Stops between vfork and exec, so that no signal can stop its parent.
const UNSTOPPABLE: &str = "import ctypes, os, signal
if ctypes.CDLL(None).vfork() == 0:
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)
";

/// The hundredths of a second that a process has computed.
fn computed(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.trim()));
    let text = text.expect("it is there");
    let fields = text.rsplit_once(") ").expect("a name").1;
    let times = fields.split(' ').skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

/// The first line of a process.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    // The pipe stays open: the other processes of the job print, too.
    let mut told = std::io::BufReader::new(child.stdout.as_mut().expect("piped"));
    std::io::BufRead::read_line(&mut told, &mut line).expect("a line");
    line
}

/// A job that no signal can stop loses its own slices. Without control groups each of its slices
/// costs a tenth of a second, for which it then pays.
#[test]
fn a_job_that_cannot_be_stopped_takes_no_time_of_others() {
    if !is_root() {
        return;
    }
    let options = ["--slice", "20ms", "--slots", "2"];
    for daemon in [Node::start(&options), Node::start_as(NOBODY, &options, &[])] {
        let submit = |arguments: &[&str]| {
            let mut command = farcall_as(NOBODY);
            command
                .args(["gang", "run", "--quiet", "--control", daemon.control()])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            Running(command.spawn().expect("runs"))
        };
        let _unstoppable = submit(&["-n", "8", "--", "python3", "-c", UNSTOPPABLE]);
        let script = "echo $$; while :; do :; done";
        let mut other = submit(&["-n", "1", "--", "sh", "-c", script]);
        let process = first_line(&mut other.0);
        // What a process computes that no gang stops.
        let mut free = Command::new("setsid");
        let free = free.args(["sh", "-c", script]).stdout(Stdio::piped());
        let mut free = Running(free.spawn().expect("runs"));
        let reference = first_line(&mut free.0);
        wait_until("both had slices", || {
            let all = slices(&daemon);
            all.len() == 2 && all.iter().all(|(_, count)| *count > 3)
        });
        let of_both = || [&process, &reference].map(|process| computed(process));
        let before = of_both();
        std::thread::sleep(Duration::from_secs(3));
        let after = of_both();
        let [own, most] = [0, 1].map(|one| (after[one] - before[one]) as f64);
        // Half of the time belongs to it; other tests may take most of that.
        println!("share of the other job: {own} of {most}");
        assert!(own > 0.2 * most, "{own} of {most}");
    }
}

/// A process in a session of its own, which nobody stops with its job.
const RUNAWAY: &str = "import os
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    while True:
        os.kill(os.getppid(), 18)
os.wait()
";

#[test]
fn a_process_that_leaves_its_session_is_stopped_with_its_job() {
    if !is_root() {
        return;
    }
    let daemon = Node::start(&["--slice", "20ms"]);
    let mut job = daemon.submit(&["-n", "1", "--", "python3", "-c", RUNAWAY]);
    let process = first_line(&mut job);
    let used = || computed(&process);
    wait_until("it computes", || used() > 5);
    assert!(
        daemon
            .gang(&["stop", "1"])
            .status()
            .expect("runs")
            .success()
    );
    wait_until("it is stopped", || daemon.jobs()[0]["state"] == "stopped");
    // The job is called stopped before its node has stopped all processes.
    let before_and_after = |time| {
        let before = used();
        std::thread::sleep(time);
        (before, used())
    };
    wait_until("it rests", || {
        let (before, after) = before_and_after(Duration::from_millis(300));
        before == after
    });
    let (before, after) = before_and_after(Duration::from_secs(1));
    assert_eq!(after, before, "hundredths of a second");
    daemon.gang(&["kill", "1"]).status().expect("runs");
    job.wait().expect("it ends");
}

/// Empties the bell of its job, or of the engine, all the time.
const THIEF: &str = "import os
bell = int(os.environ['FARCALL_CHANNEL'].split(',')[1])
print('begins', flush=True)
while True:
    try:
        os.read(bell, 8)
    except BlockingIOError:
        pass
";

#[test]
fn a_thief_of_bells_silences_its_own_job_alone() {
    let root = Node::start(&["--slice", "50ms", "--node", "a", "--slots", "1"]);
    let options = ["--node", "b", "--slots", "3", "--parent", root.address()];
    let _other = Node::start(&options);
    wait_until("the second node has joined", || root.nodes() == 2);
    let program = example("all_to_all");
    // The first two slots are on both nodes, the last two on the second.
    let job = ["-n", "2", program.as_str(), "60", "30000"];
    let control = root.run(&job);
    assert_eq!(control.status.code(), Some(0), "{}", text(&control.stderr));
    let mut first = root.submit(&["-n", "2", "--", "sleep", "1000"]);
    wait_until("it is there", || root.jobs().len() == 1);
    let mut thief = root.submit(&["-n", "2", "--", "python3", "-c", THIEF]);
    first_line(&mut thief);
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    wait_until("the place is free", || root.jobs().len() == 1);
    let output = root.run(&job);
    assert_eq!(lines(&output), lines(&control), "{}", text(&output.stderr));
    thief.kill().expect("it runs");
    thief.wait().expect("it ends");
}

/// A daemon that does not answer delays the jobs on its node alone, and they go on with it.
#[test]
fn a_stopped_daemon_delays_only_the_jobs_on_its_node() {
    let root = Node::start(&["--slice", "20ms", "--node", "a", "--slots", "2"]);
    let options = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let mut other = Node::start(&options);
    wait_until("the second node has joined", || root.nodes() == 2);
    let mut jobs = vec![root.submit(&["-n", "4", "--", "sleep", "1000"])];
    for count in 2..6 {
        jobs.push(root.submit(&["-n", "2", "--", "sleep", "1000"]));
        wait_until("it is listed", || root.jobs().len() == count);
    }
    wait_until("all had slices", || {
        slices(&root).iter().all(|(_, count)| *count > 2)
    });
    let rows = root.jobs();
    let here = rows
        .iter()
        .filter(|row| row["nodes"] == serde_json::json!(["a"]));
    let here: BTreeSet<u64> = here.filter_map(|row| row["id"].as_u64()).collect();
    assert_eq!(here.len(), 2);
    other.signal(Signal::STOP);
    // The first switches with the other node wait for it, and no others.
    std::thread::sleep(Duration::from_secs(2));
    let before = slices(&root);
    std::thread::sleep(Duration::from_secs(2));
    // A busy machine switches late. After half a minute without an answer the node would be lost.
    let (mut after, start) = (slices(&root), Instant::now());
    let behind = |after: &[(u64, u64)]| {
        let pairs = before.iter().zip(after);
        let mut ours = pairs.filter(|((job, _), _)| here.contains(job));
        ours.any(|((_, before), (_, after))| *after < before + 20)
    };
    while behind(&after) && start.elapsed() < Duration::from_secs(15) {
        std::thread::sleep(Duration::from_millis(100));
        after = slices(&root);
    }
    assert!(!behind(&after), "{before:?} to {after:?}");
    for ((job, before), (_, after)) in before.iter().zip(&after) {
        if !here.contains(job) {
            assert_eq!(before, after, "job {job}");
        }
    }
    other.signal(Signal::CONT);
    wait_until("all go on", || {
        slices(&root)
            .iter()
            .zip(&after)
            .all(|((_, now), (_, then))| *now > then + 3)
    });
    for mut job in jobs {
        job.kill().expect("it runs");
        job.wait().expect("it ends");
    }
}

const IDLE: &str = "import socket, sys, time
all = []
for place in range(1100):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(1)
    try:
        one.connect('\\0' + sys.argv[1][1:])
    except OSError:
        break
    all.append(one)
print(len(all), flush=True)
time.sleep(1000)
";

#[test]
fn idle_connections_of_a_user_keep_root_out_of_nothing() {
    if !is_root() {
        return;
    }
    let daemon = Node::start(&[]);
    let mut idle = Command::new("python3");
    idle.args(["-c", IDLE, daemon.control()]);
    idle.uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
    let mut idle = Running(idle.spawn().expect("python3"));
    first_line(&mut idle.0);
    let start = Instant::now();
    let output = daemon.gang(&["ps"]).output().expect("runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    let mut command = farcall_as(NOBODY);
    let output = command
        .args(["gang", "ps", "--control", daemon.control()])
        .output()
        .expect("runs");
    assert!(text(&output.stderr).contains("connections of user 65534"));
}

#[test]
fn a_thousand_processes_start_beside_the_others() {
    let daemon = Node::start(&["--slice", "50ms"]);
    let other = Running(daemon.submit(&["-n", "2", "--", "sh", "-c", "while :; do :; done"]));
    wait_until("it runs", || daemon.jobs().len() == 1);
    let word = format!("7{}", daemon.id());
    // Command lines of other programs may contain the number.
    let asleep = format!("sleep\0{word}\0");
    let start = Instant::now();
    let memory = [
        "-n", "1000", "--tree", "--memory", "1MB", "--", "sleep", &word,
    ];
    let many = Running(daemon.submit(&memory));
    let mut slowest = Duration::ZERO;
    wait_until("all have started", || {
        let asked = Instant::now();
        assert!(!daemon.jobs().is_empty());
        slowest = slowest.max(asked.elapsed());
        processes(&asleep) >= 1000
    });
    println!(
        "1000 processes in {:?}, `ps` in {slowest:?} at most",
        start.elapsed()
    );
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    // A busy machine, which starts them late, answers late too.
    let bound = Duration::from_secs(2).max(start.elapsed() / 3);
    assert!(slowest < bound, "{slowest:?}");
    drop((many, other));
    wait_until("all have ended", || processes(&asleep) == 0);
}

#[test]
fn long_commands_do_not_break_the_list() {
    let daemon = Node::start(&["--slice", "20ms"]);
    let long = "x".repeat(100_000);
    let mut command = vec!["-n", "1", "--", "sh", "-c", "exec sleep 1000", "sh"];
    command.extend([long.as_str(); 15]);
    let jobs: Vec<Running> = (0..3).map(|_| Running(daemon.submit(&command))).collect();
    wait_until("all are listed", || {
        let output = daemon.gang(&["ps"]).output().expect("runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().count() == 4
    });
    let rows = daemon.jobs();
    let shown = rows[0]["command"].as_str().expect("a command");
    assert!(shown.starts_with("sh -c exec sleep 1000") && shown.ends_with("..."));
    drop(jobs);
}

/// The most memory that a process has had, in MB.
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let words = line.expect("a peak").split_whitespace().nth(1);
    words.expect("a number").parse::<u64>().expect("a number") / 1000
}

#[test]
fn a_flood_of_requests_without_readers_takes_no_memory() {
    let daemon = Node::start(&["--slots", "1"]);
    let long = "x".repeat(16_000);
    let jobs: Vec<Child> = (0..4)
        .map(|_| daemon.submit(&["-n", "1", "--", "sh", "-c", "sleep 1000", &long]))
        .collect();
    wait_until("all are there", || daemon.jobs().len() == jobs.len());
    let name = daemon.control().trim_start_matches('@');
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut front = UnixStream::connect_addr(&address).expect("it listens");
    // The frame of a request for the list, which has 64 KB.
    let list = [3, 0, 0, 0, 0x82, 1, 0x80];
    front.write_all(&list.repeat(9000)).expect("written");
    // This is answered after the flood.
    assert_eq!(daemon.jobs().len(), jobs.len());
    let peak = peak(daemon.id());
    assert!(peak < 150, "{peak} MB");
}

/// Users other than root use a control socket at a path, and the usual names of their output.
#[test]
fn other_users_can_use_a_control_socket_at_a_path() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("own folder");
    let control = folder.path().join("gang.sock");
    let control = control.to_string_lossy().into_owned();
    let mut daemon = farcall();
    daemon
        .args([
            "gang",
            "daemon",
            "--listen",
            "127.0.0.1:0",
            "--control",
            &control,
        ])
        .env("XDG_STATE_HOME", folder.path())
        .env("FARCALL_TOKEN", "x");
    let _daemon = farcall_system::Daemon::start(daemon).expect("it listens");
    let script = "echo x > /dev/stdout; echo y > /dev/stderr; id -u";
    let output = farcall_as(NOBODY)
        .args(["gang", "run", "--quiet", "--control", &control, "-n", "1"])
        .args(["--", "sh", "-c", script])
        .output()
        .expect("runs");
    let told = text(&output.stderr);
    assert_eq!(lines(&output), ["65534", "x"], "{told}");
    assert_eq!(told, "y\n");
}

#[test]
fn a_harmless_signal_does_not_end_a_job_that_waits_for_its_first_slice() {
    let daemon = Node::start(&["--slice", "1000s", "--slots", "1"]);
    let first = Running(daemon.submit(&["-n", "1", "--", "sleep", "1000"]));
    wait_until("it runs", || daemon.jobs().len() == 1);
    let second = daemon.submit(&["-n", "1", "--", "echo", "done"]);
    wait_until("the other waits", || daemon.jobs().len() == 2);
    let signal = |number: &str| {
        let mut command = daemon.gang(&["kill", "2", "--signal", number]);
        assert!(command.status().expect("runs").success());
    };
    signal("28");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(daemon.jobs().len(), 2);
    drop(first);
    let output = second.wait_with_output().expect("it ends");
    assert_eq!(lines(&output), ["done"], "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_root_daemon_that_comes_back_says_what_was_lost() {
    let mut root = Node::start(&["--node", "a", "--slots", "2"]);
    let address = root.address().to_string();
    let options = ["--node", "b", "--slots", "2", "--parent", &address];
    let other = Node::start(&options);
    wait_until("the second node has joined", || root.nodes() == 2);
    let ended = root.run(&["-n", "1", "--", "true"]);
    assert!(ended.status.success());
    let job = root.submit(&["-n", "4", "--", "sh", "-c", "sleep 1000 # \\"]);
    let id = root.last_job(1);
    root.kill();
    let output = job.wait_with_output().expect("the front end ends");
    assert_eq!(output.status.code(), Some(125));
    let told = text(&output.stderr);
    assert!(told.contains(&format!("gang job {id} is lost")), "{told}");
    let options = ["--node", "a", "--slots", "2", "--listen", &address];
    let mut again = root.start_again(&options, &[]);
    let command = again.jobs()[0]["command"].clone();
    again.kill();
    let mut again = again.start_again(&options, &[]);
    let rows = again.jobs();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(
        (&rows[0]["state"], rows[0]["id"].to_string()),
        (&"lost".into(), id.clone())
    );
    assert_eq!(rows[0]["command"], command);
    let told = again.gang(&["state", &id]).output().expect("runs").stderr;
    assert!(text(&told).contains("was lost with the daemon before this one"));
    assert!(again.gang(&["kill", &id]).status().expect("runs").success());
    assert!(again.jobs().is_empty());
    // The other node has ended its processes, and joins again by itself.
    wait_until("no process is left", || other.children().is_empty());
    wait_until("the second node has joined again", || again.nodes() == 2);
    let output = again.run(&["-n", "4", "--", "echo", "together"]);
    assert_eq!(lines(&output), ["together"; 4], "{}", text(&output.stderr));
    let next = again.submit(&["-n", "1", "--", "sleep", "1000"]);
    let next = Running(next);
    assert!(again.last_job(1).parse::<u64>().expect("a number") > id.parse().expect("a number"));
    drop(next);
    // A user who has taken note is not told again.
    wait_until("all jobs have ended", || again.jobs().is_empty());
    again.kill();
    let again = again.start_again(&options, &[]);
    assert!(again.jobs().is_empty());
}

/// A daemon that hung for too long has lost its jobs, and joins again when it goes on.
#[test]
fn a_node_that_comes_back_joins_again() {
    let root = Node::start(&["--node", "a", "--slots", "2", "--silence", "2s"]);
    let options = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let mut other = Node::start(&options);
    wait_until("the second node has joined", || root.nodes() == 2);
    let job = root.submit(&["-n", "4", "--", "sleep", "1000"]);
    wait_until("it is there", || root.jobs().len() == 1);
    other.signal(Signal::STOP);
    let output = job.wait_with_output().expect("it ends");
    assert!(text(&output.stderr).contains("node b is gone"));
    other.signal(Signal::CONT);
    wait_until("it has joined again", || root.nodes() == 2);
    let output = root.run(&["-n", "4", "--", "echo", "together"]);
    assert_eq!(lines(&output), ["together"; 4], "{}", text(&output.stderr));
}
