//! Makes the functions of numerical libraries callable.
//!
//! The steps from an interface file to a callable function are:
//!
//! - [`Source`] reads a file, with the C preprocessor if it has directives;
//! - [`Catalog`] holds the checked interfaces of several files;
//! - [`compile`] builds bodies written in C, if the operator allows that;
//! - [`Binding`] loads the libraries, finds every symbol and prepares every call;
//! - [`Binding::invoke`] calls a function on a call buffer, in place.
//!
//! Loading a library runs its code, and calling a function trusts the library with the process. The
//! server therefore does both in a worker process.

mod allocated;
mod bind;
mod catalog;
mod compile;
mod failure;
mod identity;
mod invoke;
mod kernel;
mod loader;
mod parallel;
mod source;
mod temporary;
mod texts;
mod threads;
mod xerbla;

pub use bind::callback::{CallbackAnswer, CallbackRequest, Caller, MOST_CALLBACK_BYTES};
pub use bind::{BindError, Binding, MissingSymbol};
pub use catalog::{Catalog, CatalogError, Entry, check_files};
pub use compile::{CompileError, Compiled, compile, link_options, needs_compiler};
pub use identity::Identity;
pub use invoke::InvokeError;
pub use loader::LoadError;
pub use parallel::Processes;
pub use source::{
    Source, SourceError, compiler, pickled_functions, python_connector, python_draft,
    python_flight, python_worker,
};
pub use threads::{THREAD_VARIABLES, Threads};
pub use xerbla::WrongArgument;
