//! A call at one server that begins again at the server's successor. This happens only if the
//! server released the client before it began with the call and nothing of a result has arrived, so
//! the function cannot run twice. `grid` begins calls again at other servers.

use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::attempt::{After, Attempt, Begun, Continues};
use crate::remote::server::PATIENCE;
use crate::remote::source::OwnArrays;
use farcall_rpc_proto::HandleRecord;
use std::sync::Arc;
use std::time::Instant;

/// A call, and how it begins: with the array that was read for it, if its last part was that.
struct Again<B> {
    begin: B,
    /// The arrays that the server has for the call.
    own: OwnArrays,
    /// When the call was released first.
    since: Option<Instant>,
}

impl Begun {
    /// A call that has begun, and how it begins again.
    pub(super) fn with<B>(attempt: Attempt, own: OwnArrays, begin: B) -> Begun
    where
        B: FnMut(&mut OwnArrays, Option<HandleRecord>) -> Result<Attempt, Error> + Send + 'static,
    {
        let call = Again {
            begin,
            own,
            since: None,
        };
        Begun {
            attempt: Arc::new(attempt),
            call: Box::new(call),
        }
    }
}

impl<B> Again<B>
where
    B: FnMut(&mut OwnArrays, Option<HandleRecord>) -> Result<Attempt, Error>,
{
    fn go_on(&mut self, read: Option<HandleRecord>) -> After {
        let attempt = (self.begin)(&mut self.own, read).map(Arc::new);
        attempt.map_or_else(|error| After::End(Err(error)), After::Again)
    }
}

impl<B> Continues for Again<B>
where
    B: FnMut(&mut OwnArrays, Option<HandleRecord>) -> Result<Attempt, Error> + Send,
{
    fn after(&mut self, ended: &Attempt, result: Result<Outcome, Error>) -> After {
        let is_unbegun = |error: &Error| error.was_let_go() && !ended.request.was_returning();
        match result {
            Ok(outcome) => match ended.take_read() {
                Some(read) => self.go_on(Some(read)),
                None => self.own.after(outcome),
            },
            Err(error) if !self.own.is_writing() && is_unbegun(&error) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    return After::End(Err(error));
                }
                self.go_on(None)
            }
            Err(error) => After::End(Err(error)),
        }
    }
}
