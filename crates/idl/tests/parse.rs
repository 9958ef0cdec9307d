//! Tests interface files as users write them: what the published IDL accepts, and what it means.
//! The text of an interface, which can come from a peer, is parsed strictly, and deep nesting is
//! refused.

use farcall_idl::{
    Body, Code, Constant, Convention, Interface, Library, Mode, Parsed, Passed, Scalar, Severity,
    StringLengths, Type, parse_document, parse_interface, render,
};

const SCALAPACK: &str = include_str!("fixtures/scalapack.idl");
const NINF1: &str = include_str!("fixtures/ninf1.idl");
const NINFG: &str = include_str!("fixtures/ninfg.idl");

fn accept(text: &str) -> Parsed {
    let parsed = parse_document(text);
    assert!(
        !parsed.has_errors(),
        "{}",
        render(&parsed.diagnostics, "test.idl", text, false)
    );
    parsed
}

fn interface<'a>(parsed: &'a Parsed, name: &str) -> &'a Interface {
    parsed
        .document
        .interfaces
        .iter()
        .find(|interface| interface.name == name)
        .unwrap()
}

#[test]
fn the_published_scalapack_interfaces_are_accepted() {
    let parsed = accept(SCALAPACK);
    let pdposv = interface(&parsed, "pdposv");
    assert_eq!(pdposv.backend.as_deref(), Some("BLACS"));
    assert!(pdposv.shrink);
    assert_eq!(pdposv.params[3].mode, Mode::InOut);
    let scalars: Vec<Option<Scalar>> = pdposv
        .params
        .iter()
        .map(|param| match param.name.as_str() {
            "uplo" => Some(Scalar::Text("U".into())),
            "n" => Some(Scalar::Int(10)),
            "nrhs" => Some(Scalar::Int(2)),
            "lda" | "ldb" => Some(Scalar::Int(12)),
            _ => None,
        })
        .collect();
    let layout = pdposv.layout(&scalars, &[]).unwrap();
    assert_eq!(layout.arrays[0].client_bytes, 12 * 10 * 8);
    assert_eq!(layout.arrays[0].bytes, 12 * 10 * 8);
    assert_eq!(layout.arrays[1].wire_bytes, 2 * 10 * 8);
    assert_eq!(interface(&parsed, "pdsyev").params.len(), 9);
}

#[test]
fn ninf_1_spelling_is_accepted() {
    let parsed = accept(NINF1);
    let dmmul = interface(&parsed, "dmmul");
    assert_eq!(dmmul.qualified_name(), "sample/dmmul");
    assert_eq!(dmmul.params[0].ty, Type::Long);
    assert_eq!(dmmul.params[1].mode, Mode::In);
    assert_eq!(dmmul.params[3].mode, Mode::Out);
    assert_eq!(dmmul.required, ["sample.o"]);
    let ep = interface(&parsed, "ep");
    let shapes: Vec<usize> = ep.params.iter().map(|param| param.dims.len()).collect();
    assert_eq!(shapes, [0, 0, 1, 1, 2]);
    assert_eq!(ep.params[1].ty, Type::Int);
}

#[test]
fn ninf_g_declarations_are_accepted() {
    let parsed = accept(NINFG);
    let document = &parsed.document;
    assert_eq!(
        document.libraries,
        [
            Library::Library("-lm".into()),
            Library::File("part.o".into())
        ]
    );
    assert_eq!(document.compile_options, ["-O2 -Wall"]);
    assert_eq!(document.fortran_format.as_deref(), Some("%l_"));
    assert_eq!(document.string_lengths, StringLengths::JustAfter);
    assert!(document.globals[0].text.contains("\"}\""));
    let minimise = interface(&parsed, "minimise");
    assert_eq!(minimise.callbacks.len(), 2);
    assert_eq!(minimise.callbacks[0].params.len(), 3);
    assert!(matches!(&minimise.body, Body::Code(code) if code.text.contains("search")));
    let sparse = interface(&parsed, "sparse");
    assert_eq!(sparse.element_refs.len(), 1);
    assert!(sparse.repeatable && !sparse.shrink);
    assert!(sparse.params[4].allocate && sparse.params[4].broadcast);
    let dot = interface(&parsed, "dot");
    assert_eq!(dot.param("r"), Some(3));
    assert!(matches!(
        &dot.body,
        Body::Calls {
            convention: Convention::Fortran,
            returns: Some(3),
            ..
        }
    ));
    assert_eq!(document.classes[0].methods.len(), 2);
    assert_eq!(
        document.classes[0].state.as_ref().unwrap().text,
        " int value; "
    );
}

#[test]
fn every_fixture_prints_and_parses_back() {
    for text in [SCALAPACK, NINF1, NINFG] {
        let parsed = accept(text);
        let printed = parsed.document.to_string();
        assert_eq!(accept(&printed).document, parsed.document, "{printed}");
        for interface in &parsed.document.interfaces {
            let text = interface.text();
            assert_eq!(parse_interface(&text).as_ref(), Ok(interface), "{text}");
        }
    }
}

#[test]
fn the_backend_of_a_class_holds_for_its_methods() {
    let text = "DefClass Heat Backend \"MPI\" Language \"C\" {\n\
                DefMethod step(IN int n) Calls \"C\" step(n);\n\
                DefMethod look(IN int n) Backend \"normal\" Calls \"C\" look(n);\n}";
    let parsed = accept(text);
    let [step, look] = parsed.document.classes[0].methods.as_slice() else {
        panic!("{:?}", parsed.document.classes);
    };
    assert!(step.is_parallel() && !look.is_parallel());
    assert_eq!(step.language.as_deref(), Some("C"));
    let printed = parsed.document.to_string();
    assert_eq!(accept(&printed).document, parsed.document, "{printed}");
    assert_eq!(parse_interface(&step.text()).as_ref(), Ok(step));
    let gpus = parse_document(&text.replace("Language \"C\"", "Gpus 1"));
    assert!(
        gpus.diagnostics[0]
            .message
            .contains("`Gpus` belongs to a method")
    );
}

#[test]
fn the_canonical_text_is_stable() {
    let text = "Define f(double mode_inout a[n][lda:n], IN int n, IN int lda, OUT int *info) \
        CalcOrder 2/3*n^3-(n-1)-(-n)^2 + (jobz=='N')*min(n,lda) IN_ \"x\"";
    assert!(parse_document(text).has_errors());
    let text = text.replace(" IN_ \"x\"", ", IN char jobz");
    let (head, tail) = text.split_once(") CalcOrder").unwrap();
    let tail = tail.trim_end_matches(", IN char jobz");
    let text =
        format!("{head}, IN char jobz) CalcOrder {tail} Calls \"fortran\" f(n, a, lda, info);");
    let parsed = accept(&text);
    assert_eq!(
        parsed.document.interfaces[0].text(),
        "Define f(\n    INOUT double a[n][lda:n],\n    IN int n,\n    IN int lda,\n    \
         OUT int info[1],\n    IN char jobz)\n    \
         CalcOrder 2 / 3 * n^3 - (n - 1) - (-n)^2 + (jobz == 'N') * min(n, lda)\n    \
         Calls \"FORTRAN\" f(n, a, lda, info);\n"
    );
}

#[test]
fn the_text_of_an_interface_is_parsed_strictly() {
    let error = |text: &str| parse_interface(text).unwrap_err().to_string();
    assert_eq!(error(""), "expected one interface, found 0");
    let one = "Define f(IN int n) Calls \"C\" f(n);";
    assert!(parse_interface(one).is_ok());
    assert!(parse_interface(&format!("Module m; {one}")).is_ok());
    assert_eq!(
        error(&format!("{one} Define g(IN int n) Calls \"C\" f(n);")),
        "expected one interface, found 2"
    );
    assert_eq!(
        error(&format!("Library \"libc.so.6\"; {one}")),
        "expected one interface and its module, found other declarations"
    );
    let method = "DefClass A { DefMethod f(IN int n) Calls \"C\" f(n); }";
    assert!(parse_interface(method).is_ok());
    for text in [
        format!("{method} DefClass B {{ }}"),
        format!("DefClass B {{ }} {method}"),
    ] {
        assert_eq!(
            error(&text),
            "expected one interface and its module, found other declarations"
        );
    }
    assert_eq!(
        error("Define f(\n  IN nit n) {}"),
        "2:6: `nit` is neither a mode nor a type"
    );
    assert!(error(&" ".repeat(farcall_idl::MAX_INTERFACE + 1)).contains("longer than"));
}

/// A server would offer it, and no client could call it.
#[test]
fn an_interface_that_callers_cannot_read_is_refused() {
    let of = |length| {
        let text = "x".repeat(length);
        parse_document(&format!(
            "Define f(IN int n) \"{text}\" {{ puts(\"{text}\"); }}"
        ))
    };
    assert!(!of(farcall_idl::MAX_INTERFACE - 100).has_errors());
    let parsed = of(farcall_idl::MAX_INTERFACE);
    assert!(
        parsed.diagnostics[0]
            .message
            .contains("callers read 262144")
    );
}

#[test]
fn hostile_nesting_is_refused_and_does_not_overflow() {
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("-", "1", ""),
        ("n[", "0", "]"),
        ("1?", "1", ":1"),
        ("2^", "2", ""),
    ] {
        let expression = [&open.repeat(50_000), middle, &close.repeat(50_000)].concat();
        let text = format!("Define f(IN int n, IN int a[{expression}]) Calls f(n, a);");
        assert!(parse_document(&text).has_errors());
    }
    let stars = format!("Define f(IN int {}a) Calls f(a);", "*".repeat(100_000));
    assert!(parse_document(&stars).has_errors());
    let parens = format!("Define f(IN int {}a", "(".repeat(100_000));
    assert!(parse_document(&parens).has_errors());
}

#[test]
fn the_body_can_be_kept_from_callers() {
    let parsed = accept(NINFG);
    let minimise = interface(&parsed, "minimise");
    let public = parse_interface(&minimise.public_text()).unwrap();
    assert_eq!(public.params, minimise.params);
    assert_eq!(public.body, Body::Code(Code::default()));
    let calls = "Define f(IN int n) Required \"/home/alice/shim.o\" Calls \"C\" f(n);";
    let calls = parse_interface(calls).unwrap();
    assert_eq!(calls.required, ["/home/alice/shim.o"]);
    assert!(!calls.public_text().contains("shim.o"));
}

#[test]
fn types_of_c_and_fortran_have_their_widths() {
    let types = [
        ("uint8_t", Type::UnsignedChar),
        ("int16_t", Type::Short),
        ("uint16_t", Type::UnsignedShort),
        ("int32_t", Type::Int),
        ("uint32_t", Type::UnsignedInt),
        ("int64_t", Type::Long),
        ("uint64_t", Type::UnsignedLong),
        ("size_t", Type::UnsignedLong),
        ("ssize_t", Type::Long),
        ("ptrdiff_t", Type::Long),
        ("bool", Type::UnsignedChar),
        ("LOGICAL", Type::Int),
        ("const double", Type::Double),
        ("const unsigned char", Type::UnsignedChar),
    ];
    for (name, ty) in types {
        let text =
            format!("Define f(IN {name} x, IN int n, OUT {name} *y) Calls \"C\" f(x, n, y);");
        let parsed = parse_interface(&text).unwrap();
        assert_eq!(
            (parsed.params[0].ty, parsed.params[2].ty),
            (ty, ty),
            "{name}"
        );
        // The text for callers has only the words that earlier versions know.
        assert_eq!(parse_interface(&parsed.public_text()).unwrap(), parsed);
        assert!(!parsed.public_text().contains("_t "));
    }
    // A parameter may have such a name.
    assert!(parse_interface("Define f(IN int logical) Calls \"C\" f(logical);").is_ok());
}

#[test]
fn an_unknown_type_suggests_a_known_one() {
    for (wrong, right) in [
        ("duoble", "double"),
        ("sizet", "size_t"),
        ("uint32", "uint32_t"),
        ("integer", "int"),
        ("real", "float"),
        ("complex16", "dcomplex"),
        ("float64", "double"),
    ] {
        let parsed = parse_document(&format!("Define f(IN {wrong} x) Calls \"C\" f(x);"));
        let help = format!("did you mean `{right}`?");
        let found = parsed
            .diagnostics
            .iter()
            .any(|one| one.help.as_deref() == Some(&help));
        assert!(found, "{wrong}: {:?}", parsed.diagnostics);
    }
}

#[test]
fn constants_are_passed_and_not_shown_to_callers() {
    let text = "Define f(IN double x, OUT double *y)\n    \
                Calls \"C\" y = f(x, -3, 2.5, 'N', \"a \\\"b\\\"\", NULL);";
    let parsed = parse_interface(text).unwrap();
    let Body::Calls { args, .. } = &parsed.body else {
        panic!("no function");
    };
    let constants: Vec<_> = args.iter().filter(|arg| arg.param().is_none()).collect();
    let expected = [
        Constant::Integer(-3),
        Constant::Real(2.5),
        Constant::Character(b'N'),
        Constant::Text("a \"b\"".to_string()),
        Constant::Null,
    ];
    assert!(constants.into_iter().eq(&expected.map(Passed::Constant)));
    assert!(parsed.public_text().contains("y = f(x);"));
    // A file that went through the preprocessor.
    let expanded = parse_interface(&text.replace("NULL", "((void *)0)")).unwrap();
    assert_eq!(expanded, parsed);
}

#[test]
fn a_callback_returns_a_value_and_takes_a_pointer_of_the_library() {
    let text = "Define g(IN double a, OUT double *b, double f(IN double x, void *user), \
                stop(IN int k)) Calls \"C\" b = g(f, a, NULL);";
    let parsed = parse_interface(text).unwrap();
    let f = &parsed.callbacks[0];
    assert_eq!(f.returns, Some(1));
    let null = Passed::Constant(Constant::Null);
    assert_eq!(f.args, [Passed::Param(0), null]);
    assert_eq!(parsed.callbacks[1].returns, None);
    assert_eq!(parse_interface(&parsed.text()).unwrap(), parsed);
    // Callers, also older ones, fill an OUT argument or return it.
    let public = parse_interface(&parsed.public_text()).unwrap();
    let seen: Vec<_> = public.callbacks[0]
        .params
        .iter()
        .map(|p| (p.name.as_str(), p.mode))
        .collect();
    assert_eq!(seen, [("x", Mode::In), ("value", Mode::Out)]);
    assert_eq!(public.callbacks[0].returns, None);
    let error = parse_interface("Define g(string f(IN int n)) Calls \"C\" g(f);").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the value of a callback is a number"),
        "{error}"
    );
}

#[test]
fn the_size_of_an_array_of_a_callback_is_not_work_space() {
    let of = |mode| {
        let text = format!("Define g({mode} int m, f(IN double x[m])) Calls \"C\" g(m, f);");
        parse_interface(&text)
    };
    assert!(of("IN").is_ok());
    let error = of("WORK").unwrap_err().to_string();
    assert!(error.contains("`m`"), "{error}");
}

#[test]
fn no_function_returns_a_file() {
    let text = "Define f(OUT filename file[1]) Calls \"C\" file = f();";
    let error = parse_interface(text).unwrap_err().to_string();
    assert!(error.contains("`file` cannot take the value"), "{error}");
}

/// Its result would go nowhere: a callback writes to the memory of the library.
#[test]
fn a_callback_allocates_nothing() {
    for size in ["[5 : n]", "[5 : k]"] {
        let text = format!(
            "Define g(IN int n, f(OUT allocate double x{size}, OUT int *k)) Calls \"C\" g(n, f);"
        );
        let error = parse_interface(&text).unwrap_err().to_string();
        assert!(error.contains("cannot allocate memory"), "{size}: {error}");
    }
}

#[test]
fn gpus_are_in_the_description_that_a_caller_sees() {
    let parsed = parse_interface("Define f(IN int n) \"Solve\" Gpus 2 Calls \"C\" f(n);").unwrap();
    assert_eq!(parsed.gpus, 2);
    // Clients of earlier versions do not know the option.
    let public = parse_interface(&parsed.public_text()).unwrap();
    assert_eq!(public.gpus, 0);
    assert_eq!(public.description.as_deref(), Some("Solve (2 GPUs)"));
    for number in ["0", "65", "n", "-1", ""] {
        let text = format!("Define f(IN int n) Gpus {number} Calls \"C\" f(n);");
        let error = parse_interface(&text).unwrap_err().to_string();
        assert!(error.contains("a number of GPUs from 1 to 64"), "{error}");
    }
    let twice = "Define f(IN int n) Gpus 1 Gpus 2 Calls \"C\" f(n);";
    assert!(parse_interface(twice).is_err());
}

/// A peer can send such a text. Suggestions for each of its names would take seconds.
#[test]
fn unknown_names_in_every_place_cost_little() {
    let known = (0..200).map(|number| format!("IN int {}{number}", "ab".repeat(25)));
    let unknown = format!("[{}]", ["zz"; 85].join("+")).repeat(16);
    let arrays = (0..10).map(|number| format!("IN double x{number}{unknown}"));
    let params: Vec<String> = known.chain(arrays).collect();
    let text = format!("Define f({}) Calls \"C\" f();", params.join(", "));
    assert!(text.len() < farcall_idl::MAX_INTERFACE);
    let begun = std::time::Instant::now();
    let error = parse_interface(&text).unwrap_err();
    assert!(
        error.to_string().contains("`zz` is not a parameter"),
        "{error}"
    );
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds < 20.0, "{seconds} s");
}

/// A peer can send such a text. Without a bound, each element would be compared with all others.
#[test]
fn too_many_elements_of_arrays_cost_little() {
    let names = ["a", "b", "c"];
    let element = |number: usize| format!("{}[{}]", names[number % 3], number / 3);
    let elements = (0..27_000).map(element);
    let elements: Vec<String> = elements.collect();
    let sizes = elements
        .chunks(120)
        .map(|some| format!("[{}]", some.join("+")));
    let sizes: Vec<String> = sizes.collect();
    let arrays = sizes.chunks(16).enumerate();
    let arrays = arrays.map(|(number, some)| format!("IN char x{number}{}", some.concat()));
    let known = names.map(|name| format!("IN int {name}[9000]"));
    let params: Vec<String> = known.into_iter().chain(arrays).collect();
    let text = format!("Define f({}) Calls \"C\" f();", params.join(", "));
    assert!(text.len() < farcall_idl::MAX_INTERFACE);
    let begun = std::time::Instant::now();
    let error = parse_interface(&text).unwrap_err().to_string();
    assert!(error.contains("too many elements of arrays"), "{error}");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds < 2.0, "{seconds} s");
}

/// A peer can send such a text. Without a bound, each quote would be searched to the end of its
/// line.
#[test]
fn quotes_that_are_not_closed_cost_little() {
    for quote in ["'\\", "\"\\"] {
        let text = format!("Define f(IN int n)\n{{{}\n}}\n", quote.repeat(125_000));
        assert!(text.len() < farcall_idl::MAX_INTERFACE);
        let begun = std::time::Instant::now();
        assert!(parse_interface(&text).is_ok());
        let seconds = begun.elapsed().as_secs_f64();
        assert!(seconds < 5.0, "{seconds} s");
    }
}

#[test]
fn an_error_after_many_warnings_is_not_lost() {
    let warned = |number| format!("Define f{number}(IN int n, double x[n]) Calls \"C\" f(n, x);\n");
    let warned: String = (0..150).map(warned).collect();
    for wrong in [
        "Define g(IN int n, IN double x[m]) Calls \"C\" g(n, x);",
        "Define f0(IN int n) Calls \"C\" f(n);",
    ] {
        let parsed = parse_document(&format!("{warned}{wrong}"));
        assert!(parsed.has_errors(), "{wrong}");
        let warnings = parsed.diagnostics.iter();
        let warnings = warnings.filter(|found| found.severity == Severity::Warning);
        assert_eq!(warnings.count(), 100);
    }
}

#[test]
fn what_holds_for_the_file_is_said_once() {
    let function = "Define f(IN string s) Calls \"FORTRAN\" f(s);\n";
    let file = |first: &str, second: &str| parse_document(&[first, function, second].concat());
    for (one, other) in [
        (
            "FortranStringConvention last;",
            "FortranStringConvention justAfter;",
        ),
        ("FortranFormat \"%s_\";", "FortranFormat \"%u\";"),
        ("Compiler \"gcc\";", "Compiler \"clang\";"),
        ("Linker \"gcc\";", "Linker \"clang\";"),
    ] {
        let parsed = file(one, other);
        let message = &parsed.diagnostics[0].message;
        assert!(
            parsed.has_errors() && message.contains("is given twice"),
            "{message}"
        );
        assert!(!file(one, one).has_errors(), "{one}");
    }
}
