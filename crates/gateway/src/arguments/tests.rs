//! What JSON can be the arguments of a call, and what a call gives back. No server is needed: the
//! interfaces are written here, and a call is a function on bytes.

use super::*;
use crate::openapi;
use serde_json::{Value as Json, json};

const GESV: &str = "Module lapack; Define dgesv(IN int n, IN int nrhs, INOUT double a[n][lda:n], \
    IN int lda, OUT int ipiv[n], INOUT double b[nrhs][ldb:n], IN int ldb, OUT int info[1]) \
    \"Solve\" Calls \"FORTRAN\" dgesv(n, nrhs, a, lda, ipiv, b, ldb, info);";

fn interface(text: &str) -> Interface {
    let parsed = farcall_idl::parse_document(text);
    assert!(!parsed.has_errors(), "{text}: {:?}", parsed.diagnostics);
    parsed.document.into_functions().remove(0)
}

fn of(params: &str) -> Interface {
    interface(&format!("Define f({params}) Calls \"C\" f();"))
}

const MOST: u64 = 1 << 20;

fn call(interface: &Interface, body: &Json) -> Result<BTreeMap<usize, Vec<u8>>, String> {
    read(interface, &body.to_string()).map(|(_, arrays)| arrays)
}

fn read(interface: &Interface, body: &str) -> Result<(Layout, BTreeMap<usize, Vec<u8>>), String> {
    let read = || {
        let arguments = Arguments::read(interface, body.as_bytes())?;
        let elements = arguments.elements(interface)?;
        let layout = interface.layout(&arguments.scalars, &elements);
        let layout = layout.map_err(|error| Misfit::Argument(error.to_string()))?;
        let arrays = arguments.fit(interface, &layout, MOST)?;
        Ok((layout, arrays))
    };
    read().map_err(|misfit: Misfit| misfit.to_string())
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let parts = bytes.chunks_exact(8);
    parts
        .map(|part| f64::from_ne_bytes(part.try_into().unwrap()))
        .collect()
}

#[test]
fn a_matrix_has_its_rows_first_in_every_form() {
    let gesv = interface(GESV);
    let columns = [1.0, 3.0, 2.0, 4.0];
    let bytes: Vec<u8> = [1.0, 2.0, 3.0, 4.0f64]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    use base64::Engine as _;
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    for a in [
        json!([[1, 2], [3, 4]]),
        json!({ "shape": [2, 2], "values": [1, 2.0, 3, 4e0] }),
        json!({ "shape": [2, 2], "values": [[1, 2], [3, 4]] }),
        json!({ "shape": [2, 2], "values": [1, 3, 2, 4], "fortran_order": true }),
        json!({ "shape": [2, 2], "dtype": "<f8", "data": data }),
    ] {
        let body = json!({
            "n": 2, "nrhs": 1, "a": a, "lda": 2, "b": [[5], [6]], "ldb": 2,
        });
        let (layout, arrays) = read(&gesv, &body.to_string()).unwrap();
        assert_eq!(doubles(&arrays[&2]), columns, "{body}");
        assert_eq!(doubles(&arrays[&5]), [5.0, 6.0]);
        let shown = results(&gesv, &layout, &arrays, false);
        let shown: Json = serde_json::from_slice(&shown).unwrap();
        let expected = json!({
            "a": [[1.0, 2.0], [3.0, 4.0]], "ipiv": [0, 0], "b": [[5.0], [6.0]], "info": [0],
        });
        assert_eq!(shown, expected);
        // What comes back as base64 can be an argument again.
        let shown = results(&gesv, &layout, &arrays, true);
        let shown: Json = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown["a"]["data"], data);
        let again = json!({
            "n": 2, "nrhs": 1, "a": shown["a"], "lda": 2, "b": shown["b"], "ldb": 2,
        });
        assert_eq!(call(&gesv, &again).unwrap(), arrays);
    }
}

#[test]
fn every_type_of_an_element_travels_there_and_back() {
    for (ty, values) in [
        ("char", json!([-128, 127])),
        ("unsigned char", json!([0, 255])),
        ("short", json!([-32768, 32767])),
        ("unsigned long", json!([0, u64::MAX])),
        ("longlong", json!([i64::MIN, i64::MAX])),
        ("float", json!([0.5, "NaN"])),
        ("double", json!([0.1, "-Infinity"])),
        ("scomplex", json!([[0.5, -1.0], [0.0, "Infinity"]])),
        ("dcomplex", json!([[0.1, -1.0], [0.0, 2.0]])),
    ] {
        let f = of(&format!("INOUT {ty} x[2]"));
        let (layout, arrays) = read(&f, &json!({ "x": values }).to_string()).unwrap();
        for is_binary in [false, true] {
            let shown = results(&f, &layout, &arrays, is_binary);
            let shown: Json = serde_json::from_slice(&shown).unwrap();
            assert!(is_binary || shown["x"] == values, "{ty}: {shown}");
            assert_eq!(call(&f, &shown).unwrap(), arrays, "{ty}");
        }
    }
}

#[test]
fn scalars_and_texts_are_of_their_types() {
    let f = of("IN int n, IN double x, IN dcomplex z, IN char c, IN string s, IN string t[2]");
    let body = json!({
        "n": 3.0, "x": 1, "z": [1, -2.5], "c": "U", "s": "\u{e4}\u{1F600}", "t": ["a", "b"],
    });
    let arguments = Arguments::read(&f, body.to_string().as_bytes()).unwrap();
    let expected = [
        Scalar::Int(3),
        Scalar::Float(1.0),
        Scalar::Complex { re: 1.0, im: -2.5 },
        Scalar::Text("U".into()),
        Scalar::Text("\u{e4}\u{1F600}".into()),
        Scalar::Texts(vec!["a".into(), "b".into()]),
    ];
    assert_eq!(arguments.scalars, expected.map(Some));
    let f = of("IN int n, INOUT string[4] x[n]");
    let (layout, arrays) = read(&f, r#"{"n": 2, "x": ["ab", "cde"]}"#).unwrap();
    let shown = results(&f, &layout, &arrays, false);
    assert_eq!(shown, br#"{"x":["ab","cde"]}"#);
}

#[test]
fn texts_in_lists_of_lists_have_the_declared_shape() {
    for ty in ["string", "string[4]"] {
        let f = of(&format!("IN int n, IN int m, IN {ty} a[n][m]"));
        let given = |a: &Json| call(&f, &json!({ "n": 2, "m": 3, "a": a }));
        for a in [
            json!([["a", "b", "c"], ["d", "e", "f"]]),
            json!(["a", "b", "c", "d", "e", "f"]),
        ] {
            assert!(given(&a).is_ok(), "{ty}: {a}");
        }
        for (a, said) in [
            (
                json!([["a", "b"], ["c", "d"], ["e", "f"]]),
                "argument `a`: expected shape [2, 3], given shape [3, 2]",
            ),
            (
                json!([["a", "b", "c", "d"], ["e", "f"]]),
                "argument `a`: the lists have different lengths",
            ),
            (
                json!([["a", "b", "c", "d", "e"], "f"]),
                "argument `a`: a list mixes texts and lists",
            ),
            (
                json!(["a", "b", "c", "d", "e", "f", []]),
                "argument `a`: expected lists of equal length",
            ),
        ] {
            let error = given(&a).unwrap_err();
            assert!(error.contains(said), "{ty}: {a}: {error}");
        }
    }
}

#[test]
fn texts_are_bounded_while_they_are_read() {
    let f = of("IN int n, IN string a[n]");
    let read = |count: usize| {
        let texts = vec![""; count];
        let body = json!({ "n": count, "a": texts }).to_string();
        Arguments::read(&f, body.as_bytes()).map(drop)
    };
    assert_eq!(read(MOST_TEXTS), Ok(()));
    let error = read(MOST_TEXTS + 1).unwrap_err().to_string();
    let said = "argument `a`: an array has at most 16384 texts";
    assert!(error.contains(said), "{error}");
}

#[test]
fn a_text_of_one_nul_is_no_null_pointer() {
    let f = of("IN string s, IN string t[2], IN char c");
    for (name, value) in [("s", json!("\0")), ("t", json!(["a", "\0"]))] {
        let body = json!({ name: value }).to_string();
        let error = Arguments::read(&f, body.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("without NUL"), "{error}");
    }
    let body = json!({ "s": "", "t": ["", "a"], "c": "\0" }).to_string();
    assert!(Arguments::read(&f, body.as_bytes()).is_ok());
}

#[test]
fn a_large_whole_number_keeps_its_digits_or_is_refused() {
    let f = of("IN double x");
    let scalar = |text: &str| {
        let arguments = Arguments::read(&f, text.as_bytes());
        arguments.map(|arguments| arguments.scalars[0].clone())
    };
    let exact = Scalar::Float(2f64.powi(63));
    assert_eq!(scalar(r#"{"x": 9223372036854775808}"#), Ok(Some(exact)));
    for value in [
        "9007199254740993",
        "9223372036854775809",
        "18446744073709551615",
    ] {
        assert!(scalar(&format!(r#"{{"x": {value}}}"#)).is_err(), "{value}");
    }
}

#[test]
fn a_decimal_number_becomes_the_nearest_one() {
    let f = of("IN double x, IN double a[1]");
    for text in ["0.9452706955539223", "0.38120423768821243", "1.7e-308"] {
        let value: f64 = text.parse().unwrap();
        let body = format!(r#"{{"x": {text}, "a": [{text}]}}"#);
        let arguments = Arguments::read(&f, body.as_bytes()).unwrap();
        assert_eq!(arguments.scalars[0], Some(Scalar::Float(value)));
        assert_eq!(doubles(&arguments.arrays[&1]), [value]);
    }
}

#[test]
fn every_error_names_its_argument_once() {
    let f = of("IN double x, IN int a[1], IN double b[1]");
    for (name, value) in [
        ("a", "[1.5]"),
        ("a", "[\"one\"]"),
        ("a", "[[1], 2]"),
        ("a", "[1e400]"),
        ("a", r#"{"shape": "one", "values": [1]}"#),
        ("a", r#"{"shape": [1], "dtype": "<i4", "data": "%"}"#),
        ("b", "[9007199254740993]"),
        ("x", "null"),
        ("x", "9007199254740993"),
    ] {
        let text = format!(r#"{{"{name}": {value}}}"#);
        let error = Arguments::read(&f, text.as_bytes())
            .unwrap_err()
            .to_string();
        let named = error.matches(&format!("argument `{name}`")).count();
        assert_eq!(named, 1, "{value}: {error}");
        assert_eq!(
            error.matches(" at line 1 column ").count(),
            1,
            "{value}: {error}"
        );
    }
}

#[test]
fn the_parts_of_a_complex_scalar_are_as_those_of_an_element() {
    let f = of("IN dcomplex z");
    let read = |z: &str| {
        let arguments = Arguments::read(&f, format!(r#"{{"z": {z}}}"#).as_bytes());
        arguments.map(|arguments| arguments.scalars[0].clone())
    };
    let re = f64::INFINITY;
    let infinite = Scalar::Complex { re, im: 2.0 };
    assert_eq!(read(r#"["Infinity", 2]"#), Ok(Some(infinite)));
    for z in [
        "[9007199254740993, 0]",
        "[0, 18446744073709551615]",
        r#"["1", 0]"#,
        "[[1, 2], 0]",
        "[1]",
        "[1, 2, 3]",
    ] {
        let error = read(z).unwrap_err().to_string();
        assert!(error.contains("argument `z`"), "{z}: {error}");
    }
}

#[test]
fn lists_in_lists_beside_a_shape_have_it_by_rows() {
    let gesv = interface(GESV);
    for a in [
        json!({ "shape": [1, 1], "values": [[4]], "fortran_order": true }),
        json!({ "shape": [1, 2], "values": [[1], [2]] }),
    ] {
        let body = json!({ "n": 1, "nrhs": 1, "a": a, "lda": 1, "b": [[2]], "ldb": 1 });
        let error = call(&gesv, &body).unwrap_err();
        assert!(error.contains("`values` needs a flat list"), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let gesv = interface(GESV);
    let good = json!({ "n": 1, "nrhs": 1, "a": [[4]], "lda": 1, "b": [[2]], "ldb": 1 });
    assert!(call(&gesv, &good).is_ok());
    for (name, value, said) in [
        (
            "a",
            json!([[1, 2]]),
            "argument `a`: expected shape [1, 1], given shape [1, 2]",
        ),
        (
            "a",
            json!([[1], [2, 3]]),
            "the lists have different lengths",
        ),
        ("a", json!([[1], 2]), "a list mixes numbers and lists"),
        (
            "a",
            json!("data:secret"),
            "invalid type: string \"data:secret\", expected for argument",
        ),
        (
            "a",
            json!({ "shape": [1] }),
            "an object needs `shape` and `values`",
        ),
        (
            "a",
            json!({ "shape": [2], "values": [1] }),
            "the number of elements is not that of",
        ),
        ("a", json!({ "handle": 1 }), "an array has no `handle`"),
        (
            "a",
            json!({ "shape": [1], "dtype": "O", "data": "" }),
            "`O` is not a type of numbers of NumPy",
        ),
        (
            "a",
            json!({ "shape": [1], "dtype": "<f8", "data": "%" }),
            "`data`: ",
        ),
        ("n", json!(1.5), "`n`: expected int"),
        ("n", json!(1u64 << 40), "`n`: expected int"),
        (
            "n",
            json!([1]),
            "invalid type: sequence, expected for argument `n` (int) a number",
        ),
        ("n", json!(-1), "array `a`"),
        ("lda", json!(0), "argument `lda` is 0, expected at least 1"),
        (
            "lda",
            json!(1_000_000),
            "bytes, and this gateway allows 1048576",
        ),
        (
            "nrh",
            json!(1),
            "there is no argument `nrh`; did you mean `nrhs`?",
        ),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let error = call(&gesv, &body).unwrap_err();
        assert!(error.contains(said), "{body}: {error}");
    }
}

#[test]
fn a_text_that_is_not_an_object_of_arguments_is_refused() {
    let gesv = interface(GESV);
    for (text, said) in [
        ("", "EOF while parsing"),
        ("[]", "expected an object with the arguments by name"),
        (
            "{}",
            "arguments `n`, `nrhs`, `a`, `lda`, `b`, `ldb` are missing",
        ),
        ("{\"n\": 1, \"n\": 1}", "argument `n` is given twice"),
        (
            "{\"a\": {\"shape\": [1], \"values\": [1], \"values\": [2]}}",
            "argument `a`: `values` is given twice",
        ),
        (
            "{\"a\": {\"fortran_order\": false, \"fortran_order\": true}}",
            "argument `a`: `fortran_order` is given twice",
        ),
        ("{\"n\": 1} x", "trailing characters"),
    ] {
        let error = read(&gesv, text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(100), "]".repeat(100));
    assert!(
        read(&gesv, &deep)
            .unwrap_err()
            .contains("the lists are too deep")
    );
    let f = of("IN int x[1]");
    let error = call(&f, &json!({ "x": [1.5] })).unwrap_err();
    assert!(error.contains("its values do not fit int"), "{error}");
    assert!(call(&of("IN float x[1]"), &json!({ "x": [1e300] })).is_err());
}

#[test]
fn an_array_without_elements_has_few_lists() {
    for (order, n, m, lists) in [
        ("n][m", 3_u64, 0_u64, 3),
        ("n][m", 1 << 20, 0, 1 << 20),
        ("n][m", 0, 1 << 40, 0),
        ("m][n", 1 << 40, 0, 0),
        ("n][n][m", 1 << 9, 0, (1 << 9) + (1 << 18)),
        ("n][m", 3_000_000_000, 0, 3_000_000_000),
        ("n][n][m", 1 << 30, 0, (1 << 30) + (1 << 60)),
    ] {
        let f = of(&format!("IN long n, IN long m, OUT double a[{order}]"));
        let given = call(&f, &json!({ "n": n, "m": m }));
        match lists {
            0..=MOST => assert_eq!(given.unwrap()[&2].len(), 0),
            _ => {
                let said = format!("have {lists} empty lists in JSON");
                assert!(given.unwrap_err().contains(&said), "{order}");
            }
        }
    }
    // What is not returned is not written.
    let f = of("IN long n, IN long m, IN double a[n][m]");
    let a = json!({ "shape": [3_000_000_000_u64, 0], "values": [] });
    call(&f, &json!({ "n": 3_000_000_000_u64, "m": 0, "a": a })).unwrap();
}

#[test]
fn work_space_is_no_argument() {
    let interface = of("IN int n, WORK int w, WORK double x[n], OUT double y[n]");
    let arrays = call(&interface, &json!({ "n": 3 })).unwrap();
    assert_eq!(arrays[&3].len(), 24);
    let document = openapi([&interface]);
    let post = &document["paths"]["/v1/call/f"]["post"];
    let taken = &post["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(taken["required"], json!(["n"]));
}

#[test]
fn functions_that_json_cannot_carry_are_named() {
    for (params, what) in [
        ("IN filename table", "takes files"),
        ("IN int n, OUT filename table", "takes files"),
    ] {
        let error = carried(&of(params)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let mut method = of("IN int n");
    method.class = Some("Solver".into());
    assert!(carried(&method).is_err());
    assert_eq!(carried(&interface(GESV)), Ok(()));
}

#[test]
fn the_description_has_each_function_with_its_types() {
    let (gesv, table) = (interface(GESV), of("IN filename table"));
    let document = openapi([&gesv, &table]);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/v1/call/lapack/dgesv", "/v1/functions"]);
    let post = &document["paths"]["/v1/call/lapack/dgesv"]["post"];
    let taken = &post["requestBody"]["content"]["application/json"]["schema"];
    assert_eq!(
        taken["required"],
        json!(["n", "nrhs", "a", "lda", "b", "ldb"])
    );
    let range = (i32::MIN, i32::MAX);
    let n = json!({ "type": "integer", "minimum": range.0, "maximum": range.1 });
    assert_eq!(taken["properties"]["n"], n);
    let a = &taken["properties"]["a"];
    assert_eq!(a["description"], "double, shape (lda, n)");
    assert_eq!(
        a["anyOf"][0]["items"]["items"]["$ref"],
        "#/components/schemas/Real"
    );
    let given = &post["responses"]["200"]["content"]["application/json"]["schema"];
    assert_eq!(given["required"], json!(["a", "ipiv", "b", "info"]));
}

#[test]
fn the_description_of_texts_has_their_number() {
    for convention in ["C", "FORTRAN"] {
        let text = format!("Define f(IN int n, IN string[8] a[n]) Calls \"{convention}\" f(n, a);");
        let document = openapi([&interface(&text)]);
        let post = &document["paths"]["/v1/call/f"]["post"];
        let taken = &post["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(taken["properties"]["a"]["description"], "string, shape (n)");
    }
}
