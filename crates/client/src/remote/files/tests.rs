//! Tests of how files travel as arguments: the server reads and writes them in pieces. A file is
//! replaced only if its call succeeds, and the server gets no file that the interface does not
//! name.

use super::*;
use farcall_idl::parse_interface;

const IDL: &str =
    r#"Define f(IN filename a, INOUT filename b, OUT filename c) Calls "C" f(a, b, c);"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("farcall-client-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(paths: [&str; 3]) -> (Result<Files, Error>, Vec<Option<Scalar>>) {
    let interface = parse_interface(IDL).unwrap();
    let mut scalars: Vec<_> = paths
        .map(|path| Some(Scalar::Text(path.to_string())))
        .into();
    (Files::open("f", &interface, &mut scalars), scalars)
}

fn ask(files: &Files, param: usize, request: FileRequest) -> Result<Vec<u8>, Error> {
    let answer = files.answer("f", param, request.into_callback(0));
    answer.map(|answer| answer.data)
}

fn write(offset: u64, total: u64, data: &[u8]) -> FileRequest {
    FileRequest::Write {
        offset,
        total,
        data: data.into(),
    }
}

#[test]
fn files_are_read_in_pieces_and_replaced_at_once() {
    let folder = Folder::new("pieces");
    let (a, b) = (folder.file("a.csv", "0123456789"), folder.file("b", "old"));
    let c = folder.0.join("c").to_str().unwrap().to_string();
    let (files, scalars) = open([&a, &b, &c]);
    let files = files.unwrap();
    assert_eq!(scalars[0], Some(Scalar::Text("a.csv".into())), "no folder");
    assert_eq!(
        ask(&files, 0, FileRequest::Length).unwrap(),
        10u64.to_le_bytes()
    );
    let read = |offset, length| FileRequest::Read { offset, length };
    assert_eq!(ask(&files, 0, read(0, 6)).unwrap(), b"012345");
    assert_eq!(ask(&files, 0, read(6, 6)).unwrap(), b"6789");
    assert_eq!(ask(&files, 1, read(0, 100)).unwrap(), b"old");
    ask(&files, 1, write(0, 5, b"ne")).unwrap();
    ask(&files, 1, write(2, 5, b"wer")).unwrap();
    ask(&files, 2, write(0, 0, b"")).unwrap();
    assert_eq!(fs::read_to_string(&b).unwrap(), "old");
    let mut progress = Progress::default();
    files.add_to(&mut progress);
    let expected = Progress {
        sent: 13,
        to_send: 13,
        received: 5,
        to_receive: 5,
    };
    assert_eq!(progress, expected);
    files.place("f").unwrap();
    drop(files);
    assert_eq!(fs::read_to_string(&b).unwrap(), "newer");
    assert_eq!(folder.names(), ["a.csv", "b", "c"]);
}

#[test]
fn a_failed_call_changes_nothing() {
    let folder = Folder::new("failed");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    let c = folder.0.join("c").to_str().unwrap().to_string();
    let (files, _) = open([&a, &b, &c]);
    let files = files.unwrap();
    ask(&files, 1, write(0, 5, b"ne")).unwrap();
    let error = files.place("f").unwrap_err().to_string();
    assert!(error.contains("argument `b`"), "{error}");
    assert!(error.contains("did not return the whole file"), "{error}");
    drop(files);
    assert_eq!(fs::read_to_string(&b).unwrap(), "old");
    assert_eq!(folder.names(), ["a", "b"]);
}

#[test]
fn errors_name_the_argument_before_anything_is_sent() {
    let folder = Folder::new("errors");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    let missing = folder.0.join("missing").to_str().unwrap().to_string();
    let nowhere = folder.0.join("no/where").to_str().unwrap().to_string();
    let here = folder.0.to_str().unwrap().to_string();
    // The system's own words.
    let [no_file, no_folder] =
        [&missing, &nowhere].map(|path| File::open(path).unwrap_err().to_string());
    for (paths, argument, cause) in [
        ([&missing, &b, &missing], "`a`", &*no_file),
        ([&here, &b, &missing], "`a`", "not a regular file"),
        ([&a, &missing, &missing], "`b`", &*no_file),
        ([&a, &b, &nowhere], "`c`", &*no_folder),
        ([&a, &b, &here], "`c`", "not a regular file"),
        (
            [&String::new(), &b, &missing],
            "`a`",
            "the name of the file is empty",
        ),
        (
            [&a, &b, &String::new()],
            "`c`",
            "the name of the file is empty",
        ),
    ] {
        let (files, _) = open(paths.map(String::as_str));
        let error = files.err().unwrap().to_string();
        assert!(error.contains(argument) && error.contains(cause), "{error}");
    }
    assert_eq!(folder.names(), ["a", "b"]);
}

#[test]
fn a_server_gets_what_the_interface_says_and_nothing_else() {
    let folder = Folder::new("hostile");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    let c = folder.0.join("c").to_str().unwrap().to_string();
    let (files, _) = open([&a, &b, &c]);
    let files = files.unwrap();
    let read = |offset, length| FileRequest::Read { offset, length };
    for (param, request) in [
        (3, FileRequest::Length),
        (0, write(0, 1, b"x")),
        (2, FileRequest::Length),
        (2, read(0, 1)),
        (0, read(1, 1)),
        (1, write(1, 2, b"x")),
        (1, write(0, 1, b"xx")),
        (2, write(u64::MAX >> 1, u64::MAX >> 1, b"x")),
    ] {
        let error = ask(&files, param, request).unwrap_err().to_string();
        assert!(error.contains("does not keep to the protocol"), "{error}");
    }
    assert!(!Path::new(&c).exists());
}

#[test]
fn two_results_do_not_go_to_one_file() {
    let folder = Folder::new("same");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    let here = folder.0.file_name().unwrap().to_str().unwrap();
    let same = format!("{}/../{here}/b", folder.0.display());
    let (files, _) = open([&a, &b, &same]);
    let error = files.err().unwrap().to_string();
    assert!(error.contains("argument `c`"), "{error}");
    assert!(error.contains("another result to this file"), "{error}");
    // The input file may be replaced.
    let (files, _) = open([&a, &b, &a]);
    assert!(files.is_ok());
    drop(files);
    assert_eq!(folder.names(), ["a", "b"]);
}

#[cfg(unix)]
#[test]
fn a_link_to_a_file_that_is_not_there_yet_is_followed() {
    let folder = Folder::new("links");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    fs::create_dir(folder.0.join("far")).unwrap();
    std::os::unix::fs::symlink("far/c", folder.0.join("next")).unwrap();
    std::os::unix::fs::symlink("next", folder.0.join("c")).unwrap();
    let c = folder.0.join("c").to_str().unwrap().to_string();
    let (files, _) = open([&a, &b, &c]);
    let files = files.unwrap();
    ask(&files, 1, write(0, 0, b"")).unwrap();
    ask(&files, 2, write(0, 3, b"new")).unwrap();
    files.place("f").unwrap();
    drop(files);
    assert_eq!(fs::read_to_string(folder.0.join("far/c")).unwrap(), "new");
    assert!(Path::new(&c).is_symlink(), "the link stays");
    assert_eq!(folder.names(), ["a", "b", "c", "far", "next"]);
    std::os::unix::fs::symlink("ring", folder.0.join("ring")).unwrap();
    let ring = folder.0.join("ring").to_str().unwrap().to_string();
    let (files, _) = open([&a, &b, &ring]);
    assert!(files.err().unwrap().to_string().contains("argument `c`"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_client_that_is_killed_leaves_no_file() {
    let folder = Folder::new("killed");
    let (a, b) = (folder.file("a", "in"), folder.file("b", "old"));
    let c = folder.0.join("c");
    if create_unnamed(&c).is_none() {
        eprintln!("this file system has no files without a name");
        return;
    }
    let (files, _) = open([&a, &b, c.to_str().unwrap()]);
    let files = files.unwrap();
    ask(&files, 2, write(0, 10, b"half")).unwrap();
    assert_eq!(folder.names(), ["a", "b"]);
    drop(files);
}
