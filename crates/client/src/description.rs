//! Descriptions of functions, as servers send them: name, interface and library.
//!
//! A description is the same for one server and for many. It is read and checked once.

use crate::address::Address;
use crate::error::Error;
use farcall_idl::Interface;
use farcall_rpc_proto as proto;
use std::sync::Arc;

/// The description of a function.
pub(crate) struct Description {
    /// The name that the caller asked for.
    pub(crate) requested: String,
    /// `module/name`.
    pub(crate) qualified: String,
    /// The interface in the canonical form of the interface language.
    pub(crate) text: String,
    /// The library that has the function, with version and kernel if the library reports them.
    pub(crate) library: Option<Arc<str>>,
    pub(crate) interface: Interface,
    /// The interfaces of the callbacks.
    pub(crate) callbacks: Vec<Interface>,
}

impl Description {
    /// Reads the interface that a server sent. `agent` is the server's program and version, for
    /// errors.
    pub(crate) fn read(
        (address, agent): (&Address, &str),
        requested: &str,
        text: String,
        library: Option<String>,
    ) -> Result<Description, Error> {
        let interface = farcall_idl::parse_interface(&text).map_err(|error| Error::Interface {
            address: address.clone(),
            function: requested.to_string(),
            reason: format!(
                "{error}\nthe server is {agent}, this is farcall-client {}: the newer one may know \
                 more of the interface language; update the other",
                env!("CARGO_PKG_VERSION"),
            ),
        })?;
        Ok(Description::of(requested, text, library, interface))
    }

    /// The description of a function whose interface is read.
    pub(crate) fn of(
        requested: &str,
        text: String,
        library: Option<String>,
        interface: Interface,
    ) -> Description {
        let callbacks = interface.callbacks.iter();
        let callbacks = callbacks.map(|callback| callback.interface(&interface));
        Description {
            requested: requested.to_string(),
            qualified: interface.qualified_name().into_owned(),
            text,
            library: library.map(Arc::from),
            callbacks: callbacks.collect(),
            interface,
        }
    }
}

/// One function in the list of a server's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSummary {
    /// Qualified name, `module/name`.
    pub name: String,
    /// The one-line description in the interface.
    pub title: String,
}

impl From<proto::FunctionSummary> for FunctionSummary {
    fn from(summary: proto::FunctionSummary) -> FunctionSummary {
        FunctionSummary {
            name: summary.name,
            title: summary.title,
        }
    }
}
