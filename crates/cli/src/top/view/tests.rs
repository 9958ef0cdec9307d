//! Plays keys and snapshots on a screen in memory, as large as the smallest terminal. A row that
//! comes into view must be asked for.

use super::*;
use farcall_snapshot::{Call, Counts, Interval, List, SCHEMA, Server, User};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn call(number: u64) -> Call {
    Call {
        number,
        user: format!("user{}", number % 3),
        function: "lapack/dgesv".into(),
        phase: "waiting".into(),
        wait_s: number as f64,
        starts: Some(Interval {
            low_s: 1.0,
            likely_s: 2.0,
            high_s: 4.0,
        }),
        reason: format!("{number} calls are before it"),
        ..Call::default()
    }
}

/// A server with many calls, of which a snapshot shows some.
fn snapshot(asked: &AskSnapshot) -> Snapshot {
    let until = (asked.from + u64::from(asked.most)).min(5000);
    Snapshot {
        schema: SCHEMA,
        kind: "server".into(),
        counts: Counts {
            waiting: 5000,
            running: 4,
            ..Counts::default()
        },
        servers: List::of(0..1, 1, |_| Server {
            pes: 4,
            pes_used: Some(4),
            backlog_s: 90.0,
            state: "serving".into(),
            ..Server::default()
        }),
        calls: List {
            total: 5000,
            from: asked.from,
            rows: (asked.from..until).map(call).collect(),
        },
        users: List::of([3, 1, 2].into_iter(), 9, |number| User {
            user: format!("user{number}"),
            waiting: number,
            ..User::default()
        }),
        ..Snapshot::default()
    }
}

fn view() -> View {
    let asked = AskSnapshot {
        most: tables::MOST,
        ..AskSnapshot::default()
    };
    View::new(Tab::Calls, String::new(), snapshot(&asked))
}

fn screen(view: &mut View) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let text = terminal.backend().to_string();
    let lines = text
        .lines()
        .map(|line| line.trim_matches('"').trim_end().to_owned());
    lines.collect()
}

fn press(view: &mut View, keys: &[KeyCode]) -> Wish {
    let presses = keys.iter().map(|key| view.press((*key).into()));
    presses.last().unwrap()
}

#[test]
fn a_small_screen_shows_the_numbers_and_the_first_calls() {
    let lines = screen(&mut view());
    assert_eq!(lines.len(), 24);
    assert!(lines[1].contains("5000 wait, 4 run"), "{lines:#?}");
    assert!(lines[2].contains("elements 4 of 4"), "{lines:#?}");
    assert!(lines[3].starts_with("[calls]"), "{lines:#?}");
    assert!(lines[3].ends_with("1 to 18 of 5000"), "{lines:#?}");
    assert!(lines[4].starts_with("function"), "{lines:#?}");
    assert!(
        lines[5].contains("lapack/dgesv") && lines[5].contains("0 calls are"),
        "{lines:#?}"
    );
    assert!(lines[23].contains("q end"), "{lines:#?}");
}

#[test]
fn the_rows_that_come_into_view_are_asked_for() {
    let mut view = view();
    screen(&mut view);
    assert_eq!(press(&mut view, &[KeyCode::Down]), Wish::GoOn);
    assert_eq!(press(&mut view, &[KeyCode::End]), Wish::Ask);
    let asked = view.asks();
    assert!(asked.from > 4000, "{asked:?}");
    view.take(Ok(snapshot(&asked)));
    let lines = screen(&mut view);
    assert!(lines[22].contains("4999 calls are"), "{lines:#?}");
    // Calls end, and the view follows.
    view.take(Ok(Snapshot {
        calls: List::default(),
        ..snapshot(&asked)
    }));
    assert!(screen(&mut view)[3].ends_with("0 to 0 of 0"));
}

#[test]
fn keys_sort_search_and_end() {
    let mut view = view();
    press(&mut view, &[KeyCode::Tab, KeyCode::Tab]);
    let users = |view: &mut View| -> Vec<String> {
        let lines = screen(view);
        lines[5..8]
            .iter()
            .map(|line| line[..5].to_owned())
            .collect()
    };
    assert_eq!(users(&mut view), ["user3", "user1", "user2"]);
    press(&mut view, &[KeyCode::Char('s')]);
    assert_eq!(users(&mut view), ["user1", "user2", "user3"]);
    press(&mut view, &[KeyCode::Char('s')]);
    assert_eq!(users(&mut view), ["user3", "user2", "user1"]);
    press(&mut view, &[KeyCode::Char('r')]);
    assert_eq!(users(&mut view), ["user1", "user2", "user3"]);
    let typed = [
        KeyCode::Char('/'),
        KeyCode::Char('q'),
        KeyCode::Char('x'),
        KeyCode::Backspace,
    ];
    assert_eq!(press(&mut view, &typed), Wish::Ask);
    assert_eq!(view.asks().search, "q");
    assert!(screen(&mut view)[23].starts_with("search: q_"));
    assert_eq!(press(&mut view, &[KeyCode::Esc]), Wish::Ask);
    assert_eq!(view.asks().search, "");
    assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Wish::End);
    let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.press(stop), Wish::End);
}

#[test]
fn the_server_that_is_watched_has_a_name_among_servers() {
    let rows = table(&snapshot(&AskSnapshot::default()), Tab::Servers).rows;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][0].text, "this server");
}

#[test]
fn a_lost_server_is_said_and_what_was_seen_stays() {
    let mut view = view();
    view.take(Err("cannot connect".into()));
    let lines = screen(&mut view);
    assert!(
        lines[23].contains("trying again: cannot connect"),
        "{lines:#?}"
    );
    assert!(lines[5].contains("lapack/dgesv"), "{lines:#?}");
}

#[test]
fn the_rows_of_a_list_that_did_not_come_are_counted() {
    let mut view = view();
    let mut seen = snapshot(&AskSnapshot::default());
    seen.users.total = 900;
    view.take(Ok(seen));
    press(&mut view, &[KeyCode::Tab, KeyCode::Tab]);
    let lines = screen(&mut view);
    assert!(lines[3].ends_with("1 to 3 of 3 (900 in all)"), "{lines:#?}");
}

#[test]
fn a_metaserver_has_no_calls() {
    let meta = Snapshot {
        kind: "metaserver".into(),
        ..Snapshot::default()
    };
    assert!(Tab::Servers.is_of(&meta) && !Tab::Calls.is_of(&meta));
    let server = snapshot(&AskSnapshot::default());
    assert!(Tab::Servers.is_of(&server) && Tab::Calls.is_of(&server));
}

#[test]
fn a_letter_with_control_is_no_letter_of_the_search() {
    let mut view = view();
    let typed = ['/', 'a', 'b'].map(KeyCode::Char);
    press(&mut view, &typed);
    let with_control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(view.press(with_control('u')), Wish::GoOn);
    assert_eq!(view.asks().search, "ab");
    // Backspace, as some terminals send it.
    assert_eq!(view.press(with_control('h')), Wish::Ask);
    assert_eq!(view.asks().search, "a");
}
