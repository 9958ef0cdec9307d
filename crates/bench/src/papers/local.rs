//! Computes Linpack in this process, as a client does without a server. It uses the same library as
//! the server, so that a comparison shows only the cost of the call.

use crate::failure::Failure;
use crate::load::problem::Problem;
use farcall_idl::{Document, Scalar};
use farcall_library::{Binding, Catalog, Entry, Source, Threads};
use std::path::Path;
use std::time::Instant;

/// The library of linpack.idl, loaded into this process.
pub(super) struct Local {
    catalog: Catalog,
    binding: Binding,
}

impl Local {
    pub(super) fn load(libraries: &Path) -> Result<Local, Failure> {
        let catalog = Catalog::load([libraries.join("linpack.idl")]).map_err(Failure::failed)?;
        let (source, document): (&Source, &Document) = catalog
            .files()
            .next()
            .ok_or_else(|| Failure::failed("linpack.idl is empty"))?;
        let binding = Binding::load(document, source.folder(), None).map_err(Failure::failed)?;
        Ok(Local { catalog, binding })
    }

    /// Sets the number of threads of the library.
    pub(super) fn use_threads(&self, threads: usize) {
        // SAFETY: the library computes in no other thread of this process.
        unsafe { Threads::of_process().set(threads as u32) };
    }

    /// Seconds to solve a system of this order with a function of the interface file.
    pub(super) fn solve(&self, name: &str, n: usize) -> Result<f64, Failure> {
        let mut entries = self.catalog.entries();
        let found = entries.find(|(_, one)| one.plain_name() == name);
        let (Entry { function, .. }, interface) = found.ok_or_else(|| Failure::failed(name))?;
        let mut scalars = vec![None; interface.params.len()];
        scalars[0] = Some(Scalar::Int(n as i64));
        let layout = interface.layout(&scalars, &[]).map_err(Failure::failed)?;
        // Aligned for every element, like the server's buffers.
        let mut memory = vec![0.0f64; (layout.bytes / 8) as usize];
        fill(
            &mut memory[..n * n],
            Problem::Linpack(n).operations() as u64,
        );
        let bytes = memory.as_mut_ptr().cast::<u8>();
        let starts: Vec<*mut u8> = layout
            .arrays
            .iter()
            .map(|array| bytes.wrapping_add(array.offset as usize))
            .collect();
        let start = Instant::now();
        // SAFETY: the layout is that of this interface for these scalars, and every array lies in
        // `memory` at its offset, which is a multiple of 64.
        let called = unsafe {
            let mut nobody = |_| unreachable!("the interface has no callbacks");
            self.binding
                .invoke(function, &scalars, &layout, &starts, &mut nobody)
        };
        called.map_err(Failure::failed)?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Fills a matrix with values that make it non-singular.
fn fill(matrix: &mut [f64], seed: u64) {
    let mut state = seed;
    for value in matrix {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        *value = (state >> 33) as f64 / f64::from(1u32 << 31) - 0.5;
    }
}
