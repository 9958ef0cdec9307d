//! Loads shared libraries and finds their symbols. It does not know the types of functions. A
//! library is never unloaded, so the address of a symbol remains valid.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Environment variable with folders, separated by colons, that are searched for libraries after
/// the folder of the interface file.
pub(crate) const SEARCH_PATH: &str = "FARCALL_LIBRARY_PATH";

/// The error of a library that cannot be loaded.
#[derive(Debug, Error)]
#[error("library `{name}`: {message}")]
pub struct LoadError {
    /// The name in the interface file.
    pub name: String,
    /// The message of the dynamic linker.
    pub message: String,
}

/// A loaded library. It is never unloaded, because its functions and exit handlers can still run.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) name: String,
    handle: *mut c_void,
}

// SAFETY: a handle of the dynamic linker may be used from any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; the dynamic linker locks for itself.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Loads a library by the name in `Library "..."`. A name with a `/` is relative to the folder
    /// of the file. A name without one is searched in that folder, then in `FARCALL_LIBRARY_PATH`,
    /// then where the system searches.
    pub(crate) fn open(name: &str, folder: &Path) -> Result<Loaded, LoadError> {
        Loaded::open_in(name, folder, &[])
    }

    /// The same, for a name without a `/` also in these folders before the system searches.
    pub(crate) fn open_in(
        name: &str,
        folder: &Path,
        others: &[PathBuf],
    ) -> Result<Loaded, LoadError> {
        let candidates = candidates(name, folder, others);
        // Report the error of the first candidate: candidates that exist as files come first.
        let mut reason = None;
        for candidate in &candidates {
            match open(candidate) {
                Ok(handle) => {
                    return Ok(Loaded {
                        name: name.to_string(),
                        handle,
                    });
                }
                Err(error) => reason = reason.or(Some(error)),
            }
        }
        let mut message = reason.unwrap_or_default();
        if message.contains("No such file") {
            let missing = message.split(':').next().map(Path::new);
            let missing = missing.and_then(Path::file_name);
            let is_itself = |candidate: &PathBuf| candidate.file_name() == missing;
            message.push_str(match name.contains('/') {
                _ if !candidates.iter().any(is_itself) => {
                    "; the library needs it: install it, or name its folder in LD_LIBRARY_PATH"
                }
                _ if name.starts_with("libfarcall_") => {
                    "; it is one of Farcall's own, which its Debian package has and `make build` \
                     compiles: see docs/libraries.md"
                }
                true => "; build it, or correct its path in the interface file",
                false => "; build or install it, or name its folder in FARCALL_LIBRARY_PATH",
            });
        }
        Err(LoadError {
            name: name.to_string(),
            message,
        })
    }

    /// The symbols of the program itself and of the libraries that it is linked with.
    pub(crate) fn process() -> Loaded {
        Loaded {
            name: "the C library".to_string(),
            handle: libc::RTLD_DEFAULT,
        }
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is one of dlopen's, never closed, and the name ends with NUL.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
}

/// The folders in which a name without a `/` is searched, before the system searches: that of the
/// interface file, and those of `FARCALL_LIBRARY_PATH`.
pub(crate) fn searched(folder: &Path) -> Vec<PathBuf> {
    let folders = std::env::var_os(SEARCH_PATH).unwrap_or_default();
    let folders = std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty());
    std::iter::once(folder.to_path_buf())
        .chain(folders)
        .collect()
}

/// The folders of a `Library` that is written as options of the linker, such as
/// `-L/opt/lib -lheat`, and its other options. A relative folder starts at that of the interface
/// file.
pub(crate) fn of_linker<'n>(options: &'n str, folder: &Path) -> (Vec<PathBuf>, Vec<&'n str>) {
    let (mut folders, mut others) = (Vec::new(), Vec::new());
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        match word.strip_prefix("-L") {
            Some("") => folders.extend(words.next().map(|next| folder.join(next))),
            Some(path) => folders.push(folder.join(path)),
            None => others.push(word),
        }
    }
    (folders, others)
}

fn candidates(name: &str, folder: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let file = match name.strip_prefix("-l") {
        Some(short) => format!("lib{short}.so"),
        None => name.to_string(),
    };
    if file.contains('/') {
        return vec![folder.join(file)];
    }
    let mut candidates: Vec<PathBuf> = searched(folder)
        .iter()
        .chain(others)
        .map(|folder| folder.join(&file))
        .filter(|path| path.is_file())
        .collect();
    // The system searches for a name without a slash. The development name of a system library can
    // be a linker script, so the name of its interface is tried too.
    candidates.push(PathBuf::from(&file));
    if name == "-lm" || name == "-lc" {
        candidates.insert(0, PathBuf::from(format!("{file}.6")));
    }
    candidates
}

fn open(path: &Path) -> Result<*mut c_void, String> {
    use std::os::unix::ffi::OsStrExt;
    // The system would search for a path that is only a name.
    let path = match path.is_relative() && path.components().count() > 1 {
        true => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
        false => path.to_path_buf(),
    };
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| "the name contains NUL".to_string())?;
    // SAFETY: the name ends with NUL. Initialisers of the library run, which is the purpose.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        Err(last_error())
    } else {
        Ok(handle)
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns NUL-terminated text or null, valid until the next call here.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            return "cannot be loaded".to_string();
        }
        CStr::from_ptr(message).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(name: &str, folder: &Path) -> String {
        Loaded::open(name, folder).unwrap_err().to_string()
    }

    #[test]
    fn the_error_of_a_missing_library_names_a_remedy() {
        let folder = Path::new("/nothing");
        assert!(reason("libnot-there.so.1", folder).contains("FARCALL_LIBRARY_PATH"));
        assert!(reason("./libnot-there.so.1", folder).contains("correct its path"));
        assert!(reason("libfarcall_none.so", folder).contains("Debian package"));
    }

    #[test]
    fn options_of_the_linker_name_folders() {
        let options = "-L/a -Llib  -L ../b -lone -Wl,-z,now -ltwo";
        let (folders, others) = of_linker(options, "/f".as_ref());
        let expected = ["/a", "/f/lib", "/f/../b"].map(PathBuf::from);
        assert_eq!(folders, expected);
        assert_eq!(others, ["-lone", "-Wl,-z,now", "-ltwo"]);
        assert_eq!(of_linker("-lm -L", "/f".as_ref()), (vec![], vec!["-lm"]));
    }

    /// `FARCALL_LIBRARY_PATH` and the path in the interface file are right then.
    #[test]
    fn the_error_of_a_library_that_needs_a_missing_one_names_a_remedy_for_that() {
        let folder = tempfile::tempdir().unwrap();
        let link = |name: &str, needed: &[&str]| {
            let mut cc = std::process::Command::new("cc");
            cc.args([
                "-shared",
                "-Wl,--no-as-needed",
                "-x",
                "c",
                "/dev/null",
                "-x",
                "none",
                "-o",
            ]);
            let linked = cc
                .arg(name)
                .args(needed)
                .current_dir(folder.path())
                .status();
            assert!(linked.unwrap().success());
        };
        link("libneeded.so", &[]);
        link("libneeds.so", &["libneeded.so"]);
        std::fs::remove_file(folder.path().join("libneeded.so")).unwrap();
        for name in ["libneeds.so", "./libneeds.so"] {
            let text = reason(name, folder.path());
            assert!(text.contains("libneeded.so: cannot open"), "{text}");
            assert!(text.contains("in LD_LIBRARY_PATH"), "{text}");
        }
    }

    #[test]
    fn the_error_of_an_unloadable_library_is_its_own() {
        let folder = std::env::temp_dir().join(format!("farcall-loader-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libtext.so"), "no library").unwrap();
        let text = reason("libtext.so", &folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(
            text.contains("/libtext.so: ") && !text.contains("No such file"),
            "{text}"
        );
    }
}
