//! Lists that come page by page.

use crate::error::Error;

/// All of a list. `ask` brings the page from a place on, and the place of the next.
pub(crate) fn all<T, P: Iterator<Item = T>>(
    mut ask: impl FnMut(u64) -> Result<(P, Option<u64>), Error>,
) -> Result<Vec<T>, Error> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let (page, next) = ask(place)?;
        // A page that leads nowhere would be asked for without end.
        from = next.filter(|next| *next > place);
        all.extend(page);
    }
    Ok(all)
}
