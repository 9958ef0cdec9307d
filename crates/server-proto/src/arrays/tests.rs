//! Tests of the [`Store`]: which call may use an array next, which array leaves memory first, and
//! which user owns it. A property test plays random calls. It checks that a call that writes an
//! array has it alone, and that every call gets its turn.

use super::*;
use crate::keys::Key;
use proptest::prelude::*;

const MEMORY: u64 = 1 << 20;

fn store(per_user: usize, bytes_per_user: u64) -> Store {
    let settings = ArrayLimits {
        memory: MEMORY / 4,
        per_user,
        bytes_per_user,
        keep_h: 1.0,
        names: 100,
    };
    Store::new(settings, MEMORY)
}

fn put(bytes: u64) -> Put {
    Put {
        form: ArrayForm {
            element: "char".to_string(),
            shape: vec![bytes],
            column_major: false,
        },
        data_bytes: bytes,
        stays: false,
    }
}

fn connection(number: u8) -> ConnectionKey {
    ConnectionKey::new(number.into(), 1)
}

fn memory(number: u8) -> MemoryKey {
    MemoryKey::new(number.into(), 1)
}

fn call(number: usize) -> CallKey {
    CallKey::new(number as u32, 1)
}

fn add(store: &mut Store, byte: u8, bytes: u64) -> HandleId {
    let (id, put, user) = (HandleId([byte; 16]), put(bytes), User::anonymous());
    store.reserve(&user, bytes);
    store.insert(id, &put, user, connection(byte), memory(byte));
    id
}

fn uses(id: HandleId, writes: bool) -> Vec<Use> {
    vec![Use {
        id,
        writes,
        replaces: false,
        array: 0,
    }]
}

#[test]
fn arrays_leave_memory_in_the_order_of_their_last_use_within_a_millisecond_too() {
    let mut store = store(9, 1 << 30);
    let ids = [3, 1, 2].map(|byte| add(&mut store, byte, 10));
    store.touch(ids[0]);
    let left: Vec<_> = std::iter::from_fn(|| Some(leaving::least_used(&mut store)?.0)).collect();
    assert_eq!(left, [ids[1], ids[2], ids[0]]);
}

#[test]
fn readers_go_together_and_a_writer_alone_in_their_order() {
    let mut store = store(9, 1 << 30);
    let id = add(&mut store, 1, 10);
    let calls = [(1, false), (2, false), (3, true), (4, false), (5, true)];
    let calls = calls.map(|(number, writes)| (call(number), writes));
    for (call, writes) in calls {
        store.line_up(call, &uses(id, writes));
    }
    let now = |store: &Store| -> Vec<CallKey> {
        let turn = |(call, writes): &(CallKey, bool)| store.turn(*call, &uses(id, *writes));
        let mut ready: Vec<_> = calls
            .iter()
            .filter(|call| turn(call) == Turn::Now)
            .collect();
        ready.retain(|(call, _)| store.get(id).unwrap().calls.iter().any(|(j, _)| j == call));
        ready.iter().map(|(call, _)| *call).collect()
    };
    assert_eq!(now(&store), [1, 2].map(call));
    store.finish(call(2), &uses(id, false), None);
    assert_eq!(now(&store), [call(1)]);
    let (waiting, _) = store.finish(call(1), &uses(id, false), None);
    assert_eq!(
        (waiting, now(&store)),
        (vec![call(3), call(4), call(5)], vec![call(3)])
    );
    store.finish(call(3), &uses(id, true), None);
    assert_eq!(now(&store), [call(4)]);
    store.finish(call(4), &uses(id, false), Some("failed"));
    assert_eq!(now(&store), [call(5)], "who only reads spoils nothing");
}

#[test]
fn what_a_failed_call_was_to_write_is_not_read() {
    let mut store = store(9, 1 << 30);
    let id = add(&mut store, 1, 10);
    store.line_up(call(1), &uses(id, true));
    store.line_up(call(2), &uses(id, false));
    store.finish(call(1), &uses(id, true), Some("it crashed"));
    match store.turn(call(2), &uses(id, false)) {
        Turn::Never(failure) => assert!(failure.message.contains("it crashed")),
        other => panic!("{other:?}"),
    }
    store.finish(call(2), &uses(id, false), Some("refused"));
    let mut replaced = uses(id, true);
    replaced[0].replaces = true;
    store.line_up(call(3), &replaced);
    assert_eq!(store.turn(call(3), &replaced), Turn::Now);
    store.finish(call(3), &replaced, None);
    store.line_up(call(4), &uses(id, false));
    assert_eq!(store.turn(call(4), &uses(id, false)), Turn::Now);
}

#[test]
fn a_page_of_undefined_arrays_fits_in_a_message() {
    let mut store = store(PAGE, 1 << 30);
    for byte in 0..PAGE as u8 {
        let id = add(&mut store, byte, 10);
        store.line_up(call(1), &uses(id, true));
        store.finish(call(1), &uses(id, true), Some(&"\u{e9}".repeat(8 << 10)));
    }
    let page = store.page(&User::anonymous(), 0);
    let undefined = page.handles.iter().map(|one| one.undefined.as_deref());
    let lengths: Vec<usize> = undefined.map(|why| why.unwrap().len()).collect();
    assert_eq!(lengths, [REASON_BYTES + 3; PAGE]);
}

#[test]
fn calls_that_fail_because_of_an_earlier_one_name_it_once() {
    let mut store = store(9, 1 << 30);
    let (id, uses) = (add(&mut store, 1, 10), uses(HandleId([1; 16]), true));
    store.line_up(call(1), &uses);
    store.finish(call(1), &uses, Some("it crashed"));
    let mut texts = Vec::new();
    for number in 2..5 {
        store.line_up(call(number), &uses);
        let Turn::Never(failure) = store.turn(call(number), &uses) else {
            panic!("the array {id} is undefined");
        };
        store.finish(call(number), &uses, Some(&failure.message));
        texts.push(failure.message);
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn what_was_used_least_leaves_and_comes_back() {
    let mut store = store(9, 1 << 30);
    let (old, new) = (add(&mut store, 1, 100_000), add(&mut store, 2, 100_000));
    store.line_up(call(7), &uses(old, false));
    assert!(!store.has_room(100_000));
    let (id, bytes, buffer) = leaving::least_used(&mut store).unwrap();
    assert_eq!((id, bytes), (new, 100_000), "the other one is in use");
    assert!(store.will_have_room(100_000) && !store.has_room(100_000));
    assert!(leaving::least_used(&mut store).is_none());
    assert_eq!(store.turn(call(8), &uses(new, false)), Turn::Later);
    assert_eq!(buffer, memory(2));
    let stored = Stored { bytes, sum: 5 };
    assert!(store.left(new, Location::Disk(stored)).is_none());
    assert!(store.has_room(100_000) && store.record(new).unwrap().on_disk);
    assert_eq!(store.turn(call(8), &uses(new, false)), Turn::Read(new));
    assert_eq!(store.returning(new), Some(stored));
    assert!(!store.has_room(100_000));
    assert!(store.returned(new, Ok(memory(9))).is_none());
    assert_eq!(store.turn(call(8), &uses(new, false)), Turn::Now);
}

#[test]
fn a_file_that_cannot_be_read_is_read_again_for_the_next_call() {
    let mut store = store(10, 1000);
    let id = HandleId([7; 16]);
    let file = DataFile {
        name: "f".to_string(),
        form: put(100).form,
        offset: 0,
        is_swapped: false,
        length: 100,
        changed: 1,
    };
    store.insert_file(id, Arc::new(file));
    let uses = uses(id, false);
    for number in [1, 2] {
        store.line_up(call(number), &uses);
        assert!(matches!(store.turn(call(number), &uses), Turn::Read(read) if read == id));
        assert!(store.file_returning(id).is_some());
        assert_eq!(store.not_read(id, Location::File), [call(number)]);
        store.finish(call(number), &uses, None);
    }
    assert_eq!(store.resident, 0);
}

#[test]
fn quotas_hold_and_are_given_back() {
    let mut store = store(2, 1000);
    let user = User::anonymous();
    let kind = |result: Result<u64, Failure>| result.unwrap_err().kind;
    assert_eq!(
        kind(store.check(&put(1001), &user, &Groups::new())),
        FailureKind::QuotaExceeded
    );
    assert_eq!(
        kind(store.check(&put(MEMORY), &user, &Groups::new())),
        FailureKind::TooLarge
    );
    let first = add(&mut store, 1, 600);
    assert_eq!(
        kind(store.check(&put(500), &user, &Groups::new())),
        FailureKind::QuotaExceeded
    );
    add(&mut store, 2, 1);
    assert_eq!(
        kind(store.check(&put(1), &user, &Groups::new())),
        FailureKind::QuotaExceeded
    );
    assert!(
        store
            .check(&put(1), &User::named("another"), &Groups::new())
            .is_ok()
    );
    assert!(store.drop_array(first).is_some());
    assert!(store.check(&put(500), &user, &Groups::new()).is_ok());
    let mut wrong = put(10);
    wrong.data_bytes = 9;
    assert_eq!(
        kind(store.check(&wrong, &user, &Groups::new())),
        FailureKind::BadArgument
    );
}

#[test]
fn the_connections_of_arrays_that_were_just_used_are_known() {
    let mut store = store(9, 1 << 30);
    store.now = 1_000;
    let id = add(&mut store, 1, 10);
    add(&mut store, 2, 10);
    assert_eq!(store.just_used(50), [1, 2].map(connection).into());
    store.now = 1_050;
    assert_eq!(store.just_used(50), [].into());
    store.touch(id);
    assert_eq!(store.just_used(50), [connection(1)].into());
    store.keep(id);
    assert_eq!(store.just_used(50), [].into());
}

#[test]
fn nobody_finds_what_is_another_users() {
    let mut store = store(9, 1 << 30);
    let id = add(&mut store, 1, 10);
    let other = User::named("another");
    assert!(store.of_user(id, &User::anonymous()).is_ok());
    let text = |id| store.of_user(id, &other).err().unwrap().message;
    let unknown = HandleId([9; 16]);
    assert_eq!(
        text(id).replace(&id.to_string(), &unknown.to_string()),
        text(unknown)
    );
    assert_eq!(store.page(&other, 0).handles, []);
    assert_eq!(store.page(&User::anonymous(), 0).handles.len(), 1);
    assert_eq!(store.of_connection(connection(1)), [id]);
}

#[test]
fn a_dropped_array_goes_with_its_last_job() {
    let mut store = store(9, 1 << 30);
    let id = add(&mut store, 1, 10);
    store.line_up(call(1), &uses(id, false));
    assert!(store.drop_array(id).is_none());
    assert!(store.of_user(id, &User::anonymous()).is_err());
    assert_eq!(store.turn(call(1), &uses(id, false)), Turn::Now);
    let (_, ended) = store.finish(call(1), &uses(id, false), None);
    assert_eq!(ended, [(id, Remains::Memory(memory(1)))]);
    assert!(store.get(id).is_none() && store.has_room(MEMORY / 4));
}

#[test]
fn only_an_array_that_rests_on_the_disk_leaves_a_file() {
    let on_disk = |store: &mut Store, byte| {
        let id = add(store, byte, 10);
        assert_eq!(leaving::least_used(store).unwrap().0, id);
        let stored = Stored { bytes: 10, sum: 5 };
        assert!(store.left(id, Location::Disk(stored)).is_none());
        id
    };
    let mut store = store(9, 1 << 30);
    let id = add(&mut store, 1, 10);
    assert_eq!(store.drop_array(id), Some(Remains::Memory(memory(1))));
    let id = on_disk(&mut store, 2);
    assert_eq!(store.drop_array(id), Some(Remains::File));
    // Who moves it learns that it is gone.
    let id = on_disk(&mut store, 3);
    assert!(store.returning(id).is_some());
    assert_eq!(store.drop_array(id), None);
    assert!(some_move(&store), "its memory comes back");
    assert_eq!(store.returned(id, Ok(memory(3))), Some(memory(3)));
    assert!(!some_move(&store));
    // A call that waits for it is given up.
    let id = on_disk(&mut store, 4);
    store.line_up(call(1), &uses(id, false));
    assert_eq!(store.drop_array(id), None);
    let (_, ended) = store.finish(call(1), &uses(id, false), None);
    assert_eq!(ended, [(id, Remains::File)]);
}

proptest! {
    /// Whatever calls come and end in whatever order: nobody reads or writes what another one
    /// writes, and all have their turn in the end.
    #[test]
    fn writers_are_alone_and_nobody_waits_for_ever(
        calls in prop::collection::vec(
            prop::collection::vec((0u8..3, any::<bool>()), 1..3), 1..20),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let mut store = store(9, 1 << 30);
        for byte in 0..3 {
            add(&mut store, byte, 10);
        }
        let wanted: Vec<Vec<Use>> = calls.iter().map(|call| {
            let mut all = Vec::new();
            for (byte, writes) in call {
                let use_of = uses(HandleId([*byte; 16]), *writes)[0];
                if all.iter().all(|other: &Use| other.id != use_of.id) {
                    all.push(use_of);
                }
            }
            all
        }).collect();
        for (number, uses) in wanted.iter().enumerate() {
            store.line_up(call(number), uses);
        }
        let mut left: Vec<usize> = (0..wanted.len()).collect();
        let mut picks = picks.iter().cycle();
        while !left.is_empty() {
            let ready: Vec<usize> = left.iter().copied()
                .filter(|i| store.turn(call(*i), &wanted[*i]) == Turn::Now).collect();
            prop_assert!(!ready.is_empty());
            for (index, a) in ready.iter().enumerate() {
                for b in &ready[index + 1..] {
                    for x in &wanted[*a] {
                        let clash = |y: &Use| x.id == y.id && (x.writes || y.writes);
                        prop_assert!(!wanted[*b].iter().any(clash));
                    }
                }
            }
            let number = ready[picks.next().unwrap().index(ready.len())];
            store.finish(call(number), &wanted[number], None);
            left.retain(|other| *other != number);
        }
    }
}
