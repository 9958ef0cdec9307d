//! Messages about objects that stay at the server.

use crate::ids::HandleId;
use crate::{CallId, Kind, ProtocolError, message};
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: the server keeps objects, whose methods are called.
pub const OBJECTS: u64 = 1 << 5;

/// Feature bit: objects may stay when their connection ends. Needs [`OBJECTS`].
pub const KEPT_OBJECTS: u64 = 1 << 10;

/// What a client asks about objects that stay. [`ObjectPage`] answers all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRequest {
    /// The object of that number, on this connection, is to stay.
    Keep(CallId),
    /// That object is to be known on this connection, too, by the number of this request.
    Attach(HandleId),
    /// That object is to be destroyed.
    Drop(HandleId),
    /// Those with greater numbers.
    List(u64),
}

/// What is known of an object that stays. Times are milliseconds since 1970, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ObjectRecord {
    /// Its name.
    #[n(0)]
    pub id: HandleId,
    /// Place in the order of creation, greater than that of every earlier one.
    #[n(1)]
    pub number: u64,
    /// Its class, qualified.
    #[n(2)]
    pub class: String,
    /// When it was used last.
    #[n(3)]
    pub used: u64,
    /// Why it is lost: its process has ended.
    #[n(4)]
    pub lost: Option<String>,
}

/// A page of a user's objects, in the order of creation.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ObjectPage {
    /// The objects of this page.
    #[n(0)]
    pub objects: Vec<ObjectRecord>,
    /// Ask for those after this number next, if there are more.
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
    /// Whether a frame is one.
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
