//! What is asked of the program at the other end, whether it is a server or a metaserver.

use crate::description::FunctionSummary;
use crate::error::Error;
use crate::remote::connection::SharedMemory;
use crate::remote::requests::{functions, operation};
use crate::remote::server::Server;
use std::time::{Duration, Instant};

/// Its program and version, as it says.
pub(crate) fn agent(server: &Server) -> Result<String, Error> {
    Ok(server.connection()?.agent())
}

/// The time there and back.
pub(crate) fn ping(server: &Server) -> Result<Duration, Error> {
    let connection = server.connection()?;
    let start = Instant::now();
    // No server has so many functions: the page is empty.
    functions::list(&connection, u32::MAX)?;
    Ok(start.elapsed())
}

/// Has it serve the functions of an interface file as well; returns their names.
pub(crate) fn register(server: &Server, path: &str, text: &str) -> Result<Vec<String>, Error> {
    let listing = functions::register(&server.connection()?, path, text)?;
    let functions = listing.functions.into_iter();
    Ok(functions.map(|function| function.name).collect())
}

/// How it stands, as a JSON object.
pub(crate) fn status(server: &Server) -> Result<String, Error> {
    operation::status(&server.connection()?)
}

/// Has it take no more calls and end; returns how many are still to end.
pub(crate) fn drain(server: &Server) -> Result<u64, Error> {
    operation::drain(&server.connection()?)
}

/// All its functions, by qualified name.
pub(crate) fn functions(server: &Server) -> Result<Vec<FunctionSummary>, Error> {
    let mut all = Vec::new();
    let mut next = Some(0);
    while let Some(from) = next {
        let page = functions::list(&server.connection()?, from)?;
        // A page that leads nowhere would be asked for without end.
        next = page.next.filter(|&index| index > from);
        all.extend(page.functions.into_iter().map(FunctionSummary::from));
    }
    Ok(all)
}

/// Whether arrays lie in memory shared with it.
pub(crate) fn shares_memory(server: &Server) -> Result<bool, Error> {
    Ok(server.connection()?.shares())
}

/// Memory shared with it; none where it is not on this host, or has none to give.
pub(crate) fn share(server: &Server, bytes: usize) -> Result<Option<SharedMemory>, Error> {
    let connection = server.connection()?;
    if !connection.shares() {
        return Ok(None);
    }
    match connection.share(bytes.max(1) as u64, false) {
        Ok(segment) => Ok(Some(SharedMemory::new(segment))),
        Err(Error::Failed(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
