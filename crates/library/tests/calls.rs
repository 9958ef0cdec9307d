//! Tests of calling conventions, bodies, callbacks and errors, with small libraries made for the
//! purpose. Whatever cannot be called, such as a missing symbol or a wrong argument, is an error
//! before anything runs.

use farcall_idl::{Scalar, parse_document};
use farcall_library::{
    BindError, Binding, CallbackAnswer, CallbackRequest, Catalog, CatalogError, CompileError,
    Compiled, InvokeError, Source, SourceError, Threads, check_files, compile,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A 64-byte line of a call buffer.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Calls a function of an interface file with a body, or of the libraries it names.
struct Called {
    bytes: Vec<u8>,
    layout: farcall_idl::Layout,
}

fn invoke(
    binding: &Binding,
    document: &farcall_idl::Document,
    name: &str,
    scalars: &[Option<Scalar>],
    fill: impl FnOnce(&farcall_idl::Layout, &mut [u8]),
) -> Called {
    let index = document
        .interfaces
        .iter()
        .position(|interface| interface.name == name)
        .unwrap();
    let layout = document.interfaces[index].layout(scalars, &[]).unwrap();
    let mut lines = vec![Line([0; 64]); (layout.bytes / 64) as usize];
    let length = lines.len() * 64;
    // SAFETY: lines are arrays of bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), length) };
    fill(&layout, bytes);
    // SAFETY: the layout is that of the call and the buffer has its size.
    unsafe {
        binding
            .invoke(
                index,
                scalars,
                &layout,
                &starts(&layout, bytes.as_mut_ptr()),
                &mut nobody,
            )
            .unwrap()
    };
    Called {
        bytes: bytes.to_vec(),
        layout,
    }
}

/// The caller of functions that do not call back.
fn nobody(_: Result<CallbackRequest, String>) -> CallbackAnswer {
    panic!("called back");
}

fn starts(layout: &farcall_idl::Layout, base: *mut u8) -> Vec<*mut u8> {
    let start = |array: &farcall_idl::ArrayLayout| base.wrapping_add(array.offset as usize);
    layout.arrays.iter().map(start).collect()
}

impl Called {
    fn array<const N: usize>(&self, index: usize, element: usize) -> [u8; N] {
        let start = self.layout.arrays[index].offset as usize + element * N;
        self.bytes[start..start + N].try_into().unwrap()
    }
}

fn put(bytes: &mut [u8], offset: u64, values: &[f64]) {
    for (index, value) in values.iter().enumerate() {
        let start = offset as usize + index * 8;
        bytes[start..start + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

const BODIES: &str = r#"
Globals {
#include <complex.h>
#include <string.h>
static double scale(double x) { return 2 * x; }
}
CompileOptions "-O1 -DSHIFT=5";
Library "-lm";
Define widths(IN char c, IN short s, IN int i, IN long l, IN longlong ll, IN unsigned char uc,
    IN unsigned short us, IN unsigned int ui, IN unsigned long ul, IN float f, IN double d,
    OUT double out[11])
{
    out[0] = c; out[1] = s; out[2] = i; out[3] = l; out[4] = ll; out[5] = uc; out[6] = us;
    out[7] = ui; out[8] = ul; out[9] = f; out[10] = scale(d) + SHIFT;
}
Define complexes(IN scomplex a, IN int n, IN dcomplex b, OUT dcomplex *r)
{
    r[0] = a * b + n;
}
Define texts(IN string a, IN string b, OUT int *length, WORK char w[100])
{
    strcpy(w, a);
    strcat(w, b);
    *length = strlen(w);
}
"#;

#[test]
fn bodies_are_compiled_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bodies.idl");
    fs::write(&path, BODIES).unwrap();
    let source = Source::read(&path).unwrap();
    let parsed = source.parse();
    assert!(!parsed.has_errors(), "{:?}", parsed.diagnostics);
    let document = parsed.document;
    assert!(matches!(
        compile(&document, &source, false),
        Err(CompileError::NotAllowed { function }) if function == "widths"
    ));
    let compiled = compile(&document, &source, true).unwrap().unwrap();
    let library = compiled.path();
    let binding = Binding::load(&document, source.folder(), Some(&library)).unwrap();

    let integers = [
        -3,
        -300,
        -70_000,
        -(1 << 40),
        1 << 50,
        200,
        60_000,
        4_000_000_000,
        1 << 60,
    ];
    let mut scalars: Vec<_> = integers
        .iter()
        .map(|value| Some(Scalar::Int(*value)))
        .collect();
    scalars.extend([Some(Scalar::Float(0.5)), Some(Scalar::Float(1.25)), None]);
    let called = invoke(&binding, &document, "widths", &scalars, |_, _| {});
    for (index, value) in integers.iter().enumerate() {
        assert_eq!(f64::from_ne_bytes(called.array(0, index)), *value as f64);
    }
    assert_eq!(f64::from_ne_bytes(called.array(0, 9)), 0.5);
    assert_eq!(f64::from_ne_bytes(called.array(0, 10)), 7.5);

    let complex = |re, im| Some(Scalar::Complex { re, im });
    let scalars = [
        complex(1.0, 2.0),
        Some(Scalar::Int(10)),
        complex(3.0, -1.0),
        None,
    ];
    let called = invoke(&binding, &document, "complexes", &scalars, |_, _| {});
    assert_eq!(f64::from_ne_bytes(called.array(0, 0)), 15.0);
    assert_eq!(f64::from_ne_bytes(called.array(0, 1)), 5.0);

    let text = |text: &str| Some(Scalar::Text(text.into()));
    let scalars = [text("grüße"), text("!"), None, None];
    let called = invoke(&binding, &document, "texts", &scalars, |_, _| {});
    assert_eq!(i32::from_ne_bytes(called.array(0, 0)), 8);
}

/// What is compiled of a text, as if it were the content of a file.
fn built(text: &str, path: &str) -> Result<Option<Compiled>, CompileError> {
    let folder = tempfile::tempdir().unwrap();
    let source = Source {
        path: folder.path().join(path),
        text: text.to_owned(),
        options: Vec::new(),
    };
    let document = parse_document(text).document;
    fs::create_dir_all(source.folder()).unwrap();
    compile(&document, &source, true)
}

#[test]
fn functions_of_the_globals_are_called() {
    let text = "Globals { void twice(int n, int *m) { *m = 2 * n; } }\n\
                Define twice(IN int n, OUT int *m) Calls \"C\" twice(n, m);";
    let document = parse_document(text).document;
    let compiled = built(text, "globals.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    let scalars = [Some(Scalar::Int(21)), None];
    let called = invoke(&binding, &document, "twice", &scalars, |_, _| {});
    assert_eq!(i32::from_ne_bytes(called.array(0, 0)), 42);
}

#[test]
fn a_text_that_is_returned_may_be_a_part_of_an_argument() {
    let text = "Globals {\n\
        const char *tail(const char *s) { return s + 3; }\n\
        const char *pick(int n, const char *const *names) { return names[n - 1]; }\n\
        }\n\
        Define tail(IN string s, OUT string[64] *r) Calls \"C\" r = tail(s);\n\
        Define pick(IN int n, IN string names[n], OUT string[64] *r)\n\
            Calls \"C\" r = pick(n, names);\n\
        Define pick_own(IN int n, INOUT string[40] names[n], OUT string[64] *r)\n\
            Calls \"C\" r = pick(n, names);";
    let document = parse_document(text).document;
    let compiled = built(text, "parts.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    let long = "a text that is too long for a small block of memory";
    let scalars = [Some(Scalar::Text(format!("12 {long}"))), None];
    let called = invoke(&binding, &document, "tail", &scalars, |_, _| {});
    assert_eq!(
        farcall_idl::text_of(&called.array::<64>(0, 0)),
        long.as_bytes()
    );
    let names = Scalar::Texts(vec!["one".into(), long.into()]);
    let scalars = [Some(Scalar::Int(2)), Some(names), None];
    let called = invoke(&binding, &document, "pick", &scalars, |_, _| {});
    assert_eq!(
        farcall_idl::text_of(&called.array::<64>(0, 0)),
        long.as_bytes()
    );
    let scalars = [Some(Scalar::Int(1)), None, None];
    let called = invoke(&binding, &document, "pick_own", &scalars, |_, bytes| {
        bytes[..3].copy_from_slice(b"one");
    });
    assert_eq!(farcall_idl::text_of(&called.array::<64>(1, 0)), b"one");
}

/// The text is in the buffer of the stream until the stream is closed.
#[test]
fn a_file_that_has_no_room_for_what_was_written_is_an_error() {
    let text = "Define note(OUT filepointer f, IN int n) { while (n--) fputs(\"text\\n\", f); }\n\
                Define read(IN filepointer f, OUT int *n) { *n = fgetc(f); fputs(\"text\", f); }";
    let document = parse_document(text).document;
    let compiled = built(text, "streams.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = |path: &Path| Some(Scalar::Text(path.to_str().unwrap().to_owned()));
    let note = |to: &Path, lines: i64| {
        let scalars = [path(to), Some(Scalar::Int(lines))];
        let layout = document.interfaces[0].layout(&scalars, &[]).unwrap();
        // SAFETY: there are no arrays.
        unsafe { binding.invoke(0, &scalars, &layout, &[], &mut nobody) }
    };
    assert_eq!(note(file.path(), 2), Ok(()));
    assert_eq!(fs::read_to_string(file.path()).unwrap(), "text\ntext\n");
    for lines in [1, 100_000] {
        match note(Path::new("/dev/full"), lines) {
            Err(InvokeError::Unwritten(0, problem)) => assert!(!problem.is_empty()),
            other => panic!("{lines}: {other:?}"),
        }
    }
    // A function may try what it likes with a file that does not go back.
    let scalars = [path(file.path()), None];
    let called = invoke(&binding, &document, "read", &scalars, |_, _| {});
    assert_eq!(i32::from_ne_bytes(called.array(0, 0)), i32::from(b't'));
}

#[test]
fn a_body_finds_standard_headers_and_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bodies.idl");
    fs::create_dir(folder.path().join("include")).unwrap();
    fs::write(folder.path().join("include/sizes.h"), "#define N 3\n").unwrap();
    let body = "{ memcpy(b, a, N); assert(b[SECOND] == a[1]); }";
    let text = format!("#include \"sizes.h\"\nDefine f(IN char a[N], OUT char b[N]) {body}");
    fs::write(&path, text).unwrap();
    let include = format!("-I{}", folder.path().join("include").display());
    let source = Source::read_with(&path, &[include, "-DSECOND=1".into()]).unwrap();
    let document = source.parse().document;
    compile(&document, &source, true).unwrap().unwrap();
}

#[test]
fn compiled_code_is_deleted_also_after_a_kill() {
    let abandoned = tempfile::Builder::new().prefix("farcall-bodies-").tempdir();
    let abandoned = abandoned.unwrap().keep();
    let first = built("Define f() {}", "f.idl").unwrap().unwrap();
    assert!(
        !abandoned.exists(),
        "a folder that nobody has locked remains"
    );
    let second = built("Define f() {}", "f.idl").unwrap().unwrap();
    let path = first.path();
    assert!(path.exists() && second.path().exists());
    drop(first);
    assert!(!path.exists() && second.path().exists());
}

#[test]
fn errors_of_the_compiler_are_shown() {
    let text = "Module m;\nGlobals {\n}\nDefine f(IN int n)\n  { int m;\n  return undeclared; }";
    match built(text, "folder \"x\"/wrong.idl") {
        Err(CompileError::Failed { messages, .. }) => {
            assert!(messages.contains("undeclared"), "{messages}");
            assert!(messages.contains("/wrong.idl:6:10: error"), "{messages}");
        }
        other => panic!("{other:?}"),
    }
    let wrong = built("Module m;\nGlobals { int x = y; }\nDefine f() {}", "g.idl");
    let messages = wrong.unwrap_err().to_string();
    assert!(messages.contains("g.idl:2:19: error"), "{messages}");
}

#[test]
fn fortran_strings_and_complex_values() {
    let made = Command::new("make")
        .arg("-sC")
        .arg(root().join("testing/faults"))
        .status();
    let library = root().join("testing/faults/libfarcall_stop.so");
    if !made.is_ok_and(|status| status.success()) || !library.exists() {
        println!("SKIPPED: Fortran is not tested: there is no gfortran");
        return;
    }
    let catalog = Catalog::load([root().join("testing/faults/stop.idl")]).unwrap();
    let (source, document) = catalog.files().next().unwrap();
    let binding = Binding::load(document, source.folder(), None).unwrap();

    let scalars = [Some(Scalar::Text("world".into())), None, None];
    let called = invoke(&binding, document, "greet", &scalars, |_, _| {});
    assert_eq!(
        &called.bytes[..32],
        format!("{:32}", "hello world").as_bytes()
    );
    assert_eq!(i32::from_ne_bytes(called.array(1, 0)), 532);

    let start = Some(Scalar::Complex { re: 10.0, im: -1.0 });
    let scalars = [Some(Scalar::Int(2)), None, start, None];
    let called = invoke(&binding, document, "zsum", &scalars, |layout, bytes| {
        put(bytes, layout.arrays[0].offset, &[1.0, 2.0, 3.0, 4.0]);
    });
    assert_eq!(f64::from_ne_bytes(called.array(1, 0)), 14.0);
    assert_eq!(f64::from_ne_bytes(called.array(1, 1)), 5.0);
    let called = invoke(&binding, document, "csum", &scalars, |_, _| {});
    assert_eq!(f32::from_ne_bytes(called.array(1, 0)), 10.0);
    assert_eq!(f32::from_ne_bytes(called.array(1, 1)), -1.0);
}

#[test]
fn every_missing_symbol_is_listed() {
    let text = "Library \"libc.so.6\"; Module m;\n\
        Define f(IN int n) Calls \"FORTRAN\" NoSuch(n);\n\
        Define g(IN int n) Calls \"C\" abs(n);\n\
        Define h(IN int n) Calls \"C\" nor_this(n);\n\
        Define i(IN int n) Backend \"GRAM\" Calls \"C\" elsewhere(n);";
    let document = parse_document(text).document;
    let error = Binding::load(&document, Path::new("."), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "symbols are missing in libc.so.6:\n  `m/f`: no nosuch_, nosuch__, nosuch, NoSuch\n  \
         `m/h`: no nor_this"
    );
    let text = "Library \"libnowhere.so.3\"; Define f(IN int n) Calls f(n);";
    let document = parse_document(text).document;
    let error = Binding::load(&document, Path::new("."), None).unwrap_err();
    assert!(
        matches!(&error, BindError::Load(load) if load.name == "libnowhere.so.3"),
        "{error}"
    );
}

#[test]
fn an_unbound_function_or_a_wrong_argument_is_not_called() {
    let text = "Library \"libc.so.6\"; Define abs(IN int n, OUT int *r) Calls \"C\" r = abs(n);\n\
        Define far(IN int n) Backend \"GRAM\" Calls \"C\" far(n);";
    let document = parse_document(text).document;
    let binding = Binding::load(&document, Path::new("."), None).unwrap();
    assert!(binding.is_bound(0) && !binding.is_bound(1) && !binding.is_bound(2));
    let scalars = [Some(Scalar::Int(-4)), None];
    let called = invoke(&binding, &document, "abs", &scalars, |_, _| {});
    assert_eq!(i32::from_ne_bytes(called.array(0, 0)), 4);
    let layout = document.interfaces[0].layout(&scalars, &[]).unwrap();
    let mut line = Line([0; 64]);
    let starts = starts(&layout, line.0.as_mut_ptr());
    // SAFETY: refused before anything is called.
    unsafe {
        let far = binding.invoke(1, &scalars[..1], &layout, &starts, &mut nobody);
        assert_eq!(far, Err(InvokeError::NotBound(1)));
        let short = binding.invoke(0, &scalars[..1], &layout, &starts, &mut nobody);
        assert_eq!(short, Err(InvokeError::OtherFunction));
        let float = [Some(Scalar::Float(1.0)), None];
        assert_eq!(
            binding.invoke(0, &float, &layout, &starts, &mut nobody),
            Err(InvokeError::Scalar(0))
        );
    }
}

/// As `ISTATE` of LSODE, which is 1 at the first call and then 2.
#[test]
fn a_constant_of_fortran_is_the_same_at_each_call() {
    let text = "Globals {\n\
        void begin_(int *state, double *x, char *c, int *seen, unsigned long length) {\n\
            *seen = *state == 1 && *x == 0.5 && *c == 'N' && length == 1;\n\
            *state = 2; *x = 7; *c = 'T';\n\
        }\n\
        }\n\
        Define begin(OUT int *seen) Calls \"FORTRAN\" begin(1, 0.5, 'N', seen);";
    let document = parse_document(text).document;
    let compiled = built(text, "constants.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    for call in 1..=2 {
        let called = invoke(&binding, &document, "begin", &[None], |_, _| {});
        assert_eq!(i32::from_ne_bytes(called.array(0, 0)), 1, "call {call}");
    }
}

/// As programs for Ninf-G pass it.
#[test]
fn a_null_text_has_no_characters_in_fortran() {
    let text = "Globals {\n\
        void seen_(char *text, long *seen, unsigned long length) {\n\
            *seen = text ? -1 : (long) length;\n\
        }\n\
        }\n\
        Define seen(IN string text, OUT long *seen) Calls \"FORTRAN\" seen(text, seen);";
    let document = parse_document(text).document;
    let compiled = built(text, "null.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    let scalars = [Some(Scalar::Text(Scalar::NULL_TEXT.to_owned())), None];
    let called = invoke(&binding, &document, "seen", &scalars, |_, _| {});
    assert_eq!(i64::from_ne_bytes(called.array(0, 0)), 0);
}

/// As `strtok` cuts a text.
#[test]
fn a_constant_text_is_the_same_at_each_call() {
    let text = "Globals {\n\
        void cut(char *text, int *seen) { *seen = strlen(text); text[1] = 0; }\n\
        }\n\
        Define cut(OUT int *seen) Calls \"C\" cut(\"a,b,c\", seen);";
    let document = parse_document(text).document;
    let compiled = built(text, "texts.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    for call in 1..=2 {
        let called = invoke(&binding, &document, "cut", &[None], |_, _| {});
        assert_eq!(i32::from_ne_bytes(called.array(0, 0)), 5, "call {call}");
    }
}

/// Only the first process of a parallel function has large arrays.
#[test]
fn an_info_that_this_process_does_not_have_is_left_alone() {
    let text = "Library \"libc.so.6\"; Define abs(IN int n, OUT int info[n]) Calls \"C\" abs(n);";
    let document = parse_document(text).document;
    let binding = Binding::load(&document, Path::new("."), None).unwrap();
    let scalars = [Some(Scalar::Int(20)), None];
    let layout = document.interfaces[0].layout(&scalars, &[]).unwrap();
    let starts = [std::ptr::null_mut()];
    // SAFETY: the function takes no array.
    let called = unsafe { binding.invoke(0, &scalars, &layout, &starts, &mut nobody) };
    assert_eq!(called, Ok(()));
}

const CALLS_BACK: &str = r#"
Define ask(IN int n, INOUT double x[n], OUT int *answers,
           each(IN int k, IN double f, IN char c, IN string s, IN int n, INOUT double x[n][2:1],
                OUT int *go_on))
{
    double pairs[2 * n];
    int go_on = 1;
    for (int k = 0; k < 3 && go_on; k++) {
        for (int i = 0; i < n; i++)
            pairs[2 * i] = x[i], pairs[2 * i + 1] = -1;
        each(k, 0.5 * k, 'c', "text", n, pairs, &go_on);
        for (int i = 0; i < n; i++)
            x[i] = pairs[2 * i] + (pairs[2 * i + 1] != -1);
        *answers = k + 1;
    }
}
Define fortran(IN int n, OUT int *seen) Calls "FORTRAN" wrong(n, seen);
Define report(IN int n, xerbla(IN string name, IN int info)) Calls "FORTRAN" report(n, xerbla);
Globals {
    #include <stddef.h>
    void wrong_(int *n, int *seen) { *seen = *n; }
    void report_(int *n, void (*xerbla)(const char *, const int *, size_t)) {
        xerbla("DGESV   trailing", n, 8);
    }
}
Define huge(IN long n, each(IN long n, IN double x[n])) { double x; each(n, &x); }
"#;

/// This is one test, because a process runs one call at a time.
#[test]
fn functions_call_back() {
    let document = parse_document(CALLS_BACK).document;
    let compiled = built(CALLS_BACK, "calls.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    in_both_directions(&document, &binding);
    from_fortran(&document, &binding);
    more_than_is_allowed(&document, &binding);
}

fn in_both_directions(document: &farcall_idl::Document, binding: &Binding) {
    let scalars = [Some(Scalar::Int(2)), None, None];
    let layout = document.interfaces[0].layout(&scalars, &[]).unwrap();
    let mut lines = vec![Line([0; 64]); (layout.bytes / 64) as usize];
    let base = lines.as_mut_ptr().cast::<u8>();
    let mut asked = Vec::new();
    let mut caller = |request: Result<CallbackRequest, String>| {
        let request = request.unwrap();
        assert_eq!(request.index, 0);
        assert_eq!(request.scalars[3], Some(Scalar::Text("text".into())));
        assert_eq!(request.data.len(), 16, "one of two columns travels");
        asked.push(request.scalars[1].clone());
        let mut data: Vec<u8> = [1.5f64, 2.5].iter().flat_map(|v| v.to_ne_bytes()).collect();
        data.extend(i32::from(asked.len() < 2).to_ne_bytes());
        CallbackAnswer { data, swap: false }
    };
    let starts = starts(&layout, base);
    // SAFETY: the layout is that of the call and the buffer has its size.
    unsafe { binding.invoke(0, &scalars, &layout, &starts, &mut caller) }.unwrap();
    assert_eq!(asked, [Some(Scalar::Float(0.0)), Some(Scalar::Float(0.5))]);
    // SAFETY: within the buffer.
    let (x, answers) = unsafe { (starts[0].cast::<[f64; 2]>().read(), starts[1].read()) };
    assert_eq!((x, answers), ([1.5, 2.5], 2));
}

/// Text has a hidden length, and numbers go by reference.
fn from_fortran(document: &farcall_idl::Document, binding: &Binding) {
    let scalars = [Some(Scalar::Int(4))];
    let layout = document.interfaces[2].layout(&scalars, &[]).unwrap();
    let mut seen = Vec::new();
    let mut caller = |request: Result<CallbackRequest, String>| {
        seen = request.unwrap().scalars;
        let (data, swap) = (Vec::new(), false);
        CallbackAnswer { data, swap }
    };
    // SAFETY: there are no arrays.
    unsafe { binding.invoke(2, &scalars, &layout, &[], &mut caller) }.unwrap();
    let name = Some(Scalar::Text("DGESV".into()));
    assert_eq!(seen, [name, Some(Scalar::Int(4))]);
}

/// The error is reported before memory is allocated.
fn more_than_is_allowed(document: &farcall_idl::Document, binding: &Binding) {
    let scalars = [Some(Scalar::Int(1 << 50))];
    let layout = document.interfaces[3].layout(&scalars, &[]).unwrap();
    let mut told = None;
    let mut caller = |request: Result<CallbackRequest, String>| {
        told = request.err();
        let (data, swap) = (Vec::new(), false);
        CallbackAnswer { data, swap }
    };
    // SAFETY: there are no arrays.
    unsafe { binding.invoke(3, &scalars, &layout, &[], &mut caller) }.unwrap();
    let told = told.unwrap();
    assert!(
        told.contains("callback `each`: its arrays and texts have 9007199254740992 bytes"),
        "{told}"
    );
}

#[test]
fn files_are_read_checked_and_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let a = write(
        "a.idl",
        "#define N 4\nModule a;\nDefine f(IN double x[N]) Calls f(x);\n",
    );
    let b = write(
        "b.idl",
        "Module b;\nDefine f(IN int n) Calls f(n);\nDefine g() Calls g();\n",
    );
    let bad = write(
        "bad.idl",
        "# 1 \"bad.idl\"\nDefine f(IN nit n) Calls f(n);\n",
    );
    let catalog = Catalog::load([&a, &b]).unwrap();
    let (_, f) = catalog.entries().next().unwrap();
    assert_eq!(f.params[0].dims.len(), 1);
    let names = catalog.entries().map(|(_, one)| one.qualified_name());
    assert_eq!(names.collect::<Vec<_>>(), ["a/f", "b/f", "b/g"]);
    assert!(matches!(
        Catalog::load([&b, &b]),
        Err(CatalogError::Twice { .. })
    ));
    let empty = write("empty.idl", "Module empty;\n");
    let error = Catalog::load([&a, &empty]).unwrap_err().to_string();
    assert!(
        error.contains("empty.idl: no function is defined"),
        "{error}"
    );
    let (text, accepted) = check_files([&b, &bad], &[], false);
    assert!(!accepted && text.contains("bad.idl:1:13"), "{text}");
    assert!(text.contains("2 functions, 0 errors, 0 warnings"), "{text}");
    let missing = Source::read(folder.path().join("none.idl"));
    assert!(matches!(missing, Err(SourceError::Read { .. })));
    let include = write("include.idl", "#include \"nowhere.h\"\n");
    match Source::read(include) {
        Err(SourceError::Preprocessor { messages, .. }) => assert!(messages.contains("nowhere.h")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_library_reports_its_identity() {
    let catalog = Catalog::load([root().join("libraries/blas.idl")]).unwrap();
    let (source, document) = catalog.files().next().unwrap();
    let Ok(binding) = Binding::load(document, source.folder(), None) else {
        println!("SKIPPED: there is no OpenBLAS");
        return;
    };
    let identity = &binding.identities()[0];
    assert!(
        identity
            .path
            .as_ref()
            .is_some_and(|path| path.is_absolute())
    );
    assert!(
        identity
            .version
            .as_ref()
            .is_some_and(|version| version.contains("OpenBLAS"))
    );
    // SAFETY: nothing of the library runs.
    assert!(unsafe { Threads::of_process().set(1) });
}

/// MKL fills a buffer of its caller, and pads it with blanks.
#[test]
fn a_version_that_the_library_writes_into_a_buffer_is_read() {
    let text = "Globals {\n\
        #include <stdio.h>\n\
        void mkl_get_version_string(char *text, int bytes) {\n\
            snprintf(text, bytes, \"%-*s\", bytes - 1, \"MKL 2026.0\");\n\
        }\n}\n\
        Define f(IN int n) { }";
    let document = parse_document(text).document;
    let compiled = built(text, "mkl.idl").unwrap().unwrap();
    let binding = Binding::load(&document, Path::new("."), Some(&compiled.path())).unwrap();
    let version = binding.identity(0).unwrap().version.as_deref();
    assert_eq!(version, Some("MKL 2026.0"));
}
