//! Messages about the functions of a server, and what a call of one would take.

use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: the server says what a call would take.
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
    /// Qualified name, `module/entry`.
    #[n(0)]
    pub name: String,
    /// The interface's own one-line description.
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

/// Asks for the functions of an interface file to be served.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct RegisterRequest {
    /// Where it is; names of libraries are relative to its folder.
    #[n(0)]
    pub(crate) path: String,
    /// What it says, after the preprocessor.
    #[n(1)]
    pub(crate) text: String,
}

/// Asks for an interface by name, qualified or not.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DescribeRequest {
    #[n(0)]
    pub(crate) name: String,
}

/// What a server says of a function.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FunctionInterface {
    /// Number under which calls name the function, valid until the server re-registers it.
    #[n(0)]
    pub function: u64,
    /// The interface in canonical IDL.
    #[n(1)]
    pub text: String,
    /// The library behind it: name, version and kernel, for people.
    #[n(2)]
    pub library: Option<String>,
}

/// What a call would take, as far as the server has learned it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Encode, Decode)]
pub struct Estimate {
    /// Nanoseconds in the library; none before the first call of the function.
    #[n(0)]
    pub exec: Option<u64>,
    /// Two thirds of the calls lie within `exec` divided and multiplied by this.
    #[n(1)]
    pub factor: Option<f64>,
    /// Nanoseconds until a worker is free, as things stand.
    #[n(2)]
    pub wait: u64,
    /// Bytes per second from the client, and to it; none before the first long transfer.
    #[n(3)]
    pub up: Option<u64>,
    /// See `up`.
    #[n(4)]
    pub down: Option<u64>,
    /// Processor elements of the server.
    #[n(5)]
    pub pes: Option<u32>,
}
