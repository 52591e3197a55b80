//! What the programs share: flags, the tokenizer they name, progress, signals.

mod arguments;
mod interrupt;
mod progress;
mod tokenizer;

use std::process::ExitCode;

pub use arguments::parse;
pub use interrupt::Interrupt;
pub use progress::{Bytes, ProgressReport};
pub use tokenizer::{TokenizerArguments, load_tokenizer};

/// Prints an error, with its causes, and returns the exit code of a program that failed.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Most errors say themselves what caused them.
        if !message.ends_with(&cause) {
            message = if message.is_empty() {
                cause
            } else {
                message + ": " + &cause
            };
        }
    }
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
