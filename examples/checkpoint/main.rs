//! Looks at checkpoints: what is in one, whether it is whole, and the same as one file.
//!
//! ```text
//! cargo run --release --example checkpoint -- inspect checkpoints             # the latest in the folder
//! cargo run --release --example checkpoint -- inspect checkpoints/iter_0000020 --json
//! cargo run --release --example checkpoint -- verify checkpoints
//! cargo run --release --example checkpoint -- convert checkpoints one_file
//! ```

mod inspect;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use burn_megatron::checkpoint::{Checkpoint, CheckpointError};
use clap::{Parser, Subcommand};

use inspect::{count_text, describe, figures, size_text};

/// Inspect, verify and convert checkpoints
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what a checkpoint holds: iteration, layout, state, files with their checksums, arrays
    Inspect {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant
        checkpoint: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare all checksums, and check that each element of each array is there exactly once; exit code 1 if not
    Verify {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant
        checkpoint: PathBuf,
    },
    /// Write a checkpoint again as one safetensors file, every array whole and under its name
    Convert {
        /// A checkpoint, or a folder of checkpoints, of which the latest is meant
        checkpoint: PathBuf,
        /// The folder of checkpoints to write to; made if it is not there
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what is asked, and returns what there is to say.
fn run(command: &Command) -> Result<String, CheckpointError> {
    match command {
        Command::Inspect { checkpoint, json } => {
            let checkpoint = Checkpoint::find(checkpoint)?;
            Ok(match json {
                true => format!("{:#}\n", figures(&checkpoint)),
                false => describe(&checkpoint),
            })
        }
        Command::Verify { checkpoint } => {
            let checkpoint = Checkpoint::find(checkpoint)?;
            checkpoint.verify()?;
            Ok(format!(
                "{}: whole, {} in {}, {}\n",
                checkpoint.path().display(),
                count_text(checkpoint.arrays().len(), "array"),
                count_text(checkpoint.files().len(), "file"),
                size_text(checkpoint.files().iter().map(|file| file.bytes).sum()),
            ))
        }
        Command::Convert { checkpoint, output } => {
            let written = Checkpoint::find(checkpoint)?.write_unsharded(output)?;
            Ok(format!("{}\n", written.display()))
        }
    }
}
