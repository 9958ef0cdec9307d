//! Clients that let the server read sources. They fetch the array and compare it with what the
//! source had meanwhile, let the server write some to other addresses, and drop the arrays that
//! belong to them.

use super::{Client, Purpose, Scene};
use crate::checker::{SOURCES, Secret, says_version};
use farcall_rpc_proto::{
    ArrayForm, Failure, FailureKind, HandleId, HandleRecord, Pull, Receipt, SourceOptions, Write,
};

/// What is asked about a source.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Pull(u64),
    /// The array of a source that was asked for in this time; whether the server keeps it.
    Get(u64, HandleRecord, (u64, u64)),
    Drop,
    /// An array of these bytes goes to this address.
    Write(String, Vec<u8>),
}

impl Client {
    /// Lets the server read a source.
    pub(super) fn pull(&mut self, scene: &mut Scene<'_>) {
        let source = scene.random.below(SOURCES);
        let pull = Pull {
            address: format!("source:{source}"),
            loan: HandleId([0; 16]),
            form: ArrayForm {
                element: String::new(),
                shape: Vec::new(),
                column_major: false,
            },
            stays: false,
            source: Some(SourceOptions::default()),
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.pull(&pull);
            let purpose = Purpose::Source(Asked::Pull(source));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The server has read a source: the client fetches the array.
    pub(super) fn has_source(
        &mut self,
        asked: &Asked,
        since: u64,
        record: &HandleRecord,
        scene: &mut Scene<'_>,
    ) {
        let Asked::Pull(source) = asked else {
            return;
        };
        let kept = Secret::Array(record.id);
        scene.checker.secrets.add(kept, (self.life, self.user));
        if record.stays && !says_version(*source) {
            let text = format!("the server keeps the source {source}, which says no version");
            scene.checker.fail(text);
        }
        let bytes = record.form.bytes().unwrap_or(0);
        if let Some(connection) = &mut self.connection {
            let made = connection.get(record.id, bytes);
            let asked = Asked::Get(*source, record.clone(), (since, scene.now));
            self.asked(made, Purpose::Source(asked), Vec::new(), scene.now);
        }
    }

    /// The array of a source has come.
    pub(super) fn has_source_bytes(
        &mut self,
        asked: &Asked,
        received: &[u8],
        scene: &mut Scene<'_>,
    ) {
        let Asked::Get(source, record, when) = asked else {
            return;
        };
        if !scene.checker.sources.were(*source, received, *when) {
            let text = format!("an array is not what the source {source} had when it was asked");
            scene.checker.fail(text);
        }
        if scene.random.chance(0.5) {
            self.write(record, received, scene);
        }
        if record.stays && scene.random.chance(0.9) {
            return;
        }
        // The array may go while the server writes it: the server has it until then.
        if let Some(connection) = &mut self.connection {
            let made = connection.drop_handle(record.id);
            self.asked(made, Purpose::Source(Asked::Drop), Vec::new(), scene.now);
        }
    }

    /// Lets the server write an array to an address that nothing else is written to.
    fn write(&mut self, record: &HandleRecord, bytes: &[u8], scene: &mut Scene<'_>) {
        let write = Write {
            id: record.id,
            address: format!("place:{}", scene.random.below(u64::MAX)),
            options: SourceOptions::default(),
        };
        if let Some(connection) = &mut self.connection {
            let made = connection.write(&write);
            let purpose = Purpose::Source(Asked::Write(write.address, bytes.to_vec()));
            self.asked(made, purpose, Vec::new(), scene.now);
        }
    }

    /// The server has written an array.
    pub(super) fn has_receipt(&self, asked: &Asked, receipt: &Receipt, scene: &mut Scene<'_>) {
        let Asked::Write(address, bytes) = asked else {
            return;
        };
        if receipt.address != *address || !scene.checker.sources.has(address, bytes) {
            let text = format!("an array was not written to {address}, and its client was told so");
            scene.checker.fail(text);
        }
    }

    /// A request about a source has failed. Returns whether this failure is allowed.
    pub(super) fn source_failed(
        &mut self,
        asked: &Asked,
        failure: &Failure,
        scene: &mut Scene<'_>,
    ) -> bool {
        let faults = &scene.options.faults;
        let expires = faults.calendar_jumps || scene.options.subjects.names;
        match (asked, failure.kind) {
            (_, FailureKind::Busy | FailureKind::QuotaExceeded) => true,
            // The source itself may fail.
            (Asked::Pull(_) | Asked::Write(..), FailureKind::Unreachable) => true,
            // A new version has taken the place of the array, or another client of the user has
            // dropped it.
            (Asked::Get(_, record, _), FailureKind::NotFound) => record.stays || expires,
            // The same, or the array was dropped before.
            (Asked::Write(..), FailureKind::NotFound) => true,
            (Asked::Get(..) | Asked::Write(..), FailureKind::BadArgument) => {
                faults.disk_errors || faults.disk_forgets
            }
            (Asked::Drop, FailureKind::NotFound) => true,
            _ => false,
        }
    }
}
