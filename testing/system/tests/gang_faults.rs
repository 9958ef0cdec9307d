//! Tests gang jobs and daemons that fail, hang or fill their network. The other jobs must continue.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farcall_system::gang::{Node, farcall_as, lines, processes, text};
use farcall_system::program::example;
use farcall_system::{farcall, free_addresses, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Two nodes of two slots each.
fn cluster(options: &[&str]) -> (Node, Node) {
    let root = ["--slice", "20ms", "--node", "a", "--slots", "2"];
    let root = Node::start(&[&root[..], options].concat());
    // The root's settings hold on all nodes, so the other node has the defaults.
    let other = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let other = Node::start(&other);
    wait_until("the second node has joined", || root.nodes() == 2);
    (root, other)
}

fn all_to_all() -> [String; 5] {
    let program = example("all_to_all");
    ["-n", "4", &program, "40", "30000"].map(str::to_string)
}

#[test]
fn traffic_between_nodes_survives_every_form_of_switch() {
    let job = all_to_all();
    let job = job.each_ref().map(String::as_str);
    let control = Node::start(&["--slice", "1000s"]).run(&job);
    assert_eq!(control.status.code(), Some(0), "{}", text(&control.stderr));
    for form in ["two", "seven"] {
        for freeze in ["epoch", "drain"] {
            let options = ["--switch-alone", "--form", form, "--freeze", freeze];
            let (root, _other) = cluster(&options);
            let output = root.run(&job);
            let told = text(&output.stderr);
            assert_eq!(lines(&output), lines(&control), "{form} {freeze}: {told}");
        }
    }
}

/// The daemons have links of their own. If a job has filled its network, they still hear of it, and
/// can judge and kill it, in a drain too.
#[test]
fn a_job_whose_channels_are_clogged_is_killed() {
    for freeze in ["epoch", "drain"] {
        let (root, other) = cluster(&["--freeze", freeze]);
        let stall = example("stall");
        let mut job = root.submit(&["-n", "4", &stall]);
        let id = root.last_job(1);
        let mut told = String::new();
        wait_until("the stall is seen", || {
            let output = root.gang(&["state", &id]).output().expect("runs");
            told = text(&output.stdout);
            told.starts_with("stalled")
        });
        assert!(
            told.contains("waits for space in the full channel"),
            "{told}"
        );
        assert!(root.gang(&["kill", &id]).status().expect("runs").success());
        wait_until("it ends", || matches!(job.try_wait(), Ok(Some(_))));
        wait_until("nothing is left", || {
            root.children().is_empty() && other.children().is_empty()
        });
        let job = all_to_all();
        let output = root.run(&job.each_ref().map(String::as_str));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn a_stalled_job_is_ended_and_one_that_works_is_not() {
    let (root, _other) = cluster(&[]);
    let stall = example("stall");
    let alone = Node::start(&["--slots", "2", "--slice", "20ms"]);
    for (daemon, elements) in [(&root, "3"), (&root, "5"), (&alone, "2"), (&alone, "3")] {
        let output = daemon.run(&["-n", elements, "--detect-termination", &stall]);
        assert_eq!(output.status.code(), Some(125), "{elements}");
        assert!(text(&output.stderr).contains("flow-control stall"));
    }
    let job = all_to_all();
    let mut watched = vec!["--detect-termination"];
    watched.extend(job.iter().map(String::as_str));
    let output = root.run(&watched);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// A node is lost while the network of its job is being drained.
#[test]
fn a_node_lost_in_a_drain_holds_nobody_up() {
    let (root, mut other) = cluster(&["--freeze", "drain"]);
    let program = example("all_to_all");
    let spread = root.submit(&["-n", "4", &program, "1000000", "30000"]);
    let first = root.last_job(1);
    let local = root.submit(&["-n", "1", "--", "sleep", "1000"]);
    let second = root.last_job(2);
    let slices = |of: &str| {
        let rows = root.jobs();
        let mine = rows
            .iter()
            .find(|row| row["id"].as_u64() == of.parse().ok());
        mine.and_then(|row| row["slices"].as_u64()).unwrap_or(0)
    };
    wait_until("both have had slices", || {
        slices(&first) > 3 && slices(&second) > 3
    });
    other.kill();
    let output = spread.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(125));
    let told = text(&output.stderr);
    assert!(
        told.contains("node b is gone: node b closed its connection"),
        "{told}"
    );
    wait_until("the other goes on", || {
        let rows = root.jobs();
        rows.len() == 1 && rows[0]["state"] == "running"
    });
    let output = root.run(&["-n", "2", "--", "echo", "still there"]);
    assert_eq!(lines(&output), ["still there"; 2]);
    root.gang(&["kill", &second]).status().expect("runs");
    local.wait_with_output().expect("it ends");
}

/// A daemon that hangs keeps its connection. Only its silence shows the failure.
#[test]
fn a_daemon_that_hangs_is_given_up() {
    let (root, mut other) = cluster(&["--silence", "3s"]);
    let spread = root.submit(&["-n", "4", "--", "sleep", "1000"]);
    wait_until("it is there", || root.jobs().len() == 1);
    other.signal(Signal::STOP);
    let output = spread.wait_with_output().expect("it ends");
    other.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(125));
    let told = text(&output.stderr);
    assert!(
        told.contains("node b is gone: node b was silent for 3 s"),
        "{told}"
    );
    let output = root.run(&["-n", "2", "--", "echo", "still there"]);
    assert_eq!(lines(&output), ["still there"; 2]);
}

/// A machine with all daemons is paused for longer than a daemon may be silent. None of them could
/// say or hear anything in this time, so none is lost.
#[test]
fn daemons_that_are_paused_together_keep_their_jobs() {
    let silence = ["--silence", "3s", "--slots", "2"];
    let mut root = Node::start(&[&silence[..], &["--slice", "20ms"]].concat());
    let below = ["--node", "b", "--parent", root.address()];
    let mut other = Node::start(&[&silence[..], &below].concat());
    wait_until("the second node has joined", || root.nodes() == 2);
    let mut job = root.submit(&["-n", "4", "--", "sleep", "1000"]);
    wait_until("it is there", || root.jobs().len() == 1);
    for daemon in [&mut root, &mut other] {
        daemon.signal(Signal::STOP);
    }
    std::thread::sleep(Duration::from_secs(5));
    for daemon in [&mut root, &mut other] {
        daemon.signal(Signal::CONT);
    }
    let output = root.run(&["-n", "4", "--", "echo", "still there"]);
    assert_eq!(lines(&output), ["still there"; 4]);
    assert_eq!(job.try_wait().expect("a child"), None);
    job.kill().expect("it runs");
    job.wait().expect("it ends");
}

/// The folder of a daemon's control groups, if it has them.
fn groups_of(daemon: &Node) -> Option<PathBuf> {
    let groups = format!("farcall-gang-{}", daemon.id());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux");
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 "))?;
    let folder = Path::new(mount.split(' ').nth(1)?).join(groups);
    folder.exists().then_some(folder)
}

/// They exist from their birth, but do not run until they have a slice.
#[test]
fn a_killed_daemon_takes_processes_along_that_wait_for_their_first_slice() {
    let mut daemon = Node::start(&["--slice", "1000s", "--slots", "1"]);
    let Some(folder) = groups_of(&daemon) else {
        println!("SKIPPED: there are no control groups");
        return;
    };
    let first = daemon.submit(&["-n", "1", "--", "sleep", "1000"]);
    let second = daemon.submit(&["-n", "1", "--", "sleep", "1000"]);
    wait_until("both have processes", || {
        let jobs = std::fs::read_dir(&folder).expect("groups").flatten();
        let jobs = jobs.map(|job| std::fs::read_to_string(job.path().join("cgroup.procs")));
        jobs.filter(|processes| {
            processes
                .as_ref()
                .is_ok_and(|processes| !processes.is_empty())
        })
        .count()
            == 2
    });
    daemon.kill();
    for job in [first, second] {
        let output = job.wait_with_output().expect("the front end ends");
        assert_eq!(output.status.code(), Some(125));
    }
    wait_until("no process and no group is left", || !folder.exists());
}

#[test]
fn a_killed_daemon_takes_its_jobs_along() {
    let mut daemon = Node::start(&["--slice", "20ms"]);
    let folder = groups_of(&daemon);
    let word = format!("31{}", daemon.id());
    // Command lines of other programs may contain the number.
    let asleep = format!("sleep\0{word}\0");
    let mut script = format!("exec sleep {word}");
    if folder.is_some() {
        // A process that has left its process group is still in the control group.
        script = format!("setsid sleep {word} & {script}");
    } else {
        println!("no control groups: what leaves its element is not looked for");
    }
    let job = daemon.submit(&["-n", "2", "--tree", "--", "sh", "-c", &script]);
    wait_until("it runs", || processes(&asleep) >= 2);
    daemon.kill();
    let output = job.wait_with_output().expect("the front end ends");
    assert_eq!(output.status.code(), Some(125));
    wait_until("no process is left", || processes(&asleep) == 0);
    wait_until("no group is left", || {
        folder.as_ref().is_none_or(|folder| !folder.exists())
    });
}

/// A front end that reads nothing holds back only its own job.
#[test]
fn output_that_nobody_reads_stops_no_other_job() {
    let (root, _other) = cluster(&[]);
    let mut unread = root.submit(&["-n", "4", "--", "yes", "a line that nobody reads"]);
    wait_until("it runs", || root.jobs().len() == 1);
    // Writes until its pipe, its front end's link and the links between the daemons are full.
    let resident = || {
        let path = format!("/proc/{}/statm", root.id());
        let pages = std::fs::read_to_string(path).unwrap_or_default();
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.unwrap_or(0u64) * 4096
    };
    let (mut last, mut same) = (0, 0);
    wait_until("nothing more is taken", || {
        let now = resident();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 100
    });
    assert!(last < 64 << 20, "{last} bytes");
    let output = root.run(&["-n", "4", "--", "echo", "read"]);
    assert_eq!(lines(&output), ["read"; 4]);
    unread.kill().expect("it runs");
    unread.wait().expect("it ends");
}

/// The others of a process of MPI that aborts would wait for it for ever.
#[test]
fn a_job_whose_output_nobody_reads_can_abort() {
    let node = Node::start(&["--slots", "2", "--slice", "20ms"]);
    let text = "if [ $FARCALL_RANK = 0 ]; then exec yes a line that nobody reads; fi; \
                sleep 2; echo cmd=abort exitcode=7 >&$PMI_FD; exec sleep 1000";
    let mut unread = node.submit(&["-n", "2", "--", "bash", "-c", text]);
    wait_until("it runs", || node.jobs().len() == 1);
    wait_until("it has aborted", || node.jobs().is_empty());
    unread.kill().expect("it runs");
    unread.wait().expect("it ends");
}

#[test]
fn a_job_comes_by_tcp_with_the_secret() {
    let token = [("FARCALL_TOKEN", "a secret of this test")];
    // SAFETY: plain system calls.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let owner = format!("{user}:{group}");
    let daemon = Node::start_with(&["--tcp-user", &owner], &token);
    let run = |token: &str| {
        let mut command = farcall();
        command
            .args(["gang", "run", "--quiet", "--daemon", daemon.address()])
            .args(["-n", "2", "--", "echo", "by TCP"])
            .env("FARCALL_TOKEN", token);
        command.output().expect("runs")
    };
    let output = run(token[0].1);
    assert_eq!(lines(&output), ["by TCP"; 2], "{}", text(&output.stderr));
    let output = run("another");
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("FARCALL_TOKEN differs from the token of the daemon"));
}

#[test]
fn prometheus_reads_metrics() {
    let [address] = free_addresses();
    let daemon = Node::start(&["--metrics", &address, "--slice", "20ms"]);
    let job = daemon.submit(&["-n", "1", "--", "sleep", "1000"]);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    let mut page = String::new();
    wait_until("the job is counted", || {
        page = get("/metrics");
        page.contains("farcall_gang_jobs{state=\"running\"} 1\n")
    });
    for line in [
        "HTTP/1.1 200 OK\r\n",
        "# TYPE farcall_gang_switch_seconds counter\n",
        "farcall_gang_nodes 1\n",
        "farcall_gang_packets_total{way=\"sent\"} 0\n",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(get("/other").starts_with("HTTP/1.1 404"));
    daemon.gang(&["kill", "1"]).status().expect("runs");
    job.wait_with_output().expect("it ends");
}

#[test]
fn the_log_names_the_port_of_the_metrics() {
    let state = TempDir::new().expect("a folder");
    let control = format!("@farcall-test-metrics-{}", std::process::id());
    let mut daemon = farcall()
        .args(["gang", "daemon", "--log", "info", "--listen", "127.0.0.1:0"])
        .args(["--metrics", "127.0.0.1:0", "--control", &control])
        .env("XDG_STATE_HOME", state.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command is built");
    let log = BufReader::new(daemon.stderr.take().expect("its log"));
    let address = log.lines().map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("metrics at http://")?;
        let (address, _) = address.split_once('/')?;
        Some(address.to_owned())
    });
    let address = address.expect("the log has a line of it");
    TcpStream::connect(&address).expect("it listens");
    daemon.kill().expect("it runs");
    daemon.wait().expect("it has ended");
}

/// Jobs run as their user, and other users cannot reach them.
#[test]
fn users_are_kept_apart() {
    // SAFETY: a plain system call.
    if unsafe { libc::getuid() } != 0 {
        println!("SKIPPED: only a daemon of root has jobs of several users");
        return;
    }
    let nobody = 65_534;
    let daemon = Node::start(&[]);
    let as_nobody = |arguments: &[&str]| {
        let mut command = farcall_as(nobody);
        command
            .args(["gang", arguments[0], "--control", daemon.control()])
            .args(&arguments[1..])
            .stdin(Stdio::null());
        command.output().expect("runs")
    };
    let job = daemon.submit(&["-n", "1", "--", "sleep", "1000"]);
    wait_until("it is there", || daemon.jobs().len() == 1);
    let told = as_nobody(&["kill", "1"]);
    assert!(!told.status.success());
    assert!(text(&told.stderr).contains("gang job 1 belongs to user 0"));
    let told = as_nobody(&["ps"]);
    assert!(
        !text(&told.stdout).contains("sleep"),
        "{}",
        text(&told.stdout)
    );
    let script = "id -u; id -G; kill -0 1 2>&1 || echo refused";
    let told = as_nobody(&["run", "--quiet", "-n", "1", "--", "sh", "-c", script]);
    let groups = Command::new("id").args(["-G", "nobody"]).output();
    let groups = text(&groups.expect("id(1)").stdout);
    let output = text(&told.stdout);
    let mut output = output.lines();
    assert_eq!(output.next(), Some("65534"), "{}", text(&told.stderr));
    assert_eq!(output.next(), Some(groups.trim()));
    assert_eq!(output.last(), Some("refused"));
    daemon.gang(&["kill", "1"]).status().expect("runs");
    job.wait_with_output().expect("it ends");
}

/// A node gets another parent, and then its former one is lost. It is still there: the daemon above
/// the former parent has forgotten it.
#[test]
fn a_node_with_another_parent_is_not_lost_with_the_former_one() {
    let root = Node::start(&["--node", "a", "--slots", "1"]);
    let below = |name, parent: &Node| {
        let address = parent.address();
        Node::start(&["--node", name, "--slots", "1", "--parent", address])
    };
    let first = below("b", &root);
    let mut second = below("c", &first);
    let mut moved = below("d", &second);
    wait_until("all have joined", || root.nodes() == 4);
    moved.stop();
    wait_until("one has left", || root.nodes() == 3);
    let _moved = below("d", &root);
    wait_until("it is there again", || root.nodes() == 4);
    second.kill();
    wait_until("its former parent is lost", || root.nodes() < 4);
    assert_eq!(root.nodes(), 3);
}

/// A daemon is killed while the root daemon, which is slow, lets it join. Its node does not stay.
#[test]
fn a_daemon_that_is_killed_while_it_joins_is_lost() {
    let mut root = Node::start(&["--node", "a", "--slots", "1"]);
    let middle = ["--node", "b", "--slots", "1", "--parent", root.address()];
    let middle = Node::start(&middle);
    wait_until("the second node has joined", || root.nodes() == 2);
    let options = ["--node", "c", "--slots", "1", "--parent", middle.address()];
    let before = middle.descriptors();
    root.signal(Signal::STOP);
    let mut last = Node::start(&options);
    last.kill();
    wait_until("its link is gone", || middle.descriptors() <= before);
    root.signal(Signal::CONT);
    wait_until("its node is gone", || root.nodes_of("3") == 2);
    let _again = Node::start(&options);
    wait_until("its name is free", || root.nodes_of("3") == 3);
}

/// The parent daemon accepts the connection and says nothing.
#[test]
fn a_daemon_that_waits_for_its_parent_ends_when_it_is_stopped() {
    let parent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = parent.local_addr().expect("an address").to_string();
    let state = tempfile::tempdir().expect("a folder");
    let control = format!("@farcall-test-{}-waits", std::process::id());
    let mut command = farcall();
    command.args(["gang", "daemon", "--listen", "127.0.0.1:0", "--control"]);
    command.args([&control, "--parent", &address]);
    command.env("FARCALL_TOKEN", "the secret of these tests");
    command.env("XDG_STATE_HOME", state.path());
    let mut daemon = command.stdout(Stdio::null()).spawn().expect("it runs");
    let _link = parent.accept().expect("it connects");
    let begun = Instant::now();
    let pid = Pid::from_child(&daemon);
    kill_process(pid, Signal::TERM).expect("it runs");
    assert!(daemon.wait().expect("it ends").success());
    assert!(begun.elapsed() < Duration::from_secs(5));
}
