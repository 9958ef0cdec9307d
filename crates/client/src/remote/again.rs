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

/// How often the sources of a call are read anew if the server has dropped their arrays.
const MOST_ANEW: u32 = 3;

/// How a call goes on.
pub(super) enum Next {
    /// As before.
    Go,
    /// With the array that was read for it.
    Read(HandleRecord),
    /// From its first source on.
    Anew,
}

/// A call, and how it begins.
struct Again<B> {
    begin: B,
    /// The arrays that the server has for the call.
    own: OwnArrays,
    /// When the call was released first.
    since: Option<Instant>,
    /// How often its sources may still be read anew.
    anew: u32,
}

impl Begun {
    /// A call that has begun, and how it begins again. `reads` says whether it has sources.
    pub(super) fn with<B>(attempt: Attempt, own: OwnArrays, reads: bool, begin: B) -> Begun
    where
        B: FnMut(&mut OwnArrays, Next) -> Result<Attempt, Error> + Send + 'static,
    {
        let call = Again {
            begin,
            own,
            since: None,
            anew: if reads { MOST_ANEW } else { 0 },
        };
        Begun {
            attempt: Arc::new(attempt),
            call: Box::new(call),
        }
    }
}

impl<B> Again<B>
where
    B: FnMut(&mut OwnArrays, Next) -> Result<Attempt, Error>,
{
    fn go_on(&mut self, next: Next) -> After {
        let attempt = (self.begin)(&mut self.own, next).map(Arc::new);
        attempt.map_or_else(|error| After::End(Err(error)), After::Again)
    }
}

impl<B> Continues for Again<B>
where
    B: FnMut(&mut OwnArrays, Next) -> Result<Attempt, Error> + Send,
{
    fn after(&mut self, ended: &Attempt, result: Result<Outcome, Error>) -> After {
        let is_unbegun = |error: &Error| error.was_let_go() && !ended.request.was_returning();
        match result {
            Ok(outcome) => match ended.take_read() {
                Some(read) => self.go_on(Next::Read(read)),
                None => self.own.after(outcome),
            },
            Err(error) if self.anew > 0 && ended.lacks_array(&error) => {
                self.anew -= 1;
                self.go_on(Next::Anew)
            }
            Err(error) if !self.own.is_writing() && is_unbegun(&error) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                if since.elapsed() >= PATIENCE {
                    return After::End(Err(error));
                }
                self.go_on(Next::Go)
            }
            Err(error) => After::End(Err(error)),
        }
    }
}
