//! Results of a durable call that come without being asked for again. The client asks for them when
//! it submits the call, if they are short. They wait here until the caller fetches them, which then
//! needs no further round trip. If they cannot come like this, the caller fetches them as usual.

use crate::argument::{Argument, Memory};
use crate::remote::connection::{Request, Transfer};
use farcall_idl::Layout;
use std::sync::Arc;

/// Most bytes of results that come early.
const MOST_BYTES: u64 = 4 << 10;

/// Results on their way. The request ends before its memory does.
pub(crate) struct Early {
    pub(crate) request: Request,
    pub(crate) scratch: Scratch,
}

/// Memory for the arrays that a call returns.
pub(crate) struct Scratch {
    /// Number of parameters.
    params: usize,
    /// The arrays, by parameter.
    arrays: Vec<(usize, Vec<u8>)>,
}

impl Scratch {
    /// Memory for the results of a call; `None` if they are long, or only parts of arrays.
    pub(crate) fn of(layout: &Layout, params: usize) -> Option<Scratch> {
        let returned = layout.arrays.iter().filter(|one| one.mode.is_returned());
        let is_short = layout.returned_bytes() <= MOST_BYTES;
        if !is_short || !returned.clone().all(|array| array.is_full()) {
            return None;
        }
        let array = |bytes: u64| vec![0; bytes as usize];
        let passed = returned.filter(|one| one.client_bytes > 0);
        let arrays = passed.map(|one| (one.param, array(one.client_bytes)));
        Some(Scratch {
            params,
            arrays: arrays.collect(),
        })
    }

    /// A transfer into this memory, which must outlive it.
    pub(crate) fn transfer(&mut self, layout: &Arc<Layout>) -> Transfer {
        let mut arguments: Vec<Argument<'_>> = Vec::new();
        arguments.resize_with(self.params, || Argument::Skip);
        for (param, array) in &mut self.arrays {
            arguments[*param] = Argument::Out(array);
        }
        // SAFETY: the arrays stay where they are, because no array grows, and nobody else uses
        // them until the request has ended.
        unsafe { Transfer::fetching(&mut arguments, layout.clone()) }
    }

    /// The places in the caller's memory that the arrays go to.
    pub(crate) fn to(self, arguments: &mut [Argument<'_>]) -> Landing {
        let arrays = self.arrays.into_iter();
        let arrays = arrays.map(|(param, array)| (array, arguments[param].memory()));
        Landing(arrays.collect())
    }
}

/// Results, and where they go when the caller's call has ended.
pub(crate) struct Landing(Vec<(Vec<u8>, Memory)>);

// SAFETY: who makes it promises that the memory outlives it and is left alone.
unsafe impl Send for Landing {}

impl Landing {
    /// Copies the results to the caller's arrays.
    pub(crate) fn finish(self) {
        for (array, place) in self.0 {
            assert!(
                place.writable && array.len() <= place.bytes,
                "only OUT arrays of this length are returned"
            );
            // SAFETY: checked above; the caller leaves its memory alone until the call has ended.
            unsafe {
                place
                    .start
                    .copy_from_nonoverlapping(array.as_ptr(), array.len())
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_idl::{Scalar, parse_interface};

    /// The memory for the results of a call whose first argument is `n`.
    fn scratch(idl: &str, n: i64) -> Option<Vec<(usize, usize)>> {
        let interface = parse_interface(idl).unwrap();
        let mut scalars = vec![None; interface.params.len()];
        scalars[0] = Some(Scalar::Int(n));
        let layout = interface.layout(&scalars, &[]).unwrap();
        let arrays = Scratch::of(&layout, scalars.len())?.arrays;
        let bytes = arrays.iter().map(|(param, array)| (*param, array.len()));
        Some(bytes.collect())
    }

    #[test]
    fn short_results_have_memory() {
        let idl = "Define f(IN int n, IN double x[n], OUT double y[n], INOUT int z[n]) \
                   Calls \"C\" f(n, x, y, z);";
        assert_eq!(scratch(idl, 3), Some(vec![(2, 24), (3, 12)]));
        assert_eq!(scratch(idl, 400), None);
        let nothing = "Define f(IN int n) Calls \"C\" f(n);";
        assert_eq!(scratch(nothing, 3), Some(vec![]));
    }

    /// What is not returned stays as it is in the caller's array.
    #[test]
    fn parts_of_arrays_go_to_the_callers_array_alone() {
        let idl = "Define f(IN int n, OUT double y[n][8:n]) Calls \"C\" f(n, y);";
        assert_eq!(scratch(idl, 3), None);
    }
}
