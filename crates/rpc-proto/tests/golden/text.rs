//! Reads and writes golden files: frames in hexadecimal, with comments. The comments say in words
//! what a frame contains. A file that was written parses back to the same frames.

use crate::cases::{Answer, Case, Elements, Request, kind};
use farcall_rpc_proto::{HEADER_BYTES, Header, Kind};
use std::fmt::Write;

/// One frame of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) from_client: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    fn header(&self) -> Header {
        Header::decode(self.bytes.first_chunk().unwrap()).unwrap()
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// Cuts what one side has said into its frames.
    pub(crate) fn cut(from_client: bool, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
            let end = HEADER_BYTES + Header::decode(header).unwrap().length as usize;
            let frame = bytes[..end].to_vec();
            frames.push(Frame {
                from_client,
                bytes: frame,
            });
            bytes = &bytes[end..];
        }
        assert!(bytes.is_empty());
        frames
    }
}

/// The text of a golden file.
pub(crate) fn render(case: &Case, frames: &[Frame]) -> String {
    let mut text = String::new();
    for line in case.about.lines() {
        writeln!(text, "# {line}").unwrap();
    }
    text.push_str(
        "# `>` client to server, `<` server to client; docs/spec/protocol.md explains.\n",
    );
    for frame in frames {
        let header = frame.header();
        let (_, name) = kind(header.kind as u8).unwrap();
        let arrow = if frame.from_client { '>' } else { '<' };
        let of = match header.call {
            0 => String::new(),
            call => format!(" of request {call}"),
        };
        writeln!(text, "\n# {name}{of}, {} bytes", header.length).unwrap();
        for line in payload_comment(case, frame, &header) {
            writeln!(text, "#   {line}").unwrap();
        }
        let bytes = &frame.bytes;
        let [length, flags, call] = [&bytes[..4], &bytes[4..8], &bytes[8..16]].map(hex);
        writeln!(text, "{arrow} {length} {flags} {call}").unwrap();
        for line in frame.payload().chunks(32) {
            let groups: Vec<String> = line.chunks(4).map(hex).collect();
            writeln!(text, "{arrow} {}", groups.join(" ")).unwrap();
        }
    }
    text
}

/// What a payload says: CBOR in diagnostic notation, or array elements.
fn payload_comment(case: &Case, frame: &Frame, header: &Header) -> Vec<String> {
    match header.kind {
        Kind::Cancel => Vec::new(),
        Kind::Data => {
            let order = if case.big_endian { "big" } else { "little" };
            let runs = data_of(case, frame).iter().map(|run| match run {
                Elements::Ints(all) => format!("int {all:?}"),
                Elements::Doubles(all) => format!("double {all:?}"),
            });
            let runs: Vec<String> = runs.collect();
            let whole = crate::cases::stream(data_of(case, frame), case.big_endian);
            let part = if whole.len() == frame.payload().len() {
                ""
            } else {
                "part of "
            };
            vec![format!("{order} endian: {part}{}", runs.join(", "))]
        }
        _ => {
            let text = minicbor::display(frame.payload()).to_string();
            text.lines().map(str::to_string).collect()
        }
    }
}

/// No case has more than one call.
fn data_of<'c>(case: &'c Case, frame: &Frame) -> &'c [Elements] {
    let mut streams = case.exchanges.iter().filter_map(|(request, answer)| {
        let sent = match request {
            Request::Call { data, .. } | Request::Submit(_, data) | Request::Put(_, data) => data,
            _ => return None,
        };
        let received = match answer {
            Answer::Result(data) | Answer::CallsBack(_, _, data) => Some(data),
            _ => None,
        };
        match frame.from_client {
            true => Some(sent),
            false => received,
        }
    });
    let fetched = case
        .exchanges
        .iter()
        .filter_map(|(_, answer)| match answer {
            Answer::Delivered(data) if !frame.from_client => Some(data),
            _ => None,
        });
    let streams: Vec<_> = streams.by_ref().chain(fetched).collect();
    let whole = |data: &&Vec<Elements>| {
        crate::cases::stream(data, case.big_endian).len() == frame.payload().len()
    };
    let stream = streams
        .iter()
        .copied()
        .find(whole)
        .or(streams.first().copied());
    stream.map_or(&[], Vec::as_slice)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The frames of a golden file.
pub(crate) fn parse(text: &str) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut sides: Vec<(bool, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        let Some(digits) = line.strip_prefix(['>', '<']) else {
            assert!(line.is_empty() || line.starts_with('#'), "{line}");
            continue;
        };
        let from_client = line.starts_with('>');
        let digits: Vec<u32> = digits
            .chars()
            .filter(|c| *c != ' ')
            .map(|c| c.to_digit(16).expect("a hexadecimal digit"))
            .collect();
        let bytes = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
        match sides.last_mut() {
            Some((side, all)) if *side == from_client => all.extend(bytes),
            _ => sides.push((from_client, bytes.collect())),
        }
    }
    for (from_client, bytes) in sides {
        frames.extend(Frame::cut(from_client, &bytes));
    }
    frames
}
