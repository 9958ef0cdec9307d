//! Random tests of the parser, the printer and the layout. The canonical text of any interface
//! parses back to an equal interface. No text and no scalars cause a panic.

use farcall_idl::{
    Body, Constant, Convention, Dim, Expr, Interface, MOST_GPUS, Mode, Op, Param, Passed, Range,
    Scalar, Severity, Type, parse_document, parse_interface,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Scalars come first, so that expressions can refer to the parameters 0 to SCALARS - 1.
const SCALARS: u16 = 4;

fn operand() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        (0..=i64::MAX).prop_map(|value| vec![Op::Const(value)]),
        (0..10i64).prop_map(|value| vec![Op::Const(value)]),
        (0..SCALARS).prop_map(|index| vec![Op::Param(index)]),
        (b' '..=b'~').prop_map(|code| vec![Op::Char(code)]),
    ]
}

fn ops(leaf: impl Strategy<Value = Vec<Op>> + 'static) -> impl Strategy<Value = Vec<Op>> {
    leaf.prop_recursive(4, 24, 3, |inner| {
        let binary = prop::sample::select(vec![
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::Div,
            Op::Rem,
            Op::Pow,
            Op::Less,
            Op::LessEqual,
            Op::Greater,
            Op::GreaterEqual,
            Op::Equal,
            Op::NotEqual,
            Op::And,
            Op::Or,
            Op::Min,
            Op::Max,
        ]);
        let unary = prop::sample::select(vec![Op::Neg, Op::Not]);
        prop_oneof![
            (inner.clone(), unary).prop_map(|(a, op)| [a, vec![op]].concat()),
            (inner.clone(), inner.clone(), binary).prop_map(|(a, b, op)| [a, b, vec![op]].concat()),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| [a, b, c, vec![Op::Select]].concat()),
        ]
    })
}

fn size() -> impl Strategy<Value = Expr> {
    ops(operand()).prop_map(|ops| Expr::new(ops).unwrap())
}

fn cost() -> impl Strategy<Value = Expr> {
    let real = (0.0..1e300f64).prop_map(|value| vec![Op::Real(value)]);
    ops(prop_oneof![operand(), real]).prop_map(|ops| Expr::new(ops).unwrap())
}

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        size().prop_map(|end| Range {
            start: None,
            end,
            step: None
        }),
        (size(), size()).prop_map(|(start, end)| Range {
            start: Some(start),
            end,
            step: None
        }),
        (size(), size(), size()).prop_map(|(start, end, step)| Range {
            start: Some(start),
            end,
            step: Some(step)
        }),
    ]
}

fn array() -> impl Strategy<Value = Param> {
    let dim = (size(), prop::option::of(range())).prop_map(|(size, range)| Dim { size, range });
    let mode = prop::sample::select(vec![Mode::In, Mode::Out, Mode::InOut, Mode::Work]);
    let ty = prop::sample::select(Type::ALL[..15].to_vec());
    (mode, ty, vec(dim, 1..4), any::<bool>(), any::<bool>()).prop_map(
        |(mode, ty, dims, allocate, broadcast)| Param {
            name: String::new(),
            mode,
            allocate,
            count: None,
            broadcast,
            ty,
            dims,
        },
    )
}

fn fixed_texts() -> impl Strategy<Value = Param> {
    let dim = size().prop_map(|size| Dim { size, range: None });
    let mode = prop::sample::select(vec![Mode::In, Mode::Out, Mode::InOut]);
    (mode, vec(dim, 2..4)).prop_map(|(mode, dims)| Param {
        name: String::new(),
        mode,
        allocate: false,
        count: None,
        broadcast: false,
        ty: Type::FixedString,
        dims,
    })
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[ -~\n\té]{0,20}")
}

fn constant() -> impl Strategy<Value = Constant> {
    prop_oneof![
        (-i64::MAX..=i64::MAX).prop_map(Constant::Integer),
        (-1e300..1e300f64).prop_map(Constant::Real),
        (b' '..=b'~').prop_map(Constant::Character),
        "[ -~\n\té]{0,20}".prop_map(Constant::Text),
        Just(Constant::Null),
    ]
}

fn interface() -> impl Strategy<Value = Interface> {
    let costs = (
        prop::option::of(cost()),
        prop::option::of(cost()),
        prop::option::of((size(), prop::option::of(size()))),
    );
    let texts = (text(), text(), text(), vec("[a-z.]{1,8}", 0..3));
    let convention =
        prop::sample::select(vec![Convention::C, Convention::Cpp, Convention::Fortran]);
    let flags = (
        any::<bool>(),
        any::<bool>(),
        prop::option::of("m[a-z]{1,8}"),
        convention,
        0..=MOST_GPUS,
    );
    (
        vec(prop_oneof![4 => array(), 1 => fixed_texts()], 0..5),
        costs,
        texts,
        flags,
        vec(constant(), 0..3),
    )
        .prop_map(|(arrays, costs, texts, flags, constants)| {
            let scalar = Param {
                name: String::new(),
                mode: Mode::In,
                allocate: false,
                count: None,
                broadcast: false,
                ty: Type::Int,
                dims: vec![],
            };
            let scalars = std::iter::repeat_n(scalar, SCALARS.into());
            let mut params: Vec<Param> = scalars.chain(arrays).collect();
            for (index, param) in params.iter_mut().enumerate() {
                param.name = format!("p{index}");
            }
            let allocates = params.iter().any(|param| param.allocate);
            let mut args: Vec<_> = (0..params.len()).rev().map(Passed::Param).collect();
            args.extend(constants.into_iter().map(Passed::Constant));
            Interface {
                class: None,
                module: flags.2,
                name: "f".to_string(),
                description: texts.0.clone(),
                params,
                callbacks: vec![],
                required: texts.3,
                // Elsewhere, `allocate` asks for more than these arrays have.
                backend: allocates.then(|| "MPI".into()).or(texts.1),
                shrink: flags.0,
                language: texts.2,
                calc_order: costs.0,
                comm_order: costs.1,
                processor_elements: costs.2.as_ref().map(|elements| elements.0.clone()),
                fewest_elements: costs.2.and_then(|elements| elements.1),
                gpus: flags.4,
                repeatable: flags.1,
                release: texts.0,
                element_refs: vec![],
                body: Body::Calls {
                    convention: flags.3,
                    function: "g".to_string(),
                    args,
                    returns: None,
                },
            }
        })
}

/// Whether the parser rejects the text because of a constant size below 0 or step below 1. This
/// test is not about those.
fn is_refused_for_a_constant(text: &str) -> bool {
    let parsed = parse_document(text);
    let mut errors = parsed
        .diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Error);
    errors.all(|error| {
        error.message.starts_with("the size is -") || error.message.starts_with("the step is -")
    })
}

proptest! {
    #[test]
    fn an_interface_prints_and_parses_back(interface in interface()) {
        let text = interface.text();
        match parse_interface(&text) {
            Ok(parsed) => {
                prop_assert_eq!(&parsed, &interface, "{}", text);
                prop_assert_eq!(parsed.text(), text);
            }
            Err(error) => prop_assert!(is_refused_for_a_constant(&text), "{error}\n{text}"),
        }
    }

    #[test]
    fn a_method_prints_and_parses_back(interface in interface()) {
        let class = Some("Counter".to_string());
        let method = Interface { class, ..interface };
        let text = method.text();
        match parse_interface(&text) {
            Ok(parsed) => prop_assert_eq!(&parsed, &method, "{}", text),
            Err(error) => prop_assert!(is_refused_for_a_constant(&text), "{error}\n{text}"),
        }
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "\\PC{0,200}") {
        let _ = parse_document(&text);
    }

    #[test]
    fn words_of_the_language_in_any_order_are_parsed_without_a_panic(
        words in vec(prop::sample::select(vec![
            "Define", "f", "(", ")", "IN", "OUT", "int", "double", "n", "a", "[", "]", ":", ",",
            "*", "+", "^", "?", "{", "}", "{}", "Calls", "\"C\"", ";", "DefClass", "DefMethod",
            "3", "-1", "2.5", "NULL", "const", "size_t", "bool", "Module", "Library", "\"x\"",
            "CalcOrder", "=", "'N'", "void", "unsigned",
        ]), 0..60)
    ) {
        let text = words.join(" ");
        let parsed = parse_document(&text);
        let _ = farcall_idl::render(&parsed.diagnostics, "f", &text, false);
        for interface in parsed.document.functions() {
            let text = interface.text();
            let again = parse_interface(&text);
            prop_assert_eq!(again.as_ref(), Ok(interface), "{}", text);
        }
    }

    #[test]
    fn a_layout_never_panics_and_its_runs_add_up(
        interface in interface(),
        scalars in vec(-3..40i64, usize::from(SCALARS)),
    ) {
        let scalars = scalars.into_iter().map(|value| Some(Scalar::Int(value)));
        let mut values: Vec<_> = scalars.collect();
        values.resize(interface.params.len(), None);
        if let Ok(layout) = interface.layout(&values, &[]) {
            for array in &layout.arrays {
                prop_assert_eq!(array.offset % 64, 0);
                prop_assert!(array.offset + array.bytes <= layout.bytes);
                if array.wire_bytes > 1 << 20 {
                    continue;
                }
                let client: u64 = array.client_runs().map(|run| run.len).sum();
                let buffer: u64 = array.buffer_runs().map(|run| run.len).sum();
                prop_assert_eq!((client, buffer), (array.wire_bytes, array.wire_bytes));
                let mut end = 0;
                for run in array.client_runs() {
                    prop_assert!(run.offset >= end && run.len > 0);
                    end = run.offset + run.len;
                }
                prop_assert!(end <= array.client_bytes);
            }
        }
    }
}
