//! What a client wants, and which part of the server does it.

use super::Server;
use crate::connection::Offer;
use crate::keys::ConnectionKey;
use farcall_rpc_proto::server::Event;
use farcall_rpc_proto::{CallId, Failure, FailureKind};

impl Server {
    pub(super) fn on_event(&mut self, key: ConnectionKey, event: Event) {
        match event {
            Event::Connected(hello) => self.greeted(key, hello),
            Event::List(request, from) => self.list_functions(key, request, from),
            Event::Register(request, path, text) => self.register(key, request, path, text),
            Event::Describe(request, name) => self.describe(key, request, &name),
            Event::Estimate(request, call) => self.tell_estimate(key, request, &call),
            Event::Status(request) => self.tell_status(key, request),
            Event::Drain(request) => self.drain_for(key, request),
            Event::Directory(request, ..) => self.refuse_directory(key, request),
            Event::Share(request, bytes) => self.share(key, request, bytes),
            Event::Unshare(request) => self.unshare(key, request),
            Event::Objects(request, asked) => self.about_objects(key, request, asked),
            Event::Reservations(request, asked) => self.about_reservations(key, request, asked),
            Event::New(request, class) => self.create_object(key, request, &class),
            Event::Delete(request) => self.give_object_up(key, request),
            Event::Call(id, call) => self.offer_in_turn(key, id, Offer::Call(call)),
            Event::Submit(id, submission) => {
                self.offer_in_turn(key, id, Offer::Submission(submission));
            }
            Event::Put(id, put) => self.offer_in_turn(key, id, Offer::Put(put)),
            Event::PutPart(id, part) => self.offer_part(key, id, part),
            Event::GetPart(request, part) => self.get_part(key, request, part),
            Event::Get(request, id) => self.get_array(key, request, id),
            Event::AskHandle(request, id) => self.tell_of_array(key, request, id),
            Event::Drop(request, id) => self.drop_array(key, request, id),
            Event::Lend(request, id) => self.lend_array(key, request, id),
            Event::Pull(request, pull) => self.offer_pull(key, request, pull),
            Event::Name(request, name) => self.name_array(key, request, name),
            Event::AskName(request, name) => self.tell_of_name(key, request, &name),
            Event::ListNames(request, after) => self.list_names(key, request, after.as_ref()),
            Event::ListHandles(request, after) => self.list_arrays(key, request, after),
            Event::AskJob(request, id) => self.tell_of_job(key, request, id),
            Event::Fetch(request, id) => self.fetch(key, request, id),
            Event::CancelJob(request, id, forget) => self.cancel_job(key, request, id, forget),
            Event::ListJobs(request, after) => self.list_jobs(key, request, after),
            Event::Ready(id) => self.received(self.connections[key].calls[&id]),
            Event::Answer(id, answer) => self.answer_callback(key, id, answer),
            Event::Cancelled(id) => self.cancelled(key, id),
        }
    }

    /// A client asks about functions that are served.
    fn list_functions(&mut self, key: ConnectionKey, request: CallId, from: u32) {
        let page = self.functions.page(from);
        self.connections[key].proto.listing(request, &page);
    }

    fn describe(&mut self, key: ConnectionKey, request: CallId, name: &str) {
        let proto = &mut self.connections[key].proto;
        match self.functions.describe(name) {
            Ok((number, function)) => {
                let library = self.libraries.identity(function.entry);
                proto.interface(request, number, function.text().into(), library);
            }
            Err(failure) => proto.fail(request, &failure),
        }
    }

    fn refuse_directory(&mut self, key: ConnectionKey, request: CallId) {
        let text = "this is a server, not a metaserver";
        let failure = Failure::new(FailureKind::NotAllowed, text);
        self.connections[key].proto.fail(request, &failure);
    }
}
