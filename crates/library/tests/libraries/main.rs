//! Calls every routine of `libraries/` through its interface and directly. Both must give the same
//! bits.
//!
//! The cases are in `testing/conformance/cases.json`. A rule fills the arrays.

mod direct;

use farcall_idl::{Interface, Mode, Param, Scalar, Type};
use farcall_library::{Binding, Catalog, check_files};
use farcall_random::SplitMix64;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Memory like a call buffer: 64-byte aligned, zero.
#[repr(C, align(64))]
#[derive(Clone, Copy, PartialEq, Debug)]
struct Line([u8; 64]);

fn buffer(bytes: u64) -> Vec<Line> {
    vec![Line([0; 64]); bytes.div_ceil(64) as usize]
}

fn bytes(buffer: &mut [Line]) -> &mut [u8] {
    // SAFETY: lines are arrays of bytes without padding.
    unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), buffer.len() * 64) }
}

/// Makes the library use one thread, and so the same code path on every machine.
fn one_thread() {
    static ONCE: Once = Once::new();
    // SAFETY: before any other thread of this test reads the environment.
    ONCE.call_once(|| unsafe { std::env::set_var("OPENBLAS_NUM_THREADS", "1") });
}

fn scalar(param: &Param, value: &Value) -> Scalar {
    let scalar = match value {
        Value::String(text) => Scalar::Text(text.clone()),
        Value::Array(parts) => Scalar::Complex {
            re: parts[0].as_f64().unwrap(),
            im: parts[1].as_f64().unwrap(),
        },
        Value::Number(number) if number.is_f64() => Scalar::Float(number.as_f64().unwrap()),
        other => Scalar::Int(other.as_i64().unwrap()),
    };
    scalar.convert(param).unwrap()
}

fn scalars(interface: &Interface, case: &Value) -> Vec<Option<Scalar>> {
    let value = |param: &Param| {
        let given = case.get(&param.name);
        assert!(
            given.is_some() || !param.is_scalar(),
            "{}: no {}",
            interface.name,
            param.name
        );
        param.is_scalar().then(|| scalar(param, given.unwrap()))
    };
    interface.params.iter().map(value).collect()
}

/// Fills the arrays with numbers in [-1, 1). Matrices get a dominant diagonal, so that systems can
/// be solved. Integers count from 1, so that they are valid pivots. A case may say how an array
/// begins.
fn fill(interface: &Interface, case: &Value, layout: &farcall_idl::Layout, buffer: &mut [u8]) {
    let mut random = SplitMix64::new(1);
    let mut random = || 2.0 * random.unit() - 1.0;
    for array in layout.arrays.iter().filter(|array| array.mode.is_sent()) {
        let size = array.element_bytes as usize;
        let leading = array.axes.last().unwrap().size as usize;
        let name = interface.params[array.param].name.as_str();
        let first = case[name].as_array().map_or(&[][..], Vec::as_slice);
        let is_upper = case["uplo"] == "U";
        // The diagonal of a triangular band matrix is its first or its last row.
        let band = ["kd", if name == "bb" { "kb" } else { "ka" }];
        let band = band.iter().find_map(|count| case[count].as_u64());
        let row = band.filter(|_| is_upper).unwrap_or(0) as usize;
        let packed = match (name, array.axes.len()) {
            _ if case["uplo"].is_null() => Vec::new(),
            ("a" | "ap" | "afp" | "bp" | "arf", 1) => packed_diagonal(leading, case),
            _ => Vec::new(),
        };
        let is_heavy = |index: usize| match (name, array.axes.len()) {
            ("a" | "b" | "af" | "t", 2) => index / leading == index % leading,
            ("ab" | "bb" | "afb", 2) => index % leading == row,
            ("d" | "df", 1) => true,
            _ => packed.contains(&index),
        };
        let target = &mut buffer[array.offset as usize..][..array.bytes as usize];
        for (index, element) in target.chunks_exact_mut(size).enumerate() {
            let given = first.get(index).map(|value| value.as_f64().unwrap());
            let (re, im) = (random() + 20.0 * f64::from(is_heavy(index)), random());
            let re = given.unwrap_or(re);
            // The triangle of a pair has a real diagonal.
            let im = if name == "p" || given.is_some() {
                0.0
            } else {
                im
            };
            match array.element {
                Type::Char => element[0] = b'N',
                Type::Int => {
                    let value = given.map_or(index as i32 + 1, |value| value as i32);
                    element.copy_from_slice(&value.to_ne_bytes());
                }
                Type::Float => element.copy_from_slice(&(re as f32).to_ne_bytes()),
                Type::Double => element.copy_from_slice(&re.to_ne_bytes()),
                Type::SComplex => {
                    element[..4].copy_from_slice(&(re as f32).to_ne_bytes());
                    element[4..].copy_from_slice(&(im as f32).to_ne_bytes());
                }
                Type::DComplex => {
                    element[..8].copy_from_slice(&re.to_ne_bytes());
                    element[8..].copy_from_slice(&im.to_ne_bytes());
                }
                other => panic!("no rule for {}", other.name()),
            }
        }
    }
}

/// Where the diagonal of a matrix of so many elements is in packed storage or, if there is a
/// TRANSR, in rectangular full packed form, of which rows are columns unless TRANSR is N.
fn packed_diagonal(size: usize, case: &Value) -> Vec<usize> {
    let n = (2 * size).isqrt();
    let is_upper = case["uplo"] == "U";
    let Some(form) = case["transr"].as_str() else {
        let upper = |j: usize| j * (j + 3) / 2;
        let lower = |j: usize| j * (2 * n + 1 - j) / 2;
        return (0..n)
            .map(|j| if is_upper { upper(j) } else { lower(j) })
            .collect();
    };
    let (odd, half) = (n % 2, n / 2);
    // Two triangles share the rectangle.
    let (order, first, second, column) = match is_upper {
        true => (half, half + 1, half, 0),
        false => (n - half, 1 - odd, 0, odd),
    };
    let places = (0..order).map(|k| (first + k, k));
    let places = places.chain((0..n - order).map(|k| (second + k, column + k)));
    let (rows, columns) = (n + 1 - odd, n.div_ceil(2));
    let index = |(row, column)| match form {
        "N" => row + column * rows,
        _ => column + row * columns,
    };
    places.map(index).collect()
}

/// Calls every case of a library in both forms and returns the number of routines.
fn compare(library: &str) -> usize {
    one_thread();
    let path = root().join("libraries").join(format!("{library}.idl"));
    let catalog = Catalog::load([path]).unwrap();
    let (source, document) = catalog.files().next().unwrap();
    let binding = match Binding::load(document, source.folder(), None) {
        Ok(binding) => binding,
        Err(error) => {
            println!("SKIPPED: {library}.idl is not tested: {error}");
            return 0;
        }
    };
    let cases = std::fs::read_to_string(root().join("testing/conformance/cases.json")).unwrap();
    let cases: Value = serde_json::from_str(&cases).unwrap();
    for (entry, interface) in catalog.entries() {
        let listed = cases[library][&interface.name].as_array();
        let listed = listed.unwrap_or_else(|| panic!("{}: no cases", interface.name));
        assert!(!listed.is_empty(), "{}: no cases", interface.name);
        for case in listed {
            let scalars = scalars(interface, case);
            let elements = vec![];
            let layout = interface
                .layout(&scalars, &elements)
                .unwrap_or_else(|error| panic!("{} {case}: {error}", interface.name));
            assert!(layout.cost.is_some(), "{} {case}: no cost", interface.name);
            let mut through = buffer(layout.bytes);
            fill(interface, case, &layout, bytes(&mut through));
            let before = through.clone();
            let mut direct = through.clone();
            let base: *mut u8 = through.as_mut_ptr().cast();
            let starts: Vec<*mut u8> = (layout.arrays.iter())
                .map(|array| base.wrapping_add(array.offset as usize))
                .collect();
            // SAFETY: the layout is that of the call, the buffer has its size, and the libraries
            // keep to their interfaces.
            unsafe {
                binding
                    .invoke(entry.function, &scalars, &layout, &starts, &mut |_| {
                        panic!("called back")
                    })
                    .unwrap();
                direct::call(
                    document,
                    source.folder(),
                    interface,
                    &scalars,
                    &layout,
                    &mut direct,
                );
            }
            check(interface, case, &layout, &mut through, &mut direct);
            let nothing = layout.returned_bytes() == 0 || case.get("n") == Some(&Value::from(0));
            // It moves the first eigenvalue to the first place.
            let nothing = nothing || interface.name.ends_with("trexc");
            assert!(
                nothing || before != through,
                "{} {case}: nothing happened",
                interface.name
            );
        }
    }
    catalog.entries().count()
}

fn check(
    interface: &Interface,
    case: &Value,
    layout: &farcall_idl::Layout,
    through: &mut [Line],
    direct: &mut [Line],
) {
    let (through, direct) = (bytes(through), bytes(direct));
    for array in layout
        .arrays
        .iter()
        .filter(|array| array.mode != Mode::Work)
    {
        let range = array.offset as usize..(array.offset + array.bytes) as usize;
        let name = &interface.params[array.param].name;
        let place = format!("{} {case}: {name} differs", interface.name);
        assert!(through[range.clone()] == direct[range.clone()], "{place}");
        if name == "info" {
            let info = i32::from_ne_bytes(through[range].try_into().unwrap());
            assert_eq!(info, 0, "{} {case}: info", interface.name);
        }
    }
}

#[test]
fn blas_gives_the_same_bits() {
    let routines = compare("blas");
    assert!(routines == 0 || routines == 146);
}

#[test]
fn lapack_gives_the_same_bits() {
    let routines = compare("lapack");
    assert!(routines == 0 || routines == 1146);
}

#[test]
fn fft_gives_the_same_bits() {
    let made = Command::new("make")
        .arg("-sC")
        .arg(root().join("libraries"))
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED: fft.idl is not tested: its shim cannot be built (libfftw3-dev?)");
        return;
    }
    assert_eq!(compare("fft"), 14);
}

#[test]
fn all_files_are_accepted_without_a_finding() {
    let names = [
        "libraries/blas",
        "libraries/lapack",
        "libraries/fft",
        "libraries/linalg",
        "libraries/bench",
    ];
    let names = names
        .into_iter()
        .chain(["testing/faults/faults", "testing/faults/stop"]);
    let files = names.map(|name| root().join(format!("{name}.idl")));
    let (text, accepted) = check_files(files, &[], false);
    assert!(
        accepted && text.matches("0 errors, 0 warnings").count() == 7,
        "{text}"
    );
}

#[test]
fn generated_files_are_not_stale() {
    let script = root().join("libraries/generate.py");
    match Command::new("python3").arg(script).arg("--check").output() {
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
        Err(error) => println!("SKIPPED: staleness is not tested: python3: {error}"),
    }
}

#[test]
fn small_problems_compute_on_one_element_and_large_ones_on_more() {
    let catalog = |file: &str| Catalog::load([root().join("libraries").join(file)]).unwrap();
    let (lapack, blas) = (catalog("lapack.idl"), catalog("blas.idl"));
    let elements = |catalog: &Catalog, name: &str, scalars: Value| {
        let mut entries = catalog.entries();
        let (_, interface) = entries.find(|(_, one)| one.name == name).unwrap();
        let layout = interface
            .layout(&self::scalars(interface, &scalars), &[])
            .unwrap();
        (layout.fewest_elements, layout.processor_elements)
    };
    for (n, most) in [(0, 1), (100, 1), (1199, 1), (1200, 2), (6000, 6)] {
        let scalars = serde_json::json!({ "n": n, "nrhs": 1, "lda": n, "ldb": n });
        assert_eq!(
            elements(&lapack, "dgesv", scalars),
            (Some(1), Some(most)),
            "{n}"
        );
    }
    // A long and narrow matrix gains nothing from more elements, however much work it is.
    let narrow = serde_json::json!({ "m": 1_000_000, "n": 50, "lda": 1_000_000, "lwork": 3200 });
    assert_eq!(elements(&lapack, "dgeqrf", narrow), (Some(1), Some(1)));
    // If threads do not help, the operator decides.
    let dot = serde_json::json!({ "n": 1000, "incx": 1, "incy": 1 });
    assert_eq!(elements(&blas, "ddot", dot), (None, None));
}
