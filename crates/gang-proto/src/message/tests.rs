//! Tests that messages travel, also from and to daemons before this version. The bounds of what a
//! job asks for always keep them short enough.

use super::*;

/// A daemon of the first version gets an answer that says what to do, and gives one.
#[test]
fn messages_of_the_first_version_can_be_read() {
    // Join("b", [0], "127.0.0.1:1", "") and Welcome("b", 1), as the first version wrote them.
    let join = b"\x82\x0b\x84\x61b\x81\x00\x6b127.0.0.1:1\x60";
    let welcome = b"\x82\x0c\x82\x61b\x01";
    let read = |body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap();
        let frame = [&length.to_le_bytes()[..], body].concat();
        Message::decode(&frame).unwrap().unwrap().0
    };
    assert!(matches!(read(join), Message::Join(.., None)));
    assert!(matches!(read(welcome), Message::Welcome(_, 1, None)));
}

/// An earlier daemon of the same version does not say why a node is lost.
#[test]
fn a_loss_without_a_reason_can_be_read() {
    let frame = b"\x04\x00\x00\x00\x82\x15\x81\x01";
    let (read, _) = Message::decode(frame).unwrap().unwrap();
    assert_eq!(read, Message::Lost(1, None));
}

fn polling() -> Report {
    let wanted = [
        Wanted::Message(Some(1), Some(7)),
        Wanted::Message(None, None),
        Wanted::Receive(2, None),
    ];
    let polling = Polling {
        rank: 1,
        polls: 1000,
        version: 2,
        wanted: wanted.to_vec(),
        has_others: true,
    };
    Report {
        polling: Some([polling].into()),
        uses_mpi: Some(true),
        ..Report::default()
    }
}

/// A daemon before MPI over channels was seen says nothing of it.
#[test]
fn reports_of_the_same_version_without_polling_can_be_read() {
    let body = b"\x82\x14\x83\x01\x00\x86\x80\x80\x80\x80\x00\x80";
    let frame = [&12u32.to_le_bytes()[..], body].concat();
    let (read, _) = Message::decode(&frame).unwrap().unwrap();
    assert_eq!(read, Message::Inspected(1, 0, Report::default()));
}

#[test]
fn messages_travel() {
    let sent = [
        Message::Run(JobSpec {
            processes: 2,
            command: ["a".to_string()].into(),
            ..JobSpec::default()
        }),
        Message::Output(1, 2, 1, [0, 255].into()),
        Message::Down(Round::default(), Step::Run),
        Message::Inspected(1, 0, polling()),
        Message::Lost(2, Some("node c was silent for 30 s".to_string())),
        Message::Closing("the daemon was stopped".to_string()),
    ];
    let mut bytes = Vec::new();
    for message in &sent {
        message.encode(&mut bytes);
    }
    let mut place = 0;
    for message in sent {
        let (read, length) = Message::decode(&bytes[place..]).unwrap().unwrap();
        assert_eq!(read, message);
        assert_eq!(Message::decode(&bytes[place..place + length - 1]), Ok(None));
        place += length;
    }
    assert!(Message::decode(&[255; 8]).is_err());
    assert!(Message::decode(&[1, 0, 0, 0, 255]).is_err());
}

/// What fits into a message of a front end fits into those to all daemons, too.
#[test]
fn a_long_specification_is_refused() {
    let of = |bytes: usize| JobSpec {
        environment: ["x".repeat(bytes)].into(),
        ..JobSpec::default()
    };
    assert_eq!(of(MAX_SPEC - 100).check_length(), Ok(()));
    let refused = of(MAX_SPEC).check_length().unwrap_err();
    assert!(refused.contains("`env -i`"), "{refused}");
}

#[test]
fn a_report_of_many_queues_fits_into_a_message() {
    let mut report = Report {
        waits: [(1, 0, 2, 0, 0)].into(),
        queued: [(u16::MAX, u16::MAX, 7, u64::from(u32::MAX))].repeat(MAX_QUEUED),
        ..Report::default()
    };
    report.shorten();
    assert_eq!(report.queued.len(), MAX_QUEUED);
    let mut bytes = Vec::new();
    Message::Inspected(1, 0, report.clone()).encode(&mut bytes);
    assert!(bytes.len() < MAX_MESSAGE, "{}", bytes.len());
    report.queued.push((0, 1, 0, 1));
    report.shorten();
    assert_eq!((report.queued.len(), report.waits.len()), (0, 0));
}
