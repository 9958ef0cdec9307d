//! Makes the same call without Farcall: symbols by `dlsym`, and function pointers of plain machine
//! words. The tests compare the results of both ways.

use crate::{Line, bytes};
use farcall_idl::{
    Body, Constant, Convention, Document, Interface, Layout, Library, Passed, Scalar, Type,
};
use std::ffi::{CString, c_void};
use std::path::Path;

#[repr(C)]
struct Pair<T>(T, T);

macro_rules! call_words {
    ($address:expr, $words:expr, $result:ty, $($count:literal => $($index:literal)*;)*) => {
        match $words.len() {
            $($count => {
                let function: extern "C" fn($(word!($index)),*) -> $result =
                    std::mem::transmute($address);
                function($($words[$index]),*)
            })*
            other => panic!("{other} arguments"),
        }
    };
}

macro_rules! word {
    ($index:literal) => {
        usize
    };
}

macro_rules! call {
    ($address:expr, $words:expr, $result:ty) => {
        call_words!($address, $words, $result,
            1 => 0;
            2 => 0 1;
            3 => 0 1 2;
            4 => 0 1 2 3;
            5 => 0 1 2 3 4;
            6 => 0 1 2 3 4 5;
            7 => 0 1 2 3 4 5 6;
            8 => 0 1 2 3 4 5 6 7;
            9 => 0 1 2 3 4 5 6 7 8;
            10 => 0 1 2 3 4 5 6 7 8 9;
            11 => 0 1 2 3 4 5 6 7 8 9 10;
            12 => 0 1 2 3 4 5 6 7 8 9 10 11;
            13 => 0 1 2 3 4 5 6 7 8 9 10 11 12;
            14 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13;
            15 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14;
            16 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;
            17 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16;
            18 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17;
            19 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18;
            20 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19;
            21 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20;
            22 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21;
            23 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22;
            24 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23;
            25 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24;
            26 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25;
            27 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26;
            28 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27;
            29 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28;
            30 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29;
            31 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30;
            32 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31;
            33 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32;
            34 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32 33;
            35 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32 33 34;
            36 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32 33 34 35;
            37 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32 33 34 35 36;
            38 => 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
                24 25 26 27 28 29 30 31 32 33 34 35 36 37;
        )
    };
}

/// Makes the call on a buffer laid out as `layout` says.
///
/// # Safety
/// The library keeps to its interface.
pub unsafe fn call(
    document: &Document,
    folder: &Path,
    interface: &Interface,
    scalars: &[Option<Scalar>],
    layout: &Layout,
    buffer: &mut [Line],
) {
    let Body::Calls {
        convention,
        function,
        args,
        returns,
    } = &interface.body
    else {
        panic!("a body in C");
    };
    let fortran = *convention == Convention::Fortran;
    let symbol = if fortran {
        format!("{function}_")
    } else {
        function.clone()
    };
    let address = find(document, folder, &symbol);
    let base = bytes(buffer).as_mut_ptr();
    // SAFETY: offsets are inside the buffer.
    let array = |param| unsafe { base.add(layout.array(param).unwrap().offset as usize) };
    let mut private: Vec<Box<[u8]>> = Vec::new();
    let mut lengths = Vec::new();
    let mut words = Vec::new();
    for passed in args {
        let param = match passed {
            Passed::Param(param) => *param,
            Passed::Constant(Constant::Null) => {
                words.push(0);
                continue;
            }
            Passed::Constant(Constant::Character(letter)) => {
                private.push(Box::from([*letter]));
                words.push(private.last().unwrap().as_ptr().expose_provenance());
                lengths.push(1);
                continue;
            }
            Passed::Constant(other) => panic!("the constant {other:?}"),
        };
        let ty = interface.params[param].ty;
        words.push(match &scalars[param] {
            None => array(param).expose_provenance(),
            Some(Scalar::Int(value)) if !fortran => *value as usize,
            Some(scalar) => {
                private.push(encoded(scalar, ty));
                private.last().unwrap().as_ptr().expose_provenance()
            }
        });
        if fortran && ty == Type::Char {
            lengths.push(1);
        }
    }
    words.append(&mut lengths);
    let result = returns.map(|param| (interface.params[param].ty, array(param)));
    // SAFETY: `words` are the arguments of the function, and the result fits into its array.
    unsafe { run(address, &words, result) };
}

/// Calls the function at `address`, and stores its result, of this type, at this place.
///
/// # Safety
/// The function takes these words, and the place has room for the result.
unsafe fn run(address: *mut c_void, words: &[usize], result: Option<(Type, *mut u8)>) {
    // SAFETY: the pointer has the type of the function, as far as machine words tell.
    unsafe {
        let Some((ty, target)) = result else {
            return call!(address, words, ());
        };
        match ty {
            Type::Int => target.cast::<i32>().write(call!(address, words, i32)),
            Type::Float => target.cast::<f32>().write(call!(address, words, f32)),
            Type::Double => target.cast::<f64>().write(call!(address, words, f64)),
            Type::SComplex => target
                .cast::<Pair<f32>>()
                .write(call!(address, words, Pair<f32>)),
            Type::DComplex => target
                .cast::<Pair<f64>>()
                .write(call!(address, words, Pair<f64>)),
            other => panic!("no rule for {}", other.name()),
        }
    }
}

fn encoded(scalar: &Scalar, ty: Type) -> Box<[u8]> {
    match (scalar, ty) {
        (Scalar::Text(text), _) => text.as_bytes().into(),
        (Scalar::Int(value), Type::Int) => Box::new((*value as i32).to_ne_bytes()),
        (Scalar::Float(value), Type::Float) => Box::new((*value as f32).to_ne_bytes()),
        (Scalar::Float(value), Type::Double) => Box::new(value.to_ne_bytes()),
        (Scalar::Complex { re, im }, Type::SComplex) => {
            [(*re as f32).to_ne_bytes(), (*im as f32).to_ne_bytes()]
                .concat()
                .into()
        }
        (Scalar::Complex { re, im }, _) => [re.to_ne_bytes(), im.to_ne_bytes()].concat().into(),
        other => panic!("no rule for {other:?}"),
    }
}

fn find(document: &Document, folder: &Path, symbol: &str) -> *mut c_void {
    let Library::Library(name) = &document.libraries[0] else {
        panic!("no library");
    };
    let beside = folder.join(name);
    let name = match beside.exists() {
        true => beside.canonicalize().unwrap().to_str().unwrap().to_string(),
        false => name.clone(),
    };
    let (name, symbol) = (CString::new(name).unwrap(), CString::new(symbol).unwrap());
    // SAFETY: both names end with NUL.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null());
        let address = libc::dlsym(handle, symbol.as_ptr());
        assert!(!address.is_null());
        address
    }
}
