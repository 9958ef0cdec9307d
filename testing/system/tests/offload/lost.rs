//! The server is killed while results arrive. A proxy between the program and the server stops in
//! the middle of a result, so that the moment is exact.

use crate::{MADE, counts, offloaded, server_at};
use farcall_system::ServerProcess;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

/// Passes bytes between programs and a server, which it kills once it has passed so many bytes of
/// the server.
struct Proxy {
    server: Mutex<ServerProcess>,
    /// Bytes of the server that are still passed.
    left: AtomicUsize,
}

impl Proxy {
    /// Starts it, and returns its address. It and the server have other addresses than those who
    /// connect, so that nobody takes the other for a process on the same host, with which it would
    /// share memory.
    fn start(limit: usize) -> String {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = format!("farcall://{}", listener.local_addr().unwrap());
        let proxy = Arc::new(Proxy {
            server: Mutex::new(server_at("127.0.0.3:0")),
            left: AtomicUsize::new(limit),
        });
        // The thread ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                proxy.serve(client.unwrap());
            }
        });
        address
    }

    fn serve(self: &Arc<Proxy>, client: TcpStream) {
        let address = self.server.lock().unwrap().address().to_string();
        let Ok(server) = TcpStream::connect(address.strip_prefix("farcall://").unwrap()) else {
            // The client notices.
            return;
        };
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || pass(from, to, |_| true));
        let proxy = self.clone();
        thread::spawn(move || pass(server, client, |bytes| proxy.passes(bytes)));
    }

    /// Whether bytes of the server are passed. Those that are too many are the end of the server.
    fn passes(&self, bytes: usize) -> bool {
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(bytes))
            });
        if before.unwrap() > bytes {
            return true;
        }
        self.server.lock().unwrap().kill();
        false
    }
}

/// Copies bytes as long as they pass.
fn pass(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(usize) -> bool) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !passes(count) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // It may be closed already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_server_that_is_killed_while_results_arrive_changes_nothing() {
    LazyLock::force(&MADE);
    // The results of each call have 1.28 MB: the middle of the first, and of the third.
    for (limit, arrived) in [(640_000, 0), (3_300_000, 2)] {
        let address = Proxy::start(limit);
        let mut command = offloaded(&address, &["--always"], &["many", "5"]);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "solved 5\n");
        let [local, remote, refused, failed] = counts(&output)["dgesv"];
        assert_eq!(
            [local, remote, failed],
            [0, arrived, 1],
            "{refused} refused"
        );
    }
}
