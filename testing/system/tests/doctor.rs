//! Tests `farcall doctor --bundle`. The bundle has what a report of a fault needs, and no secret.

use farcall_system::{ServerProcess, farcall};

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us) Calls \"C\" usleep(us);
";

#[test]
fn a_bundle_has_what_a_report_needs_and_no_secret() {
    let server = ServerProcess::of(&[IDL]).durable().start();
    let folder = server.folder();
    let token = "5e1f0c3a".repeat(8);
    let (cloud, word) = ("wJalrXUtnFEMI/K7MDENG+bPxRfiCYzEXAMPLEKEY", "tr0ub4dor");
    let keys =
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----";
    let config = format!(
        "tokens = \"/etc/farcall/tokens\"\npes = 3\npassword = \"{word}\"\n\
         store = \"postgres://farcall:{word}@db.example/farcall\"\n"
    );
    std::fs::write(folder.join("farcall.toml"), config).unwrap();
    let log = format!(
        "INFO serving 1 function\nWARN somebody sent {token}\nDEBUG {cloud}\n{keys}\n\
         WARN a worker was killed by signal 11\n"
    );
    std::fs::write(folder.join("log"), log).unwrap();
    let mut command = farcall();
    // Over TCP, a client with a token would refuse a server that has no tokens.
    let socket = server.socket();
    command.args(["doctor", &socket, "--bundle", "bundle.json"]);
    command.args(["--config", "farcall.toml", "--log", "log"]);
    command
        .env("FARCALL_TOKEN", &token)
        .env("AWS_SECRET_ACCESS_KEY", cloud);
    command.env("PGPASSWORD", word).env("FARCALL_LOG", "debug");
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(folder.join("bundle.json")).unwrap();
    for secret in [
        token.as_str(),
        cloud,
        word,
        "MIIEvQIBADANBg",
        "kqhkiG9w0BAQEF",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    for part in [
        env!("CARGO_PKG_VERSION"),
        &release,
        "pes = 3",
        "/etc/farcall/tokens",
        "@db.example/farcall",
        "INFO serving 1 function",
        "a worker was killed by signal 11",
        "open_files",
        "walls",
        "\"FARCALL_LOG\": \"debug\"",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let bundle: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&bundle["schema"], &bundle["server"]["state"]),
        (&1.into(), &"serving".into())
    );
    let again = command.output().unwrap();
    assert!(!again.status.success(), "it replaces no file");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(folder.join("bundle.json"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0);
}

/// A mount namespace in which no control group can be made stands for a user without rights.
#[test]
fn control_groups_that_cannot_be_made_are_not_told_to_be_there() {
    let program = farcall().get_program().to_owned();
    let script = "for at in $(awk '$3 == \"cgroup2\" {print $2}' /proc/self/mounts); do \
                  mount -o remount,bind,ro \"$at\" || exit 77; done; \"$0\" doctor --json";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(program);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let Ok(said) = serde_json::from_str::<serde_json::Value>(&text) else {
        println!("SKIPPED: this needs root and mount namespaces");
        return;
    };
    let mut findings = said["findings"].as_array().unwrap().iter();
    let gang = findings.find(|one| one["what"] == "gang").unwrap();
    assert_ne!(gang["state"], "ok", "{gang}");
}

/// Root in a container, without the rights of root.
#[test]
fn a_trunk_that_cannot_be_started_is_not_told_to_work() {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all"]);
    command
        .arg(farcall().get_program())
        .args(["doctor", "--json"]);
    let Ok(output) = command.output() else {
        println!("SKIPPED: this needs setpriv");
        return;
    };
    let said: serde_json::Value = match serde_json::from_slice(&output.stdout) {
        Ok(said) => said,
        Err(_) => return println!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr)),
    };
    let mut findings = said["findings"].as_array().unwrap().iter();
    let trunk = findings.find(|one| one["what"] == "trunk").unwrap();
    assert_ne!(trunk["state"], "ok", "{trunk}");
}

/// On a full disk.
#[test]
fn half_a_bundle_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4k none \"$1\" && head -c 4096 /dev/zero >\"$1/full\" || \
                  exit 77; \"$0\" doctor --bundle \"$1/report\"; test -e \"$1/report\" && exit 78; \
                  exit 0";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(farcall().get_program()).arg(folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => assert!(text.contains("cannot write the bundle"), "{text}"),
        Some(78) => panic!("half a bundle stays: {text}"),
        _ => println!("SKIPPED: this needs root and mount namespaces"),
    }
}
