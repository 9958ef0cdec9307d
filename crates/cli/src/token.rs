//! `farcall access token`: adds, lists and removes tokens of users in a server's token file. The
//! file has only verifiers, so a token is printed once and cannot be read later.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_access::TokenFile;
use farcall_quantity::counted;
use std::path::PathBuf;

/// Add and remove the tokens of users
///
/// A server with `farcall serve --tokens FILE` accepts every client that has one of the tokens, as
/// the user of that name. A running server uses changes of the file at once. The file has only a
/// verifier of each token, so that `add` prints the token once and nobody can read it later.
#[derive(Args)]
#[command(after_help = "Example:
  farcall access token add tokens alice
  farcall serve libraries/lapack.idl --tokens tokens
  FARCALL_TOKEN=... farcall ls          # as alice")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a token for a user, and print it
    #[command(after_help = "Example:\n  farcall access token add tokens alice")]
    Add {
        /// File of tokens; the command makes it if it does not exist
        file: PathBuf,
        /// Name of the user
        name: String,
    },
    /// Remove all tokens of a user
    #[command(after_help = "Example:\n  farcall access token remove tokens alice")]
    Remove {
        /// File of tokens
        file: PathBuf,
        /// Name of the user
        name: String,
    },
    /// Replace what an earlier version has written by verifiers; the tokens stay as they are
    #[command(after_help = "Example:\n  farcall access token upgrade tokens")]
    Upgrade {
        /// File of tokens
        file: PathBuf,
    },
    /// List the users, one line for each token
    #[command(after_help = "Example:\n  farcall access token list tokens")]
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
            println!("removed {} of {name}", counted(count, "token"));
        }
        Command::Upgrade { file } => {
            let count = TokenFile::upgrade(file).map_err(Failure::failed)?;
            println!("upgraded {}", counted(count, "token"));
        }
        Command::List { file } => {
            for user in TokenFile::open(file).map_err(Failure::failed)?.users() {
                println!("{user}");
            }
        }
    }
    Ok(())
}
