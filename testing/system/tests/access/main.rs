//! Tests access to a real server: tokens, TLS, certificates, and the walls around functions. A
//! client that is refused learns why, and nothing of one user reaches another.

mod quotas;

use farcall_client::{Argument, Credentials, Error, Options, Scalar, Server};
use farcall_system::{BOUND, ServerProcess, wait_until};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
";

fn farcall(arguments: &[&str]) -> Command {
    let mut command = farcall_system::farcall();
    for name in ["FARCALL_TOKEN", "FARCALL_CA", "FARCALL_CERT", "FARCALL_KEY"] {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert!(output.status.success(), "{text} {}", stderr(output));
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("access-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("system.idl"), IDL).unwrap();
    folder
}

fn add_token(tokens: &Path, name: &str) -> String {
    stdout(&run(&mut farcall(&[
        "token",
        "add",
        tokens.to_str().unwrap(),
        name,
    ])))
}

/// An array of bytes as NumPy writes it.
fn npy(bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "{{'descr': '|i1', 'fortran_order': False, 'shape': ({},), }}",
        bytes.len()
    );
    let head = format!("{head:117}\n");
    [b"\x93NUMPY\x01\x00v\x00", head.as_bytes(), bytes].concat()
}

/// The lines of a file, once it has this many.
fn wait_for_lines(path: &Path, count: usize) -> Vec<String> {
    let end = Instant::now() + BOUND;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        if lines.len() >= count && text.ends_with('\n') {
            return lines;
        }
        assert!(Instant::now() < end, "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Serves a folder's interface file.
fn start(folder: &Path, options: &[&str]) -> ServerProcess {
    ServerProcess::within(folder, &["system.idl"])
        .options(options)
        .start()
}

/// The output of `farcall ls` at a server.
/// A connection over TCP with a token.
fn connect_as(server: &ServerProcess, token: &str) -> Result<Server, Error> {
    let options = Options {
        same_host: false,
        timeout: Some(BOUND),
        credentials: Credentials::default().with_token(token),
        ..Options::default()
    };
    Server::connect(server.address(), options)
}

fn list(server: &ServerProcess, variables: &[(&str, &str)]) -> Output {
    run(farcall(&["ls", server.address()]).envs(variables.iter().copied()))
}

#[test]
fn a_token_lets_its_user_in_until_it_is_withdrawn() {
    let folder = folder("token");
    let tokens = folder.join("tokens");
    let file = tokens.to_str().unwrap();
    let token = stdout(&run(&mut farcall(&["token", "add", file, "alice"])));
    let server = start(&folder, &["--tokens", file]);
    let with = |token: &str| list(&server, &[("FARCALL_TOKEN", token)]);
    assert!(stdout(&with(&token)).starts_with("system/copy"));

    let none = list(&server, &[]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("asks for a token; set FARCALL_TOKEN"));
    assert!(stderr(&with("guess")).contains("the token is unknown to this server"));

    assert_eq!(
        stdout(&run(&mut farcall(&["token", "list", file]))),
        "alice"
    );
    stdout(&run(&mut farcall(&["token", "remove", file, "alice"])));
    assert!(stderr(&with(&token)).contains("the token is unknown"));

    drop(server);
    let bob = add_token(&tokens, "bob");
    let audit = ["--tokens", file, "--audit", "audit"];
    let server = start(&folder, &audit);
    let call = |arguments: &[&str], token: &str| {
        let mut command = farcall(&["call", "--server", server.address(), "copy"]);
        run(command.args(arguments).env("FARCALL_TOKEN", token))
    };
    assert_eq!(call(&["in=3", "n=1"], "guess").status.code(), Some(1));
    std::fs::write(folder.join("in.npy"), npy(&[1, 2, 3])).unwrap();
    let input = format!("in=@{}", folder.join("in.npy").display());
    stdout(&call(&["n=3", &input], &bob));
    let lines = wait_for_lines(&folder.join("audit"), 2);
    let line = |index: usize| -> serde_json::Value { serde_json::from_str(&lines[index]).unwrap() };
    assert_eq!(line(0)["outcome"], "refused");
    let done = line(lines.len() - 1);
    assert_eq!(
        (&done["user"], &done["what"]),
        (&"bob".into(), &"system/copy".into())
    );
    assert_eq!(
        (&done["outcome"], &done["sent_bytes"]),
        (&"done".into(), &3.into())
    );
}

#[test]
fn what_a_user_leaves_at_the_server_is_nobody_elses() {
    let folder = folder("left");
    let idl = "Module left;
        Library \"libc.so.6\";
        Globals { static long last; }
        Define exchange(IN long value, OUT long *before) { *before = last; last = value; }
        Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
        Define look(OUT char out[n], IN long n) { (void)out; }
    ";
    std::fs::write(folder.join("system.idl"), idl).unwrap();
    let tokens = folder.join("tokens");
    let users = ["alice", "bob"].map(|name| {
        let file = tokens.to_str().unwrap();
        stdout(&run(&mut farcall(&["token", "add", file, name])))
    });
    let options = ["--tokens", "tokens", "--allow-code", "--workers", "1"];
    let server = start(&folder, &options);
    let [alice, bob] = users.map(|token| connect_as(&server, &token).unwrap());
    let exchange = |client: &Server, value| {
        let mut before = [0xff; 8];
        let arguments = &mut [
            Argument::Scalar(Scalar::Int(value)),
            Argument::Out(&mut before),
        ];
        client
            .function("exchange")
            .unwrap()
            .call(arguments)
            .unwrap();
        i64::from_ne_bytes(before)
    };
    assert_eq!(exchange(&alice, 42), 0);
    assert_eq!(exchange(&bob, 7), 0, "bob has a worker of his own");
    assert_eq!(exchange(&alice, 43), 42, "alice has hers again");
    assert_eq!(exchange(&bob, 8), 7);

    let secret = vec![b'A'; 100_000];
    let mut copied = vec![0; secret.len()];
    let length = Argument::Scalar(Scalar::Int(secret.len() as i64));
    let arguments = &mut [Argument::Out(&mut copied), Argument::In(&secret), length];
    alice.function("copy").unwrap().call(arguments).unwrap();
    assert!(copied == secret);
    let mut seen = vec![1; 2 * secret.len()];
    let length = Argument::Scalar(Scalar::Int(seen.len() as i64));
    let arguments = &mut [Argument::Out(&mut seen), length];
    bob.function("look").unwrap().call(arguments).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
}

/// Functions that try what a broken library might. Each returns the error number, or 0.
const ASTRAY: &str = r#"Module astray;
Library "libc.so.6";
Globals {
    extern long syscall(long, ...);
    extern int open(const char *, int, ...), close(int), kill(int, int), getppid(void);
    extern int unlink(const char *);
    extern unsigned getuid(void);
    extern int *__errno_location(void);
    static int error(long result) { return result < 0 ? *__errno_location() : 0; }
}
Define write_file(IN string path, OUT int *error_number) {
    int file = open(path, 0101, 0600);
    *error_number = error(file);
    close(file);
}
Define read_file(IN string path, OUT int *error_number) {
    int file = open(path, 0);
    *error_number = error(file);
    close(file);
}
Define call_system(IN long number, IN long a, IN long b, IN long c, OUT int *error_number) {
    *error_number = error(syscall(number, a, b, c, 0L, 0L));
}
Define signal_server(OUT int *error_number) { *error_number = error(kill(getppid(), 0)); }
Define user(OUT int *id) { *id = (int)getuid(); }
Define server(OUT int *id) { *id = getppid(); }
"#;

/// A client of these functions.
struct Astray(Server);

impl Astray {
    fn call(&self, name: &str, inputs: &[Scalar]) -> i32 {
        let mut result = [0xff; 4];
        let mut arguments: Vec<_> = inputs.iter().cloned().map(Argument::Scalar).collect();
        arguments.push(Argument::Out(&mut result));
        let function = self.0.function(name).unwrap();
        function.call(&mut arguments).unwrap();
        i32::from_ne_bytes(result)
    }

    fn file(&self, name: &str, path: impl AsRef<Path>) -> i32 {
        let path = path.as_ref().to_str().unwrap();
        self.call(name, &[Scalar::Text(path.into())])
    }

    fn system(&self, number: i64, arguments: [i64; 3]) -> i32 {
        let [a, b, c] = arguments;
        self.call("call_system", &[number, a, b, c].map(Scalar::Int))
    }
}

#[test]
fn a_function_reaches_neither_network_nor_files_nor_other_processes() {
    let folder = folder("astray");
    std::fs::write(folder.join("system.idl"), ASTRAY).unwrap();
    std::fs::write(folder.join("data"), "for the library").unwrap();
    let private = tempfile::NamedTempFile::new_in("/tmp").unwrap();
    let tokens = folder.join("tokens");
    let token = add_token(&tokens, "alice");
    let connect = |options: &[&str]| {
        let arguments = ["--allow-code", "--tokens", tokens.to_str().unwrap()];
        let server = start(&folder, &[&arguments, options].concat());
        let options = Options {
            timeout: Some(BOUND),
            credentials: Credentials::default().with_token(token.as_str()),
            ..Options::default()
        };
        let client = Server::connect(server.address(), options).unwrap();
        (server, Astray(client))
    };
    let (_server, astray) = connect(&[]);
    assert_eq!(astray.file("read_file", folder.join("data")), 0);
    assert_eq!(astray.file("read_file", "/etc/passwd"), 0);
    assert_eq!(astray.file("read_file", &tokens), libc::EACCES);
    // `/tmp` is its own, where the system allows that.
    let error = astray.file("read_file", &private);
    assert!([libc::EACCES, libc::ENOENT].contains(&error), "{error}");
    for name in ["data", "new"] {
        // A folder below `/tmp` is mounted into it for reading alone.
        let error = astray.file("write_file", folder.join(name));
        assert!([libc::EACCES, libc::EROFS].contains(&error), "{error}");
    }
    assert_eq!(astray.file("write_file", "/dev/null"), 0);

    for family in [
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_UNIX,
        libc::AF_NETLINK,
    ] {
        let arguments = [family.into(), libc::SOCK_DGRAM.into(), 0];
        let error = astray.system(libc::SYS_socket, arguments);
        assert_eq!(error, libc::EPERM, "family {family}");
    }
    let server = astray.call("server", &[]);
    let trace = [libc::PTRACE_ATTACH.into(), server.into(), 0];
    assert_eq!(astray.system(libc::SYS_ptrace, trace), libc::EPERM);
    assert_eq!(
        astray.system(libc::SYS_pidfd_open, [server.into(), 0, 0]),
        libc::EPERM
    );
    assert_eq!(
        astray.system(libc::SYS_io_uring_setup, [1, 0, 0]),
        libc::EPERM
    );
    assert_eq!(astray.call("signal_server", &[]), libc::EPERM);
    let memory = format!("/proc/{server}/mem");
    assert_eq!(astray.file("read_file", memory), libc::EACCES);
    assert_ne!(astray.call("user", &[]), 0);

    let (_server, free) = connect(&["--no-sandbox"]);
    assert_eq!(free.file("read_file", &private), 0);
}

#[test]
fn operators_register_libraries_with_a_running_server() {
    let folder = folder("register");
    let tokens = folder.join("tokens");
    let add = |name| add_token(&tokens, name);
    let (alice, bob) = (add("alice"), add("bob"));
    let config = "[access]\ntokens = \"tokens\"\noperators = [\"alice\"]\n";
    std::fs::write(folder.join("farcall.toml"), config).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let sleep = "Define nap(IN int us) Calls \"C\" usleep(us);";
    write(
        "more.idl",
        &format!("Module more; Library \"libc.so.6\"; {sleep}"),
    );
    write(
        "missing.idl",
        &format!("Module missing; Library \"./none.so\"; {sleep}"),
    );
    write("broken.idl", "Module broken; Define");
    write("body.idl", "Module body; Define f(IN int n) { (void)n; }");
    let server = start(&folder, &["--config", "farcall.toml"]);
    let register = |file: &str, token: &str| {
        let mut command = farcall(&["register", file, server.address()]);
        run(command.current_dir(&folder).env("FARCALL_TOKEN", token))
    };
    let refused = register("more.idl", &bob);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("bob is not allowed to register libraries"));
    for (file, text) in [
        ("missing.idl", "./none.so"),
        ("broken.idl", "not accepted"),
        ("body.idl", "`body/f` has a body in C"),
        ("system.idl", "`system/copy` is defined by"),
    ] {
        let output = register(file, &alice);
        assert_eq!(output.status.code(), Some(1), "{file}");
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
    }
    assert_eq!(stdout(&register("more.idl", &alice)), "more/nap");
    let again = stderr(&register("more.idl", &alice));
    assert!(again.contains("which is there already"), "{again}");
    let list = list(&server, &[("FARCALL_TOKEN", &bob)]);
    assert_eq!(stdout(&list).lines().count(), 2);
    let mut call = farcall(&["call", "nap", "us=10", "--server", server.address()]);
    stdout(&run(call.env("FARCALL_TOKEN", &bob)));
}

#[test]
fn tls_carries_calls_of_any_size() {
    let folder = folder("tls");
    let made = run(
        farcall(&["certificate", "server", "tls", "localhost", "127.0.0.1"]).current_dir(&folder),
    );
    assert_eq!(stdout(&made).lines().count(), 4);
    let server = start(&folder, &["--tls", "tls"]);
    assert!(server.address().starts_with("farcalls://127.0.0.1:"));

    let authority = folder.join("tls/authority.pem");
    let options = Options {
        timeout: Some(BOUND),
        credentials: Credentials::default().with_authorities(&authority),
        ..Options::default()
    };
    let client = Server::connect(server.address(), options.clone()).unwrap();
    assert!(!client.shares_memory().unwrap());
    for bytes in [0, 1, 1000, 20_000_000] {
        let sent: Vec<u8> = (0..bytes as u32)
            .map(|i| (i.wrapping_mul(2654435761) >> 24) as u8)
            .collect();
        let mut received = vec![0; bytes];
        let arguments = &mut [
            Argument::Out(&mut received),
            Argument::In(&sent),
            Argument::Scalar(Scalar::Int(bytes as i64)),
        ];
        client.function("copy").unwrap().call(arguments).unwrap();
        assert!(received == sent, "{bytes} bytes");
    }

    let stranger = Options {
        credentials: Credentials::default().with_authorities(folder.join("tls/server.pem")),
        ..options
    };
    let error = Server::connect(server.address(), stranger).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn who_does_not_speak_tls_where_it_is_spoken_is_told() {
    let folder = folder("mixed");
    stdout(&run(farcall(&[
        "certificate",
        "server",
        "tls",
        "127.0.0.1",
    ])
    .current_dir(&folder)));
    let sealed = start(&folder, &["--tls", "tls"]);
    let clear = start(&folder, &[]);
    let options = Options {
        credentials: Credentials::default().with_authorities(folder.join("tls/authority.pem")),
        ..Options::default()
    };
    let port = |server: &ServerProcess| server.address().rsplit_once(':').unwrap().1.to_string();
    let address = format!("farcall://127.0.0.1:{}", port(&sealed));
    let error = Server::connect(&address, options.clone()).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }));
    assert!(
        error.to_string().contains("connect to farcalls://"),
        "{error}"
    );

    let start = Instant::now();
    let address = format!("farcalls://127.0.0.1:{}", port(&clear));
    let error = Server::connect(&address, options).unwrap_err().to_string();
    assert!(error.contains("TLS") || error.contains("closed"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_certificate_of_the_authority_lets_a_client_in() {
    let (ours, theirs) = (folder("client"), folder("other-authority"));
    for folder in [&ours, &theirs] {
        for what in [["server", "127.0.0.1"], ["client", "alice"]] {
            let [kind, name] = what;
            stdout(&run(
                farcall(&["certificate", kind, "tls", name]).current_dir(folder)
            ));
        }
    }
    let again = run(farcall(&["certificate", "client", "tls", "alice"]).current_dir(&ours));
    assert!(stderr(&again).contains("is there already"));

    let clients = "tls/authority.pem";
    let server = start(&ours, &["--tls", "tls", "--tls-clients", clients]);
    let authority = ours.join("tls/authority.pem");
    let list = |folder: Option<&Path>| {
        let mut command = farcall(&["ls", server.address()]);
        command.env("FARCALL_CA", &authority);
        if let Some(folder) = folder {
            command.env("FARCALL_CERT", folder.join("tls/alice.pem"));
            command.env("FARCALL_KEY", folder.join("tls/alice.key"));
        }
        run(&mut command)
    };
    assert!(stdout(&list(Some(&ours))).starts_with("system/copy"));
    assert!(stderr(&list(None)).contains("asks for a certificate"));
    assert_eq!(list(Some(&theirs)).status.code(), Some(1));
}

#[test]
fn a_revoked_certificate_is_refused_after_a_hangup() {
    let folder = folder("revoked");
    for what in [
        ["server", "127.0.0.1"],
        ["client", "alice"],
        ["client", "bob"],
    ] {
        let [kind, name] = what;
        let words = ["access", "certificate", kind, "tls", name];
        stdout(&run(farcall(&words).current_dir(&folder)));
    }
    // Clients have copies of their own.
    for name in ["alice.pem", "bob.pem"] {
        std::fs::copy(folder.join("tls").join(name), folder.join(name)).unwrap();
    }
    let clients = "tls/authority.pem";
    let mut server = start(&folder, &["--tls", "tls", "--tls-clients", clients]);
    let list = |server: &ServerProcess, name: &str| {
        let mut command = farcall(&["ls", server.address()]);
        command.env("FARCALL_CA", folder.join("tls/authority.pem"));
        command.env("FARCALL_CERT", folder.join(format!("{name}.pem")));
        command.env("FARCALL_KEY", folder.join(format!("tls/{name}.key")));
        run(&mut command)
    };
    assert!(stdout(&list(&server, "alice")).starts_with("system/copy"));
    let revoke = |name: &str| {
        run(farcall(&["access", "certificate", "revoke", "tls", name]).current_dir(&folder))
    };
    assert!(stderr(&revoke("carol")).contains("carol.pem does not exist"));
    for name in ["authority", "revoked", "../tls/alice", ""] {
        assert!(!revoke(name).status.success(), "{name}");
    }
    assert!(folder.join("tls/authority.pem").exists());
    let words = ["access", "certificate", "revoke", "tsl", "alice"];
    let refused = stderr(&run(farcall(&words).current_dir(&folder)));
    assert!(
        refused.contains("tsl/alice.pem does not exist"),
        "{refused}"
    );
    assert!(!folder.join("tsl").exists() && !folder.join("tsl-authority").exists());
    assert!(stdout(&revoke("alice")).ends_with("revoked.pem"));
    server.reload();
    wait_until("alice is refused", || {
        !list(&server, "alice").status.success()
    });
    assert!(stdout(&list(&server, "bob")).starts_with("system/copy"));
    stdout(&revoke("bob"));
    // A list that an interrupted command did not write is written by the next one.
    std::fs::remove_file(folder.join("tls/revoked.pem")).unwrap();
    stdout(&revoke("bob"));
    server.reload();
    wait_until("bob is refused", || !list(&server, "bob").status.success());
    assert!(
        !list(&server, "alice").status.success(),
        "the list has both"
    );
}

#[test]
fn certificates_have_names_that_a_server_takes_and_files_of_their_own() {
    let folder = folder("names");
    let make = |words: &[&str]| {
        let mut command = farcall(&["access", "certificate"]);
        run(command.args(words).current_dir(&folder))
    };
    for name in ["revoked", "authority", "server", "anonymous"] {
        let refused = stderr(&make(&["client", "tls", name]));
        assert!(refused.contains("is a reserved name"), "{refused}");
    }
    for name in ["a b", "uid:0", "../alice", "*", "127.0.0.1", "alice."] {
        let refused = stderr(&make(&["client", "tls", name]));
        assert!(
            refused.contains("cannot be the name of a user"),
            "{refused}"
        );
    }
    for host in [
        "",
        "[::1]",
        "localhost:3717",
        "*",
        "*.lab",
        "a b",
        "farcalls://node7",
        "node7.",
    ] {
        let refused = make(&["server", "tls", "localhost", host]);
        assert_eq!(refused.status.code(), Some(2), "{host}");
        let refused = stderr(&refused);
        let text = format!("`{host}` cannot be the name of a server");
        assert!(refused.contains(&text), "{refused}");
    }
    assert!(!folder.join("tls").exists());
    stdout(&make(&[
        "server",
        "tls",
        "NODE7",
        "*.lab.example",
        "::1",
        "10.0.0.7",
    ]));
    for name in ["alice", "a_b", "node-7.lab.example"] {
        stdout(&make(&["client", "tls", name]));
    }
    // The key of a revoked certificate is still there: no certificate is made beside it.
    stdout(&make(&["revoke", "tls", "alice"]));
    let refused = stderr(&make(&["client", "tls", "alice"]));
    assert!(refused.contains("alice.key is there already"), "{refused}");
    assert!(!folder.join("tls/alice.pem").exists());
    std::fs::remove_file(folder.join("tls/alice.key")).unwrap();
    stdout(&make(&["client", "tls", "alice"]));
}

#[test]
fn files_that_cannot_be_used_are_named_before_the_server_starts() {
    let folder = folder("files");
    for (option, value, text) in [
        ("--tokens", "missing", "missing: No such file"),
        (
            "--tokens",
            "missing",
            "`farcall access token add missing NAME` creates it",
        ),
        ("--tls", ".", "server.pem: "),
        ("--tls", ".", "`farcall access certificate` makes"),
    ] {
        let arguments = [
            "serve",
            "system.idl",
            "--listen",
            "127.0.0.1:0",
            option,
            value,
        ];
        let output = run(farcall(&arguments).current_dir(&folder));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
    }
}

#[test]
fn who_guesses_tokens_waits_and_fills_no_log() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let alice = add_token(file.path(), "alice");
    let tokens = file.path().display().to_string();
    let options = ["--tokens", &tokens, "--audit", "audit"];
    let server = ServerProcess::of(&[IDL])
        .options(&options)
        .keep_log()
        .start();
    let connect = |token: &str| connect_as(&server, token).map(drop);
    connect(&alice).unwrap();
    let guesses = (0..200).map(|number| connect(&format!("guess {number}")).unwrap_err());
    let refused = |error: &Error| error.to_string().contains("try again in");
    let punished = guesses.filter(refused).count();
    assert!(punished > 150, "{punished}");
    connect(&alice).unwrap();
    let lines = server.log();
    let about = lines.iter().filter(|line| line.contains("refused:"));
    assert!((3..10).contains(&about.count()), "{lines:?}");
    let audit = std::fs::read_to_string(server.folder().join("audit")).unwrap();
    assert!(audit.lines().count() < 10, "{audit}");
}

#[test]
fn a_server_reads_its_files_again_after_a_hangup() {
    let mut server = ServerProcess::of(&[IDL])
        .config("[access]\naudit = \"audit\"\n")
        .keep_log()
        .start();
    let call = |server: &ServerProcess| {
        let copy = server.connect().function("copy").unwrap();
        let mut to = [0u8; 2];
        let arguments = &mut [
            Argument::Out(&mut to),
            Argument::In(&[1, 2]),
            Argument::Scalar(Scalar::Int(2)),
        ];
        // SAFETY: the arrays outlive the call.
        unsafe { copy.start(arguments) }.unwrap().wait().unwrap();
    };
    let (audit, moved) = (
        server.folder().join("audit"),
        server.folder().join("audit.1"),
    );
    call(&server);
    wait_for_lines(&audit, 1);
    std::fs::rename(&audit, &moved).unwrap();
    let config = server.folder().join("farcall.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[limits]\nconnections = 77\n")).unwrap();
    server.reload();
    wait_until("the server names what needs a restart", || {
        server
            .log()
            .iter()
            .any(|line| line.contains("after a restart") && line.contains("limits"))
    });
    call(&server);
    assert_eq!(wait_for_lines(&audit, 1).len(), 1);
    assert_eq!(wait_for_lines(&moved, 1).len(), 1);
    // A configuration that cannot be read changes nothing.
    std::fs::write(&config, "[nothing]\n").unwrap();
    server.reload();
    wait_until("the server says so", || {
        server
            .log()
            .iter()
            .any(|line| line.contains("goes on with what it has"))
    });
    call(&server);
}

#[test]
fn a_server_asks_for_certificates_after_a_hangup() {
    let folder = folder("clients");
    let make = ["access", "certificate", "server", "tls", "127.0.0.1"];
    stdout(&run(farcall(&make).current_dir(&folder)));
    let config = folder.join("farcall.toml");
    let tls = "[tls]\ncertificate = \"tls/server.pem\"\nkey = \"tls/server.key\"\n";
    std::fs::write(&config, tls).unwrap();
    let serving = ServerProcess::within(&folder, &["system.idl"]).keep_log();
    let mut server = serving.options(&["--config", "farcall.toml"]).start();
    let list = |server: &ServerProcess| {
        let mut command = farcall(&["ls", server.address()]);
        command.env("FARCALL_CA", folder.join("tls/authority.pem"));
        run(&mut command)
    };
    assert!(stdout(&list(&server)).starts_with("system/copy"));
    // Files that cannot be read change nothing.
    std::fs::write(&config, format!("{tls}clients = \"tls/nothing.pem\"\n")).unwrap();
    server.reload();
    wait_until("the server has looked", || {
        let log = server.log();
        log.iter().any(|line| line.contains("goes on with"))
    });
    assert!(stdout(&list(&server)).starts_with("system/copy"));
    std::fs::write(&config, format!("{tls}clients = \"tls/authority.pem\"\n")).unwrap();
    server.reload();
    wait_until("a client without a certificate is refused", || {
        let listed = list(&server);
        !listed.status.success() && stderr(&listed).contains("asks for a certificate")
    });
    std::fs::write(&config, tls).unwrap();
    server.reload();
    wait_until("it is accepted again", || list(&server).status.success());
}

#[test]
fn a_key_of_an_authority_that_is_elsewhere_is_asked_for() {
    let folder = folder("elsewhere");
    let make = |name: &str| {
        let words = ["access", "certificate", "client", "tls", name];
        run(farcall(&words).current_dir(&folder))
    };
    stdout(&make("alice"));
    let [key, safe] = ["tls-authority", "safe"].map(|name| folder.join(name));
    std::fs::rename(&key, &safe).unwrap();
    let text = stderr(&make("bob"));
    assert!(
        text.contains("tls-authority/authority.key is missing"),
        "{text}"
    );
    assert!(!key.exists() && !folder.join("tls/bob.pem").exists());
    std::fs::rename(&safe, &key).unwrap();
    stdout(&make("bob"));
}
