//! Tests of the layout of calls: which bytes of each array travel, and where they are. Wrong
//! scalars and sizes get an error that names the array, the dimension and the expression.

use super::*;
use crate::{Body, Convention, ElementRef, Op, Range};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

fn op(op: Op) -> Expr {
    Expr::new(vec![op]).unwrap()
}

fn scalar(name: &str, ty: Type) -> Param {
    array(name, Mode::In, ty, vec![])
}

fn array(name: &str, mode: Mode, ty: Type, dims: Vec<Dim>) -> Param {
    Param {
        name: name.to_string(),
        mode,
        allocate: false,
        count: None,
        broadcast: false,
        ty,
        dims,
    }
}

fn dim(size: Op) -> Dim {
    Dim {
        size: op(size),
        range: None,
    }
}

fn upto(size: Op, end: Op) -> Dim {
    Dim {
        size: op(size),
        range: Some(Range {
            start: None,
            end: op(end),
            step: None,
        }),
    }
}

fn interface(params: Vec<Param>) -> Interface {
    let args = (0..params.len()).map(crate::Passed::Param).collect();
    Interface {
        class: None,
        module: Some("lapack".to_string()),
        name: "f".to_string(),
        description: None,
        params,
        callbacks: vec![],
        required: vec![],
        backend: None,
        shrink: false,
        language: None,
        calc_order: None,
        comm_order: None,
        processor_elements: None,
        fewest_elements: None,
        gpus: 0,
        repeatable: false,
        release: None,
        element_refs: vec![],
        body: Body::Calls {
            convention: Convention::Fortran,
            function: "f".to_string(),
            args,
            returns: None,
        },
    }
}

/// The interface `n, lda, a[n][lda:n], info[1]`.
fn matrix() -> Interface {
    interface(vec![
        scalar("n", Type::Int),
        scalar("lda", Type::Int),
        array(
            "a",
            Mode::InOut,
            Type::Double,
            vec![dim(Op::Param(0)), upto(Op::Param(1), Op::Param(0))],
        ),
        array("info", Mode::Out, Type::Int, vec![dim(Op::Const(1))]),
    ])
}

fn ints(values: &[i64], params: usize) -> Vec<Option<Scalar>> {
    let mut scalars: Vec<_> = values
        .iter()
        .map(|value| Some(Scalar::Int(*value)))
        .collect();
    scalars.resize(params, None);
    scalars
}

fn runs(runs: Runs) -> Vec<(u64, u64)> {
    runs.map(|run| (run.offset, run.len)).collect()
}

#[test]
fn a_full_section_is_one_run() {
    let layout = matrix().layout(&ints(&[3, 3], 4), &[]).unwrap();
    let a = &layout.arrays[0];
    assert_eq!(
        (a.offset, a.bytes, a.client_bytes, a.wire_bytes),
        (0, 72, 72, 72)
    );
    assert_eq!(runs(a.client_runs()), [(0, 72)]);
    let info = &layout.arrays[1];
    assert_eq!((info.offset, info.bytes), (192, 4));
    assert_eq!(runs(info.buffer_runs()), [(192, 4)]);
    assert_eq!(layout.bytes, 256);
    assert_eq!((layout.sent_bytes(), layout.returned_bytes()), (72, 76));
}

#[test]
fn only_the_section_travels_and_it_keeps_its_place() {
    let layout = matrix().layout(&ints(&[2, 5], 4), &[]).unwrap();
    let a = &layout.arrays[0];
    assert_eq!((a.bytes, a.client_bytes, a.wire_bytes), (80, 80, 32));
    assert_eq!(runs(a.client_runs()), [(0, 16), (40, 16)]);
    assert_eq!(runs(a.buffer_runs()), [(0, 16), (40, 16)]);
    assert_eq!(a.shape(Order::ColumnMajor), [5, 2]);
    assert_eq!(a.shape(Order::RowMajor), [2, 5]);
}

#[test]
fn shrink_keeps_the_section_in_its_place() {
    let mut interface = matrix();
    interface.shrink = true;
    let layout = interface.layout(&ints(&[2, 5], 4), &[]).unwrap();
    let a = &layout.arrays[0];
    assert_eq!((a.bytes, a.client_bytes, a.wire_bytes), (80, 80, 32));
    assert_eq!(runs(a.client_runs()), [(0, 16), (40, 16)]);
    assert_eq!(runs(a.buffer_runs()), [(0, 16), (40, 16)]);
    assert!(a.is_shrunk);
    let whole = interface.layout(&ints(&[5, 5], 4), &[]).unwrap();
    assert!(!whole.arrays[0].is_shrunk && !layout.arrays[1].is_shrunk);
}

#[test]
fn an_end_of_zero_is_the_size() {
    let layout = matrix().layout(&ints(&[0, 5], 4), &[]).unwrap();
    let a = &layout.arrays[0];
    assert_eq!(
        a.axes[1].section,
        Section {
            start: 0,
            end: 5,
            step: 1,
            count: 5
        }
    );
    assert_eq!((a.bytes, a.wire_bytes), (0, 0));
    assert_eq!(runs(a.client_runs()), []);
}

/// Where the result is, nobody knows what follows it.
#[test]
fn an_end_of_zero_of_an_allocated_result_is_nothing() {
    let mut found = array(
        "found",
        Mode::Out,
        Type::Double,
        vec![upto(Op::Const(1000), Op::Param(0))],
    );
    found.allocate = true;
    let interface = interface(vec![scalar("n", Type::Int), found]);
    let bytes = |n| interface.layout(&ints(&[n], 2), &[]).unwrap().arrays[0].wire_bytes;
    assert_eq!([0, 3].map(bytes), [0, 24]);
}

#[test]
fn steps_and_outer_sections() {
    let range = |start, end, step| {
        let [start, end, step] = [start, end, step].map(|value| op(Op::Const(value)));
        Some(Range {
            start: Some(start),
            end,
            step: Some(step),
        })
    };
    let dims = vec![
        Dim {
            size: op(Op::Const(4)),
            range: range(1, 4, 2),
        },
        Dim {
            size: op(Op::Const(6)),
            range: range(1, 6, 2),
        },
        Dim {
            size: op(Op::Const(2)),
            range: None,
        },
    ];
    let interface = interface(vec![array("a", Mode::In, Type::Int, dims)]);
    let layout = interface.layout(&[None], &[]).unwrap();
    let a = &layout.arrays[0];
    let expected = [(56, 8), (72, 8), (88, 8), (152, 8), (168, 8), (184, 8)];
    assert_eq!(runs(a.client_runs()), expected);
    assert_eq!(a.wire_bytes, 48);
    assert_eq!(a.client_bytes, 192);
}

#[test]
fn errors_name_array_dimension_and_expression() {
    let text = |n, lda| {
        matrix()
            .layout(&ints(&[n, lda], 4), &[])
            .unwrap_err()
            .to_string()
    };
    assert_eq!(text(-1, 5), "array `a`: the size `n` of dimension 1 is -1");
    assert_eq!(
        text(5, 3),
        "argument `lda` is 3, expected at least 5: the end `n` of dimension 2 of array `a`"
    );
    assert_eq!(
        text(1 << 31, 3),
        "argument `n`: expected int (-2147483648 to 2147483647), given 2147483648"
    );
    let mut wide = matrix();
    wide.params[0].ty = Type::Long;
    wide.params[1].ty = Type::Long;
    let error = wide.layout(&ints(&[1 << 40, 1 << 40], 4), &[]).unwrap_err();
    assert_eq!(error, LayoutError::TooLarge { array: "a".into() });
}

#[test]
fn wrong_scalars_are_named() {
    let interface = matrix();
    let error = |scalars: &[Option<Scalar>]| interface.layout(scalars, &[]).unwrap_err();
    assert_eq!(
        error(&[]),
        LayoutError::ArgumentCount {
            expected: 4,
            given: 0
        }
    );
    assert_eq!(
        error(&ints(&[1], 4)).to_string(),
        "argument `lda`: expected int (-2147483648 to 2147483647), given nothing"
    );
    assert_eq!(
        error(&ints(&[1, 1, 1], 4)).to_string(),
        "argument `a`: expected an array of double, given the scalar 1"
    );
    let float = [Some(Scalar::Float(1.5)), Some(Scalar::Int(1)), None, None];
    assert_eq!(
        error(&float).to_string(),
        "argument `n`: expected int (-2147483648 to 2147483647), given 1.5"
    );
}

#[test]
fn work_space_has_memory_but_does_not_travel() {
    let work = array("w", Mode::Work, Type::Double, vec![dim(Op::Param(0))]);
    let mut interface = interface(vec![scalar("n", Type::Int), work]);
    interface.shrink = true;
    let layout = interface.layout(&ints(&[10], 2), &[]).unwrap();
    let w = &layout.arrays[0];
    assert_eq!((w.bytes, w.client_bytes, w.wire_bytes), (80, 0, 0));
    assert_eq!(runs(w.client_runs()), []);
    assert_eq!(runs(w.buffer_runs()), []);
}

#[test]
fn elements_are_stated_and_verified() {
    let mut interface = interface(vec![
        scalar("n", Type::Int),
        array(
            "ptr",
            Mode::In,
            Type::Int,
            vec![Dim {
                size: Expr::new(vec![Op::Param(0), Op::Const(1), Op::Add]).unwrap(),
                range: None,
            }],
        ),
        array("val", Mode::In, Type::Double, vec![dim(Op::Element(0))]),
    ]);
    interface.element_refs.push(ElementRef {
        param: 1,
        index: Expr::param(0),
    });
    let scalars = ints(&[2], 3);
    assert_eq!(interface.element_indices(&scalars).unwrap(), [2]);
    let mut short = interface.clone();
    short.params[1].dims = vec![dim(Op::Param(0))];
    let error = short.element_indices(&scalars).unwrap_err();
    let text = "array `ptr`: element 2 is used as a size but it has 2 elements";
    assert_eq!(error.to_string(), text);
    let layout = interface.layout(&scalars, &[7]).unwrap();
    assert_eq!(layout.arrays[1].bytes, 56);
    let mut buffer = vec![0u8; layout.bytes as usize];
    buffer[8..12].copy_from_slice(&7i32.to_ne_bytes());
    assert_eq!(
        interface.verify_elements(&scalars, &[7], &layout, &buffer),
        Ok(())
    );
    buffer[8..12].copy_from_slice(&8i32.to_ne_bytes());
    assert_eq!(
        interface
            .verify_elements(&scalars, &[7], &layout, &buffer)
            .unwrap_err()
            .to_string(),
        "array `ptr`: element 2 is 8, but the caller stated 7"
    );
    assert_eq!(
        interface.layout(&scalars, &[]),
        Err(LayoutError::ElementCount {
            expected: 1,
            given: 0
        })
    );
}

#[test]
fn an_element_that_is_no_size_is_named() {
    let sizes = array("ptr", Mode::In, Type::UnsignedLong, vec![dim(Op::Const(1))]);
    let mut interface = interface(vec![sizes]);
    interface.element_refs.push(ElementRef {
        param: 0,
        index: Expr::constant(0),
    });
    let bytes = u64::MAX.to_ne_bytes();
    let error = interface.element_values(&[None], |_| &bytes[..]);
    let text = "array `ptr`: element 0 is used as a size but is more than 2^63 - 1";
    assert_eq!(error.unwrap_err().to_string(), text);
}

/// The array of a count may have no elements at all.
#[test]
fn an_integer_has_as_many_bytes_as_its_type() {
    for ty in Type::ALL.into_iter().filter(|ty| ty.is_integer()) {
        let size = ty.size().unwrap() as usize;
        let read = |bytes: usize| read_integer(ty, &vec![0; bytes]);
        assert_eq!(
            [0, size, size + 1].map(read),
            [None, Some(0), None],
            "{ty:?}"
        );
    }
}

#[test]
fn a_cost_without_a_value_does_not_fail_the_call() {
    let mut interface = matrix();
    interface.calc_order = Some(Expr::new(vec![Op::Const(1), Op::Param(0), Op::Div]).unwrap());
    assert_eq!(
        interface.layout(&ints(&[4, 4], 4), &[]).unwrap().cost,
        Some(0.25)
    );
    assert_eq!(interface.layout(&ints(&[0, 4], 4), &[]).unwrap().cost, None);
    interface.processor_elements = Some(Expr::param(0));
    assert_eq!(
        interface
            .layout(&ints(&[2, 4], 4), &[])
            .unwrap()
            .processor_elements,
        Some(2)
    );
    let error = interface.layout(&ints(&[0, 4], 4), &[]).unwrap_err();
    assert_eq!(error.to_string(), "ProcessorElements `n` is 0");
    interface.fewest_elements = Some(Expr::constant(3));
    let elements = |n| {
        let layout = interface.layout(&ints(&[n, 8], 4), &[]).unwrap();
        (layout.fewest_elements, layout.processor_elements)
    };
    assert_eq!(elements(7), (Some(3), Some(7)));
    assert_eq!(
        elements(2),
        (Some(3), Some(3)),
        "at most means at least the fewest"
    );
    assert_eq!(elements(0), (Some(3), Some(3)));
}

#[test]
fn texts_of_fixed_length_have_fields() {
    let names = |count, length| {
        let dims = vec![dim(Op::Const(count)), dim(Op::Const(length))];
        interface(vec![array("names", Mode::InOut, Type::FixedString, dims)])
    };
    let laid_out = names(3, 4).layout(&[None], &[]).unwrap();
    let array = &laid_out.arrays[0];
    assert_eq!(
        (array.client_bytes, array.text_count(), array.text_length()),
        (12, 3, 4)
    );
    let mut fields = [b'x'; 12];
    let param = &names(3, 4).params[0];
    let texts = ["ab", "", "four"].map(str::as_bytes);
    array
        .write_texts(param, texts.into_iter(), &mut fields)
        .unwrap();
    assert_eq!(&fields, b"ab\0\0\0\0\0\0four");
    assert_eq!(read_texts(&fields, 4).collect::<Vec<_>>(), texts);

    for (given, told) in [
        (vec!["a", "b"], "expected 3 strings, given 2"),
        (
            vec!["a", "b", "fiver"],
            "expected strings of at most 4 bytes, given string 2 of 5",
        ),
        (
            vec!["a", "b\0", "c"],
            "expected strings without NUL, given string 1 with one",
        ),
    ] {
        let texts = given.iter().map(|text| text.as_bytes());
        let error = array.write_texts(param, texts, &mut fields).unwrap_err();
        assert_eq!(error.to_string(), ["argument `names`: ", told].concat());
    }

    let most = MOST_TEXTS as i64;
    assert!(names(most, 1).layout(&[None], &[]).is_ok());
    for (count, length) in [(most + 1, 1), (1, 0), (most, i64::MAX / 8)] {
        assert!(names(count, length).layout(&[None], &[]).is_err());
    }
    let error = names(most + 1, 1).layout(&[None], &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "array `names`: it would have more than 16384 texts"
    );
}
