//! Reads the flight records that the ranks of a job have written, and says which ranks lag, and at which call.
//!
//! ```text
//! cargo run --release --example pretrain_gpt -- --world-size 2 --flight-recorder /tmp/records
//! kill -USR1 <a rank's process>      # or wait until something fails
//! cargo run --release --example flight_recorder -- /tmp/records
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use burn_megatron::flight_recorder::Report;
use clap::Parser;

/// Line up the collectives of all ranks after a failure, and name the ranks that the others wait for.
#[derive(Parser)]
struct Arguments {
    /// The folder that was given to --flight-recorder or BURN_MEGATRON_FLIGHT_RECORDER_DIR
    folder: PathBuf,
}

fn main() -> ExitCode {
    match Report::read(&Arguments::parse().folder) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
