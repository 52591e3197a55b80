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
use crate::arguments::{is_first, parse_from};

/// The largest file that is read.
const MAX_BYTES: u64 = 4 << 20;
/// The most letters of a file's name that a message shows.
const MAX_SHOWN: usize = 200;

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
    if let Some(report) = report.filter(|_| is_first(environment.as_ref())) {
        // A closed output stops no training.
        let _ = write!(std::io::stdout(), "{report}");
    }
    parse_from(command, arguments)
}

/// Adds the flags of the configuration that a command line names, and returns what became of it; `started` is the
/// number of ranks if a launcher has started them.
fn expand(mut arguments: Vec<OsString>, started: Option<usize>) -> anyhow::Result<(Vec<OsString>, Option<Report>)> {
    split_file_of_trainer(&mut arguments);
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
        .with_context(|| {
            format!(
                "--deepspeed-config {}",
                path.chars().take(MAX_SHOWN).collect::<String>()
            )
        })?;
    let mut given = arguments.into_iter();
    let program = given.next();
    let added = report.flags.iter().map(|flag| OsString::from(flag.word()));
    let arguments = program.into_iter().chain(added).chain(given).collect();
    Ok((arguments, Some(report)))
}

/// Writes `--deepspeed FILE`, as the `Trainer` of transformers has it, with the names of DeepSpeed's own flags.
fn split_file_of_trainer(arguments: &mut Vec<OsString>) {
    let end = arguments
        .iter()
        .position(|word| word == "--")
        .unwrap_or(arguments.len());
    let is_flag = |word: &OsString| word == "--deepspeed" || word.to_string_lossy().starts_with("--deepspeed=");
    let Some(place) = arguments[..end].iter().position(is_flag) else {
        return;
    };
    let attached = arguments[place]
        .to_str()
        .and_then(|word| word.split_once('='))
        .map(|(_, file)| file.into());
    let file: OsString = match (attached, arguments[..end].get(place + 1)) {
        (Some(file), _) => file,
        (None, Some(next)) if !next.to_string_lossy().starts_with('-') => arguments.remove(place + 1),
        _ => return,
    };
    arguments.splice(
        place..=place,
        ["--use-deepspeed".into(), "--deepspeed-config".into(), file],
    );
}

/// Reads a file, or the text that the name of none is in base64, as DeepSpeed does: GPT-NeoX passes it so.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    if let Some(text) = path.to_str().filter(|_| !path.exists()).and_then(base64) {
        return Ok(text);
    }
    let length = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    ensure!(length as u64 <= MAX_BYTES, "the file is larger than {MAX_BYTES} bytes");
    Ok(text)
}

/// Returns the object that a text is in base64, of either alphabet.
fn base64(text: &str) -> Option<String> {
    let (mut bits, mut count, mut bytes) = (0u32, 0, vec![]);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| text.trim_start().starts_with('{'))
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
