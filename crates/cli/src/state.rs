//! `farcall state`: checks the files of a server or a metaserver, and copies them. The crates
//! `server` and `metaserver` do the work. A copy never replaces anything, and damage that is not
//! repaired gives the exit status 1.

use crate::failure::Failure;
use crate::form::Form;
use clap::{Args, Subcommand};
use farcall_metaserver::StoreAddress;
use farcall_metaserver::copies;
use farcall_quantity::counted;
use farcall_server::state::{self, Effect, Problem, Report};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Check, back up and restore the files of servers and metaservers
#[derive(Args)]
#[command(after_help = "Examples:
  farcall state check /var/lib/farcall
  farcall state backup /var/lib/farcall /backup/farcall
  farcall state restore /backup/farcall /var/lib/farcall")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
    Backup(Backup),
    Restore(Restore),
}

/// Check the state folder of a server, or the store of a metaserver
///
/// Each record and each array is compared with its checksum. A server may be using the folder. The
/// exit status is 1 if something is damaged and was not repaired.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall state check /var/lib/farcall
  farcall state check /var/lib/farcall --restore
  farcall state check sqlite:/var/lib/farcall/meta.db")]
struct Check {
    /// The state folder (`farcall serve --state DIR`), or the store (`farcall meta --store STORE`).
    #[arg(value_name = "DIR|STORE")]
    place: Place,
    /// Repair the folder, and bring back the calls that its files and its quarantine describe. No
    /// server may be using it. A call that was forgotten shortly before may come back, too.
    #[arg(long)]
    restore: bool,
    #[command(flatten)]
    form: Form,
}

/// Copy a state folder, or the store of a metaserver, while it is in use
#[derive(Args)]
#[command(after_help = "Examples:
  farcall state backup /var/lib/farcall /backup/farcall-2026-11-22
  farcall state backup sqlite:/var/lib/farcall/meta.db /backup/meta.db")]
struct Backup {
    /// The state folder, or the store.
    #[arg(value_name = "DIR|STORE")]
    place: Place,
    /// The copy: a new folder, or a new file for a store.
    #[arg(value_name = "TO")]
    to: Place,
    #[command(flatten)]
    form: Form,
}

/// Copy a backup into a new state folder or store, after checking it
#[derive(Args)]
#[command(after_help = "Examples:
  farcall state restore /backup/farcall-2026-11-22 /var/lib/farcall
  farcall state restore /backup/meta.db sqlite:/var/lib/farcall/meta.db")]
struct Restore {
    /// The backup.
    #[arg(value_name = "BACKUP")]
    from: Place,
    /// The state folder or the store. There must be nothing in its place.
    #[arg(value_name = "DIR|STORE")]
    place: Place,
    #[command(flatten)]
    form: Form,
}

/// A state folder, or a store.
#[derive(Clone, Debug)]
enum Place {
    Folder(PathBuf),
    Store(StoreAddress),
}

impl Place {
    /// The folder that is the backup of a state folder.
    fn folder(&self) -> Result<&Path, Failure> {
        match self {
            Place::Folder(folder) => Ok(folder),
            Place::Store(store) => Err(Failure::usage(format!(
                "{store} is a store, and the backup of a state folder is a folder: name the folder"
            ))),
        }
    }

    /// The file that is the backup of a store, with or without `sqlite:` before it.
    fn file(&self) -> Result<&Path, Failure> {
        match self {
            Place::Folder(file) | Place::Store(StoreAddress::Sqlite(file)) => Ok(file),
            Place::Store(store) => Err(Failure::usage(format!(
                "{store} is a database, and the backup of a store is a file: name the file"
            ))),
        }
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let is_store = ["sqlite:", "postgres:", "postgresql:"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        match is_store {
            true => text.parse().map(Place::Store),
            false => Ok(Place::Folder(PathBuf::from(text))),
        }
    }
}

/// Refuses a file where a state folder is meant. `store` is the path that lacks its `sqlite:`.
fn refuse_file(path: &Path, store: &Path) -> Result<(), Failure> {
    match path.is_file() {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{} is a file, and the state of a server is a folder; if it is the store of a \
             metaserver, write sqlite:{}",
            path.display(),
            store.display()
        ))),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Check(arguments) => check(arguments),
        Command::Backup(arguments) => backup(arguments),
        Command::Restore(arguments) => restore(arguments),
    }
}

fn check(arguments: &Check) -> Result<(), Failure> {
    if let Place::Folder(path) = &arguments.place {
        refuse_file(path, path)?;
    }
    match &arguments.place {
        Place::Folder(folder) if arguments.restore => {
            let report = state::restore_calls(folder).map_err(Failure::failed)?;
            print(&arguments.form, &report, folder);
            match (report.problems.len(), report.lost.len()) {
                (0, 0) => Ok(()),
                (0, lost) => Err(Failure::failed(format!(
                    "lost records: {lost}; a server starts with the folder now, and only a backup \
                     has their calls"
                ))),
                (count, _) => Err(Failure::failed(format!(
                    "damaged objects that remain: {count}; put their files back from a backup"
                ))),
            }
        }
        Place::Folder(folder) => {
            let report = state::check(folder).map_err(Failure::failed)?;
            print(&arguments.form, &report, folder);
            match report.problems.len() {
                0 => Ok(()),
                count => Err(Failure::failed(advice(&report, count, folder))),
            }
        }
        Place::Store(_) if arguments.restore => Err(Failure::usage(
            "--restore is for state folders; restore a store with `farcall state restore`",
        )),
        Place::Store(store) => {
            let problems = copies::check(store).map_err(Failure::failed)?;
            let is_whole = problems.is_empty();
            print_store(&arguments.form, &problems, store);
            match is_whole {
                true => Ok(()),
                false => Err(Failure::failed(format!(
                    "{store} is damaged: restore it with `farcall state restore`, or move it away; \
                     servers register again within their lease"
                ))),
            }
        }
    }
}

/// What to do about damage.
fn advice(report: &Report, count: usize, folder: &Path) -> String {
    let folder = folder.display();
    let what = match report.worst() {
        Some(Effect::Refused) => format!(
            "a server does not start with this; put the folder back with `farcall state restore`, \
             or bring back what is left: `farcall state check {folder} --restore`"
        ),
        Some(Effect::Reported) => format!(
            "the status of these calls tells of it; `farcall state check {folder} --restore` looks \
             for their files in quarantine"
        ),
        _ => "no call is lost: the next start of the server repairs it".to_string(),
    };
    format!("damaged objects: {count}; {what}")
}

/// Fails if a copy has damage that the next start of a server does not repair.
fn fail_if_damaged(report: &Report, folder: &Path) -> Result<(), Failure> {
    match report.worst() >= Some(Effect::Reported) {
        true => Err(Failure::failed(advice(
            report,
            report.problems.len(),
            folder,
        ))),
        false => Ok(()),
    }
}

fn backup(arguments: &Backup) -> Result<(), Failure> {
    match &arguments.place {
        Place::Folder(folder) => {
            refuse_file(folder, folder)?;
            let to = arguments.to.folder()?;
            let report = state::backup(folder, to).map_err(Failure::failed)?;
            print(&arguments.form, &report, to);
            fail_if_damaged(&report, folder)?;
        }
        Place::Store(store) => {
            let to = arguments.to.file()?;
            copies::copy(store, to).map_err(Failure::failed)?;
            print_store(&arguments.form, &[], &StoreAddress::Sqlite(to.to_owned()));
        }
    }
    Ok(())
}

fn restore(arguments: &Restore) -> Result<(), Failure> {
    match &arguments.place {
        Place::Folder(folder) => {
            let from = arguments.from.folder()?;
            refuse_file(from, folder)?;
            let report = state::restore(from, folder).map_err(Failure::failed)?;
            print(&arguments.form, &report, folder);
            fail_if_damaged(&report, folder)?;
        }
        Place::Store(StoreAddress::Sqlite(path)) => {
            let backup = StoreAddress::Sqlite(arguments.from.file()?.to_owned());
            copies::copy(&backup, path).map_err(Failure::failed)?;
            print_store(&arguments.form, &[], &StoreAddress::Sqlite(path.clone()));
        }
        Place::Store(store) => {
            copies::check(store).map_err(Failure::failed)?;
        }
    }
    Ok(())
}

fn print(form: &Form, report: &Report, folder: &Path) {
    let Report {
        calls,
        problems,
        quarantined,
        repaired,
        lost,
        restored,
    } = report;
    let words = || {
        let calls = counted(*calls, "durable call");
        let mut lines = vec![format!("{}: {calls}", folder.display())];
        let told = |problem: &Problem| format!("  {}: {}", effect(problem.effect), problem.what);
        lines.extend(problems.iter().chain(lost).map(told));
        let told = |problem: &Problem| format!("  repaired: {}", problem.what);
        lines.extend(repaired.iter().map(told));
        if *quarantined > 0 {
            lines.push(format!("  files in quarantine: {quarantined}"));
        }
        lines.extend(restored.iter().map(|id| format!("  brought back: {id}")));
        lines.join("\n")
    };
    let fields = || {
        let restored = restored.iter().map(ToString::to_string);
        json!({
            "folder": folder.display().to_string(),
            "calls": calls,
            "quarantined": quarantined,
            "problems": problems.iter().map(to_json).collect::<Vec<_>>(),
            "repaired": repaired.iter().map(|problem| &problem.what).collect::<Vec<_>>(),
            "lost": lost.iter().map(|problem| &problem.what).collect::<Vec<_>>(),
            "restored": restored.collect::<Vec<_>>(),
        })
    };
    form.answer(words, fields);
}

fn print_store(form: &Form, problems: &[String], store: &StoreAddress) {
    let words = || match problems.len() {
        0 => format!("{store}: whole"),
        _ => format!("{store}: damaged: {}", problems.join("; ")),
    };
    let fields = || json!({"store": store.to_string(), "problems": problems});
    form.answer(words, fields);
}

fn to_json(problem: &Problem) -> Value {
    json!({"what": problem.what, "effect": effect(problem.effect)})
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Repairable => "repairable",
        Effect::Reported => "damaged",
        Effect::Refused => "lost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backup_of_a_store_is_a_file_in_either_form_and_that_of_a_folder_a_folder() {
        let place = |text: &str| text.parse::<Place>().expect("a place");
        for text in ["m.db", "sqlite:m.db"] {
            assert_eq!(place(text).file().ok(), Some(Path::new("m.db")), "{text}");
        }
        assert_eq!(place("m").folder().ok(), Some(Path::new("m")));
        let refused = place("sqlite:m/zz").folder().expect_err("it is a store");
        assert!(refused.to_string().contains("name the folder"), "{refused}");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let refused = refuse_file(&file, Path::new("new.db")).expect_err("it is a file");
        assert!(
            refused.to_string().ends_with("write sqlite:new.db"),
            "{refused}"
        );
        let refused = place("postgres://u@h/d").file().expect_err("no file");
        assert!(refused.to_string().contains("name the file"), "{refused}");
    }
}
