//! Options of the C preprocessor for interface files, which several commands take. The crate
//! `library` runs the preprocessor.

use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Preprocessor {
    /// Search this folder for the headers that interface files include
    #[arg(short = 'I', value_name = "FOLDER")]
    include: Vec<PathBuf>,
    /// Define a macro for interface files, as the C compiler does
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    define: Vec<String>,
}

impl Preprocessor {
    /// The options for the C compiler. Folders do not depend on its working folder.
    pub(crate) fn options(&self) -> std::io::Result<Vec<String>> {
        let folder = |folder: &PathBuf| {
            let folder = std::path::absolute(folder)?;
            Ok(format!("-I{}", folder.display()))
        };
        let folders = self.include.iter().map(folder);
        let macros = self.define.iter().map(|one| Ok(format!("-D{one}")));
        folders.chain(macros).collect()
    }
}
