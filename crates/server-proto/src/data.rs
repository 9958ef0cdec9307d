//! Stored arrays and named data: where they are, who may use them, and how they move. Requests are
//! passed to the modules below; `arrays` and `names` hold the tables. The shell moves the bytes.

pub(crate) mod destination;
mod named;
mod parts;
mod pull;
pub(crate) mod room;
pub(crate) mod source;
mod stored;
mod turns;

use crate::arrays::Store;
use crate::context::Context;
use crate::keys::{ConnectionKey, MemoryKey};
use crate::names::{DataFile, Names};
use crate::settings::Settings;
use farcall_directory::message::MOST_DATA;
use farcall_rpc_proto::server::Event;
use farcall_rpc_proto::{HandleId, Nanos};
use turns::Turns;

/// All stored arrays and named data.
pub(crate) struct Data {
    pub(crate) arrays: Store,
    pub(crate) names: Names,
    /// Arrays that are being read from elsewhere.
    pulls: pull::Pulls,
    /// Sources that are being opened, and those that were read.
    sources: source::Sources,
    /// Files of the data folder that are being read.
    data_reads: Vec<(HandleId, MemoryKey)>,
    /// Calls that wait to use arrays.
    pub(crate) turns: Turns,
    /// Until when no array is sent to the disk after a refusal, and the reason.
    refused: Option<(Nanos, String)>,
}

impl Data {
    /// No stored arrays yet, and the files of the data folder.
    pub(crate) fn new(settings: &Settings, files: Vec<DataFile>) -> Data {
        let mut names = Names::new(settings.arrays.names.min(MOST_DATA));
        names.set_files(files);
        Data {
            arrays: Store::new(settings.arrays.clone(), settings.limits.memory),
            names,
            pulls: pull::Pulls::default(),
            sources: source::Sources::default(),
            data_reads: Vec::new(),
            turns: Turns::default(),
            refused: None,
        }
    }

    /// Why a client is refused that shows the name of a loan instead of credentials.
    pub(crate) fn refuses(&self, cx: &Context, loan: Option<HandleId>) -> Option<String> {
        let is_lent = |loan| self.arrays.is_lent(loan, cx.steady_ms());
        let text = "no array is lent under this name: it was read already, or it has expired";
        loan.filter(|loan| !is_lent(*loan))
            .map(|_| text.to_string())
    }

    /// Handles a client's request about data.
    pub(crate) fn ask(&mut self, cx: &mut Context, key: ConnectionKey, event: Event) {
        match event {
            Event::PutPart(id, part) => self.offer_part(cx, key, id, part),
            Event::GetPart(request, part) => self.get_part(cx, key, request, part),
            Event::Get(request, id) => self.get_array(cx, key, request, id),
            Event::AskHandle(request, id) => self.tell_of_array(cx, (key, request), id, false),
            Event::Lend(request, id) => self.tell_of_array(cx, (key, request), id, true),
            Event::Drop(request, id) => self.drop_array(cx, key, request, id),
            Event::Write(request, write) => destination::offer(self, cx, key, request, write),
            Event::Pull(request, pull) => self.offer_pull(cx, key, request, pull),
            Event::Name(request, name) => self.name_array(cx, key, request, name),
            Event::AskName(request, name) => self.tell_of_name(cx, key, request, &name),
            Event::ListNames(request, after) => {
                let connection = &mut cx.clients[key];
                let page = self.names.page(&connection.user, after.as_ref());
                connection.proto.names(request, &page);
            }
            Event::ListHandles(request, after) => {
                let connection = &mut cx.clients[key];
                let page = self.arrays.page(&connection.user, after);
                connection.proto.handles(request, &page);
            }
            _ => {}
        }
    }
}
