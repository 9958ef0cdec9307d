//! Tests that a library can be replaced while the server runs. Running calls end with the old
//! version, new ones use the new one, and each result says which version made it.

use farcall_client::{Argument, DurableCall, Error, Function, Outcome, Pending, Server};
use farcall_system::{ServerProcess, wait_until};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A library with its version; `wait` returns its version after somebody has written to a file.
fn source(version: i32) -> String {
    format!(
        "#include <fcntl.h>\n\
         void version(int *v) {{ *v = {version}; }}\n\
         void wait_for(const char *gate, int *v) {{ open(gate, O_RDONLY); *v = {version}; }}\n"
    )
}

const IDL: &str = "Module own;
Library \"./libown.so\";
Define version(OUT int v[1]) ProcessorElements 2 Calls \"C\" version(v);
Define wait_for(IN string gate, OUT int v[1]) Calls \"C\" wait_for(gate, v);
";

/// Puts a version of the library in its place, as an installer does: with another file.
fn install(folder: &Path, version: i32) {
    let (text, made) = (folder.join("own.c"), folder.join("libown.so.new"));
    std::fs::write(&text, source(version)).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wl,--build-id", "-o"]);
    assert!(compiler.arg(&made).arg(&text).status().unwrap().success());
    std::fs::rename(made, folder.join("libown.so")).unwrap();
}

fn call(function: &Function) -> (i32, Outcome) {
    let mut bytes = [0; 4];
    let outcome = function.call(&mut [Argument::Out(&mut bytes)]).unwrap();
    (i32::from_ne_bytes(bytes), outcome)
}

/// A call that waits until its gate is opened.
struct Waiting {
    pending: Pending,
    value: Box<[u8; 4]>,
    gate: std::path::PathBuf,
}

impl Waiting {
    fn start(connection: &Server, gate: &Path) -> Waiting {
        rustix::fs::mkfifoat(rustix::fs::CWD, gate, 0o600.into()).unwrap();
        let name = farcall_client::Scalar::Text(gate.to_str().unwrap().into());
        let mut value = Box::new([0; 4]);
        let arguments = &mut [Argument::Scalar(name), Argument::Out(&mut *value)];
        let function = connection.function("wait_for").unwrap();
        // SAFETY: the array lives as long as the call, and is read after the call has ended.
        let pending = unsafe { function.start(arguments) }.unwrap();
        let gate = gate.to_path_buf();
        Waiting {
            pending,
            value,
            gate,
        }
    }

    fn end(self) -> (i32, Outcome) {
        let mut gate = File::options();
        drop(gate.write(true).open(&self.gate).unwrap());
        let outcome = self.pending.wait().unwrap();
        (i32::from_ne_bytes(*self.value), outcome)
    }
}

fn fetch(job: &DurableCall) -> Result<(i32, Outcome), Error> {
    let mut bytes = [0; 4];
    let outcome = job.describe()?.fetch(&mut [Argument::Out(&mut bytes)])?;
    Ok((i32::from_ne_bytes(bytes), outcome))
}

#[test]
fn a_library_is_replaced_while_the_server_runs() {
    let folder = farcall_system::server::folder();
    let path = folder.path();
    install(path, 1);
    std::fs::write(path.join("own.idl"), IDL).unwrap();
    let mut server = ServerProcess::within(path, &["own.idl"])
        .options(&["--no-sandbox", "--pes", "4", "--state", "state"])
        .keep_log()
        .start();
    let connection = server.connect();
    let version = connection.function("version").unwrap();
    let (value, outcome) = call(&version);
    assert_eq!((value, outcome.threads), (1, Some(2)));
    let first = outcome.library.unwrap();
    assert!(first.starts_with("./libown.so: build "), "{first}");
    let durable = version.submit(&mut [Argument::Skip], None).unwrap();
    let (value, outcome) = fetch(&durable).unwrap();
    assert_eq!((value, outcome.threads), (1, Some(2)));
    assert_eq!(outcome.library.as_ref(), Some(&first));
    let running = Waiting::start(&connection, &path.join("gate"));
    wait_until("it runs", || {
        let text = connection.status().unwrap();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        status["jobs"]["running"] == 1
    });

    install(path, 2);
    server.reload();
    wait_until("new calls use the new version", || call(&version).0 == 2);
    let second = call(&version).1.library.unwrap();
    assert!(
        second.starts_with("./libown.so: build ") && second != first,
        "{second}"
    );
    for _ in 0..20 {
        assert_eq!(call(&version).0, 2, "no call goes back to the old version");
    }
    let (value, outcome) = running.end();
    assert_eq!(value, 1, "it ends with the version that it began with");
    assert_eq!(outcome.library.as_ref(), Some(&first));
    let durable = version.submit(&mut [Argument::Skip], None).unwrap();
    wait_until("it has ended", || fetch(&durable).is_ok());
    assert_eq!(fetch(&durable).unwrap().1.library.as_ref(), Some(&second));
    let described = server.connect().function("version").unwrap();
    assert_eq!(described.library(), Some(&*second));

    // A version that cannot be used replaces nothing.
    let broken = path.join("libown.so.new");
    std::fs::write(&broken, "this is no library").unwrap();
    std::fs::rename(broken, path.join("libown.so")).unwrap();
    server.reload();
    wait_until("the log tells of it", || {
        let log = server.log();
        log.iter()
            .any(|line| line.contains("cannot be used: a worker could not start: "))
    });
    assert_eq!(call(&version).0, 2);

    install(path, 3);
    server.reload();
    wait_until("it can be used again", || call(&version).0 == 3);
    assert!(server.stop());
    server.restart();
    let (value, outcome) = fetch(&server.connect().job(durable.id())).unwrap();
    assert_eq!((value, outcome.threads), (2, Some(2)));
    assert_eq!(outcome.library.as_ref(), Some(&second), "it is recorded");
}
