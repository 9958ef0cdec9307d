//! The kernel of OpenBLAS, which is its code for one family of processors. OpenBLAS selects it when
//! it is loaded, by the model of the processor. For a model that is newer than the library it takes
//! its oldest one, which needs several times as long. Then the instructions of the processor decide
//! here, before a function has computed anything. `OPENBLAS_CORETYPE` goes first.

use crate::identity;
use crate::loader::Loaded;
use std::ffi::CStr;

/// Variable of OpenBLAS with the name of a kernel.
const WANTED: &CStr = c"OPENBLAS_CORETYPE";
/// What OpenBLAS takes for a processor that it does not know. It uses SSE3.
const OLDEST: &str = "Prescott";

/// Lets OpenBLAS, if the library is one or needs one, select its kernel again if it does not know
/// the processor.
pub(crate) fn select(library: &Loaded) {
    if identity::kernel(library).as_deref() != Some(OLDEST) {
        return;
    }
    let selects = ["gotoblas_dynamic_quit", "gotoblas_dynamic_init"];
    let [Some(forget), Some(select)] = selects.map(|name| library.symbol(name)) else {
        return;
    };
    let Some(kernel) = of_processor() else { return };
    // SAFETY: both are `void (void)`. The library was loaded just now, so no function of it runs,
    // and its threads do not read the environment. Who loads libraries has no other threads.
    unsafe {
        if !libc::getenv(WANTED.as_ptr()).is_null() {
            return;
        }
        let [forget, select] =
            [forget, select].map(|at| std::mem::transmute::<_, unsafe extern "C" fn()>(at));
        libc::setenv(WANTED.as_ptr(), kernel.as_ptr(), 1);
        forget();
        select();
        // Other copies of OpenBLAS, such as that of NumPy, know the processor.
        libc::unsetenv(WANTED.as_ptr());
    }
}

/// The kernel whose instructions this processor has; `None` if it has only those of the oldest one.
#[cfg(target_arch = "x86_64")]
fn of_processor() -> Option<&'static CStr> {
    let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (has_avx512, has_avx2) {
        (true, true) => Some(c"SkylakeX"),
        (_, true) => Some(c"Haswell"),
        _ => None,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn of_processor() -> Option<&'static CStr> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn openblas_uses_the_instructions_of_the_processor() {
        let library = Loaded::open("libopenblas.so.0", Path::new(".")).unwrap();
        select(&library);
        let kernel = identity::kernel(&library).unwrap();
        if of_processor().is_some() && std::env::var_os("OPENBLAS_CORETYPE").is_none() {
            assert_ne!(kernel, OLDEST);
        }
        let dgemm = library.symbol("dgemm_").unwrap();
        type Product = unsafe extern "C" fn(
            *const u8,
            *const u8,
            *const i32,
            *const i32,
            *const i32,
            *const f64,
            *const f64,
            *const i32,
            *const f64,
            *const i32,
            *const f64,
            *mut f64,
            *const i32,
        );
        const N: usize = 100;
        let (n, one, zero, letter) = (N as i32, 1.0, 0.0, b'N');
        let (a, mut c) = (vec![2.0; N * N], vec![0.0; N * N]);
        // SAFETY: the arguments are those of DGEMM for square matrices of this size.
        unsafe {
            let dgemm: Product = std::mem::transmute(dgemm);
            let (a, n) = (a.as_ptr(), &raw const n);
            let letter = &raw const letter;
            let (one, zero) = (&raw const one, &raw const zero);
            dgemm(
                letter,
                letter,
                n,
                n,
                n,
                one,
                a,
                n,
                a,
                n,
                zero,
                c.as_mut_ptr(),
                n,
            );
        }
        assert_eq!(c, vec![4.0 * N as f64; N * N], "{kernel}");
    }
}
