//! Any text as an interface file: the parser ends without a panic, and its findings can be printed.
//! A document that is accepted prints to text that parses back.

use farcall_idl::{parse_document, parse_interface, position, render};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let parsed = parse_document(text);
    let _ = render(&parsed.diagnostics, "fuzz.idl", text, true);
    for diagnostic in &parsed.diagnostics {
        let position = position(text, diagnostic.span.start);
        assert!(position.column >= 1);
    }
    for interface in parsed.document.functions() {
        let text = interface.text();
        match parse_interface(&text) {
            Ok(again) => {
                assert_eq!(&again, interface, "{text}");
                assert_eq!(again.text(), text);
            }
            Err(error) => assert!(text.len() > data.len(), "{error}\n{text}"),
        }
        let _ = parse_interface(&interface.public_text());
    }
    if !parsed.has_errors() {
        let printed = parsed.document.to_string();
        let again = parse_document(&printed);
        if !again.has_errors() {
            assert_eq!(again.document, parsed.document, "{printed}");
        }
    }
}
