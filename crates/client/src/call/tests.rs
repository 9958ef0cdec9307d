//! Tests of how arguments are checked against an interface before a call is sent. They need no
//! server: each test describes a function and prepares a call of it.

use super::*;
use crate::argument::named::in_order;
use crate::timeout::Timeout;

fn described(text: &str) -> Arc<Description> {
    let who = (&"localhost".parse().unwrap(), "a test");
    Arc::new(Description::read(who, "f", text.to_string(), None).unwrap())
}

fn matrix() -> Arc<Description> {
    described(
        "Module t;\nDefine f(IN int n, IN double a[n][n], OUT double x[n], WORK double w[n])\n    \
         Calls \"FORTRAN\" f(n, a, x, w);\n",
    )
}

fn prepared(arguments: &[Argument<'_>]) -> Result<Prepared, String> {
    let prepared = Prepared::new(
        &matrix(),
        Timeout::from_now(None),
        None,
        arguments,
        Travel::Both,
    );
    prepared.map_err(|error| error.to_string())
}

fn refused(arguments: &[Argument<'_>]) -> String {
    prepared(arguments).err().expect("it is refused")
}

#[test]
fn slices_of_the_right_type_and_length_fit() {
    let (a, mut x) = (vec![0.0; 9], [0.0; 3]);
    let fits = prepared(&[3.into(), (&a).into(), (&mut x).into(), Argument::Skip]).unwrap();
    assert_eq!(fits.layout.sent_bytes(), 72);
    assert_eq!(fits.call.scalars[0], Some(Scalar::Int(3)));
}

#[test]
fn elements_of_another_type_are_refused_though_the_length_is_right() {
    let (a, mut x) = (vec![0.0f32; 18], [0.0; 3]);
    let text = refused(&[3.into(), (&a).into(), (&mut x).into(), Argument::Skip]);
    let expected = "argument `a`: expected an array of double, given one of f32";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn an_array_that_is_written_has_to_be_writable() {
    let (a, x) = (vec![0.0; 9], [0.0; 3]);
    let text = refused(&[3.into(), (&a).into(), (&x).into(), Argument::Skip]);
    let expected = "argument `x`: expected an array to write to, given an array that is only read";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn names_bring_arguments_in_order() {
    let interface = &matrix().interface;
    let (a, mut x) = ([0.0; 9], [0.0; 3]);
    let x = ("x", (&mut x).into());
    let ordered = in_order(interface, [x, ("n", 3.into()), ("a", (&a).into())]).unwrap();
    assert!(matches!(ordered[0], Argument::Scalar(Scalar::Int(3))));
    assert!(ordered[1].is_readable() && ordered[2].is_writable());
    assert!(
        matches!(ordered[3], Argument::Skip),
        "work space is left out"
    );
}

#[test]
fn names_that_are_none_or_twice_or_missing_are_refused() {
    let interface = &matrix().interface;
    let text =
        |given: Vec<(&str, Argument<'_>)>| in_order(interface, given).unwrap_err().to_string();
    let unknown = text(vec![("m", 3.into())]);
    assert_eq!(unknown, "there is no argument `m`; there are: n, a, x, w");
    let twice = text(vec![("n", 3.into()), ("n", 3.into())]);
    assert_eq!(twice, "argument `n` is given twice");
    assert_eq!(text(vec![("n", 3.into())]), "argument `a` is missing");
}

#[test]
fn the_layout_of_another_function_is_not_taken() {
    let other =
        described("Module t;\nDefine f(IN int n, IN double a[n * n])\n    Calls \"C\" f(n, a);\n");
    let laid_out = LaidOut::new(&other, vec![Some(Scalar::Int(9)), None], Vec::new()).unwrap();
    let (a, mut x) = ([0.0; 9], [0.0; 3]);
    let arguments = [3.into(), (&a).into(), (&mut x).into(), Argument::Skip];
    let prepared = Prepared::new(
        &matrix(),
        Timeout::from_now(None),
        Some(laid_out),
        &arguments,
        Travel::Both,
    )
    .unwrap();
    assert_eq!(prepared.layout.sent_bytes(), 72);
}

#[test]
fn another_attempt_leaves_the_places_of_the_first() {
    let (a, mut x) = ([0.0; 9], [0.0; 3]);
    let mut arguments = [3.into(), (&a).into(), (&mut x).into(), Argument::Skip];
    let mut call = prepared(&arguments).unwrap();
    let kept = std::mem::replace(&mut arguments[1], Argument::Handle(HandleId([7; 16])));
    call.settle(&arguments);
    call.tell_places();
    assert_eq!((call.call.handles.len(), call.call.data_bytes), (1, 0));
    arguments[1] = kept;
    call.settle(&arguments);
    call.tell_places();
    assert_eq!((call.call.handles.len(), call.call.data_bytes), (0, 72));
}

#[cfg(feature = "ndarray")]
mod views {
    use super::*;
    use ndarray::{Array1, Array2, ShapeBuilder, s};

    #[test]
    fn shape_and_order_of_a_view_are_those_of_the_function() {
        let a = Array2::<f64>::zeros((3, 3).f());
        let mut x = Array1::<f64>::zeros(3);
        let skip = || Argument::Skip;
        let fits = prepared(&[3.into(), (&a).into(), (&mut x).into(), skip()]).unwrap();
        assert_eq!(fits.layout.sent_bytes(), 72);

        let rows = Array2::<f64>::zeros((3, 3));
        let text = refused(&[3.into(), (&rows).into(), (&mut x).into(), skip()]);
        let expected = "`a`: expected shape [3, 3] with the first index fastest (Fortran), \
                        given shape [3, 3] with the last index fastest";
        assert!(text.ends_with(expected), "{text}");
        let turned = rows.t();
        assert!(prepared(&[3.into(), turned.into(), (&mut x).into(), skip()]).is_ok());

        let flat = Array1::<f64>::zeros(9);
        let text = refused(&[3.into(), (&flat).into(), (&mut x).into(), skip()]);
        assert!(text.contains("given shape [9] in any order"), "{text}");
    }

    #[test]
    fn a_view_with_gaps_is_refused() {
        let a = Array2::<f64>::zeros((3, 3).f());
        let mut x = Array1::<f64>::zeros(6);
        let every_second = x.slice_mut(s![..;2]);
        let text = refused(&[3.into(), (&a).into(), every_second.into(), Argument::Skip]);
        assert!(
            text.contains("given shape [3] with gaps in memory"),
            "{text}"
        );
    }
}
