//! What the programs share: flags, the tokenizer they name, progress, signals.

mod arguments;
mod interrupt;
mod progress;
mod tokenizer;

use std::process::ExitCode;

pub use arguments::{Parsed, parse, parse_from};
pub use interrupt::Interrupt;
pub use progress::{Bytes, ProgressReport};
pub use tokenizer::{TokenizerArguments, load_tokenizer};

/// Prints an error, with its causes, and returns the exit code of a program that failed.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", with_causes(error));
    ExitCode::FAILURE
}

/// Returns what an error says, with its causes; most say themselves what caused them.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !message.ends_with(&cause) {
            message = if message.is_empty() {
                cause
            } else {
                message + ": " + &cause
            };
        }
    }
    message
}
