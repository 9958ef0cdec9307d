//! Work that a running call asks of its caller: callbacks and files.
//!
//! Callbacks run on the thread that waits for the call. Nesting is bounded.

use crate::callback::{Callback, CallbackArguments};
use crate::description::Description;
use crate::error::{CallbackError, Error};
use crate::remote::files::Files;
use farcall_rpc_proto::{self as proto, CallbackAnswer};
use std::cell::Cell;
use std::sync::Arc;

/// Most levels of calls that are made inside callbacks.
const MOST_NESTED: usize = 8;

/// The callbacks of one call.
pub(crate) struct Callbacks {
    pub(crate) description: Arc<Description>,
    pub(crate) functions: Vec<Callback>,
    /// Files of the call. Their requests have the numbers after those of the callbacks.
    pub(crate) files: Files,
}

thread_local! {
    /// Nested callbacks that run on this thread.
    static NESTED: Cell<usize> = const { Cell::new(0) };
}

/// A level of nested callbacks, which ends with this, also if the callback panics. It has the
/// number of those around it.
struct Level(usize);

impl Level {
    fn begin(around: usize) -> Level {
        NESTED.set(around + 1);
        Level(around)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        NESTED.set(self.0);
    }
}

impl Callbacks {
    /// Runs the callback that the server asks for.
    pub(crate) fn run(&self, callback: proto::Callback) -> Result<CallbackAnswer, Error> {
        let index = callback.index as usize;
        if let Some(param) = index.checked_sub(self.functions.len())
            && self.files.has(param)
        {
            let function = &self.description.qualified;
            return self.files.answer(function, param, callback);
        }
        let (Some(interface), Some(function)) = (
            self.description.callbacks.get(index),
            self.functions.get(index),
        ) else {
            let text = format!("the server calls callback {index}, which does not exist");
            return Err(self.failed("?", text.into()));
        };
        let name = &interface.name;
        let mut arguments = CallbackArguments::new(interface, callback)
            .map_err(|problem| self.failed(name, problem.into()))?;
        let depth = NESTED.get();
        if depth >= MOST_NESTED {
            let text = format!("callbacks are nested {depth} deep");
            return Err(self.failed(name, text.into()));
        }
        let level = Level::begin(depth);
        let done = function.run(&mut arguments);
        drop(level);
        done.map_err(|error| self.failed(name, error))?;
        Ok(arguments.answer())
    }

    fn failed(&self, callback: &str, source: CallbackError) -> Error {
        failed(&self.description, callback, source)
    }
}

/// The error of a callback that failed.
pub(crate) fn failed(description: &Description, callback: &str, source: CallbackError) -> Error {
    Error::Callback {
        function: description.qualified.clone(),
        callback: callback.to_string(),
        source,
    }
}
