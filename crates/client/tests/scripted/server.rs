//! Scripted servers: each sends fixed bytes, whatever the client sends. With them the tests cut
//! answers at any byte, stall, and send what a real server never sends. A script is dropped
//! together with its thread.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A function that takes an array and returns nothing.
pub(crate) const TAKE: &str = "Define take(IN int n, IN char x[n]) Calls \"C\" take(n, x);";

/// A function that calls back.
pub(crate) const ASK: &str = "Define ask(IN int n, each(IN int k, IN int x[k], OUT int y[k])) \
                              Calls \"C\" ask(n, each);";

/// A callback of `ask`: which one, its count, its data; in big endian where that is said.
pub(crate) fn callback(index: u8, count: &[u8], data: &[u8], big_endian: bool) -> Vec<u8> {
    let scalars = [&[0x83], count, &[0xf6, 0xf6]].concat();
    let data = [&[0x58, data.len() as u8], data].concat();
    let mut bytes = frame(16, 2, &[&[0x83, index][..], &scalars, &data].concat());
    bytes[5] = u8::from(big_endian);
    bytes
}

/// The end of a call without results.
pub(crate) fn done(request: u64) -> Vec<u8> {
    let done = frame(9, request, &[0x84, 0, 0, 0, 0]);
    [frame(8, request, &[0x81, 0]), done].concat()
}

/// The interface of `scale`.
pub(crate) fn interface_text() -> String {
    "Module test;\nDefine scale(IN int n, IN double x[n], OUT double twice[n], \
     INOUT int y[n])\n    Calls \"C\" scale(n, x, twice, y);\n"
        .to_string()
}

pub(crate) fn frame(kind: u8, call: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend([kind, 0, 0, 0]);
    bytes.extend(call.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Reads the next frame of a client: its kind and its payload.
pub(crate) fn read_frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut header = [0; 16];
    stream.read_exact(&mut header).unwrap();
    let length = u32::from_le_bytes(header[..4].try_into().unwrap());
    let mut payload = vec![0; length as usize];
    stream.read_exact(&mut payload).unwrap();
    (header[4], payload)
}

/// Answers one request of a client after the other.
pub(crate) fn answer_each<const COUNT: usize>(stream: &mut TcpStream, answers: [Vec<u8>; COUNT]) {
    for answer in answers {
        read_frame(stream);
        stream.write_all(&answer).unwrap();
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = (text.len() as u16).to_be_bytes();
    [&[0x79], &length[..], text.as_bytes()].concat()
}

pub(crate) fn hello(version_min: u8, version_max: u8) -> Vec<u8> {
    greeting(&[version_min, version_max, 0])
}

/// The greeting of a server that forwards what its functions print.
pub(crate) fn hello_of_a_forwarder() -> Vec<u8> {
    greeting(&[1, 1, 4])
}

/// The greeting of a server that has named data and reservations.
pub(crate) fn hello_of_a_holder() -> Vec<u8> {
    greeting(&[1, 1, 0x1a, 0, 0x0c, 0, 0])
}

/// The greeting of a server that takes durable calls, and sends their outcomes early.
pub(crate) fn hello_of_a_keeper() -> Vec<u8> {
    greeting(&[1, 1, 0x1a, 8, 0, 1, 0])
}

/// What the function prints in the second request; the text has less than 24 bytes.
pub(crate) fn printed(text: &[u8]) -> Vec<u8> {
    frame(
        18,
        2,
        &[&[0x81, 0x40 | text.len() as u8][..], text].concat(),
    )
}

/// A greeting with the oldest and the newest version, and the features.
fn greeting(numbers: &[u8]) -> Vec<u8> {
    let fields = [&[0x85][..], &text("farcall"), numbers, &text("script")];
    frame(1, 0, &fields.concat())
}

pub(crate) fn interface(request: u64, function: u8, idl: &str) -> Vec<u8> {
    frame(5, request, &[&[0x82, function][..], &text(idl)].concat())
}

pub(crate) fn listing(request: u64, next: Option<u8>) -> Vec<u8> {
    let function = [&[0x82][..], &text("test/scale"), &text("")].concat();
    let next = next.unwrap_or(0xf6);
    frame(
        3,
        request,
        &[&[0x82, 0x81][..], &function, &[next]].concat(),
    )
}

pub(crate) fn failure(request: u64, kind: u8, message: &str) -> Vec<u8> {
    frame(
        10,
        request,
        &[&[0x82, 0x18, kind][..], &text(message)].concat(),
    )
}

pub(crate) fn goodbye(reason: &str) -> Vec<u8> {
    frame(12, 0, &[&[0x81][..], &text(reason)].concat())
}

/// Result, data and done of `scale`, the data in frames of `chunk` bytes.
pub(crate) fn call_frames(request: u64, big_endian: bool, chunk: usize) -> Vec<u8> {
    let (twice, y) = ([3.0f64, -4.0, 2e300], [1i32, 2, -3]);
    let mut data = Vec::new();
    for value in twice {
        data.extend(if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }
    for value in y {
        data.extend(if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        });
    }
    let mut bytes = frame(8, request, &[0x81, 0x18, data.len() as u8]);
    for part in data.chunks(chunk) {
        let mut part = frame(7, request, part);
        part[5] = u8::from(big_endian);
        bytes.extend(part);
    }
    bytes.extend(frame(9, request, &[0x84, 0, 0, 0, 0]));
    bytes
}

/// What a scripted server does once it has said everything.
#[derive(Clone)]
enum Course {
    /// Closes its side; reads until the client closes.
    Close,
    /// Reads and says nothing more.
    Stall,
    /// Reads this many bytes a millisecond.
    Slow(usize),
    /// When a little more has come says this and closes, with input unread.
    HangUp(Vec<u8>),
}

/// A scripted server; it serves one connection after another until it is dropped.
pub(crate) struct Script {
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Answers to a greeting, a describe request and a call of `scale`.
pub(crate) fn whole_call(big_endian: bool, chunk: usize) -> Vec<Vec<u8>> {
    let described = interface(1, 7, &interface_text());
    vec![hello(1, 1), described, call_frames(2, big_endian, chunk)]
}

/// The first bytes of all answers together, up to the answer that is cut.
pub(crate) fn cut(answers: &[Vec<u8>], mut length: usize) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for answer in answers {
        let count = answer.len().min(length);
        length -= count;
        parts.push(answer[..count].to_vec());
        if count < answer.len() {
            break;
        }
    }
    parts
}

impl Script {
    /// Gives one answer to each request, and closes.
    pub(crate) fn closing(answers: Vec<Vec<u8>>) -> Script {
        Script::start(answers, Course::Close, Duration::ZERO)
    }

    /// Gives one answer to each request, and then none.
    pub(crate) fn stalling(answers: Vec<Vec<u8>>) -> Script {
        Script::start(answers, Course::Stall, Duration::ZERO)
    }

    /// Reads `bytes` bytes a millisecond after it has given the answers.
    pub(crate) fn slow(answers: Vec<Vec<u8>>, bytes: usize) -> Script {
        Script::start(answers, Course::Slow(bytes), Duration::ZERO)
    }

    /// Says this and closes as soon as anything follows the answered requests.
    pub(crate) fn hanging_up(answers: Vec<Vec<u8>>, last: Vec<u8>) -> Script {
        Script::start(answers, Course::HangUp(last), Duration::ZERO)
    }

    /// Gives the last answer this much later.
    pub(crate) fn late(answers: Vec<Vec<u8>>, delay: Duration) -> Script {
        Script::start(answers, Course::Stall, delay)
    }

    /// Says this to the first client and closes, and gives the answers to the next ones.
    pub(crate) fn leaving_once(farewell: Vec<u8>, answers: Vec<Vec<u8>>) -> Script {
        Script::begin(Some(farewell), answers, Course::Stall, Duration::ZERO)
    }

    fn start(answers: Vec<Vec<u8>>, course: Course, delay: Duration) -> Script {
        Script::begin(None, answers, course, delay)
    }

    fn begin(
        mut farewell: Option<Vec<u8>>,
        answers: Vec<Vec<u8>>,
        course: Course,
        delay: Duration,
    ) -> Script {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("farcall://{}", listener.local_addr().unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let peer = Peer {
                    stream,
                    over: is_over.clone(),
                };
                // The client may close at any time.
                let _ = match farewell.take() {
                    Some(farewell) => peer.serve(&[farewell], &Course::Close, delay),
                    None => peer.serve(&answers, &course, delay),
                };
            }
        });
        Script {
            address,
            over,
            thread: Some(thread),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address.trim_start_matches("farcall://"));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The client at the other end.
struct Peer {
    stream: TcpStream,
    over: Arc<AtomicBool>,
}

impl Peer {
    fn serve(mut self, answers: &[Vec<u8>], course: &Course, delay: Duration) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.stream
            .set_read_timeout(Some(Duration::from_millis(5)))?;
        for (index, answer) in answers.iter().enumerate() {
            self.read_request()?;
            if index + 1 == answers.len() && !delay.is_zero() {
                std::thread::sleep(delay);
            }
            self.stream.write_all(answer)?;
        }
        match course {
            Course::Close => self.stream.shutdown(Shutdown::Write)?,
            Course::HangUp(last) => {
                self.read(1)?;
                return self.stream.write_all(last);
            }
            Course::Stall | Course::Slow(_) => {}
        }
        loop {
            match course {
                Course::Slow(bytes) => {
                    self.read(*bytes)?;
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => drop(self.read(1)?),
            }
        }
    }

    /// Reads frames up to the next request, greeting or answer to a callback.
    fn read_request(&mut self) -> io::Result<()> {
        loop {
            let header = self.read(16)?;
            let length = u32::from_le_bytes(header[..4].try_into().unwrap());
            self.read(length as usize)?;
            if matches!(header[4], 1 | 2 | 4 | 6 | 17 | 32 | 36) {
                return Ok(());
            }
        }
    }

    fn read(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut taken = 0;
        while taken < count {
            if self.over.load(Ordering::SeqCst) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match self.stream.read(&mut bytes[taken..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(some) => taken += some,
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
