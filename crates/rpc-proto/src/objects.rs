//! Messages about objects and persistent objects. Calls of their methods are ordinary calls, in
//! `call`. The requests about persistent objects need the feature [`KEPT_OBJECTS`], and
//! [`ObjectPage`] answers each of them.

use crate::ids::HandleId;
use crate::{CallId, Kind, ProtocolError, message};
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: the server has objects, whose methods can be called.
pub const OBJECTS: u64 = 1 << 5;

/// Feature bit: the server has persistent objects. Needs [`OBJECTS`].
pub const KEPT_OBJECTS: u64 = 1 << 10;

/// A request about persistent objects. [`ObjectPage`] answers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRequest {
    /// Makes the object with this number on this connection persistent.
    Keep(CallId),
    /// Makes a persistent object known on this connection, by the number of this request.
    Attach(HandleId),
    /// Destroys a persistent object.
    Drop(HandleId),
    /// Lists persistent objects after this number.
    List(u64),
}

/// The status of a persistent object. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ObjectRecord {
    /// Its id.
    #[n(0)]
    pub id: HandleId,
    /// Number in the order of creation.
    #[n(1)]
    pub number: u64,
    /// Qualified name of its class.
    #[n(2)]
    pub class: String,
    /// Time of the last use.
    #[n(3)]
    pub used: u64,
    /// Why it is lost: how its process ended.
    #[n(4)]
    pub lost: Option<String>,
}

/// A page of a user's objects, in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ObjectPage {
    /// The objects of this page.
    #[n(0)]
    pub objects: Vec<ObjectRecord>,
    /// Number after which the next page begins, if there is one.
    #[n(1)]
    pub next: Option<u64>,
}

/// Asks for an object.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct NewRequest {
    /// Name of the class, qualified or not.
    #[n(0)]
    pub(crate) class: String,
}

#[derive(Encode, Decode)]
struct NameMessage {
    #[n(0)]
    id: HandleId,
}

impl ObjectRequest {
    /// Whether a frame is a request about persistent objects.
    pub(crate) fn is_kind(kind: Kind) -> bool {
        matches!(
            kind,
            Kind::KeepObject | Kind::AttachObject | Kind::DropObject | Kind::ListObjects
        )
    }

    pub(crate) fn append(self, out: &mut Vec<u8>, request: CallId) {
        let named = |out: &mut Vec<u8>, kind, id| {
            message::append(out, kind, request, &NameMessage { id });
        };
        let numbered = |out: &mut Vec<u8>, kind, number| {
            message::append(out, kind, request, &message::NumberMessage { number });
        };
        match self {
            ObjectRequest::Keep(object) => numbered(out, Kind::KeepObject, object),
            ObjectRequest::Attach(id) => named(out, Kind::AttachObject, id),
            ObjectRequest::Drop(id) => named(out, Kind::DropObject, id),
            ObjectRequest::List(after) => numbered(out, Kind::ListObjects, after),
        }
    }

    pub(crate) fn parse(kind: Kind, payload: &[u8]) -> Result<ObjectRequest, ProtocolError> {
        let number = |payload| {
            Ok::<_, ProtocolError>(message::parse::<message::NumberMessage>(kind, payload)?.number)
        };
        let name =
            |payload| Ok::<_, ProtocolError>(message::parse::<NameMessage>(kind, payload)?.id);
        Ok(match kind {
            Kind::KeepObject => ObjectRequest::Keep(number(payload)?),
            Kind::AttachObject => ObjectRequest::Attach(name(payload)?),
            Kind::DropObject => ObjectRequest::Drop(name(payload)?),
            _ => ObjectRequest::List(number(payload)?),
        })
    }
}
