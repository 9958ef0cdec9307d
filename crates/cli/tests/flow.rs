//! Tests what `farcall flow run` refuses. An option that would have no effect is an error that
//! names the option.

use std::process::Command;

#[test]
fn options_without_effect_are_refused() {
    let file = std::env::temp_dir().join(format!("farcall-pattern-{}.csv", std::process::id()));
    std::fs::write(&file, "0,1,1,20KB\n").unwrap();
    let of_file = format!("file:{}", file.display());
    for (pattern, option, value) in [
        ("ring", "--count", "0"),
        ("ring", "--window", "0"),
        ("ring", "--buffer", "0"),
        ("ring", "--loggops", "L=1"),
        ("ring", "--tolerance", "0.2"),
        (&of_file, "--size", "1KB"),
        (&of_file, "--steps", "1"),
        (&of_file, "--count", "2"),
        (&of_file, "--loggops", "L=1"),
        ("ring", "--mode=packets", "--verify"),
        ("ring", "--mode=equal-split", "--verify"),
        ("ring", "--mode=packets", "--resolution=1"),
        ("ring", "--mode=exact", "--virtual-output-queues"),
        ("ring", "--packet-size", "9000"),
        ("ring", "--buffer", "8"),
        ("ring", "--routing", "adaptive"),
        ("ring", "--fail", "node 99@1ms"),
        ("ring", "--overhead", "soon"),
        ("ring", "--job", "ranks=2,pattern=ring,size=1"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
        command.args([
            "flow",
            "run",
            "--platform",
            "torus:4x4",
            "--pattern",
            pattern,
        ]);
        if pattern == "ring" {
            command.args(["--size", "1KB"]);
        }
        let output = command.args([option, value]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {text}");
        let name = if option.starts_with("--mode=") {
            value.split('=').next().unwrap()
        } else {
            option
        };
        assert!(text.contains(name), "{text}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_job_from_a_file_names_other_ways() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
    let job = "ranks=2,pattern=goal:trace.goal,size=1";
    let command = command.args(["flow", "run", "--platform", "torus:4x4", "--job", job]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("Use --pattern for one"), "{text}");
}

#[test]
fn results_keep_what_is_read_and_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let pattern = "sender,destination,order,size,wait\n0,1,1,20000,0\n";
    std::fs::write(folder.path().join("in.csv"), pattern).unwrap();
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
        command.args(["flow", "run", "--platform", "torus:4x4"]);
        let command = command.args(["--pattern", "file:in.csv"]).args(options);
        let output = command.current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    };
    let link = folder.path().join("link.csv");
    std::os::unix::fs::symlink("in.csv", &link).unwrap();
    for file in ["in.csv", "./in.csv", "link.csv"] {
        for option in ["--messages", "--links", "--perfetto"] {
            let (status, text) = run(&[option, file]);
            assert_eq!(status, Some(2), "{text}");
            assert!(text.contains("the simulation reads this file"), "{text}");
        }
    }
    for rank in ["0", "1"] {
        let file = format!("trace.{rank}.et");
        std::fs::write(folder.path().join(&file), [0]).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
        command.args(["flow", "run", "--platform", "torus:4x4"]);
        command.args(["--pattern", "chakra:trace", "--messages", &file]);
        let output = command.current_dir(folder.path()).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("the simulation reads this file"), "{text}");
    }
    let (status, text) = run(&["--messages", "out.csv", "--links", "./out.csv"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("name one file for each"), "{text}");
    let kept = std::fs::read_to_string(folder.path().join("in.csv"));
    assert_eq!(kept.unwrap(), pattern);
    for option in ["--messages", "--links", "--perfetto"] {
        let (status, text) = run(&[option, "/dev/full"]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("cannot write /dev/full: "), "{text}");
    }
}

#[test]
fn files_are_written_also_if_nobody_reads_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let words = "flow run --platform torus:4x4 --pattern ring --size 1 --messages out.csv";
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
    let command = command.args(words.split(' ')).current_dir(folder.path());
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = command.stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot write to standard output"), "{text}");
    let written = std::fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert!(written.starts_with("source,destination,"), "{written}");
}
