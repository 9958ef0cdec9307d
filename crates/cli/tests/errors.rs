//! The text and the exit status of the main errors. A change of a message shows as a change of a
//! file in `snapshots`; `INSTA_UPDATE=always cargo test -p farcall-cli` writes them again.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What each command line prints on standard error, and its exit status.
fn transcript(folder: &Path, address: &str, lines: &str) -> String {
    let mut text = String::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let output = farcall(folder)
            .args(line.split_whitespace().skip(1))
            .env("FARCALL_SERVER", address)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let said: Vec<&str> = said.trim_end().lines().map(str::trim_end).collect();
        let said = said.join("\n").replace(address, "ADDRESS");
        let status = output.status.code().unwrap();
        text += &format!("$ {line}\n{said}\n-> {status}\n\n");
    }
    text
}

fn farcall(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
    command.current_dir(folder).env_clear();
    command
}

/// Command lines that are wrong, or name files that are missing or wrong.
const WRONG: &str = "
        farcall frobnicate
        farcall cal
        farcall call
        farcall call f --retries 3
        farcall describe f farcall://a farcall://b
        farcall submit f --retention 0
        farcall submit f --retention -1
        farcall fetch 12
        farcall data get 12
        farcall data get data:a/../b
        farcall data put missing.npy
        farcall data put @missing.npy
        farcall data put three
        farcall data put a=1,2,3 --name b
        farcall data put 1,2,3 --shared
        farcall data put x=
        farcall data put 1,2,3 --type number
        farcall data put 1.5,2 --type int
        farcall object drop 12
        farcall reservation make
        farcall reservation make --seconds soon
        farcall reservation make --seconds 1e300
        farcall reservation make --seconds 1 --up 10furlongs
        farcall plan run missing.toml
        farcall plan run bad.toml
        farcall plan run long
        farcall record cat bad.toml
        farcall record cat missing
        farcall record summary .
        farcall record cut bad.toml -o bad.toml
        farcall record cut bad.toml --from yesterday -o part.jsonl.zst
        farcall record cut bad.toml --from 2 --to 1 -o part.jsonl.zst
        farcall serve
        farcall serve missing.idl --listen 127.0.0.1:0
        farcall serve bad.idl --listen 127.0.0.1:0
        farcall serve bad.idl --listen 127.0.0.1
        farcall serve bad.idl --policy best
        farcall serve bad.idl --config missing.toml
        farcall serve bad.idl --config long
        farcall serve bad.idl --log verbose
        farcall serve bad.idl --unix socket --web 127.0.0.1:0
        farcall meta --store mysql:x
        farcall meta --policy best
        farcall meta --connections 0
        farcall state check bad.toml
        farcall up --local 0 bad.idl
        farcall up bad.idl
        farcall access token remove missing alice
        farcall access token add bad.idl alice
        farcall access token add missing/tokens alice
        farcall access certificate client certificates server
        farcall idl check missing.idl
        farcall idl check bad.idl
        farcall flow run --platform torus:4x4 --pattern ring
        farcall flow run --platform torus:4x4 --pattern ring --size 1furlong
        farcall flow run --platform donut:4 --pattern ring --size 1KB
        farcall flow run --platform torus:4x4 --pattern rings --size 1KB
        farcall flow run --platform edges:missing --pattern ring --size 1KB
        farcall flow plot --platform torus:4x4 --pattern ring --size 1KB -o load.gif
        farcall offload --server gopher://host -- true
        farcall gateway http --to gopher://host --listen 127.0.0.1:0
        farcall gateway http --to metas://host,gopher://host --listen 127.0.0.1:0
        farcall gateway flight --to gopher://host --listen 127.0.0.1:0
        farcall sim missing.toml
        farcall sim bad.toml
        farcall sim long
        farcall trunk up --link eth1=fast
        farcall trunk up --link eth1 --address 10.7.0.1
        farcall gang daemon --slice 1ms
        farcall gang run -n 0 program
        farcall gang run -n 3 --partitions 1,1 program
        farcall gang gantt trace.csv -o slices.gif
        farcall gang gantt missing.csv -o slices.svg
        farcall gang gantt trace.csv -o slices.svg --from 5 --to 2
        farcall gang kill 1 --signal TERM
        farcall gang restart missing.saved
        farcall gang ps --daemon 127.0.0.1
        farcall gang ps --control @farcall-test-without-daemon
        farcall completions tcsh
        farcall manual
";

#[test]
fn errors_of_command_lines() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad.idl"), "Define f(IN int n) Cals\n").unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[[server]]\nspeed = 1.0\n").unwrap();
    let long = std::fs::File::create(folder.path().join("long")).unwrap();
    long.set_len(17 << 20).unwrap();
    let none = "farcall://127.0.0.1:0";
    insta::assert_snapshot!("errors", transcript(folder.path(), none, WRONG));
}

#[test]
fn a_daemon_that_cannot_say_where_it_listens_names_its_output() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["meta", "--store", "none"][..],
        &["gateway", "http", "--to", "farcall://127.0.0.1:9"],
    ] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = farcall(folder.path())
            .args(words)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(full)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("cannot write to standard output: "), "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
    }
}

#[test]
fn a_record_that_is_cut_off_is_not_taken_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = "{\"kind\":\"record\",\"schema\":1,\"time\":1,\"program\":\"\",\"server\":\"\"}\n";
    for (name, text, is_told) in [
        ("whole.jsonl", first.to_owned(), false),
        ("cut.jsonl", format!("{first}{{\"kind\":"), true),
        ("empty.jsonl", String::new(), true),
        ("new.jsonl.part", String::new(), false),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        let read = farcall(folder.path())
            .args(["record", "cat", name])
            .output();
        let read = read.unwrap();
        assert!(read.status.success(), "{read:?}");
        let said = String::from_utf8(read.stderr).unwrap();
        assert_eq!(
            said.contains(&format!("warning: {name} is cut off")),
            is_told,
            "{said}"
        );
    }
}

#[test]
fn two_servers_for_one_question_are_refused() {
    for (command, text) in [("ls", "cannot be used with"), ("describe f", "give one")] {
        let asked = farcall(Path::new("."))
            .args(command.split(' '))
            .args(["farcall://127.0.0.1:1", "--server", "farcall://127.0.0.1:2"])
            .output()
            .unwrap();
        let said = String::from_utf8(asked.stderr).unwrap();
        assert!(said.contains(text), "{said}");
        assert_eq!(asked.status.code(), Some(2), "{said}");
    }
}

#[test]
fn options_that_would_have_no_effect_are_refused() {
    for line in [
        "up --lab --web 127.0.0.1:0",
        "gang run -n 2 --tree --channels 2 -- true",
        "gang run -n 2 --tree --detect-termination -- true",
        "gang run -n 2 --tree --partitions 1,1 -- true",
        "gateway flight --from grpc://127.0.0.1:1 --calls 2",
        "gateway flight --from grpc://127.0.0.1:1 --own-identity",
        "top --json --list users",
    ] {
        let run = farcall(Path::new(".")).args(line.split(' ')).output();
        let run = run.unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        assert!(said.contains("cannot be used with"), "{line}: {said}");
        assert_eq!(run.status.code(), Some(2), "{line}: {said}");
    }
}

#[test]
fn errors_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    // A port that nobody listens on: the listener is gone.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    drop(listener);
    let lines = "
        farcall ls
        farcall ls --server gopher://host
        farcall ls --server farcall://
        farcall ls --timeout=-1
        farcall call object:12.add n=1
        farcall doctor --server unix:///nonexistent/socket --json
    ";
    let text = transcript(folder.path(), &address, lines);
    insta::assert_snapshot!("errors-without-a-server", text);
}

#[test]
fn a_server_that_says_nothing_is_given_up_after_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    // The system connects clients to it, and nobody reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("farcall://{}", silent.local_addr().unwrap());
    let text = transcript(folder.path(), &address, "farcall ls --timeout 0.2");
    assert!(
        text.contains("no answer from ADDRESS within 0.2 s"),
        "{text}"
    );
}

/// A server of one function of the C library.
struct Served(Child, String);

impl Served {
    fn start(folder: &Path) -> Served {
        Served::with_log(folder, Stdio::null())
    }

    fn with_log(folder: &Path, log: Stdio) -> Served {
        let interface = "Module test;\nLibrary \"libc.so.6\";\nDefine copy(\
             IN long n, IN double a[n], OUT double b[n]) Calls \"C\" memcpy(b, a, n);\n";
        std::fs::write(folder.join("test.idl"), interface).unwrap();
        let mut child = farcall(folder)
            .args(["serve", "test.idl", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        let address = address.map(str::to_owned);
        Served(
            child,
            address.unwrap_or_else(|| panic!("no server: {line}")),
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn errors_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("not.npy"), "1,2,3\n").unwrap();
    let served = Served::start(folder.path());
    let lines = "
        farcall call coppy n=1
        farcall call copy n=3
        farcall call copy n=3 a=1,2,3 c=4
        farcall call copy n=3 n=4 a=1,2,3
        farcall call copy three a=1,2,3
        farcall call copy n=many a=1,2,3
        farcall call copy n=3 a=1,2
        farcall call copy n=3 a=one
        farcall call copy n=3 a=@missing.npy
        farcall call copy n=3 a=@not.npy
        farcall call copy n=3 a=1,2,3 -o a=x.npy
        farcall call copy n=3 a=1,2,3 -o c=x.npy
        farcall call copy n=3 a=1,2,3 -o missing/x.npy
        farcall call copy n=3 a=1,2,3 -o .
        farcall call copy n=3 a=1,2,3 -o b=file:///b.npy
        farcall call copy n=3 a=1,2,3 -o b=x.csv
        farcall call copy n=3 a=1,2,3 -o b=x.npy --trace-out ./x.npy
        farcall call copy n=3 a=handle:12
        farcall call copy n=3 a=handle:00000000000000000000000000000012
        farcall call copy n=3 a=data:nothing
        farcall call object:00000000000000000000000000000012.add n=3
        farcall submit object:12.add n=3
        farcall fetch 00000000000000000000000000000012
        farcall reservation release 12
        farcall register missing.idl
        farcall object new Counter
        farcall describe copy --estimate
    ";
    let text = transcript(folder.path(), &served.1, lines);
    insta::assert_snapshot!("errors-of-calls", text);
    let output = farcall(folder.path())
        .args(["call", "copy", "n=3", "a=1,2,3", "-o", "x.npy"])
        .env("FARCALL_SERVER", &served.1)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(folder.path().join("x.npy").is_file());
}

#[test]
fn a_file_that_is_no_socket_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(folder.path());
    let file = folder.path().join("notes");
    std::fs::write(&file, "mine").unwrap();
    let lines = "
        farcall serve test.idl --log off --unix notes
        farcall serve test.idl --log off --unix .
    ";
    let text = transcript(folder.path(), &served.1, lines);
    insta::assert_snapshot!("errors-of-sockets", text);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_server_says_why_its_workers_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    drop(Served::start(folder.path()));
    let run = farcall(folder.path())
        .args(["serve", "test.idl", "--log", "off"])
        .args(["--listen", "127.0.0.1:0"])
        .env("TMPDIR", folder.path().join("missing"))
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("missing (workers.folder)"), "{said}");
}

/// A file on a full disk.
fn full() -> Stdio {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    full.unwrap().into()
}

/// A pipe that nobody reads any more.
fn without_reader() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn a_server_goes_on_when_its_log_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    for log in [full(), without_reader()] {
        let served = Served::with_log(folder.path(), log);
        let output = farcall(folder.path())
            .args(["call", "copy", "n=3", "a=1,2,3"])
            .env("FARCALL_SERVER", &served.1)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn an_error_that_cannot_be_written_is_still_a_failure() {
    let run = farcall(Path::new("."))
        .args(["idl", "check", "missing.idl"])
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
}

#[test]
fn completions_that_cannot_be_written_are_an_error() {
    let run = farcall(Path::new("."))
        .args(["completions", "bash"])
        .stdout(full())
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains("cannot write to standard output"), "{said}");
}

#[test]
fn a_certificate_has_its_key_also_if_nobody_reads_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let make = ["access", "certificate", "server", "tls", "localhost"];
    // The first attempt makes the authority, and the second one the certificate.
    for _ in 0..2 {
        let run = farcall(folder.path())
            .args(make)
            .stdout(full())
            .output()
            .unwrap();
        assert_eq!(run.status.code(), Some(1), "{run:?}");
    }
    for name in [
        "tls/authority.pem",
        "tls-authority/authority.key",
        "tls/server.pem",
        "tls/server.key",
    ] {
        assert!(folder.path().join(name).exists(), "{name}");
    }
}
