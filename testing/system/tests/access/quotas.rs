//! Quotas of users and of groups of users: what goes beyond them is refused, and the message names
//! the setting. Users outside a group do not notice its quotas.

use super::{add_token, connect_as, folder, start};
use farcall_client::{Argument, ArrayForm, Credentials, Options, Scalar, Server};
use farcall_system::{BOUND, ServerProcess, wait_until};

#[test]
fn one_user_has_no_more_than_is_allowed() {
    let folder = folder("limits");
    let idl = "Module system; Library \"libc.so.6\";
        Define nap(IN int us) Calls \"C\" usleep(us);
        Define fill(OUT char out[n], IN int value, IN long n) Calls \"C\" memset(out, value, n);
    ";
    std::fs::write(folder.join("system.idl"), idl).unwrap();
    let tokens = folder.join("tokens");
    let users = ["alice", "bob"].map(|name| add_token(&tokens, name));
    let config = "[access]\ntokens = \"tokens\"\n[limits]\nconnections_per_user = 2\n\
                  calls_per_user = 2\nmemory_per_user = 1000000\n[queue]\npes = 3\n";
    std::fs::write(folder.join("farcall.toml"), config).unwrap();
    let server = start(&folder, &["--config", "farcall.toml"]);
    let connect = |token: &str| connect_as(&server, token);
    let [alice, bob] = users.each_ref().map(|token| connect(token).unwrap());
    let other = connect(&users[0]).unwrap();
    let refused = connect(&users[0]).unwrap_err().to_string();
    assert!(refused.contains("alice has 2 connections"), "{refused}");
    drop(other);

    let nap = alice.function("nap").unwrap();
    let long = &mut [Argument::Scalar(Scalar::Int(20_000_000))];
    // SAFETY: the call has no arrays.
    let pending = [(); 2].map(|()| unsafe { nap.start(long) }.unwrap());
    let refused = nap.call(long).unwrap_err().to_string();
    assert!(refused.contains("alice has 2 active calls"), "{refused}");
    let short = &mut [Argument::Scalar(Scalar::Int(1))];
    bob.function("nap").unwrap().call(short).unwrap();
    drop(pending);

    let fill = |bytes: usize| {
        let mut out = vec![0; bytes];
        let length = Argument::Scalar(Scalar::Int(bytes as i64));
        let value = Argument::Scalar(Scalar::Int(7));
        let arguments = &mut [Argument::Out(&mut out), value, length];
        bob.function("fill").unwrap().call(arguments).map(|_| out)
    };
    assert!(fill(900_000).unwrap().iter().all(|byte| *byte == 7));
    let refused = fill(1_100_000).unwrap_err().to_string();
    assert!(refused.contains("memory_per_user"), "{refused}");
}

/// Over TCP, the server would take the user for another one, with arrays and quotas of its own.
#[test]
fn a_user_with_too_many_connections_does_not_become_another_user() {
    let folder = folder("connections");
    let config = "[limits]\nconnections_per_user = 2\n";
    std::fs::write(folder.join("farcall.toml"), config).unwrap();
    let server = start(&folder, &["--config", "farcall.toml"]);
    let connect = || {
        let options = Options {
            timeout: Some(BOUND),
            credentials: Credentials::default(),
            ..Options::default()
        };
        Server::connect(server.address(), options)
    };
    let open = [(); 2].map(|()| connect().unwrap());
    let refused = connect().unwrap_err().to_string();
    assert!(refused.contains("has 2 connections"), "{refused}");
    drop(open);
    wait_until("room for a connection", || connect().is_ok());
}

/// A server where alice and bob are in a group with these quotas, and its clients alice, bob and
/// carol.
fn server_with_group(name: &str, quotas: &str) -> (ServerProcess, [Server; 3]) {
    let folder = folder(name);
    let idl = "Module system; Library \"libc.so.6\";
        Define nap(IN int us) Calls \"C\" usleep(us);
        Define fill(OUT char out[n], IN int value, IN long n) Calls \"C\" memset(out, value, n);
    ";
    std::fs::write(folder.join("system.idl"), idl).unwrap();
    let tokens = folder.join("tokens");
    let users = ["alice", "bob", "carol"].map(|name| add_token(&tokens, name));
    let config = format!(
        "[access]\ntokens = \"tokens\"\n[queue]\npes = 3\n[groups.physics]\n\
         users = [\"alice\", \"bob\"]\n{quotas}\n"
    );
    std::fs::write(folder.join("farcall.toml"), config).unwrap();
    let server = start(&folder, &["--config", "farcall.toml"]);
    let clients = users
        .each_ref()
        .map(|token| connect_as(&server, token).unwrap());
    (server, clients)
}

#[test]
fn the_users_of_a_group_make_no_more_calls_than_is_allowed_together() {
    let quotas = "calls = 1\nmemory = 1000000";
    let (_server, [alice, bob, carol]) = server_with_group("group-calls", quotas);
    let long = &mut [Argument::Scalar(Scalar::Int(20_000_000))];
    let short = || [Argument::Scalar(Scalar::Int(1))];
    // SAFETY: the call has no arrays.
    let pending = unsafe { alice.function("nap").unwrap().start(long) }.unwrap();
    let nap = bob.function("nap").unwrap();
    let refused = nap.call(&mut short()).unwrap_err().to_string();
    assert!(
        refused.contains("the group physics has 1 active call,"),
        "{refused}"
    );
    assert!(refused.contains("(groups.physics.calls in"), "{refused}");
    carol.function("nap").unwrap().call(&mut short()).unwrap();
    drop(pending);
    wait_until("the group may call again", || {
        nap.call(&mut short()).is_ok()
    });

    let fill = |server: &Server, bytes: usize| {
        let mut out = vec![0; bytes];
        let length = Argument::Scalar(Scalar::Int(bytes as i64));
        let value = Argument::Scalar(Scalar::Int(7));
        let arguments = &mut [Argument::Out(&mut out), value, length];
        server.function("fill").unwrap().call(arguments).map(drop)
    };
    let refused = fill(&bob, 1_100_000).unwrap_err().to_string();
    assert!(refused.contains("(groups.physics.memory in"), "{refused}");
    fill(&carol, 1_100_000).unwrap();
}

#[test]
fn the_users_of_a_group_store_no_more_than_is_allowed_together() {
    let quotas = "arrays = 2\narray_bytes = 100";
    let (_server, [alice, bob, carol]) = server_with_group("group-arrays", quotas);
    let put = |server: &Server, bytes: usize| {
        let form = ArrayForm {
            element: "char".to_string(),
            shape: vec![bytes as u64],
            column_major: false,
        };
        server.put(form, &vec![1; bytes], false)
    };
    let first = put(&alice, 60).unwrap();
    let refused = put(&bob, 60).unwrap_err().to_string();
    assert!(
        refused.contains("(groups.physics.array_bytes in"),
        "{refused}"
    );
    let second = put(&bob, 10).unwrap();
    let refused = put(&bob, 10).unwrap_err().to_string();
    assert!(
        refused.contains("the group physics has 2 arrays"),
        "{refused}"
    );
    put(&carol, 200).unwrap();
    drop((first, second));
}
