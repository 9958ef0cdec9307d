//! What the screen shows, and what keys change. It does no I/O: keys and snapshots come from
//! `terminal`, and the screen is any `Frame`.

use super::tables::{self, Cell, Tab, Table, heading, table};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use farcall_client::AskSnapshot;
use farcall_snapshot::Snapshot;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, Row, Table as Rows};
use std::cmp::Ordering;

/// What `farcall top` shows.
#[derive(Debug)]
pub(crate) struct View {
    snapshot: Snapshot,
    /// Why the last snapshot did not come.
    error: Option<String>,
    tab: Tab,
    /// The column by which rows are sorted, if not in their own order.
    sort: Option<usize>,
    turned: bool,
    search: String,
    /// Whether keys go into the search.
    is_typing: bool,
    /// The first row in view.
    top: u64,
    /// Rows in view.
    page: u64,
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// To go on.
    GoOn,
    /// A new snapshot, at once.
    Ask,
    /// The end.
    End,
}

impl View {
    pub(crate) fn new(tab: Tab, search: String, snapshot: Snapshot) -> View {
        View {
            snapshot,
            error: None,
            tab,
            sort: None,
            turned: false,
            search,
            is_typing: false,
            top: 0,
            page: 20,
        }
    }

    /// What to ask the server for.
    pub(crate) fn asks(&self) -> AskSnapshot {
        let is_calls = self.tab == Tab::Calls;
        AskSnapshot {
            from: if is_calls {
                self.top.saturating_sub(100)
            } else {
                0
            },
            most: tables::MOST,
            search: self.search.clone(),
        }
    }

    /// Takes a snapshot, or the reason why there is none.
    pub(crate) fn take(&mut self, told: Result<Snapshot, String>) {
        match told {
            Ok(snapshot) => (self.snapshot, self.error) = (snapshot, None),
            Err(error) => self.error = Some(error),
        }
        self.scroll(0);
    }

    /// Takes a key.
    pub(crate) fn press(&mut self, key: KeyEvent) -> Wish {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Wish::End;
        }
        let code = match key.code {
            // Some terminals send it for Backspace.
            KeyCode::Char('h') if is_control => KeyCode::Backspace,
            KeyCode::Char(_) if is_control => return Wish::GoOn,
            code => code,
        };
        match self.is_typing {
            true => self.type_key(code),
            false => self.command(code),
        }
    }

    fn type_key(&mut self, key: KeyCode) -> Wish {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.search.clear();
            }
            KeyCode::Backspace => drop(self.search.pop()),
            KeyCode::Char(letter) if self.search.len() < 100 => self.search.push(letter),
            _ => return Wish::GoOn,
        }
        self.top = 0;
        Wish::Ask
    }

    fn command(&mut self, key: KeyCode) -> Wish {
        let page = i64::try_from(self.page).unwrap_or(i64::MAX);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char('r') => self.turned = !self.turned,
            KeyCode::Tab => return self.turn_to(1),
            KeyCode::BackTab => return self.turn_to(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page),
            KeyCode::PageUp => self.scroll(-page),
            KeyCode::Home => self.top = 0,
            KeyCode::End => self.scroll(i64::MAX),
            _ => return Wish::GoOn,
        }
        // Rows that were not asked for have come into view.
        let loaded = &self.snapshot.calls;
        let until = loaded.from + loaded.rows.len() as u64;
        let is_there = self.top >= loaded.from && (self.top + self.page).min(loaded.total) <= until;
        match self.tab == Tab::Calls && !is_there {
            true => Wish::Ask,
            false => Wish::GoOn,
        }
    }

    fn sort_by_next(&mut self) {
        let columns = table(&self.snapshot, self.tab).columns.len();
        self.sort = match self.sort {
            None => Some(0),
            Some(last) if last + 1 >= columns => None,
            Some(column) => Some(column + 1),
        };
    }

    fn turn_to(&mut self, by: isize) -> Wish {
        let all = Tab::all(&self.snapshot);
        let place = all.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        let next = place.wrapping_add_signed(by + all.len() as isize) % all.len();
        (self.tab, self.top, self.sort) = (all[next], 0, None);
        Wish::Ask
    }

    fn scroll(&mut self, by: i64) {
        let total = table(&self.snapshot, self.tab).total;
        let last = total.saturating_sub(self.page);
        self.top = self.top.saturating_add_signed(by).min(last);
    }

    /// Draws everything.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let parts = [3, 1, 0, 1].map(|lines| match lines {
            0 => Constraint::Min(1),
            lines => Constraint::Length(lines),
        });
        let [head, tabs, body, foot] = Layout::vertical(parts).areas(frame.area());
        let lines: Vec<Line<'_>> = heading(&self.snapshot)
            .into_iter()
            .map(Line::from)
            .collect();
        frame.render_widget(Paragraph::new(Text::from(lines)), head);
        self.page = u64::from(body.height.saturating_sub(1)).max(1);
        self.scroll(0);
        let mut table = table(&self.snapshot, self.tab);
        frame.render_widget(self.tabs(&table), tabs);
        self.order(&mut table);
        frame.render_widget(self.rows(&table), body);
        frame.render_widget(self.foot(), foot);
    }

    fn tabs(&self, table: &Table) -> Line<'static> {
        let all = Tab::all(&self.snapshot)
            .iter()
            .map(|tab| match *tab == self.tab {
                true => format!("[{}]", tab.name()),
                false => format!(" {} ", tab.name()),
            });
        let all: String = all.collect();
        let last = (self.top + self.page).min(table.total);
        let first = (self.top + 1).min(last);
        let rows = format!("  {first} to {last} of {}", table.total);
        let in_all = match (self.tab, table.missing) {
            (Tab::Calls, _) | (_, 0) => String::new(),
            (_, missing) => format!(" ({} in all)", table.total.saturating_add(missing)),
        };
        Line::styled(format!("{all}{rows}{in_all}"), Modifier::BOLD)
    }

    /// Sorts the rows that are there.
    fn order(&self, table: &mut Table) {
        let Some(column) = self.sort else {
            if self.turned {
                table.rows.reverse();
            }
            return;
        };
        let by_number = table.columns[column].is_number;
        table.rows.sort_by(|one, other| {
            let order = compare(&one[column], &other[column]);
            // The largest numbers are what people look for.
            if by_number == self.turned {
                order
            } else {
                order.reverse()
            }
        });
    }

    fn rows(&self, table: &Table) -> Rows<'static> {
        let widths = table.columns.iter().map(|column| match column.width {
            0 => Constraint::Min(12),
            width => Constraint::Length(width),
        });
        let titles = table.columns.iter().enumerate().map(|(place, column)| {
            let mark = if self.sort == Some(place) { "*" } else { "" };
            aligned(format!("{mark}{}", column.title), column.is_number)
        });
        let skipped = usize::try_from(self.top.saturating_sub(table.from)).unwrap_or(usize::MAX);
        let count = usize::try_from(self.page).unwrap_or(usize::MAX);
        let rows = table.rows.iter().skip(skipped).take(count).map(|row| {
            let cells = row.iter().zip(&table.columns);
            Row::new(cells.map(|(cell, column)| aligned(cell.text.clone(), column.is_number)))
        });
        let style = Style::new().add_modifier(Modifier::REVERSED);
        Rows::new(rows, widths)
            .header(Row::new(titles).style(style))
            .column_spacing(1)
    }

    fn foot(&self) -> Line<'static> {
        let text = match (&self.error, self.is_typing) {
            (Some(error), _) => format!("no answer, trying again: {}", error.replace('\n', " ")),
            (None, true) => format!("search: {}_  (Enter keeps it, Esc clears it)", self.search),
            (None, false) if !self.search.is_empty() => {
                format!(
                    "search: {}  Tab list  s sort  r turn  / search  q end",
                    self.search
                )
            }
            (None, false) => "Tab list  arrows scroll  s sort  r turn  / search  q end".to_owned(),
        };
        Line::raw(text)
    }
}

fn aligned(text: String, right: bool) -> Text<'static> {
    match right {
        true => Text::from(text).right_aligned(),
        false => Text::from(text),
    }
}

fn compare(one: &Cell, other: &Cell) -> Ordering {
    match (one.order, other.order) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (None, None) => one.text.cmp(&other.text),
        (one, other) => one.is_some().cmp(&other.is_some()),
    }
}

#[cfg(test)]
mod tests;
