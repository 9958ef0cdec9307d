//! A client written by hand from docs/spec/protocol.md, which can send any bytes. It shares no code
//! with the real client, so a mistake there does not hide here.

use crate::{BOUND, ServerProcess};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A greeting.
pub const HELLO: u8 = 1;
/// Asks for the interface of a function.
pub const DESCRIBE: u8 = 4;
/// An interface.
pub const INTERFACE: u8 = 5;
/// A call.
pub const CALL: u8 = 6;
/// Bytes of arrays.
pub const DATA: u8 = 7;
/// The scalars of a result.
pub const RESULT: u8 = 8;
/// The end of a result.
pub const DONE: u8 = 9;
/// Why a request failed.
pub const FAILURE: u8 = 10;
/// Cancels a call.
pub const CANCEL: u8 = 11;
/// The last frame.
pub const GOODBYE: u8 = 12;
/// Asks for shared memory.
pub const SHARE: u8 = 13;
/// Shared memory.
pub const SHARED: u8 = 14;
/// Returns shared memory.
pub const UNSHARE: u8 = 15;
/// Submits a durable call.
pub const SUBMIT: u8 = 32;
/// The id of a durable call.
pub const SUBMITTED: u8 = 33;

impl ServerProcess {
    /// A connection without greetings.
    pub fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect(self.host_and_port()).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        stream
    }

    /// A connection that has exchanged greetings.
    pub fn peer(&self) -> Peer {
        let mut peer = Peer(self.stranger());
        peer.send(&frame(HELLO, 0, &hello(1, 1)));
        assert_eq!(peer.frame().kind, HELLO);
        peer
    }

    /// The same with these optional features.
    pub fn peer_with(&self, features: u16) -> Peer {
        let mut peer = Peer(self.stranger());
        let mut hello = hello(1, 1);
        let at = 1 + text("farcall").len() + 2;
        hello.splice(at..=at, [&[0x19][..], &features.to_be_bytes()].concat());
        peer.send(&frame(HELLO, 0, &hello));
        assert_eq!(peer.frame().kind, HELLO);
        peer
    }
}

/// A frame that a server has sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its kind.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// The request that it belongs to.
    pub call: u64,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Kind and message of a failure.
    pub fn failure(&self) -> (u8, String) {
        assert_eq!(self.kind, FAILURE, "{self:?}");
        let text = String::from_utf8_lossy(&self.payload[2..]);
        (self.payload[1], text.into_owned())
    }
}

/// A connection to a server.
#[derive(Debug)]
pub struct Peer<S = TcpStream>(pub S);

impl Peer<UnixStream> {
    /// A connection at a Unix socket that has exchanged greetings, with the feature of shared
    /// memory.
    pub fn at_socket(path: &Path) -> Peer<UnixStream> {
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
}

impl<S: Read + Write> Peer<S> {
    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The next frame.
    pub fn frame(&mut self) -> Frame {
        self.try_frame().expect("a frame")
    }

    /// The next frame, or the reason why there is none. A failure of no request is a sign of life,
    /// and every receiver ignores it.
    pub fn try_frame(&mut self) -> io::Result<Frame> {
        loop {
            let frame = self.any_frame()?;
            if (frame.kind, frame.call) != (FAILURE, 0) {
                return Ok(frame);
            }
        }
    }

    fn any_frame(&mut self) -> io::Result<Frame> {
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
    pub fn describe(&mut self, request: u64, name: &str) -> u64 {
        self.send(&frame(
            DESCRIBE,
            request,
            &[&[0x81], &text(name)[..]].concat(),
        ));
        let answer = self.frame();
        assert_eq!((answer.kind, answer.call), (INTERFACE, request));
        // An array of three items, of which the first is a number of eight bytes.
        assert_eq!(answer.payload[..2], [0x83, 0x1b]);
        u64::from_be_bytes(answer.payload[2..10].try_into().unwrap())
    }

    /// The result stream of a call, up to Done.
    pub fn result(&mut self, request: u64) -> Vec<u8> {
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

    /// Calls `copy` with these bytes and checks that the same bytes return.
    pub fn copy(&mut self, request: u64, function: u64, data: &[u8]) {
        self.send(&copy_call(request, function, data.len() as u64));
        // A Data frame has at least one byte.
        if !data.is_empty() {
            self.send(&frame(DATA, request, data));
        }
        assert!(self.result(request) == data);
    }

    /// Reads what is left, and returns whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.0.read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// A frame.
pub fn frame(kind: u8, call: u64, payload: &[u8]) -> Vec<u8> {
    header(kind, 0, call, payload.len(), payload)
}

/// A frame of data in big-endian byte order.
pub fn big_endian_data(call: u64, payload: &[u8]) -> Vec<u8> {
    header(DATA, 1, call, payload.len(), payload)
}

/// A frame that announces more bytes than it has.
pub fn part_of_data(call: u64, length: usize, payload: &[u8]) -> Vec<u8> {
    header(DATA, 0, call, length, payload)
}

fn header(kind: u8, flags: u8, call: u64, length: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (length as u32).to_le_bytes().to_vec();
    bytes.extend([kind, flags, 0, 0]);
    bytes.extend(call.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// The content of a greeting.
pub fn hello(version_min: u8, version_max: u8) -> Vec<u8> {
    let magic = text("farcall");
    [
        &[0x85],
        &magic[..],
        &[version_min, version_max, 0],
        &text("by hand"),
    ]
    .concat()
}

/// A text as CBOR.
pub fn text(text: &str) -> Vec<u8> {
    [&[0x78, text.len() as u8], text.as_bytes()].concat()
}

/// A number as CBOR.
pub fn uint(value: u64) -> Vec<u8> {
    [&[0x1b], &value.to_be_bytes()[..]].concat()
}

/// A call; `scalars` is CBOR.
pub fn call(request: u64, function: u64, scalars: &[u8], data_bytes: u64) -> Vec<u8> {
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

/// A call whose arrays are in shared memory; `places` is CBOR.
pub fn placed_call(request: u64, function: u64, n: u64, places: &[u8]) -> Vec<u8> {
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
pub fn place(segment: u64, offset: u64) -> Vec<u8> {
    [&[0x82], &uint(segment)[..], &uint(offset)].concat()
}

/// A call of `copy(OUT char out[n], IN char in[n], IN long n)`.
pub fn copy_call(request: u64, function: u64, bytes: u64) -> Vec<u8> {
    copy_call_with(request, function, bytes, bytes)
}

/// The same call as a durable one.
pub fn submission(request: u64, function: u64, bytes: u64) -> Vec<u8> {
    let call = copy_call(request, function, bytes);
    // Without the header of its frame.
    let call = &call[16..];
    let head = [&[0x82, 0x59][..], &(call.len() as u16).to_be_bytes()].concat();
    frame(SUBMIT, request, &[&head, call, &[0xf6]].concat())
}

/// The same call, which announces this many bytes.
pub fn copy_call_with(request: u64, function: u64, n: u64, data_bytes: u64) -> Vec<u8> {
    call(
        request,
        function,
        &[&[0x83, 0xf6, 0xf6], &uint(n)[..]].concat(),
        data_bytes,
    )
}
