//! Tests of `farcall idl show --json`, which prints interfaces as data. No server runs.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn an_interface_is_data_with_ranges_and_its_call() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_farcall"))
        .args(["idl", "show", "--json", "libraries/lapack.idl"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success());
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["module"], "lapack");
    assert_eq!(
        shown["libraries"],
        json!([{ "library": "libopenblas.so.0" }])
    );
    let functions = shown["functions"].as_array().unwrap();
    let dgesv = functions
        .iter()
        .find(|function| function["name"] == "lapack/dgesv");
    let dgesv = dgesv.unwrap();
    let call = json!({
        "convention": "FORTRAN",
        "function": "dgesv",
        "arguments": ["n", "nrhs", "a", "lda", "ipiv", "b", "ldb", "info"],
        "returns": null,
    });
    assert_eq!(dgesv["calls"], call);
    assert_eq!(dgesv["repeatable"], true);
    assert_eq!(dgesv["processor_elements"]["most"], "1 + n / 1200");
    let a = &dgesv["parameters"][2];
    assert_eq!((&a["name"], &a["mode"]), (&json!("a"), &json!("INOUT")));
    assert_eq!(a["dimensions"], json!(["n", "lda"]));
    let range = json!({ "start": null, "end": "n", "step": null });
    assert_eq!(a["ranges"], json!([null, range]));
}
