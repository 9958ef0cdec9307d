//! A program over a line of 100 Mbit/s between two network namespaces: what the server has does not
//! travel again. Needs root, `ip` and `tc`; prints SKIPPED without them.

use crate::{MADE, plain};
use farcall_lab::{Lab, LabError, Shape};
use farcall_system::{Daemon, farcall_path};
use std::path::Path;
use std::process::Output;

/// A host with a program, and one with a server.
struct Line {
    lab: Lab,
    _server: Daemon,
    address: String,
}

impl Line {
    /// `None` without root.
    fn new() -> Option<Line> {
        let lab = match Lab::build(&[&[0], &[0]], Some(Shape::FAST_ETHERNET)) {
            Ok(lab) => lab,
            Err(error @ (LabError::NotRoot | LabError::NoProgram(_))) => {
                println!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
        let mut command = lab.command(0, farcall_path());
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
        let mut command = self.lab.command(1, farcall_path());
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
    let Some(line) = Line::new() else { return };
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
    let Some(line) = Line::new() else { return };
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
