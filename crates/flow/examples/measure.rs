//! Runs one simulation and prints its result: `measure PLATFORM PATTERN SIZE [PLACEMENT] [STEPS]`.

use farcall_flow::{Config, Mode, Pattern, Placement, Platform, Simulation, Workload};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let platform = Platform::parse(&args[0])?;
    let n = platform.nodes();
    let mut pattern = Pattern::parse(&args[1], n as u32, args[2].parse()?)?;
    let placement = Placement::parse(args.get(3).map_or("regular", String::as_str), n)?;
    if let Some(steps) = args.get(4) {
        pattern = pattern.with_steps(steps.parse()?);
    }
    let mode = match args.get(5).map(String::as_str) {
        Some("equal-split") => Mode::EqualSplit,
        Some("iterated") => Mode::Iterated { threshold: 0.01 },
        _ => Mode::Exact,
    };
    let config = Config {
        mode,
        verify: args.get(5).is_some_and(|a| a == "verify"),
        ..Config::default()
    };
    let start = std::time::Instant::now();
    let mut simulation = Simulation::new(&platform, Workload::Pattern(pattern), placement, config)?;
    let summary = simulation.run()?;
    let wall = start.elapsed().as_secs_f64();
    println!(
        "makespan {:.12} messages {} events {} visits {} wall {wall:.3} s {:.3} us/message",
        summary.makespan,
        summary.messages,
        summary.events,
        simulation.visits(),
        wall / summary.messages as f64 * 1e6
    );
    Ok(())
}
