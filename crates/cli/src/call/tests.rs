//! Tests of the arguments of `farcall call`. No server is asked.

use super::*;

#[test]
fn work_space_is_left_out() {
    let text = "Define f(IN int n, WORK int w, OUT int *m) Calls \"C\" f(n, w, m);";
    let interface = farcall_idl::parse_interface(text).unwrap();
    let given = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        named(&words, &interface, "NAME=VALUE")
    };
    let needed = interface.params.iter().map(needs_value);
    assert_eq!(needed.collect::<Vec<bool>>(), [true, false, false]);
    let scalars = scalars(&interface, &mut given(&["n=3"]).unwrap()).unwrap();
    assert_eq!(scalars, [Some(Scalar::Int(3)), None, None]);
    let refused = given(&["n=3", "w=0"]).unwrap_err();
    assert!(format!("{refused:?}").contains("leave it out"));
}

#[test]
fn a_scalar_that_is_too_large_is_told_its_range() {
    let text = "Define f(IN unsigned long n) Calls \"C\" f(n);";
    let interface = farcall_idl::parse_interface(text).unwrap();
    let param = &interface.params[0];
    let most = i64::MAX.to_string();
    let scalar = parse_scalar(&most, param).unwrap();
    assert_eq!(scalar, Scalar::Int(i64::MAX));
    for large in [1 << 63, u64::MAX] {
        let refused = parse_scalar(&large.to_string(), param).unwrap_err();
        assert!(
            refused.to_string().contains(&format!("0 to {most}")),
            "{refused}"
        );
    }
    let refused = parse_scalar("many", param).unwrap_err();
    assert!(!refused.to_string().contains("to"), "{refused}");
}

#[test]
fn a_result_that_is_a_file_has_no_output() {
    let text = "Define f(IN filename a, OUT filename b) Calls \"C\" f(a, b);";
    let interface = farcall_idl::parse_interface(text).unwrap();
    let refused = |word: &str| outputs(&[word.to_string()], &interface).unwrap_err();
    assert!(
        refused("b=out.csv")
            .to_string()
            .contains("b=out.csv without -o")
    );
    assert!(refused("out.csv").to_string().contains("returns no array"));
}
