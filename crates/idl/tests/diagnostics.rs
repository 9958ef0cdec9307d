//! The output that users see: each file in `diagnostics/` has its expected output beside it.
//!
//! `UPDATE_EXPECTED=1 cargo test -p farcall-idl --test diagnostics` writes the expected outputs.

use farcall_idl::{parse_document, render};
use std::fs;
use std::path::Path;

#[test]
fn diagnostics_are_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics");
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "idl") {
            continue;
        }
        files += 1;
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let parsed = parse_document(&text);
        let rendered = render(&parsed.diagnostics, name, &text, false);
        let expected = path.with_extension("txt");
        if update {
            fs::write(&expected, &rendered).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(rendered, expected, "{name}");
    }
    assert!(files >= 7);
}

#[test]
fn colour_appears_only_on_request() {
    let text = "Define f(IN nit n) {}";
    let parsed = parse_document(text);
    assert!(render(&parsed.diagnostics, "f.idl", text, true).contains('\x1b'));
    assert!(!render(&parsed.diagnostics, "f.idl", text, false).contains('\x1b'));
}

#[test]
fn a_file_of_another_kind_shows_few_errors() {
    let text = "$HOME\n".repeat(500);
    let parsed = parse_document(&text);
    let rendered = render(&parsed.diagnostics, "f.sh", &text, false);
    assert_eq!(rendered.matches("error: ").count(), 20);
    let rest = format!("{} more errors in f.sh\n\n", parsed.diagnostics.len() - 20);
    assert!(rendered.ends_with(&rest), "{rendered}");
}
