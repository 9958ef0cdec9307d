//! Requests about objects, those that stay too.

use super::Connection;
use super::state::Answer;
use crate::Error;
use farcall_rpc_proto::{
    CallId, Failure, FailureKind, KEPT_OBJECTS, OBJECTS, ObjectPage, ObjectRecord, ObjectRequest,
};
use std::sync::Arc;

impl Connection {
    /// Asks for an object of a class; `None` where the server has no objects.
    pub(crate) fn create(self: &Arc<Self>, class: &str) -> Result<Option<CallId>, Error> {
        self.check_one_server("objects")?;
        if self.features & OBJECTS == 0 {
            return Ok(None);
        }
        match self
            .start(|state| state.ask(|proto| proto.create(class)))?
            .finish()?
        {
            Answer::Created(id) => Ok(Some(id)),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives an object up. A child that this process forked leaves it alone: it is the parent's.
    pub(crate) fn delete(&self, object: CallId) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.lock();
        state.delete(object);
        self.send_soon(&mut state);
    }

    /// Asks about objects that stay; the number of the request with the answer.
    pub(crate) fn objects(
        self: &Arc<Self>,
        asked: ObjectRequest,
    ) -> Result<(CallId, ObjectPage), Error> {
        self.check_one_server("objects that stay")?;
        if self.features & KEPT_OBJECTS == 0 {
            let text = "the server is too old to keep objects for other connections; update it";
            return Err(Error::Failed(Failure::new(FailureKind::BadArgument, text)));
        }
        let request = self.start(|state| state.ask(|proto| proto.objects(asked)))?;
        match request.finish()? {
            Answer::Objects(id, page) => Ok((id, page)),
            _ => Err(self.unexpected()),
        }
    }

    /// The same where the answer is one object.
    pub(crate) fn object(
        self: &Arc<Self>,
        asked: ObjectRequest,
    ) -> Result<(CallId, ObjectRecord), Error> {
        let (id, page) = self.objects(asked)?;
        let record = page.objects.into_iter().next();
        Ok((id, record.ok_or_else(|| self.unexpected())?))
    }
}
