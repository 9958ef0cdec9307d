//! The data folder of a simulated host, whose files change while the server runs. A file is read
//! only as it was when the server learned of it. If it was changed since, the read fails.

use crate::interfaces::Contents;
use farcall_random::SplitMix64;
use farcall_rpc_proto::ArrayForm;
use farcall_server_proto::DataFile;
use std::collections::BTreeMap;

/// Most files in it.
const FILES: u64 = 3;

/// Files by their names: what is in them, and when they were changed, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    files: BTreeMap<String, (Contents, u64)>,
    changes: u64,
}

impl Folder {
    /// Changes, makes or removes a file.
    pub(crate) fn change(&mut self, random: &mut SplitMix64) {
        let name = format!("f{}", random.below(FILES));
        if random.chance(0.25) {
            self.files.remove(&name);
            return;
        }
        self.changes += 1;
        let contents = Contents {
            user: 0,
            first: random.below(16) as u8,
            count: 1 + random.below(3000),
        };
        self.files.insert(name, (contents, self.changes));
    }

    /// Names, what is in the files, and when they were changed.
    pub(crate) fn files(&self) -> Vec<(String, Contents, u64)> {
        let files = self.files.iter();
        files
            .map(|(name, (contents, written))| (name.clone(), *contents, *written))
            .collect()
    }

    /// The files as a server learns of them.
    pub(crate) fn list(&self) -> Vec<DataFile> {
        let file = |(name, (contents, written)): (&String, &(Contents, u64))| DataFile {
            name: name.clone(),
            form: ArrayForm {
                element: "char".to_string(),
                shape: vec![contents.count],
                column_major: false,
            },
            offset: 0,
            is_swapped: false,
            length: contents.count,
            changed: written * 1_000_000,
        };
        self.files.iter().map(file).collect()
    }

    /// What is in a file, if it was not changed since.
    pub(crate) fn read(&self, file: &DataFile) -> Option<Vec<u8>> {
        let (contents, written) = self.files.get(&file.name)?;
        (written * 1_000_000 == file.changed).then(|| contents.bytes())
    }
}
