//! What a server says of a function, whichever server it is.

use crate::address::Address;
use crate::error::Error;
use farcall_idl::Interface;
use farcall_rpc_proto as proto;
use std::sync::Arc;

/// What a server said of a function.
pub(crate) struct Description {
    /// The name by which it was asked for.
    pub(crate) requested: String,
    /// `module/name`.
    pub(crate) qualified: String,
    /// The interface in canonical IDL.
    pub(crate) text: String,
    /// The library behind it, its version and its kernel, as far as it says.
    pub(crate) library: Option<Arc<str>>,
    pub(crate) interface: Interface,
    /// The callbacks as interfaces of their own.
    pub(crate) callbacks: Vec<Interface>,
}

impl Description {
    /// Reads the interface that a server sent; `agent` is its program and version.
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
        let callbacks = interface.callbacks.iter();
        let callbacks = callbacks.map(|callback| callback.interface(&interface));
        Ok(Description {
            requested: requested.to_string(),
            qualified: interface.qualified_name().into_owned(),
            text,
            library: library.map(Arc::from),
            callbacks: callbacks.collect(),
            interface,
        })
    }
}

/// A function that a server has, in a list of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSummary {
    /// Qualified name, `module/entry`.
    pub name: String,
    /// The interface's own one-line description.
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
