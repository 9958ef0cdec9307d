//! A program over a line between two network namespaces: what the server has does not travel again,
//! and only calls that pay travel. Needs root, `ip` and `tc`; prints SKIPPED without them.

use crate::{MADE, plain};
use farcall_lab::{Lab, LabError, Quota, Shape};
use farcall_system::{Daemon, farcall_path};
use std::path::Path;
use std::process::{Command, Output};

/// A host with a program, and one with a server.
struct Line {
    lab: Lab,
    _server: Daemon,
    address: String,
}

impl Line {
    /// `None` without root.
    fn new(shape: Shape) -> Option<Line> {
        Line::within(shape, None)
    }

    /// The server has a quota of the processors.
    fn within(shape: Shape, quota: Option<&Quota>) -> Option<Line> {
        let lab = match Lab::build(&[&[0], &[0]], Some(shape)) {
            Ok(lab) => lab,
            Err(error @ (LabError::NotRoot | LabError::NoProgram(_))) => {
                println!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
        let mut command = match quota {
            Some(quota) => lab.command_within(quota, 0, farcall_path()),
            None => lab.command(0, farcall_path()),
        };
        command
            .arg("serve")
            .args(["lapack.idl", "blas.idl"].map(|file| libraries.join(file)));
        command.args(["--listen", "0.0.0.0:0", "--log", "error"]);
        let server = Daemon::start(command).unwrap();
        let host = lab.link_address(0, 0).to_string();
        Some(Line {
            address: server.address().replace("0.0.0.0", &host),
            lab,
            _server: server,
        })
    }

    fn run(&self, options: &[&str], part: &str) -> Output {
        self.run_in(self.lab.command(1, farcall_path()), options, part)
    }

    fn run_in(&self, mut command: Command, options: &[&str], part: &str) -> Output {
        command
            .args(["offload", "--stats", "--server", &self.address])
            .args(options);
        command.arg("--library").arg(MADE.library()).arg("--");
        command.arg(MADE.program()).arg(part);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), plain(&[part]));
        output
    }
}

/// The bytes of the remote calls of a routine, and their number.
fn moved(output: &Output, routine: &str) -> (u64, u64) {
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let words = lines.find(|words| words.first() == Some(&routine)).unwrap();
    (words[7].parse().unwrap(), words[2].parse().unwrap())
}

#[test]
fn factors_do_not_travel_with_each_solution() {
    let Some(line) = Line::new(Shape::FAST_ETHERNET) else {
        return;
    };
    let output = line.run(&["--always"], "factors");
    let ((factored, 2), (solved, 10)) = (moved(&output, "dgetrf"), moved(&output, "dgetrs")) else {
        panic!("{output:?}");
    };
    let matrix = 8 * 700 * 700;
    // The matrices travel there and their factors back. No solution needs the factors again.
    let call_by_call = 2 * 2 * matrix + 10 * matrix;
    assert!(solved < 10 * 20_000, "{solved}");
    assert!(
        3 * (factored + solved) < call_by_call,
        "{factored} + {solved}"
    );
}

#[test]
fn results_of_one_call_are_arguments_of_the_next() {
    let Some(line) = Line::new(Shape::FAST_ETHERNET) else {
        return;
    };
    let output = line.run(&["--always"], "cholesky");
    let matrix = 8 * 500 * 500;
    let (products, 2) = moved(&output, "dgemm") else {
        panic!("{output:?}");
    };
    // X travels once for four arguments. C travels for the second product only, and back twice.
    assert!(products <= 4 * matrix, "{products}");
    let (factors, 2) = moved(&output, "dpotrf") else {
        panic!("{output:?}");
    };
    let (solutions, 5) = moved(&output, "dpotrs") else {
        panic!("{output:?}");
    };
    assert!(factors <= 4 * matrix + 1000, "{factors}");
    assert!(solutions < matrix / 10, "{solutions}");
}

/// `make soak` runs it: it takes half a minute, and its figures need an idle machine.
#[test]
#[ignore = "needs an idle machine"]
fn over_a_gigabit_eigenvalues_go_and_products_stay() {
    let gigabit = Shape {
        rate: 1_000_000_000,
        switch_queue: 1 << 20,
        host_queue: 4 << 20,
        told: true,
    };
    // The server has four times the processors of the program, also beside other work.
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    let (quota, of_server) = match (Quota::new(0.2 * processors), Quota::new(0.8 * processors)) {
        (Ok(quota), Ok(of_server)) => (quota, of_server),
        (Err(error), _) | (_, Err(error)) => {
            println!("SKIPPED: {error}");
            return;
        }
    };
    let Some(line) = Line::within(gigabit, Some(&of_server)) else {
        return;
    };
    let program = line.lab.command_within(&quota, 1, farcall_path());
    let output = line.run_in(program, &["--auto"], "large");
    println!("{}", String::from_utf8_lossy(&output.stderr));
    // The first call of a routine shows its speed here.
    assert_eq!(moved(&output, "dsyevd").1, 2);
    assert_eq!(moved(&output, "dgemm").1, 0);
}
