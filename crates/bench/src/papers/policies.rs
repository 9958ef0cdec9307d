//! The queue policies of the first Ninf paper (sections 5.2 and 5.3): parallel calls of different
//! widths and lengths at a real server under each policy, beside the same in the grid simulator.
//! The calls sleep, so the server can have more processor elements than this machine.

use crate::failure::Failure;
use crate::load::server::LoadServer;
use crate::load::{Arguments, ServeOptions, show};
use crate::table::{Better, Row};
use farcall_client::{Argument, Options, Scalar, Server};
use farcall_flow::SplitMix64;
use farcall_gridsim::{
    Arrival, Function, Machine, Outcome, Port, Record, Scenario, Site, simulate,
};
use farcall_schedule::placement;
use farcall_schedule::queue::Policy;
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const PES: u32 = 8;
const CALLS: usize = 300;
/// Part of the processor elements' time that the calls need.
const LOAD: f64 = 0.85;
/// Seconds of the shortest and the longest call; in between they are uniform on a logarithmic
/// scale.
const SECONDS: (f64, f64) = (0.02, 1.0);
/// The processor elements of the calls: half need one, and few all.
const WIDTHS: [u32; 8] = [1, 1, 1, 1, 2, 2, 4, 8];
const POLICIES: [Policy; 4] = [Policy::Fcfs, Policy::Sjf, Policy::Fpfs, Policy::Fmpfs];
/// Operations a second of a simulated processor element, so that the work of a call is its time.
const SPEED: f64 = 1e6;

/// A call of the plan.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at_s: f64,
    pes: u32,
    seconds: f64,
}

type Figure = fn(&Outcome, &[Planned]) -> f64;

const FIGURES: [(&str, Figure); 5] = [
    ("mean response", |outcome, _| outcome.mean_response_s()),
    ("95 % within", |outcome, _| outcome.response_s(0.95)),
    ("mean response, 1 PE", |outcome, plan| {
        of_width(outcome, plan, 1)
    }),
    ("mean response, 8 PEs", |outcome, plan| {
        of_width(outcome, plan, PES)
    }),
    ("makespan", |outcome, _| outcome.makespan_s()),
];

/// Runs the experiment.
pub(crate) fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let rounds = match arguments.quick {
        true => 1,
        false => arguments.rounds.into(),
    };
    let mut figures = vec![[Vec::new(), Vec::new()]; POLICIES.len() * FIGURES.len()];
    for seed in 1..=rounds {
        let plan = plan(seed);
        for (policy, figures) in POLICIES.into_iter().zip(figures.chunks_mut(FIGURES.len())) {
            let real = run(arguments, &plan, policy)?;
            let simulated = simulate(&scenario(&plan, policy), placement::Policy::default());
            for ((_, figure), [values, peers]) in FIGURES.iter().zip(figures) {
                values.push(figure(&real, &plan));
                peers.push(figure(&simulated, &plan));
            }
        }
    }
    let names = POLICIES.iter().flat_map(|policy| {
        let names = FIGURES.iter();
        names.map(|(name, _)| format!("{}, {name}", policy.name()))
    });
    let rows = names.zip(figures).map(|(name, [values, peer_values])| Row {
        name,
        unit: "s",
        values,
        peer: "simulated",
        peer_values,
        better: Better::Lower,
        bar: None,
    });
    show(arguments, &[], &rows.collect::<Vec<Row>>())
}

/// The mean response of the calls that need this many processor elements.
fn of_width(outcome: &Outcome, plan: &[Planned], pes: u32) -> f64 {
    let records = outcome.records.iter().zip(plan);
    let records = records.filter(|(_, one)| one.pes == pes);
    let records = records.map(|(record, _)| *record).collect();
    Outcome { records }.mean_response_s()
}

fn plan(seed: u64) -> Vec<Planned> {
    let random = &mut SplitMix64::new(seed);
    let mut plan: Vec<Planned> = (0..CALLS)
        .map(|_| Planned {
            at_s: random.unit(),
            pes: WIDTHS[random.below(WIDTHS.len() as u64) as usize],
            seconds: SECONDS.0 * (SECONDS.1 / SECONDS.0).powf(random.unit()),
        })
        .collect();
    let work: f64 = plan
        .iter()
        .map(|one| one.seconds * f64::from(one.pes))
        .sum();
    let window_s = work / f64::from(PES) / LOAD;
    plan.iter_mut().for_each(|one| one.at_s *= window_s);
    plan.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    plan
}

fn scenario(plan: &[Planned], policy: Policy) -> Scenario {
    let port = Port {
        up: 1e9,
        down: 1e9,
        latency_s: 1e-4,
    };
    let arrival = |one: &Planned| Arrival {
        at_s: one.at_s,
        // Twice the elements are 1.87 times as fast in the simulator. Here a call takes its time.
        work: one.seconds * SPEED,
        noise: f64::from(one.pes).powf(0.9),
        fewest: one.pes,
        most: one.pes,
        ..Arrival::new(Function::Ep, 20)
    };
    Scenario {
        machines: vec![Machine {
            policy,
            ..Machine::new(PES, [SPEED; 3], port)
        }],
        sites: vec![Site { port }],
        paths: Default::default(),
        arrivals: plan.iter().map(arrival).collect(),
    }
}

/// Makes the calls at their times at a real server.
fn run(arguments: &Arguments, plan: &[Planned], policy: Policy) -> Result<Outcome, Failure> {
    let idl = crate::program::interface_file(&arguments.libraries, "bench.idl")?;
    let command = Command::new(crate::program::farcall()?);
    let way = ServeOptions::new("", &[("--pes", PES as usize)], policy.name());
    let server = LoadServer::run(command, &idl, "127.0.0.1:0", &way.options)?;
    let client = Server::connect(server.address(), Options::default())?;
    let nap = client.function("bench/nap")?;
    let call = |pes: u32, seconds: f64| -> Result<(), Failure> {
        let int = |value: i64| Argument::Scalar(Scalar::Int(value));
        nap.call(&mut [int(pes.into()), int((seconds * 1e6) as i64)])?;
        Ok(())
    };
    let call = &call;
    // The workers start, and the server learns the time of a call.
    std::thread::scope(|scope| {
        let first: Vec<_> = (0..PES).map(|_| scope.spawn(|| call(1, 0.1))).collect();
        first.into_iter().try_for_each(joined)
    })?;
    let begun = Instant::now();
    let make = |one: &Planned| -> Result<Record, Failure> {
        let at = begun + Duration::from_secs_f64(one.at_s);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        call(one.pes, one.seconds)?;
        let done_s = begun.elapsed().as_secs_f64();
        Ok(Record {
            at_s: one.at_s,
            seconds: done_s - one.at_s,
            done_s,
            ..Record::default()
        })
    };
    let make = &make;
    let records = std::thread::scope(|scope| {
        let calls: Vec<_> = plan
            .iter()
            .map(|one| scope.spawn(move || make(one)))
            .collect();
        calls
            .into_iter()
            .map(joined)
            .collect::<Result<Vec<Record>, Failure>>()
    })?;
    Ok(Outcome { records })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    let ended = thread.join();
    ended.unwrap_or_else(|_| Err(Failure::failed("a client panicked")))
}
