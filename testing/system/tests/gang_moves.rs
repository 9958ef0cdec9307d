//! Tests checkpoints, restarts and moves of gang jobs with real daemons. A job that is moved prints
//! what one prints that is left alone, to the last bit. What cannot be caught, and what is damaged,
//! gets an error that says what to do.

use farcall_system::gang::{Node, lines, text};
use farcall_system::program::example;
use farcall_system::wait_until;
use rustix::process::Signal;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

/// Three daemons with two processors each. The root daemon is `a`.
struct Gang {
    others: Vec<Node>,
    root: Node,
}

impl Gang {
    fn start(options: &[&str]) -> Gang {
        let slots = ["--slots", "2", "--slice", "20ms"];
        let root = Node::start(&[&["--node", "a"], &slots[..], options].concat());
        let below = |name| {
            let parent = root.address().to_string();
            Node::start(&[&["--node", name, "--parent", &parent], &slots[..]].concat())
        };
        let others = vec![below("b"), below("c")];
        wait_until("all have joined", || root.nodes_of("6") == 3);
        Gang { others, root }
    }

    fn gang(&self, arguments: &[&str]) -> Output {
        self.root.gang(arguments).output().expect("it runs")
    }

    /// What `farcall gang` says when it fails.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.gang(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Moves the job. Returns false if it was about to end.
    fn moves(&self, job: &str, to: &str) -> bool {
        let output = self.gang(&["move", job, "--to", to]);
        let told = text(&output.stderr);
        let ends = ["all its steps", "no gang job", "has ended", "is ending"];
        let is_over = ends.iter().any(|end| told.contains(end));
        assert!(output.status.success() || is_over, "{told}");
        output.status.success()
    }

    fn nodes_of(&self, job: &str) -> Vec<String> {
        let rows = self.root.jobs();
        let id: u64 = job.parse().expect("a number");
        let row = rows.iter().find(|row| row["id"].as_u64() == Some(id));
        let nodes = row.expect("it is listed")["nodes"].as_array().cloned();
        let name = |node: &serde_json::Value| node.as_str().expect("a name").to_string();
        nodes.expect("nodes").iter().map(name).collect()
    }
}

/// The lines of a job that succeeded.
fn said(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    lines(output)
}

fn wait(job: Child) -> Output {
    job.wait_with_output().expect("it ends")
}

#[test]
fn a_job_moves_and_computes_the_same() {
    let gang = Gang::start(&[]);
    let program = example("movable");
    for (kind, steps) in [("ep", "1500"), ("bar", "1500"), ("late", "8000")] {
        let words = ["-n", "2", &program, kind, steps];
        let control = said(&gang.root.run(&words));
        let job = gang.root.submit(&words);
        let id = gang.root.last_job(1);
        assert!(gang.moves(&id, "b,c"), "{kind}");
        assert_eq!(gang.nodes_of(&id), ["b"], "two slots of one node suffice");
        let moved = wait(job);
        assert_eq!(said(&moved), control, "{kind}");
        assert!(text(&moved.stderr).contains("was restored"), "{kind}");
    }
}

/// Within one node, to three nodes and back, in both forms, while other jobs take turns.
#[test]
fn a_job_that_moves_again_and_again_computes_the_same() {
    for (form, freeze) in [("two", "epoch"), ("seven", "drain")] {
        let gang = Gang::start(&["--form", form, "--freeze", freeze]);
        let program = example("movable");
        let words = ["-n", "5", &program, "late", "6000"];
        let control = said(&gang.root.run(&words));
        let mut beside = gang.root.submit(&["-n", "6", "--", "sleep", "1000"]);
        gang.root.last_job(1);
        let job = gang.root.submit(&words);
        let id = gang.root.last_job(2);
        let mut moves = 0;
        for to in ["a,b,c", "b", "a,c", "c", "a,b,c"] {
            moves += u32::from(gang.moves(&id, to));
        }
        assert!(moves >= 2, "{form}: {moves} moves");
        assert_eq!(said(&wait(job)), control, "{form}");
        beside.kill().expect("it runs");
        beside.wait().expect("it ends");
    }
}

#[test]
fn conjugate_gradients_restart_from_a_file() {
    let gang = Gang::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job.saved");
    let file = file.to_str().expect("plain");
    let program = example("conjugate_gradient");
    let words = ["-n", "4", &program, "60000"];
    let control = said(&gang.root.run(&words));
    let job = gang.root.submit(&words);
    let id = gang.root.last_job(1);
    let output = gang.gang(&["checkpoint", &id, file]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(told.contains("4 processes, 1.4 MB, in "), "{told}");
    let facts = std::fs::metadata(file).expect("it is there");
    assert_eq!(facts.mode() & 0o777, 0o600);
    let count = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(count, 1, "no draft is left");
    assert_eq!(said(&wait(job)), control, "the job has gone on");
    // On other daemons, and on fewer of them.
    drop(gang);
    let gang = Gang::start(&["--switch-alone"]);
    for to in [&[][..], &["--to", "c"], &["--to", "b,c"]] {
        let again = gang.gang(&[&["restart", "--quiet", file], to].concat());
        assert_eq!(said(&again), control, "{to:?}");
    }
    let torn = std::fs::read(file).expect("it is there");
    std::fs::write(file, &torn[..torn.len() / 2]).expect("mine");
    let told = text(&gang.gang(&["restart", file]).stderr);
    assert!(told.contains("job.saved: it is damaged: it has"), "{told}");
    std::fs::write(file, &torn).expect("mine");
    let everybody = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(file, everybody).expect("mine");
    let told = text(&gang.gang(&["restart", file]).stderr);
    assert!(told.contains("other users can write it"), "{told}");
}

#[test]
fn what_cannot_be_moved_gets_the_reason() {
    let gang = Gang::start(&[]);
    let mut job = gang.root.submit(&["-n", "2", "--", "sleep", "1000"]);
    let id = gang.root.last_job(1);
    let told = gang.fails(&["move", &id, "--to", "b"]);
    assert!(
        told.contains("rank 0 has not registered its state"),
        "{told}"
    );
    assert!(
        told.contains("`register`") && told.contains("`run`"),
        "{told}"
    );
    job.kill().expect("it runs");
    job.wait().expect("it ends");
    wait_until("it is gone", || gang.root.jobs().is_empty());
    let program = example("movable");
    let mut job = gang.root.submit(&["-n", "2", &program, "bar", "1000000"]);
    let id = gang.root.last_job(1);
    let told = gang.fails(&["move", &id, "--to", "nowhere"]);
    assert!(
        told.contains("no node `nowhere` has joined; there are a, b, c"),
        "{told}"
    );
    let told = gang.fails(&["checkpoint", &id, "/nonexistent/file"]);
    assert!(told.contains("/nonexistent/file"), "{told}");
    let told = gang.fails(&["move", "4711"]);
    assert!(told.contains("there is no gang job 4711"), "{told}");
    // It goes on, and can still be moved.
    assert!(gang.moves(&id, "c"));
    assert_eq!(gang.nodes_of(&id), ["c"]);
    gang.gang(&["stop", &id]);
    let told = gang.fails(&["checkpoint", &id, "/tmp/never"]);
    assert!(told.contains("it is stopped"), "{told}");
    job.kill().expect("it runs");
    job.wait().expect("it ends");
    let mut tree = gang
        .root
        .submit(&["-n", "1", "--tree", "--", "sleep", "1000"]);
    wait_until("the first is gone", || gang.root.jobs().len() == 1);
    let id = gang.root.last_job(1);
    let told = gang.fails(&["move", &id]);
    assert!(told.contains("it has no channels"), "{told}");
    tree.kill().expect("it runs");
    tree.wait().expect("it ends");
}

/// A daemon is killed at any moment of a move. The job goes on elsewhere and computes the same, or
/// its failure is told; nothing hangs, and the root daemon serves the next job.
#[test]
fn a_daemon_lost_in_a_move_is_survived_or_told() {
    let program = example("movable");
    let words = ["-n", "2", &program, "late", "8000"];
    let mut outcomes = Vec::new();
    for (delay, victim) in [(0, 1), (15, 0), (40, 1), (80, 0)] {
        let mut gang = Gang::start(&["--silence", "5s"]);
        let control = said(&gang.root.run(&words));
        let job = gang.root.submit(&words);
        let id = gang.root.last_job(1);
        assert!(gang.moves(&id, "b"));
        let mut mover = gang.root.gang(&["move", &id, "--to", "c"]);
        let mover = mover.stderr(std::process::Stdio::piped()).spawn();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(delay) {
            std::thread::yield_now();
        }
        gang.others[victim].kill();
        let mover = wait(mover.expect("it runs"));
        let ended = wait(job);
        match ended.status.code() {
            Some(0) => assert_eq!(lines(&ended), control),
            Some(125) => {
                let told = text(&ended.stderr);
                let is_told = told.contains("is gone") || told.contains("was lost");
                assert!(is_told, "{told}, {}", text(&mover.stderr));
            }
            other => panic!("{other:?}: {}", text(&ended.stderr)),
        }
        outcomes.push(ended.status.code());
        assert_eq!(said(&gang.root.run(&["-n", "1", "--", "echo", "x"])), ["x"]);
    }
    eprintln!("the jobs ended with {outcomes:?}");
}

/// The command that moves a job is killed. The job goes on, or its end is told.
#[test]
fn a_mover_that_is_killed_leaves_a_job_that_goes_on_or_ends() {
    let gang = Gang::start(&[]);
    let program = example("movable");
    let words = ["-n", "2", &program, "ep", "1500"];
    let control = said(&gang.root.run(&words));
    let job = gang.root.submit(&words);
    let id = gang.root.last_job(1);
    for _ in 0..10 {
        let mut mover = gang.root.gang(&["move", &id]).spawn().expect("it runs");
        let process = rustix::process::Pid::from_child(&mover);
        rustix::process::kill_process(process, Signal::KILL).expect("it runs");
        mover.wait().expect("it ends");
    }
    let ended = wait(job);
    match ended.status.code() {
        Some(0) => assert_eq!(lines(&ended), control),
        Some(125) => assert!(text(&ended.stderr).contains("the command that moved it ended")),
        other => panic!("{other:?}: {}", text(&ended.stderr)),
    }
    wait_until("nothing is left", || gang.root.jobs().is_empty());
}

/// A hundred jobs of each kind, each moved again and again while it runs. Between two moves it has
/// half a second for itself, or as long as the move took.
#[test]
#[ignore = "soak"]
fn a_hundred_jobs_that_move_all_the_time_compute_the_same() {
    let gang = Gang::start(&[]);
    let program = example("movable");
    let gradient = example("conjugate_gradient");
    let kinds: [&[&str]; 4] = [
        &["-n", "4", &program, "ep", "300"],
        &["-n", "4", &program, "bar", "300"],
        &["-n", "4", &program, "late", "5000"],
        &["-n", "4", &gradient, "60000"],
    ];
    for words in kinds {
        let control = said(&gang.root.run(words));
        let mut moves = 0;
        for number in 0..100 {
            let job = gang.root.submit(words);
            let id = gang.root.last_job(1);
            for to in ["b", "a,b,c", "c", "b,c", "a"].iter().cycle().skip(number) {
                let start = Instant::now();
                if !gang.moves(&id, to) {
                    break;
                }
                moves += 1;
                std::thread::sleep(start.elapsed().max(Duration::from_millis(500)));
            }
            assert_eq!(said(&wait(job)), control);
        }
        assert!(moves >= 100, "{moves} moves");
    }
}
