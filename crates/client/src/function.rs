//! A handle on one remote function.

use crate::argument::{self, Argument, ArgumentError};
use crate::connection::Exchange;
use crate::{Error, Server};
use farcall_idl::Interface;
use farcall_rpc_proto::{self as proto, Call};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A function of a server. Clones share the interface.
#[derive(Clone)]
pub struct Function(Arc<Shared>);

struct Shared {
    server: Server,
    /// The name by which it was asked for.
    requested: String,
    qualified: String,
    number: u64,
    text: String,
    interface: Interface,
}

/// What a call gives besides the arrays it filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// How long it took.
    pub times: Times,
}

/// How long a call took, in seconds, split as in the second Ninf paper (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The server received the arguments.
    pub send: f64,
    /// The library ran.
    pub exec: f64,
    /// The server sent the results.
    pub recv: f64,
    /// The rest of `total`: waiting, hand-overs, the way through the network.
    pub other: f64,
    /// From the start of the call to its return, at the caller.
    pub total: f64,
}

impl Function {
    pub(crate) fn new(
        server: Server,
        requested: &str,
        number: u64,
        text: &str,
    ) -> Result<Function, Error> {
        let interface = farcall_idl::parse_interface(text).map_err(|error| Error::Interface {
            address: server.address().clone(),
            function: requested.to_string(),
            reason: error.to_string(),
        })?;
        let qualified = interface.qualified_name().into_owned();
        let (requested, text) = (requested.to_string(), text.to_string());
        Ok(Function(Arc::new(Shared {
            server,
            requested,
            qualified,
            number,
            text,
            interface,
        })))
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// The interface in canonical IDL.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// `module/name`.
    pub fn qualified_name(&self) -> &str {
        &self.0.qualified
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.0.server
    }

    /// Calls the function with one argument for each parameter, and fills OUT and INOUT arrays in
    /// place. If it fails, their contents are undefined.
    pub fn call(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        match self.call_once(arguments) {
            Err(error) if error.is_stale_interface() => {
                let renewed = self.0.server.fetch(&self.0.requested)?;
                // The arguments were made for the interface that the caller has seen.
                if renewed.0.text == self.0.text {
                    renewed.call_once(arguments)
                } else {
                    Err(error)
                }
            }
            other => other,
        }
    }

    fn call_once(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        let start = Instant::now();
        let (call, layout) = self.prepare(arguments).map_err(|source| Error::Argument {
            function: self.0.qualified.clone(),
            source,
        })?;
        let times = self.0.server.with_connection(|connection| {
            Exchange {
                call: &call,
                layout: &layout,
                arguments,
            }
            .run(connection)
        })?;
        Ok(Outcome {
            times: Times::new(times, start.elapsed().as_secs_f64()),
        })
    }

    fn prepare(
        &self,
        arguments: &[Argument<'_>],
    ) -> Result<(Call, farcall_idl::Layout), ArgumentError> {
        let interface = &self.0.interface;
        let scalars = argument::scalars(interface, arguments)?;
        let elements = argument::elements(interface, &scalars, arguments)?;
        let layout = interface.layout(&scalars, &elements)?;
        for array in &layout.arrays {
            let param = &interface.params[array.param];
            argument::check_array(param, array, &arguments[array.param])?;
        }
        let data_bytes = layout.sent_bytes();
        Ok((
            Call {
                function: self.0.number,
                scalars,
                elements,
                data_bytes,
            },
            layout,
        ))
    }
}

impl Times {
    fn new(times: proto::Times, total: f64) -> Times {
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        let [send, exec, recv] = [times.send, times.exec, times.recv].map(seconds);
        Times {
            send,
            exec,
            recv,
            other: total - send - exec - recv,
            total,
        }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Function({} at {})",
            self.0.qualified,
            self.0.server.address()
        )
    }
}
