//! Tests of which functions a library has. Its text is compiled and used in
//! `testing/system/tests/offload`.

use super::*;
use farcall_idl::parse_document;

fn document(text: &str) -> Document {
    let parsed = parse_document(text);
    assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
    parsed.document
}

fn real(file: &str) -> Document {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../libraries/");
    document(&std::fs::read_to_string(format!("{folder}{file}")).unwrap())
}

#[test]
fn blas_1_and_2_stay_out_and_blas_3_and_lapack_are_in() {
    let made = text([&real("blas.idl"), &real("lapack.idl")], LEAST_INTENSITY);
    let has = |name: &str| made.covered.iter().any(|covered| covered == name);
    for name in [
        "blas/dgemm",
        "blas/ztrsm",
        "blas/cher2k",
        "lapack/dgesv",
        "lapack/zgeev",
        "lapack/dsyevr",
        "lapack/dgees",
    ] {
        assert!(has(name), "{name}");
    }
    for name in [
        "blas/daxpy",
        "blas/dgemv",
        "blas/ddot",
        "lapack/dgtsv",
        "lapack/dgecon",
    ] {
        assert!(!has(name), "{name}");
    }
    for symbol in [
        "dgesv_",
        "dgesv_64_",
        "scipy_dgesv_",
        "scipy_dgesv_64_",
        "cblas_dgemm",
    ] {
        assert!(made.c.contains(&format!("\nvoid {symbol}(")), "{symbol}");
    }
}

#[test]
fn only_real_products_by_rows_take_both_letters_of_a_transpose() {
    let made = text([&real("blas.idl")], LEAST_INTENSITY);
    let turned = |how: &str| made.c.contains(&format!("other(letter(p_trans), {how})"));
    // Of `dsyrk`, `zsyrk` and `zherk`.
    assert!(turned("'T', 1") && turned("'T', 0") && turned("'C', 0"));
    assert!(!turned("'C', 1"));
}

#[test]
fn a_library_for_tests_has_functions_that_never_pay() {
    let made = text([&real("lapack.idl")], 0.0);
    assert!(made.covered.iter().any(|name| name == "lapack/dgecon"));
    assert!(made.left_out.is_empty(), "{:?}", made.left_out);
}

#[test]
fn constants_are_arguments_of_fortran_and_unknown_to_c() {
    let cost = "CalcOrder n^3 Repeatable \"yes\"";
    let define = |calls: &str| {
        text_of(&format!(
            "Define f(IN int n, INOUT double a[n][n]) {cost} Calls {calls};"
        ))
    };
    let made = define("\"FORTRAN\" f(n, 'N', NULL, a)");
    let entry = "void f_(A p_n, A constant_1, A constant_2, A p_a, L h0) {";
    assert!(made.c.contains(entry), "{}", made.c);
    assert!(define("\"FORTRAN\" f(n, 7, a)").covered.is_empty());
    assert!(define("\"C\" f(n, 'N', a)").covered.is_empty());
}

#[test]
fn functions_that_must_not_or_cannot_go_stay_out() {
    let cost = "CalcOrder n^3 Repeatable \"yes\"";
    let define = |params: &str, rest: &str| {
        let text = format!("Define f({params}) {rest} Calls \"C\" f(n, a);");
        let made = text_of(&text);
        made.left_out.first().map(|(_, reason)| reason.clone())
    };
    let array = "IN int n, INOUT double a[n][n]";
    assert_eq!(define(array, cost), None);
    let reason = |params: &str, rest: &str| define(params, rest).unwrap_or_default();
    assert!(reason(array, "CalcOrder n^3").contains("Repeatable"));
    assert!(reason(array, "Repeatable \"yes\"").contains("CalcOrder"));
    assert!(reason(array, "CalcOrder n^2 Repeatable \"yes\"").contains("never pay"));
    assert!(reason("IN int n, IN string a[n]", cost).contains("texts"));
}

#[test]
fn a_library_says_which_names_it_has() {
    let document = document(
        "Module own;\nDefine f(IN int n, INOUT double a[n][n]) CalcOrder n^3 Repeatable \"yes\" \
         Calls \"FORTRAN\" fast(n, a);",
    );
    let made = document.functions().map(Interface::text);
    let file = made.collect::<Vec<_>>().join("\0").into_bytes();
    let padded = [&b"\x7fELF Calls \""[..], &[0xff; 300], &file, &[0; 300]].concat();
    let expected = ["fast", "own"].map(str::to_owned);
    assert_eq!(names(&padded), BTreeSet::from(expected));
    assert!(names(b"Module").is_empty());
}

fn text_of(source: &str) -> Text {
    text([&document(source)], LEAST_INTENSITY)
}

#[test]
fn a_literal_of_c_has_every_byte() {
    assert_eq!(literal("a\"b\\\n\u{e9}"), "\"a\\\"b\\\\\\n\\303\\251\"");
}
