//! A client written by hand after docs/spec/protocol.md, and the servers it meets.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bound of every wait.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

pub(crate) const HELLO: u8 = 1;
pub(crate) const DESCRIBE: u8 = 4;
pub(crate) const INTERFACE: u8 = 5;
pub(crate) const CALL: u8 = 6;
pub(crate) const DATA: u8 = 7;
pub(crate) const RESULT: u8 = 8;
pub(crate) const DONE: u8 = 9;
pub(crate) const FAILURE: u8 = 10;
pub(crate) const CANCEL: u8 = 11;
pub(crate) const GOODBYE: u8 = 12;
pub(crate) const SHARE: u8 = 13;
pub(crate) const SHARED: u8 = 14;
pub(crate) const UNSHARE: u8 = 15;

/// A server process of its own, killed on drop.
pub(crate) struct Server {
    process: Child,
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
    log: PathBuf,
}

impl Server {
    /// Serves interfaces with a configuration, both given as text.
    pub(crate) fn start(name: &str, idl: &[&str], config: &str) -> Server {
        Server::start_with(name, idl, config, None)
    }

    /// The same with at most so many open files.
    pub(crate) fn start_with(name: &str, idl: &[&str], config: &str, files: Option<u32>) -> Server {
        let program = env!("CARGO_BIN_EXE_farcall");
        let mut command = match files {
            None => Command::new(program),
            Some(files) => {
                let mut command = Command::new("sh");
                let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
                command.args(["-c", &script, program]);
                command
            }
        };
        command.args(["serve", "--log", "error"]);
        Server::launch(command, &folder(name), idl, config)
    }

    /// The same, with its warnings in a file of its folder, and these options.
    pub(crate) fn start_logging(
        name: &str,
        idl: &[&str],
        config: &str,
        options: &[&str],
    ) -> Server {
        let folder = folder(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
        command.args(["serve", "--log", "warn"]).args(options);
        command.current_dir(&folder);
        command.stderr(std::fs::File::create(folder.join("log")).unwrap());
        Server::launch(command, &folder, idl, config)
    }

    fn launch(mut command: Command, folder: &Path, idl: &[&str], config: &str) -> Server {
        let config_file = folder.join("farcall.toml");
        std::fs::write(&config_file, config).unwrap();
        command.args(["--listen", "127.0.0.1:0"]);
        command.arg("--config").arg(config_file);
        for (index, text) in idl.iter().enumerate() {
            let file = folder.join(format!("{index}.idl"));
            std::fs::write(&file, text).unwrap();
            command.arg(file);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let (_, address) = line.trim().split_once("://").expect("an address");
        Server {
            address: address.to_string(),
            process,
            _stdout: stdout,
            log: folder.join("log"),
        }
    }

    /// What it has warned of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        log.lines().map(str::to_string).collect()
    }

    /// A connection that has not greeted.
    pub(crate) fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// A connection that has exchanged greetings.
    pub(crate) fn connect(&self) -> Peer {
        let mut peer = Peer(self.stranger());
        peer.send(&frame(HELLO, 0, &hello(1, 1)));
        assert_eq!(peer.frame().kind, HELLO);
        peer
    }

    /// The same with these optional features.
    pub(crate) fn connect_with(&self, features: u16) -> Peer {
        let mut peer = Peer(self.stranger());
        let mut hello = hello(1, 1);
        let at = 1 + text("farcall").len() + 2;
        hello.splice(at..=at, [&[0x19][..], &features.to_be_bytes()].concat());
        peer.send(&frame(HELLO, 0, &hello));
        assert_eq!(peer.frame().kind, HELLO);
        peer
    }

    /// The same over the Unix socket of the configuration, with the feature of shared memory.
    pub(crate) fn connect_unix(&self, path: &Path) -> Peer<UnixStream> {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        let mut peer = Peer(stream);
        let mut hello = hello(1, 1);
        let features = 1 + text("farcall").len() + 2;
        hello[features] = 1;
        peer.send(&frame(HELLO, 0, &hello));
        assert_eq!(peer.frame().kind, HELLO);
        peer
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn terminate(&self) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder of this test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("hostile")
        .join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits for a condition, as long as the bound allows.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A frame that a server has sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) call: u64,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// Kind and message of a failure.
    pub(crate) fn failure(&self) -> (u8, String) {
        assert_eq!(self.kind, FAILURE, "{self:?}");
        let text = String::from_utf8_lossy(&self.payload[2..]);
        (self.payload[1], text.into_owned())
    }
}

/// A connection to a server.
pub(crate) struct Peer<S = TcpStream>(pub(crate) S);

impl<S: Read + Write> Peer<S> {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn frame(&mut self) -> Frame {
        self.next().expect("a frame")
    }

    /// The next frame, or why there is none.
    pub(crate) fn next(&mut self) -> io::Result<Frame> {
        let mut header = [0; 16];
        self.0.read_exact(&mut header)?;
        let length = u32::from_le_bytes(header[..4].try_into().unwrap());
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Frame {
            kind: header[4],
            flags: header[5],
            call: u64::from_le_bytes(header[8..].try_into().unwrap()),
            payload,
        })
    }

    /// The number of a function.
    pub(crate) fn describe(&mut self, request: u64, name: &str) -> u64 {
        self.send(&frame(
            DESCRIBE,
            request,
            &[&[0x81], &text(name)[..]].concat(),
        ));
        let answer = self.frame();
        assert_eq!((answer.kind, answer.call), (INTERFACE, request));
        // An array of three whose first is a number of eight bytes.
        assert_eq!(answer.payload[..2], [0x83, 0x1b]);
        u64::from_be_bytes(answer.payload[2..10].try_into().unwrap())
    }

    /// The result stream of a call, up to Done.
    pub(crate) fn result(&mut self, request: u64) -> Vec<u8> {
        let result = self.frame();
        assert_eq!((result.kind, result.call), (RESULT, request), "{result:?}");
        let mut data = Vec::new();
        loop {
            let frame = self.frame();
            assert_eq!(frame.call, request);
            match frame.kind {
                DATA => data.extend(frame.payload),
                kind => {
                    assert_eq!(kind, DONE);
                    return data;
                }
            }
        }
    }

    /// Calls `copy` with these bytes and checks that they return.
    pub(crate) fn copy(&mut self, request: u64, function: u64, data: &[u8]) {
        self.send(&copy_call(request, function, data.len() as u64));
        // A Data frame has at least one byte.
        if !data.is_empty() {
            self.send(&frame(DATA, request, data));
        }
        assert!(self.result(request) == data);
    }

    /// Whether the server has closed, reading what is there.
    pub(crate) fn is_closed(&mut self) -> bool {
        loop {
            match self.0.read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

pub(crate) fn frame(kind: u8, call: u64, payload: &[u8]) -> Vec<u8> {
    header(kind, 0, call, payload.len(), payload)
}

pub(crate) fn big_endian_data(call: u64, payload: &[u8]) -> Vec<u8> {
    header(DATA, 1, call, payload.len(), payload)
}

/// A frame that announces more than it has.
pub(crate) fn part_of_data(call: u64, length: usize, payload: &[u8]) -> Vec<u8> {
    header(DATA, 0, call, length, payload)
}

fn header(kind: u8, flags: u8, call: u64, length: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.extend([kind, flags, 0, 0]);
    bytes.extend(call.to_le_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn hello(version_min: u8, version_max: u8) -> Vec<u8> {
    let magic = text("farcall");
    [
        &[0x85],
        &magic[..],
        &[version_min, version_max, 0],
        &text("by hand"),
    ]
    .concat()
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&[0x78, text.len() as u8], text.as_bytes()].concat()
}

pub(crate) fn uint(value: u64) -> Vec<u8> {
    [&[0x1b], &value.to_be_bytes()[..]].concat()
}

/// A call; `scalars` is CBOR.
pub(crate) fn call(request: u64, function: u64, scalars: &[u8], data_bytes: u64) -> Vec<u8> {
    let payload = [
        &[0x84],
        &uint(function)[..],
        scalars,
        &[0x80],
        &uint(data_bytes),
    ]
    .concat();
    frame(CALL, request, &payload)
}

/// A call whose arrays lie in shared memory; `places` is CBOR.
pub(crate) fn placed_call(request: u64, function: u64, n: u64, places: &[u8]) -> Vec<u8> {
    let scalars = [&[0x83, 0xf6, 0xf6], &uint(n)[..]].concat();
    let parts = [
        &[0x85],
        &uint(function)[..],
        &scalars,
        &[0x80, 0x00],
        places,
    ];
    frame(CALL, request, &parts.concat())
}

/// A place in shared memory as CBOR.
pub(crate) fn place(segment: u64, offset: u64) -> Vec<u8> {
    [&[0x82], &uint(segment)[..], &uint(offset)].concat()
}

/// A call of `copy(OUT char out[n], IN char in[n], IN long n)`.
pub(crate) fn copy_call(request: u64, function: u64, bytes: u64) -> Vec<u8> {
    copy_call_with(request, function, bytes, bytes)
}

pub(crate) fn copy_call_with(request: u64, function: u64, n: u64, data_bytes: u64) -> Vec<u8> {
    call(
        request,
        function,
        &[&[0x83, 0xf6, 0xf6], &uint(n)[..]].concat(),
        data_bytes,
    )
}
