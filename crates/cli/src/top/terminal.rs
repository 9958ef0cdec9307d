//! The terminal of `farcall top`: it draws, and waits for keys and snapshots. It leaves the
//! terminal as it was, also after a signal or a panic. A thread waits for the server, so that keys
//! work while it does not answer.

use super::view::{View, Wish};
use crossterm::event::{self, Event, KeyEventKind};
use farcall_client::AskSnapshot;
use farcall_snapshot::Snapshot;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest time until a snapshot that has come is shown.
const GLANCE: Duration = Duration::from_millis(50);

type Told = Result<Snapshot, String>;

/// Shows a server until the user ends it.
pub(crate) fn show(
    view: View,
    ask: impl Fn(&AskSnapshot) -> Told + Send + 'static,
) -> io::Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    let (asks, wanted) = channel::<AskSnapshot>();
    let (tells, told) = channel();
    let answer = move || {
        while let Ok(asked) = wanted.recv() {
            // Only the latest question matters.
            let asked = wanted.try_iter().last().unwrap_or(asked);
            if tells.send(ask(&asked)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().spawn(answer)?;
    let mut terminal = ratatui::try_init()?;
    let shown = watch(view, &mut terminal, (&asks, &told), &ends);
    if ratatui::try_restore().is_err() {
        // The terminal is gone: nobody could read an error.
        std::process::exit(1);
    }
    shown
}

fn watch(
    mut view: View,
    terminal: &mut ratatui::DefaultTerminal,
    (asks, told): (&Sender<AskSnapshot>, &Receiver<Told>),
    ends: &AtomicBool,
) -> io::Result<()> {
    let mut next = Instant::now() + PERIOD;
    let mut is_changed = true;
    while !ends.load(Ordering::Relaxed) {
        for told in told.try_iter() {
            view.take(told);
            is_changed = true;
        }
        if Instant::now() >= next {
            let _ = asks.send(view.asks());
            next = Instant::now() + PERIOD;
        }
        if std::mem::take(&mut is_changed) {
            terminal.draw(|frame| view.draw(frame))?;
        }
        if !event::poll(GLANCE)? {
            continue;
        }
        is_changed = true;
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match view.press(key) {
                Wish::End => return Ok(()),
                Wish::Ask => next = Instant::now(),
                Wish::GoOn => {}
            },
            _ => {}
        }
    }
    Ok(())
}
