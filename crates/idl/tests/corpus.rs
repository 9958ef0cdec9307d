//! The corpus of the fuzz targets, through the same bodies.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/idl_expr.rs"]
mod idl_expr;
#[path = "../../../fuzz/src/idl_parse.rs"]
mod idl_parse;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{target} has no corpus");
}

#[test]
fn idl_parse_takes_its_corpus() {
    replay("idl_parse", idl_parse::run);
}

#[test]
fn idl_expr_takes_its_corpus() {
    replay("idl_expr", idl_expr::run);
}
