//! How a command prints its results: as text, or as one JSON object. The command chooses the words
//! and the fields. Every object states its `schema`.

use crate::plain;
use clap::Args;
use serde_json::{Value, json};

/// Text, or JSON.
#[derive(Args)]
pub(crate) struct Form {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Form {
    /// Prints a list: a line for each, or all of them under a name.
    pub(crate) fn list<T>(
        &self,
        name: &str,
        rows: &[T],
        to_json: impl Fn(&T) -> Value,
        line: impl Fn(&T) -> String,
    ) {
        match self.json {
            true => print(json!({ name: rows.iter().map(to_json).collect::<Vec<_>>() })),
            false => rows
                .iter()
                .for_each(|row| println!("{}", plain::one_line(&line(row)))),
        }
    }

    /// Prints an answer: the words, or an object with these fields.
    pub(crate) fn answer(&self, words: impl FnOnce() -> String, fields: impl FnOnce() -> Value) {
        match self.json {
            true => print(fields()),
            false => plain::say(words()),
        }
    }
}

/// Prints an object, with the version of its names.
fn print(mut object: Value) {
    object["schema"] = 1.into();
    println!("{object}");
}
