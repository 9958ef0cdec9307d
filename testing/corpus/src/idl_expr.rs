//! Any interface with any scalars: every expression has a value or an error, a layout is consistent
//! or refused, and no memory is allocated in proportion to its sizes.
//!
//! The input has two bytes of length, the text of an interface, and then eight bytes for each
//! scalar and element.

use farcall_idl::{ArrayLayout, Layout, Mode, Param, Run, Scalar, Type, Values, parse_interface};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (text, mut numbers) = rest.split_at(length);
    let Ok(text) = core::str::from_utf8(text) else {
        return;
    };
    let Ok(interface) = parse_interface(text) else {
        return;
    };
    let mut number = || match numbers.split_first_chunk::<8>() {
        Some((first, rest)) => {
            numbers = rest;
            i64::from_le_bytes(*first)
        }
        None => 3,
    };
    let scalar = |param: &Param, number: i64| match param.ty {
        Type::Float | Type::Double => Scalar::Float(f64::from_bits(number as u64)),
        Type::SComplex | Type::DComplex => Scalar::Complex {
            re: number as f64,
            im: 0.5,
        },
        Type::String if param.is_texts() => {
            Scalar::Texts(vec!["text".into(); number as u8 as usize])
        }
        Type::String | Type::Filename | Type::FilePointer => Scalar::Text("text".into()),
        _ => Scalar::Int(number),
    };
    let scalars: Vec<Option<Scalar>> = interface
        .params
        .iter()
        .map(|param| param.is_value().then(|| scalar(param, number())))
        .collect();
    let elements: Vec<i64> = interface.element_refs.iter().map(|_| number()).collect();
    let values = Values {
        scalars: &scalars,
        elements: &elements,
    };
    for dim in interface.params.iter().flat_map(|param| &param.dims) {
        let _ = dim.size.integer(values);
        let _ = dim.size.real(values);
    }
    let _ = interface.element_indices(&scalars);
    match interface.layout(&scalars, &elements) {
        Ok(layout) => {
            consistent(&layout);
            let _ = interface.verify_elements(&scalars, &elements, &layout, &[0; 256]);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn consistent(layout: &Layout) {
    let mut end = 0;
    for array in &layout.arrays {
        assert!(array.offset.is_multiple_of(64) && array.offset >= end);
        end = array.offset.checked_add(array.bytes).unwrap();
        assert!(array.mode == Mode::Work || array.wire_bytes <= array.client_bytes);
        for axis in &array.axes {
            let section = axis.section;
            assert!(section.start <= section.end && section.end <= axis.size && section.step >= 1);
        }
        first_runs(array);
    }
    assert!(end <= layout.bytes);
}

/// An array can have very many runs. The first ones are enough.
fn first_runs(array: &ArrayLayout) {
    const FEW: usize = 1000;
    let sum = |runs: &mut dyn Iterator<Item = Run>, start: u64, bytes: u64| {
        let (mut total, mut at) = (0, start);
        for run in runs.take(FEW) {
            assert!(run.len > 0 && run.offset >= at);
            at = run.offset + run.len;
            total += run.len;
        }
        assert!(at <= start + bytes);
        total
    };
    let client = sum(&mut array.client_runs(), 0, array.client_bytes);
    let buffer = sum(&mut array.buffer_runs(), array.offset, array.bytes);
    assert!(client <= array.wire_bytes && buffer <= array.wire_bytes);
    if array.client_runs().nth(FEW).is_none() {
        assert_eq!((client, buffer), (array.wire_bytes, array.wire_bytes));
    }
}
