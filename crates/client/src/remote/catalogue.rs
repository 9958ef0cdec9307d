//! The functions of a server and their numbers.
//!
//! A number is valid on one connection: a server that restarts numbers its functions again.

use crate::description::Description;
use crate::error::Error;
use crate::remote::connection::Connection;
use crate::remote::requests::functions;
use farcall_rpc_proto::FailureKind;
use std::sync::{Arc, Mutex, PoisonError};

/// A function that a server has described. The cache holds entries and not functions, because a
/// function would keep the server's connection open for ever.
pub(super) struct Entry {
    pub(super) description: Arc<Description>,
    /// The connection on which the server has described it.
    described_on: u64,
    number: Mutex<Number>,
}

/// The number of a function, and the connection for which it is valid.
#[derive(Clone, Copy)]
struct Number {
    connection: u64,
    function: u64,
}

impl Entry {
    /// Asks the server for a function.
    pub(super) fn ask(connection: &Arc<Connection>, name: &str) -> Result<Entry, Error> {
        let told = functions::describe(connection, name)?;
        let who = (connection.address(), &*connection.agent());
        let description = Description::read(who, name, told.text, told.library)?;
        Ok(Entry {
            description: Arc::new(description),
            described_on: connection.number(),
            number: Mutex::new(Number {
                connection: connection.number(),
                function: told.function,
            }),
        })
    }

    /// Whether the server on this connection has described the function. One that was started again
    /// may have another interface.
    pub(super) fn is_of(&self, connection: &Connection) -> bool {
        self.described_on == connection.number()
    }

    /// The function's number on this connection.
    pub(super) fn number_on(&self, connection: &Arc<Connection>) -> Result<u64, Error> {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        if number.connection != connection.number() {
            let known = &*self.description;
            let answered = functions::describe(connection, &known.requested)?;
            if answered.text != known.text {
                let text = format!(
                    "the interface of `{}` has changed since the server was restarted; look up \
                     the function again",
                    known.qualified
                );
                return Err(Error::failed(FailureKind::StaleInterface, text));
            }
            *number = Number {
                connection: connection.number(),
                function: answered.function,
            };
        }
        Ok(number.function)
    }
}
