//! The physical limit: the same bytes over a plain TCP connection. Each of its two ends blocks in
//! its system calls and does no other work.

use crate::failure::Failure;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// A connection to an echo peer in a separate thread.
pub(crate) struct RawPeer {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl RawPeer {
    /// A peer that answers every `bytes` bytes with the same number of bytes.
    pub(crate) fn start(bytes: usize) -> Result<RawPeer, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        // The thread ends when this end of the connection is dropped.
        std::thread::spawn(move || answer(peer, bytes));
        Ok(RawPeer {
            stream,
            buffer: vec![1; bytes],
        })
    }

    /// Seconds of one exchange, in both directions.
    pub(crate) fn exchange(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.stream.write_all(&self.buffer)?;
        self.stream.read_exact(&mut self.buffer)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Exchanges per second with this number of outstanding ones.
    pub(crate) fn rate(&mut self, count: usize, outstanding: usize) -> Result<f64, Failure> {
        let start = Instant::now();
        for sent in 0..count + outstanding {
            if sent >= outstanding {
                self.stream.read_exact(&mut self.buffer)?;
            }
            if sent < count {
                self.stream.write_all(&self.buffer)?;
            }
        }
        Ok(count as f64 / start.elapsed().as_secs_f64())
    }
}

fn answer(mut stream: TcpStream, bytes: usize) -> io::Result<()> {
    let mut buffer = vec![0; bytes];
    loop {
        stream.read_exact(&mut buffer)?;
        stream.write_all(&buffer)?;
    }
}
