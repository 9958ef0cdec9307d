//! Collects a list that the server sends in pages. It ends also if a server's pages point to
//! themselves or back.

use crate::error::Error;

/// All entries of a list. `ask` returns the page from a position on, and the position of the next
/// page.
pub(crate) fn all<T, P: Iterator<Item = T>>(
    mut ask: impl FnMut(u64) -> Result<(P, Option<u64>), Error>,
) -> Result<Vec<T>, Error> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (page, next) = ask(place)?;
        // A page that points to itself would make this loop endless.
        from = next.filter(|next| *next > place);
        all.extend(page);
    }
    Ok(all)
}
