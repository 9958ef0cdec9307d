//! Tests real daemons and gang jobs: what a user sees, and that nothing is left behind. A hostile
//! or failing job does not harm others.

use farcall_system::gang::{Node, lines, text};
use farcall_system::program::example;
use farcall_system::{farcall, wait_until};
use rustix::process::Signal;
use std::process::{Command, Stdio};

#[test]
fn output_and_exit_status_are_those_of_the_elements() {
    let daemon = Node::start(&[]);
    let output = daemon.run(&[
        "-n",
        "3",
        "--",
        "sh",
        "-c",
        "echo $FARCALL_RANK; exit $FARCALL_RANK",
    ]);
    assert_eq!(lines(&output), ["0", "1", "2"]);
    assert_eq!(output.status.code(), Some(2));
    let output = daemon.run(&["-n", "2", "--", "sh", "-c", "echo wrong >&2"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "wrong\nwrong\n");
    let output = daemon.run(&["-n", "2", "/nonexistent/program"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/nonexistent/program"));
    let full = std::fs::File::create("/dev/full").expect("it is there");
    let mut written = daemon.gang(&["run", "-q", "-n", "1", "echo", "hi"]);
    let output = written.stdout(full).output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("cannot write the output of the gang job"));
    let crash = "test $FARCALL_RANK = 1 && kill -SEGV $$; exec sleep 1000";
    let output = daemon.run(&["-n", "3", "--", "sh", "-c", crash]);
    assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV));
    let told = text(&output.stderr);
    assert!(
        told.contains("rank 1 on node") && told.contains("SIGSEGV"),
        "{told}"
    );
}

#[test]
fn jobs_do_not_ignore_the_signals_that_the_daemon_ignores() {
    // A shell ignores Ctrl-C for what a script starts in the background.
    let daemon = Node::start_by(&["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"], &[]);
    for (signal, number) in [("INT", libc::SIGINT), ("HUP", libc::SIGHUP)] {
        let script = format!("kill -{signal} $$; exit 3");
        let output = daemon.run(&["-n", "1", "--", "sh", "-c", &script]);
        assert_eq!(output.status.code(), Some(128 + number), "{signal}");
    }
}

#[test]
fn a_daemon_without_a_terminal_ends_in_order() {
    let mut daemon = Node::start(&["--slots", "1"]);
    let job = daemon.submit(&["-n", "1", "--", "sh", "-c", "sleep 3141 & wait"]);
    wait_until("it runs", || !daemon.children().is_empty());
    daemon.signal(Signal::HUP);
    let output = job.wait_with_output().expect("it ends");
    let told = text(&output.stderr);
    assert!(told.contains("the daemon was stopped"), "{told}");
    let mut ended = None;
    wait_until("the daemon ends", || {
        ended = daemon.ends();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.code()), Some(0));
}

#[test]
fn with_nohup_a_job_outlives_its_terminal() {
    let daemon = Node::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let gate = folder.path().join("gate");
    let script = format!(
        "until test -e {}; do sleep 0.1; done; sleep 1; echo done",
        gate.display()
    );
    let run = ["run", "--quiet", "-n", "1", "--", "sh", "-c", &script];
    for (program, outlives) in [("env", false), ("nohup", true)] {
        // Without the arguments of timeout(1), the child is the front end itself.
        let gang = daemon.gang(&run);
        let front = gang.get_args().skip(3);
        let mut command = Command::new(program);
        let command = command.args(front).stdin(Stdio::null());
        let job = command.stdout(Stdio::piped()).spawn();
        let job = job.expect("coreutils are there");
        wait_until("the job runs", || daemon.jobs().len() == 1);
        // SAFETY: a plain system call on a child that has not been waited for.
        unsafe { libc::kill(job.id() as i32, libc::SIGHUP) };
        if outlives {
            std::fs::write(&gate, "").expect("own folder");
        }
        let output = job.wait_with_output().expect("it ends");
        assert_eq!(output.status.success(), outlives, "{program}");
        assert_eq!(text(&output.stdout).contains("done"), outlives, "{program}");
        wait_until("no job is left", || daemon.jobs().is_empty());
    }
}

#[test]
fn without_a_daemon_the_error_says_what_to_do() {
    let output = farcall()
        .args([
            "gang",
            "run",
            "-n",
            "1",
            "--control",
            "@farcall-nobody",
            "true",
        ])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("farcall gang daemon"));
}

#[test]
fn the_examples_run() {
    let daemon = Node::start(&["--slice", "20ms"]);
    for (name, arguments, said) in [
        ("ep", vec!["0.1"], "processor"),
        ("bar", vec!["0.1"], "barriers"),
        ("ping_pong", vec![], "one_way_us"),
        ("all_to_all", vec!["3", "20000"], "hash"),
        ("conjugate_gradient", vec!["400"], "largest error"),
        ("token_ring", vec!["50"], "50 times around"),
    ] {
        let program = example(name);
        let mut all = vec!["-n", "2", program.as_str()];
        all.extend(arguments);
        let output = daemon.run(&all);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{name}: {}",
            text(&output.stderr)
        );
        assert!(text(&output.stdout).contains(said), "{name}");
    }
}

/// The output is the same whether the job is preempted every 20 ms or never, in both forms.
#[test]
fn a_preempted_job_computes_the_same() {
    let program = example("all_to_all");
    let job = ["-n", "6", program.as_str(), "12", "20000"];
    let control = Node::start(&["--slice", "1000s"]).run(&job);
    assert_eq!(control.status.code(), Some(0), "{}", text(&control.stderr));
    for form in ["two", "seven"] {
        let daemon = Node::start(&["--slice", "20ms", "--switch-alone", "--form", form]);
        let output = daemon.run(&job);
        assert_eq!(
            lines(&output),
            lines(&control),
            "{form}: {}",
            text(&output.stderr)
        );
    }
}

/// Sixteen processes for a minute, with a gang switch every 20 ms.
#[test]
#[ignore = "soak"]
fn a_job_preempted_for_a_minute_computes_the_same() {
    let program = example("all_to_all");
    let daemon = Node::start(&["--slice", "20ms", "--switch-alone"]);
    let control = Node::start(&["--slice", "1000s"]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::time::Instant::now() < end {
        let job = ["-n", "16", program.as_str(), "8", "20000"];
        let (output, control) = (daemon.run(&job), control.run(&job));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(lines(&output), lines(&control));
    }
}

#[test]
fn two_jobs_take_turns() {
    let daemon = Node::start(&["--slice", "20ms", "--slots", "2"]);
    let jobs = [(); 2].map(|()| daemon.submit(&["-n", "2", "--", "sleep", "1000"]));
    wait_until("both have had three slices", || {
        let rows = daemon.jobs();
        let had = |row: &serde_json::Value| row["slices"].as_u64() >= Some(3);
        rows.len() == 2 && rows.iter().all(had)
    });
    let rows = daemon.jobs();
    assert!(
        rows.iter()
            .all(|row| row["lost_us_per_switch"].as_f64() > Some(0.0))
    );
    for row in &rows {
        let id = row["id"].to_string();
        assert!(
            daemon
                .gang(&["kill", &id])
                .status()
                .expect("runs")
                .success()
        );
    }
    for job in jobs {
        let output = job.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(128 + libc::SIGKILL));
    }
}

#[test]
fn a_job_is_stopped_and_goes_on() {
    let daemon = Node::start(&["--slice", "20ms"]);
    let program = example("token_ring");
    let job = daemon.submit(&["-n", "2", &program, "100000000"]);
    let state = |wanted: &str| {
        daemon
            .jobs()
            .first()
            .is_some_and(|row| row["state"] == wanted)
    };
    wait_until("it runs", || state("running"));
    assert!(
        daemon
            .gang(&["stop", "1"])
            .status()
            .expect("runs")
            .success()
    );
    wait_until("it is stopped", || state("stopped"));
    assert!(
        daemon
            .gang(&["cont", "1"])
            .status()
            .expect("runs")
            .success()
    );
    wait_until("it runs again", || state("running"));
    let output = daemon.gang(&["kill", "7"]).output().expect("runs");
    assert!(text(&output.stderr).contains("there is no gang job 7"));
    assert!(
        daemon
            .gang(&["kill", "1"])
            .status()
            .expect("runs")
            .success()
    );
    let output = job.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(128 + libc::SIGKILL));
}

#[test]
fn a_deadlock_is_told_with_its_cycle() {
    let daemon = Node::start(&["--slice", "20ms"]);
    let program = example("token_ring");
    let job = daemon.submit(&["-n", "3", &program, "lost"]);
    let mut told = String::new();
    wait_until("the deadlock is seen", || {
        let output = daemon.gang(&["state", "1"]).output().expect("runs");
        told = text(&output.stdout);
        told.starts_with("deadlocked")
    });
    for step in [(0, 2), (2, 1), (1, 0)] {
        let (rank, on) = step;
        let words = format!("rank {rank} waits for a message from rank {on}");
        assert!(told.contains(&words), "{told}");
    }
    assert!(
        daemon
            .gang(&["kill", "1"])
            .status()
            .expect("runs")
            .success()
    );
    job.wait_with_output().expect("it ends");
    let output = daemon.run(&["-n", "3", "--detect-termination", &program, "lost"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("deadlock: rank 0 waits"));
}

const SCRIBBLE: &str = "import mmap, os
fd, _, rank = map(int, os.environ['FARCALL_CHANNEL'].split(','))
memory = mmap.mmap(fd, 0)
for seed in range(40):
    for place in range(0, len(memory), 1 << 16):
        memory[place : place + 4096] = bytes([(seed * 37 + place // 65536) % 256]) * 4096
";

#[test]
fn a_hostile_element_harms_its_own_job_alone() {
    let parent = Node::start(&["--slice", "20ms", "--node", "a", "--slots", "2"]);
    let options = ["--node", "b", "--slots", "2", "--parent", parent.address()];
    let child = Node::start(&options);
    two_nodes(&parent);
    let program = example("all_to_all");
    let control = parent.run(&["-n", "4", &program, "6", "20000"]);
    assert_eq!(control.status.code(), Some(0), "{}", text(&control.stderr));
    let hostile = parent.submit(&["-n", "4", "--", "python3", "-c", SCRIBBLE]);
    let output = parent.run(&["-n", "4", &program, "6", "20000"]);
    assert_eq!(lines(&output), lines(&control), "{}", text(&output.stderr));
    hostile.wait_with_output().expect("it ends");
    wait_until("nothing is left", || {
        parent.children().is_empty() && child.children().is_empty()
    });
    let output = parent.run(&["-n", "4", &program, "6", "20000"]);
    assert_eq!(lines(&output), lines(&control));
}

fn two_nodes(parent: &Node) {
    wait_until("the second node has joined", || {
        let output = parent.run(&["-n", "4", "--", "true"]);
        let job = parent.submit(&["-n", "4", "--", "sleep", "1000"]);
        let (mut id, mut nodes) = (String::new(), 0);
        wait_until("it is listed", || {
            // The job before may still be listed too.
            let rows = parent.jobs();
            let mut rows = rows.iter();
            if let Some(row) = rows.find(|row| row["command"].to_string().contains("sleep")) {
                id = row["id"].to_string();
                nodes = row["nodes"].as_array().map_or(0, Vec::len);
            }
            nodes > 0
        });
        parent.gang(&["kill", &id]).status().expect("runs");
        job.wait_with_output().expect("it ends");
        output.status.success() && nodes == 2
    });
}

#[test]
fn a_lost_node_ends_its_jobs_and_no_others() {
    let parent = Node::start(&["--slice", "20ms", "--node", "a", "--slots", "2"]);
    let options = ["--node", "b", "--slots", "2", "--parent", parent.address()];
    let mut child = Node::start(&options);
    two_nodes(&parent);
    let spread = parent.submit(&["-n", "4", "--", "sleep", "1000"]);
    let local = parent.submit(&["-n", "1", "--", "sleep", "1000"]);
    wait_until("both are there", || parent.jobs().len() == 2);
    child.kill();
    let output = spread.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("node b is gone"),
        "{}",
        text(&output.stderr)
    );
    wait_until("the other goes on", || {
        let rows = parent.jobs();
        rows.len() == 1 && rows[0]["state"] == "running"
    });
    let id = parent.jobs()[0]["id"].to_string();
    parent.gang(&["kill", &id]).status().expect("runs");
    local.wait_with_output().expect("it ends");
}

/// The refusal goes to the daemon that joins, and not to the one between it and the root daemon.
#[test]
fn a_node_with_the_name_of_another_ends_alone() {
    let parent = Node::start(&["--node", "a", "--slots", "2"]);
    let options = ["--node", "b", "--slots", "2", "--parent", parent.address()];
    let between = Node::start(&options);
    two_nodes(&parent);
    let job = parent.submit(&["-n", "4", "--", "sleep", "1000"]);
    wait_until("it is there", || parent.jobs().len() == 1);
    let mut twin = Node::start(&["--node", "a", "--parent", between.address()]);
    let ended = twin.ends();
    assert_eq!(ended.and_then(|status| status.code()), Some(1));
    let rows = parent.jobs();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let id = rows[0]["id"].to_string();
    parent.gang(&["kill", &id]).status().expect("runs");
    job.wait_with_output().expect("it ends");
    two_nodes(&parent);
}

/// Jobs that are killed at any moment leave nothing behind. `FARCALL_SOAK_JOBS` sets their number.
#[test]
fn nothing_of_killed_jobs_is_left() {
    let count =
        std::env::var("FARCALL_SOAK_JOBS").map_or(50, |text| text.parse().expect("a number"));
    let mut daemon = Node::start(&["--slice", "20ms", "--slots", "2"]);
    let ring = example("token_ring");
    assert!(daemon.run(&["-n", "2", &ring, "1"]).status.success());
    let before = daemon.descriptors();
    let mut random = 12345u64;
    for _ in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let spawner = "sleep 1000 & exec sleep 1000";
        let command: &[&str] = match random >> 62 {
            0 => &["-n", "3", "--tree", "--", "sh", "-c", spawner],
            1 => &["-n", "2", "--", "sh", "-c", spawner],
            _ => &["-n", "4", &ring, "100000000"],
        };
        let mut job = daemon.submit(command);
        if random >> 60 & 1 == 0 {
            wait_until("it is killed", || {
                for row in daemon.jobs() {
                    let id = row["id"].to_string();
                    daemon.gang(&["kill", &id]).status().expect("runs");
                }
                matches!(job.try_wait(), Ok(Some(_)))
            });
        } else {
            // The front end is killed, at a moment that the seed chooses.
            std::thread::sleep(std::time::Duration::from_micros(random >> 44 & 0xffff));
            // SAFETY: a plain system call on a child that has not been waited for.
            unsafe { libc::kill(job.id() as i32, libc::SIGTERM) };
        }
        job.wait().expect("it ends");
    }
    let mut last = Vec::new();
    wait_until("no job is left", || {
        let rows = daemon.jobs();
        if rows != last {
            println!("left: {rows:?}");
        }
        last = rows;
        last.is_empty()
    });
    wait_until("no process is left", || daemon.children().is_empty());
    wait_until("no descriptor is left", || daemon.descriptors() <= before);
    let groups = format!("farcall-gang-{}", daemon.id());
    daemon.stop();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux");
    for line in mounts.lines().filter(|line| line.contains(" cgroup2 ")) {
        let mount = line.split(' ').nth(1).expect("a path");
        let left = std::path::Path::new(mount).join(&groups);
        assert!(!left.exists(), "{} is left", left.display());
    }
}
