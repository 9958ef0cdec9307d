//! Messages about the functions of a server: lists, interfaces, registration and estimates. The
//! crate `idl` reads the text of an interface. Estimates and registration need features that both
//! sides have.

use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: the server gives estimates of calls.
pub const ESTIMATES: u64 = 1 << 4;

/// Feature bit: operators may register interface files.
pub const REGISTER: u64 = 1 << 16;

/// A page of the functions served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Listing {
    /// Functions of this page, by qualified name.
    #[n(0)]
    pub functions: Vec<FunctionSummary>,
    /// Index from which the next page starts, if there is one.
    #[n(1)]
    pub next: Option<u32>,
}

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FunctionSummary {
    /// Qualified name, `module/name`.
    #[n(0)]
    pub name: String,
    /// The one-line description in the interface.
    #[n(1)]
    pub title: String,
}

/// Asks for a page of the functions served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ListRequest {
    /// Index of the first function of the page.
    #[n(0)]
    pub(crate) from: u32,
}

/// Asks the server to serve the functions of an interface file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RegisterRequest {
    /// Path of the file. Library names are relative to its folder.
    #[n(0)]
    pub(crate) path: String,
    /// Contents of the file after the preprocessor.
    #[n(1)]
    pub(crate) text: String,
}

/// Asks for an interface by name, qualified or not.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DescribeRequest {
    #[n(0)]
    pub(crate) name: String,
}

/// The description of a function.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FunctionInterface {
    /// Number of the function in calls, valid until the server registers the function again.
    #[n(0)]
    pub function: u64,
    /// The interface in the canonical form of the interface language.
    #[n(1)]
    pub text: String,
    /// The library that has the function: name, version and kernel, for people.
    #[n(2)]
    pub library: Option<String>,
}

/// The estimate of a call, as far as the server has learned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct Estimate {
    /// Nanoseconds in the library; `None` before the first call of the function.
    #[n(0)]
    pub exec: Option<u64>,
    /// Spread: two thirds of the calls take between `exec / factor` and `exec * factor`.
    #[n(1)]
    pub factor: Option<f64>,
    /// Nanoseconds until a worker is free.
    #[n(2)]
    pub wait: u64,
    /// Bytes per second from the client to the server; `None` before the first long transfer.
    #[n(3)]
    pub up: Option<u64>,
    /// Bytes per second from the server to the client; `None` before the first long transfer.
    #[n(4)]
    pub down: Option<u64>,
    /// Processor elements of the server.
    #[n(5)]
    pub pes: Option<u32>,
}
