//! Tests of named data: versions, owners, files of the data folder, and bounds. Nobody finds what
//! another user does not share.

use super::*;

fn form() -> ArrayForm {
    ArrayForm {
        element: "double".to_string(),
        shape: vec![2],
        column_major: false,
    }
}

fn file(name: &str, changed: u64) -> DataFile {
    DataFile {
        name: name.to_string(),
        form: form(),
        offset: 80,
        is_swapped: false,
        length: 96,
        changed,
    }
}

fn put(names: &mut Names, user: &str, name: &str, id: u8, shared: bool) -> Option<HandleId> {
    let user = User::named(user);
    let version = names.next(&user, name, 0, 1000, u64::from(id));
    let id = (HandleId([id; 16]), &form());
    names.put(&user, name, id, (version, shared)).unwrap()
}

fn find(names: &Names, user: &str, name: &str) -> Result<(u8, u64), FailureKind> {
    let name = name.parse().unwrap();
    let found = names.find(&name, &User::named(user));
    let found = found.map_err(|failure| failure.kind)?.record;
    Ok((found.id.map_or(0, |id| id.0[0]), found.version.number))
}

#[test]
fn a_name_stands_for_the_last_array_that_was_put() {
    let mut names = Names::new(10);
    assert_eq!(put(&mut names, "alice", "atoms", 1, false), None);
    assert_eq!(find(&names, "alice", "atoms"), Ok((1, 1)));
    assert_eq!(
        put(&mut names, "alice", "atoms", 2, false),
        Some(HandleId([1; 16]))
    );
    assert_eq!(find(&names, "alice", "atoms"), Ok((2, 2)));
    let why = names.replaced(HandleId([1; 16])).unwrap();
    assert!(why.message.contains("has a new version"), "{why}");
    // What goes late is not taken for the version that took its place.
    names.forget(HandleId([1; 16]));
    assert_eq!(find(&names, "alice", "atoms"), Ok((2, 2)));
    names.forget(HandleId([2; 16]));
    assert_eq!(find(&names, "alice", "atoms"), Err(FailureKind::NotFound));
}

#[test]
fn nobody_reads_what_another_does_not_share() {
    let mut names = Names::new(10);
    put(&mut names, "alice", "atoms", 1, false);
    put(&mut names, "carol", "open", 2, true);
    assert_eq!(find(&names, "bob", "atoms"), Err(FailureKind::NotFound));
    assert_eq!(
        find(&names, "bob", "atoms@alice"),
        Err(FailureKind::NotFound)
    );
    assert_eq!(
        find(&names, "bob", "nothing@alice"),
        Err(FailureKind::NotFound)
    );
    assert_eq!(find(&names, "bob", "open"), Ok((2, 1)));
    assert_eq!(find(&names, "bob", "open@carol"), Ok((2, 1)));
    // A user's own data come before those that others share.
    put(&mut names, "bob", "open", 3, false);
    assert_eq!(find(&names, "bob", "open"), Ok((3, 1)));
    put(&mut names, "dave", "open", 4, true);
    assert_eq!(find(&names, "eve", "open"), Err(FailureKind::BadArgument));
    assert_eq!(names.page(&User::named("bob"), None).names.len(), 3);
    assert_eq!(names.page(&User::named("eve"), None).names.len(), 2);
}

#[test]
fn a_copy_takes_no_name_from_a_newer_version() {
    let mut names = Names::new(10);
    let alice = User::named("alice");
    put(&mut names, "alice", "atoms", 1, false);
    let old = DataVersion {
        written: 10,
        stamp: 7,
        number: 9,
    };
    let copy = (HandleId([2; 16]), &form());
    assert_eq!(
        names.put(&alice, "atoms", copy, (old, false)).unwrap(),
        None
    );
    assert_eq!(find(&names, "alice", "atoms"), Ok((1, 1)));
    let new = DataVersion {
        written: 2000,
        ..old
    };
    let before = names.put(&alice, "atoms", copy, (new, false)).unwrap();
    assert_eq!(before, Some(HandleId([1; 16])));
    assert_eq!(find(&names, "alice", "atoms"), Ok((2, 9)));
    // Nor from the same one: calls may use that copy.
    let again = (HandleId([3; 16]), &form());
    assert_eq!(
        names.put(&alice, "atoms", again, (new, false)).unwrap(),
        None
    );
    assert_eq!(find(&names, "alice", "atoms"), Ok((2, 9)));
}

#[test]
fn files_come_change_and_go() {
    let mut names = Names::new(3);
    assert!(names.set_files(vec![file("a", 1), file("b", 1)]).is_empty());
    assert_eq!(find(&names, "bob", "a"), Ok((0, 1)));
    let seen = names.changes();
    assert!(names.set_files(vec![file("a", 1), file("b", 1)]).is_empty());
    assert_eq!(names.changes(), seen);
    names.attach(&"a@folder".parse().unwrap(), HandleId([5; 16]));
    assert!(names.is_shared(HandleId([5; 16])) && names.is_named(HandleId([5; 16])));
    let refusal = names.read_only(HandleId([5; 16])).unwrap().message;
    assert_eq!(
        refusal,
        "`a@folder` is a file of the data folder: users only read it"
    );
    let gone = names.set_files(vec![file("a", 2)]);
    assert_eq!(gone, [HandleId([5; 16])]);
    assert_eq!(find(&names, "bob", "a"), Ok((0, 2)));
    assert_eq!(find(&names, "bob", "b"), Err(FailureKind::NotFound));
    // A file that is not in memory any more is still there.
    names.attach(&"a@folder".parse().unwrap(), HandleId([6; 16]));
    names.forget(HandleId([6; 16]));
    assert_eq!(find(&names, "bob", "a"), Ok((0, 2)));
}

#[test]
fn there_are_no_more_names_than_there_may_be() {
    let mut names = Names::new(2);
    put(&mut names, "alice", "a", 1, false);
    put(&mut names, "alice", "b", 2, false);
    let user = User::named("alice");
    let version = names.next(&user, "c", 0, 1, 1);
    let refused = names.put(&user, "c", (HandleId([3; 16]), &form()), (version, false));
    assert_eq!(refused.unwrap_err().kind, FailureKind::QuotaExceeded);
    names.set_files(vec![file("x", 1)]);
    assert_eq!(names.len(), 2);
    // Another version needs no more room.
    put(&mut names, "alice", "b", 4, false);
    assert_eq!(find(&names, "alice", "b"), Ok((4, 2)));
}

#[test]
fn all_are_listed_page_by_page() {
    let mut names = Names::new(1000);
    for number in 0..300u32 {
        let id = HandleId([
            number as u8,
            (number >> 8) as u8,
            1,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        let user = User::named("alice");
        let name = format!("n{number}");
        let version = names.next(&user, &name, 0, 1, 1);
        names
            .put(&user, &name, (id, &form()), (version, false))
            .unwrap();
    }
    let (mut seen, mut after) = (0, None);
    loop {
        let page = names.page(&User::named("alice"), after.as_ref());
        seen += page.names.len();
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, 300);
    assert_eq!(names.all().len(), 300);
}

/// A client chooses the version of a copy.
#[test]
fn a_version_of_the_far_future_is_followed_by_a_newer_one() {
    let mut names = Names::new(10);
    let user = User::named("anne");
    let last = DataVersion {
        written: u64::MAX,
        stamp: 7,
        number: u64::MAX,
    };
    let id = (HandleId([1; 16]), &form());
    names.put(&user, "atoms", id, (last, false)).unwrap();
    assert!(names.next(&user, "atoms", 0, 1000, 3) > last);
}
