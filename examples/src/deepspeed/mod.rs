//! DeepSpeed's JSON configuration, as flags of the training programs.
//!
//! [`translate`] is a pure function from the configuration and the command line to flags, which are put before those of
//! the person and parsed with them, and to a [`Report`]. Nothing that runs later knows of DeepSpeed, of which no code
//! is used.
//!
//! - `keys`: the table of known keys: what each must be, and what becomes of it. A new key begins there.
//! - `document`: a configuration checked against the table; `json` below it.
//! - `mapping`: a file per section whose keys become flags; `command_line` says which flags a person gave.

mod command_line;
mod document;
mod error;
mod json;
mod keys;
mod mapping;
mod report;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context as _, ensure};
use burn_megatron::launch::Environment;
use burn_megatron_data::programs;
use clap::{Command, FromArgMatches};

use self::command_line::CommandLine;
use self::document::Document;
pub use self::error::ConfigError;
pub use self::report::{Emitted, Report};

/// The largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// Parses the arguments of this program by its command, with the flags of DeepSpeed's configuration, if it names one,
/// and returns them with the flags that count, for people. Ends the program with what is wrong.
///
/// The process that a person has started prints what became of each key, or else rank 0.
pub fn parse_shown<A: FromArgMatches>(command: Command) -> (A, String) {
    // What is wrong with the job's variables is said when the program joins it.
    let environment = Environment::detect().ok().flatten();
    let started = environment.as_ref().map(|environment| environment.world_size);
    let expanded = expand(std::env::args_os().collect(), started);
    let (arguments, report) = expanded.unwrap_or_else(|error| {
        eprintln!("error: {}", programs::with_causes(&error));
        std::process::exit(2)
    });
    let is_printing = match &environment {
        None => true,
        // A launcher of ours has printed it.
        Some(environment) => environment.rank == 0 && !environment.store_hosted_elsewhere,
    };
    if let Some(report) = report.filter(|_| is_printing) {
        // A closed output stops no training.
        let _ = write!(std::io::stdout(), "{report}");
    }
    programs::parse_shown_from(command, arguments)
}

/// Adds the flags of the configuration that a command line names, and returns what became of it; `started` is the
/// number of ranks if a launcher has started them.
fn expand(arguments: Vec<OsString>, started: Option<usize>) -> anyhow::Result<(Vec<OsString>, Option<Report>)> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let words: Vec<String> = arguments.iter().skip(1).map(text).collect();
    let line = CommandLine::new(words.iter().cloned());
    let is_given = |flag| line.value(flag).is_some();
    let is_asked = is_given("--use-deepspeed") || is_given("--deepspeed");
    let wants_help = is_given("--help") || words.iter().any(|word| word == "-h");
    let (true, false, Some(path)) = (is_asked, wants_help, line.value("--deepspeed-config")) else {
        // What is missing, clap says.
        return Ok((arguments, None));
    };
    let report = read(Path::new(path))
        .and_then(|text| Ok(translate(&text, &words, started)?))
        .with_context(|| format!("--deepspeed-config {path}"))?;
    let mut given = arguments.into_iter();
    let program = given.next();
    let added = report.flags.iter().map(|flag| OsString::from(flag.word()));
    let arguments = program.into_iter().chain(added).chain(given).collect();
    Ok((arguments, Some(report)))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    ensure!(length as u64 <= MAX_BYTES, "the file is larger than {MAX_BYTES} bytes");
    Ok(text)
}

/// Returns what becomes of a configuration, its flags above all; `words` are the command line without the program's
/// name, and `started` is the number of ranks if a launcher has started them.
///
/// A value `"auto"` becomes nothing: the flags say it. A key that a section leaves out becomes a flag if DeepSpeed's
/// default differs from the flag's, unless the command line has that flag.
///
/// # Errors
/// When a key is not known or a value is not valid, when the result would be another than DeepSpeed's and there is no
/// flag to prevent it, or when a flag of the command line contradicts a key.
pub fn translate(text: &str, words: &[String], started: Option<usize>) -> Result<Report, ConfigError> {
    let document = Document::parse(text)?;
    let line = CommandLine::new(words.iter().cloned());
    let data_parallel_size = line.data_parallel_size(started)?;
    mapping::map(&document, &line, data_parallel_size)
}

#[cfg(test)]
mod tests;
