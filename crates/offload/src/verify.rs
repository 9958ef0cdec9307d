//! Compares the results of a remote call with those of the real function. It is pure.

use farcall_idl::Type;

/// The largest difference of two arrays, relative to the largest number in the second. Integers
/// that differ count as 1, and so does a number beside one that is none.
pub(crate) fn difference(ty: Type, there: &[u8], here: &[u8]) -> f64 {
    match ty {
        Type::Float | Type::SComplex => {
            relative(there, here, |bytes| f64::from(f32::from_ne_bytes(bytes)))
        }
        Type::Double | Type::DComplex => relative(there, here, f64::from_ne_bytes),
        _ => f64::from(u8::from(there != here)),
    }
}

fn relative<const N: usize>(there: &[u8], here: &[u8], read: fn([u8; N]) -> f64) -> f64 {
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        let (numbers, _) = bytes.as_chunks::<N>();
        numbers.iter().copied().map(read).collect()
    };
    let (there, here) = (numbers(there), numbers(here));
    let largest = here.iter().filter(|number| number.is_finite());
    let largest = largest.fold(0.0, |most: f64, number| most.max(number.abs()));
    let pairs = there.iter().zip(&here);
    let differences = pairs.map(|(a, b)| match (a.is_finite(), b.is_finite()) {
        (true, true) if a == b => 0.0,
        (true, true) => ((a - b) / largest).abs(),
        (false, false) if a == b || (a.is_nan() && b.is_nan()) => 0.0,
        _ => 1.0,
    });
    differences.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[f64]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_ne_bytes())
            .collect()
    }

    #[test]
    fn differences_are_relative_to_the_largest_number() {
        let compare = |a: &[f64], b: &[f64]| difference(Type::Double, &bytes(a), &bytes(b));
        assert_eq!(compare(&[1.0, -4.0], &[1.0, -4.0]), 0.0);
        assert_eq!(compare(&[1.0, -4.0], &[2.0, -4.0]), 0.25);
        assert_eq!(compare(&[f64::NAN, 1.0], &[f64::NAN, 1.0]), 0.0);
        assert_eq!(compare(&[f64::NAN, 1.0], &[2.0, 1.0]), 1.0);
        assert_eq!(compare(&[f64::INFINITY], &[f64::NEG_INFINITY]), 1.0);
    }

    #[test]
    fn integers_are_equal_or_not() {
        assert_eq!(difference(Type::Int, &[1, 0, 0, 0], &[1, 0, 0, 0]), 0.0);
        assert_eq!(difference(Type::Int, &[1, 0, 0, 0], &[2, 0, 0, 0]), 1.0);
    }
}
