//! Tests of the messages between server and connector. Requests that are too long are refused, and
//! no answer of a connector is trusted.

use super::*;

fn wanted(address: &str) -> SourceRequest {
    SourceRequest {
        address: address.to_string(),
        form: form_of("", Vec::new(), false),
        source: SourceOptions::default(),
        version: None,
    }
}

#[test]
fn names_of_sources_are_names_of_data() {
    for address in [
        "https://data.example.org/weather/2024/a.npy",
        "https://a/../..//x?y=1&z=%2e",
        "sqlite:/srv/db",
        "",
        "/",
        "\u{0}\n\u{202e}",
        &"x/".repeat(3000),
    ] {
        let name = wanted(address).name();
        assert_eq!(farcall_rpc_proto::check_name(&name), Ok(()), "{name}");
    }
    let one = wanted("https://a/b?x=1");
    let other = wanted("https://a/b?x=2");
    assert_ne!(one.name(), other.name());
}

#[test]
fn what_is_too_long_is_refused() {
    assert_eq!(wanted("https://a/b").check(), Ok(()));
    assert!(wanted(&"a".repeat(MOST_ADDRESS + 1)).check().is_err());
    let with = |source: SourceOptions| SourceRequest {
        source,
        ..wanted("https://a/b")
    };
    let sum = |sum: &str| {
        let sha256 = Some(sum.to_string());
        let source = SourceOptions {
            sha256,
            ..SourceOptions::default()
        };
        with(source).check().is_ok()
    };
    assert!(sum(&"0f".repeat(32)));
    assert!(!sum("0f") && !sum(&"0g".repeat(32)));
    for element in ["string", "nothing"] {
        let source = SourceOptions {
            element: Some(element.to_string()),
            ..SourceOptions::default()
        };
        assert!(with(source).check().is_err());
    }
    let columns = Some(vec!["c".to_string(); MOST_COLUMNS + 1]);
    let source = SourceOptions {
        columns,
        ..SourceOptions::default()
    };
    assert!(with(source).check().is_err());
}

#[test]
fn answers_of_a_connector_are_checked() {
    let array = |shape: &str| {
        let text = format!(
            r#"{{"array": {{"element": "double", "shape": {shape}, "column_major": false,
               "version": "7"}}}}"#
        );
        answer(text.as_bytes())
    };
    let found = SourceFound::Array {
        form: form_of("double", vec![3, 4], false),
        version: Some("7".to_string()),
    };
    assert_eq!(array("[3, 4]"), Ok(Answer::Found(found)));
    assert!(array("[4294967296, 4294967296]").is_err());
    assert!(array("[-1]").is_err());
    assert_eq!(
        answer(br#""unchanged""#),
        Ok(Answer::Found(SourceFound::Unchanged))
    );
    let failure = answer(br#"{"failure": {"kind": "missing", "message": "no\nsuch file"}}"#);
    let expected = Failure::new(FailureKind::NotFound, "no such file");
    assert_eq!(failure, Err(expected));
    for bytes in [
        &b""[..],
        b"{}",
        b"[]",
        b"\xff",
        br#"{"done": 1, "array": 2}"#,
    ] {
        assert!(answer(bytes).is_err());
    }
    assert_eq!(length(1024u32.to_be_bytes()), Ok(1024));
    assert!(length([0xff; 4]).is_err());
}
