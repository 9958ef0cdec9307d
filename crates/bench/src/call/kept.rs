//! Measures data that the server keeps: stored arrays, and durable calls. They are compared with a
//! copy in this process and with a write that is synced to the disk, in the same rounds.

use super::{Arguments, median_of, serve};
use crate::failure::Failure;
use crate::progress;
use crate::raw::RawPeer;
use crate::table::{Better, Row};
use farcall_client::{Argument, ArrayForm, DurableCall, Function, Handle, Options, Scalar, Server};
use farcall_rpc_proto::swap_bytes;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const ELEMENTS: usize = 8 << 20;
const BYTES: usize = 8 * ELEMENTS;
/// Exchanges of large arrays, and durable calls, in a round.
const LARGE: usize = 3;
const SUBMITTED: usize = 200;
/// Clients that submit at the same time, and calls of each.
const CLIENTS: usize = 64;
const OF_EACH: usize = 60;
/// Durable null calls a second of all these clients together.
const RATE: f64 = 20_000.0;
/// Bytes that the journal writes for a record.
const PAGE: usize = 4096;

/// Runs rounds of our calls and of the exchanges to compare with, in turn.
pub(super) fn measure(arguments: &Arguments) -> Result<Vec<Row>, Failure> {
    progress::measuring("durable calls and stored arrays");
    let folder = crate::signals::folder()?;
    let state = folder.path().join("state").to_string_lossy().into_owned();
    let process = serve(&arguments.libraries, &["--state", &state])?;
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    let server = Server::connect(process.address(), options.clone())?;
    let mut values: [Vec<f64>; 8] = Default::default();
    let mut arrays = Arrays::new(&server)?;
    let (null, mut raw) = (server.function("bench/null")?, RawPeer::start(BYTES)?);
    let both_ways = |seconds: f64| 2.0 * BYTES as f64 / seconds * 1e-6;
    for round in 0..=arguments.rounds {
        let figures = [
            median_of(LARGE, || arrays.call())? * 1e3,
            median_of(LARGE, || arrays.copy())? * 1e3,
            both_ways(median_of(LARGE, || arrays.put_and_get(&server))?),
            both_ways(median_of(LARGE, || raw.exchange())?),
            BYTES as f64 / median_of(LARGE, || arrays.convert())? * 1e-6,
            median_of(SUBMITTED, || alone(&null))? * 1e6,
            median_of(SUBMITTED, || synced(folder.path()))? * 1e6,
            at_once(process.address(), &options)?,
        ];
        // The first round warms up.
        if round > 0 {
            let all = values.iter_mut().zip(figures);
            all.for_each(|(values, figure)| values.push(figure));
        }
    }
    Ok(rows(values))
}

fn rows([call, copy, put, plain, converted, submitted, sync, rate]: [Vec<f64>; 8]) -> Vec<Row> {
    let row = |name: &str, unit, values, (peer, peer_values), better, bar| Row {
        name: name.into(),
        unit,
        values,
        peer,
        peer_values,
        better,
        bar,
    };
    let (lower, higher) = (Better::Lower, Better::Higher);
    vec![
        row(
            "64 MiB of handles",
            "ms",
            call,
            ("memcpy", copy),
            lower,
            None,
        ),
        row(
            "64 MiB put and got",
            "MB/s",
            put,
            ("plain TCP", plain.clone()),
            higher,
            Some(0.95),
        ),
        row(
            "64 MiB in the other byte order",
            "MB/s",
            converted,
            ("plain TCP", plain),
            higher,
            None,
        ),
        row(
            "null, submitted, fetched",
            "us",
            submitted,
            ("fdatasync", sync),
            lower,
            Some(2.5),
        ),
        row(
            "the same by 64 clients at once",
            "/s",
            rate,
            ("at least", vec![RATE]),
            higher,
            Some(1.0),
        ),
    ]
}

/// Arrays of 64 MiB at the server and in this process.
struct Arrays {
    echo: Function,
    source: Handle,
    result: Handle,
    ours: Vec<u8>,
    copied: Vec<u8>,
}

fn form() -> ArrayForm {
    ArrayForm {
        element: "double".into(),
        shape: vec![ELEMENTS as u64],
        column_major: false,
    }
}

impl Arrays {
    fn new(server: &Server) -> Result<Arrays, Failure> {
        let ours = vec![1; BYTES];
        Ok(Arrays {
            echo: server.function("bench/echo")?,
            source: server.put(form(), &ours, false)?,
            result: server.put(form(), &ours, false)?,
            copied: vec![2; BYTES],
            ours,
        })
    }

    /// A call that reads one stored array and writes another.
    fn call(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.echo.call(&mut [
            Argument::Scalar(Scalar::Int(ELEMENTS as i64)),
            Argument::Handle(self.source.id()),
            Argument::Handle(self.result.id()),
        ])?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// The same copy in this process.
    fn copy(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        self.copied
            .copy_from_slice(std::hint::black_box(&self.ours));
        std::hint::black_box(&mut self.copied);
        Ok(start.elapsed().as_secs_f64())
    }

    /// Converts an array as the receiver does if the sender's machine has the other byte order.
    fn convert(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        swap_bytes(std::hint::black_box(&mut self.copied), size_of::<f64>());
        std::hint::black_box(&mut self.copied);
        Ok(start.elapsed().as_secs_f64())
    }

    fn put_and_get(&mut self, server: &Server) -> Result<f64, Failure> {
        let start = Instant::now();
        let handle = server.put(form(), &self.ours, false)?;
        handle.get(&mut self.copied)?;
        let seconds = start.elapsed().as_secs_f64();
        handle.drop_array()?;
        Ok(seconds)
    }
}

/// Durable null calls a second of many clients with a connection each.
fn at_once(address: &str, options: &Options) -> Result<f64, Failure> {
    let connect = |_| Server::connect(address, options.clone())?.function("bench/null");
    let nulls: Vec<Function> = (0..CLIENTS).map(connect).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let calls: Vec<Vec<DurableCall>> = std::thread::scope(|scope| {
        let calls = |null| move || (0..OF_EACH).map(|_| submit(null)).collect();
        let clients: Vec<_> = nulls.iter().map(|null| scope.spawn(calls(null))).collect();
        let ended = clients.into_iter().map(|client| {
            let ended = client.join();
            ended.unwrap_or_else(|_| Err(Failure::failed("a client of the benchmark ended")))
        });
        ended.collect::<Result<_, _>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    for call in calls.iter().flatten() {
        call.forget()?;
    }
    Ok((CLIENTS * OF_EACH) as f64 / seconds)
}

/// Seconds until a durable call is submitted and its results are fetched.
fn alone(null: &Function) -> Result<f64, Failure> {
    let start = Instant::now();
    let call = submit(null)?;
    let seconds = start.elapsed().as_secs_f64();
    call.forget()?;
    Ok(seconds)
}

/// Submits a durable call and fetches its results. The server keeps them.
fn submit(null: &Function) -> Result<DurableCall, Failure> {
    let one = || Argument::Scalar(Scalar::Int(1));
    let call = null.submit(&mut [one()], None)?;
    call.describe()?.fetch(&mut [one()])?;
    Ok(call)
}

/// Seconds to overwrite a page and sync it to the disk. The file does not grow.
fn synced(folder: &Path) -> Result<f64, Failure> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(folder.join("page"))?;
    file.write_all_at(&[0; PAGE], 0)?;
    file.sync_data()?;
    let start = Instant::now();
    file.write_all_at(&[1; PAGE], 0)?;
    file.sync_data()?;
    Ok(start.elapsed().as_secs_f64())
}
