//! Any bytes as the JSON of a call through a gateway. There is no panic, the arrays are bounded,
//! and what a call gives back is JSON.

use farcall_gateway::{Arguments, Misfit, results};
use farcall_idl::{Interface, Layout, parse_document};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Most bytes of all arrays.
const MOST: u64 = 1 << 16;

static FUNCTIONS: LazyLock<Vec<Interface>> = LazyLock::new(|| {
    let text = "Define solve(IN int n, INOUT double a[n][lda:n], IN int lda, OUT int info[1]) \
                Calls \"FORTRAN\" solve(n, a, lda, info);
                Define mixed(IN double x, IN dcomplex z, IN char c, IN string s, \
                INOUT scomplex w[2], INOUT unsigned long u[2][2], INOUT string[4] t[2], \
                WORK float work[8]) Calls \"C\" mixed(x, z, c, s, w, u, t, work);
                Define sparse(IN int n, IN int rows[n+1], INOUT float v[rows[n]]) \
                Calls \"C\" sparse(n, rows, v);";
    parse_document(text).document.into_functions()
});

/// The body of the target.
pub fn run(data: &[u8]) {
    assert_eq!(FUNCTIONS.len(), 3);
    for interface in &*FUNCTIONS {
        let Some((layout, arrays)) = read(interface, data) else {
            continue;
        };
        let bytes: usize = arrays.values().map(Vec::len).sum();
        assert!(bytes as u64 <= MOST);
        for is_binary in [false, true] {
            let shown = results(interface, &layout, &arrays, is_binary);
            assert!(serde_json::from_slice::<serde_json::Value>(&shown).is_ok());
        }
    }
}

fn read(interface: &Interface, text: &[u8]) -> Option<(Layout, BTreeMap<usize, Vec<u8>>)> {
    let read = || {
        let arguments = Arguments::read(interface, text)?;
        let elements = arguments.elements(interface)?;
        let layout = interface.layout(&arguments.scalars, &elements);
        let layout = layout.map_err(|error| Misfit::Argument(error.to_string()))?;
        let arrays = arguments.fit(interface, &layout, MOST)?;
        Ok::<_, Misfit>((layout, arrays))
    };
    read().ok()
}
