//! `farcall token`

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_access::TokenFile;
use std::path::PathBuf;

/// Give users of a server tokens, and withdraw them
///
/// `farcall serve --tokens FILE` then lets in whoever shows one of them, as the user of that name.
/// A running server sees changes of the file at once. The file has only the tokens' SHA-256: what
/// `add` prints is printed once.
#[derive(Args)]
#[command(after_help = "Example:
  farcall token add tokens alice
  farcall serve libraries/lapack.idl --tokens tokens
  FARCALL_TOKEN=... farcall ls          # as alice")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give a user one more token, and print it
    #[command(after_help = "Example:\n  farcall token add tokens alice")]
    Add {
        /// File of tokens; made where there is none
        file: PathBuf,
        /// Name of the user
        name: String,
    },
    /// Withdraw all tokens of a user
    #[command(after_help = "Example:\n  farcall token remove tokens alice")]
    Remove {
        /// File of tokens
        file: PathBuf,
        /// Name of the user
        name: String,
    },
    /// List the users, one line for each token
    #[command(after_help = "Example:\n  farcall token list tokens")]
    List {
        /// File of tokens
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Add { file, name } => {
            let token = TokenFile::add(file, name).map_err(Failure::failed)?;
            println!("{token}");
        }
        Command::Remove { file, name } => {
            let count = TokenFile::remove(file, name).map_err(Failure::failed)?;
            println!("withdrew {count} of {name}");
        }
        Command::List { file } => {
            for user in TokenFile::open(file).map_err(Failure::failed)?.users() {
                println!("{user}");
            }
        }
    }
    Ok(())
}
