//! [`Mapping`]: flags from keys, section by section.
//!
//! A key with a flag of its own in `keys` needs no code. Each section's file reads its other keys by their paths, and
//! gives the flags with [`Mapping::add`], or with [`Mapping::default`] if a section that is there leaves out a key
//! whose default in DeepSpeed is another than that of the flag. A key that no file has used is listed as without
//! effect.

mod batch;
mod optimizer;
mod others;
mod precision;
mod scheduler;
mod zero;

use std::collections::BTreeSet;

use super::ConfigError;
use super::command_line::CommandLine;
use super::document::Document;
use super::report::{Emitted, Report};

/// Flags that say what another says, or its opposite: a flag from the configuration, and one of the command line that
/// does not go with it.
const RIVALS: &[(&str, &str)] = &[
    ("--bf16", "--fp16"),
    ("--bf16", "--dtype"),
    ("--fp16", "--bf16"),
    ("--fp16", "--dtype"),
    ("--loss-scale", "--initial-loss-scale"),
    ("--initial-loss-scale", "--loss-scale"),
    ("--loss-scale-window", "--loss-scale"),
    ("--min-loss-scale", "--loss-scale"),
    ("--hysteresis", "--loss-scale"),
    ("--lr-warmup-iters", "--lr-warmup-samples"),
    ("--lr-warmup-iters", "--lr-warmup-fraction"),
    ("--lr-decay-iters", "--lr-decay-samples"),
    ("--weight-decay", "--start-weight-decay"),
    ("--zero-stage", "--data-parallel-sharding-strategy"),
];

/// Makes flags of the keys of a document.
///
/// # Errors
/// When a value cannot be honoured, or contradicts another or the command line.
pub(super) fn map(document: &Document, line: &CommandLine, data_parallel_size: u64) -> Result<Report, ConfigError> {
    let mut mapping = Mapping {
        document,
        line,
        data_parallel_size,
        used: BTreeSet::new(),
        remarks: vec![],
        report: Report::default(),
    };
    batch::map(&mut mapping)?;
    zero::map(&mut mapping)?;
    precision::map(&mut mapping)?;
    optimizer::map(&mut mapping)?;
    scheduler::map(&mut mapping)?;
    mapping.add_direct()?;
    others::map(&mut mapping)?;
    Ok(mapping.finish())
}

/// What the sections' files read from and add to.
struct Mapping<'a> {
    document: &'a Document,
    line: &'a CommandLine,
    data_parallel_size: u64,
    /// Paths of the keys that had an effect.
    used: BTreeSet<String>,
    /// Why keys have no effect, by path.
    remarks: Vec<(String, String)>,
    report: Report,
}

impl Mapping<'_> {
    /// Adds a flag with a value that follows from keys.
    ///
    /// # Errors
    /// When the command line says something else.
    fn add(&mut self, flag: &'static str, value: impl ToString, keys: &[&str]) -> Result<(), ConfigError> {
        let value = value.to_string();
        self.check(flag, Some(&value), keys)?;
        self.push(flag, Some(value), keys.join(", "));
        keys.iter().for_each(|key| self.use_key(key));
        Ok(())
    }

    /// As [`add`](Self::add), with a number, for people to read: `1e-8`, `0.00015`, `65536`.
    fn add_number(&mut self, flag: &'static str, value: f64, keys: &[&str]) -> Result<(), ConfigError> {
        let is_whole = value.fract() == 0.0 && value < 1e15;
        let text = if is_whole {
            value.to_string()
        } else {
            format!("{value:?}")
        };
        self.add(flag, text, keys)
    }

    /// Adds a flag without a value if a key is true.
    ///
    /// # Errors
    /// When the command line says something else.
    fn switch(&mut self, flag: &'static str, is_on: bool, key: &str) -> Result<(), ConfigError> {
        if is_on {
            self.check(flag, None, &[key])?;
            self.push(flag, None, key.to_owned());
        } else if let Some(given) = self.given(flag) {
            return Err(self.contradiction(given, &[key], format!("no {flag}")));
        }
        self.use_key(key);
        Ok(())
    }

    /// Adds a flag with DeepSpeed's default of a key that is left out, unless the command line says something.
    fn default(&mut self, flag: &'static str, value: impl ToString, key: &str) {
        if self.line.value(flag).is_none() && self.rival(flag).is_none() {
            self.push(flag, Some(value.to_string()), format!("{key}, DeepSpeed's default"));
        }
    }

    /// Notes that a key has had an effect.
    fn use_key(&mut self, key: &str) {
        self.used.insert(key.to_owned());
    }

    /// Says why a key has no effect.
    fn remark(&mut self, key: &str, why: impl Into<String>) {
        self.remarks.push((key.to_owned(), why.into()));
    }

    /// Says where DeepSpeed does something else.
    fn note(&mut self, note: impl Into<String>) {
        self.report.notes.push(note.into());
    }

    /// An error about a value that cannot be honoured.
    fn unsupported(&self, key: &str, why: impl Into<String>) -> ConfigError {
        ConfigError::Unsupported {
            path: key.to_owned(),
            value: self.shown(key),
            why: why.into(),
        }
    }

    /// The value of a key, for people; of one that is left out that it is.
    fn shown(&self, key: &str) -> String {
        let found = self.document.mapped().iter().find(|entry| entry.path == key);
        found.map_or_else(|| "(left out)".to_owned(), |entry| entry.value.to_string())
    }

    /// Adds the flags of keys that have one of their own.
    fn add_direct(&mut self) -> Result<(), ConfigError> {
        for entry in self.document.mapped() {
            if let Some(flag) = entry.flag {
                let value = match entry.value.as_count() {
                    Some(count) => count.to_string(),
                    None => entry.value.to_string(),
                };
                self.add(flag, value, &[&entry.path])?;
            }
        }
        Ok(())
    }

    fn push(&mut self, flag: &'static str, value: Option<String>, from: String) {
        self.report.flags.push(Emitted { flag, value, from });
    }

    fn check(&self, flag: &'static str, value: Option<&str>, keys: &[&str]) -> Result<(), ConfigError> {
        let is_same = match (self.line.value(flag), value) {
            (Some(given), Some(value)) => is_same(given, value),
            _ => true,
        };
        let rival = if is_same { self.rival(flag) } else { self.given(flag) };
        match rival {
            None => Ok(()),
            Some(given) => {
                let becomes = value.map_or_else(|| flag.to_owned(), |value| format!("{flag} {value}"));
                Err(self.contradiction(given, keys, becomes))
            }
        }
    }

    fn contradiction(&self, given: String, keys: &[&str], becomes: String) -> ConfigError {
        let shown: Vec<String> = keys.iter().map(|key| format!("{key} {}", self.shown(key))).collect();
        ConfigError::Contradiction {
            given,
            key: shown.join(", "),
            becomes,
        }
    }

    /// A flag of the command line that does not go with another.
    fn rival(&self, flag: &str) -> Option<String> {
        let mut rivals = RIVALS.iter().filter(|(own, _)| *own == flag);
        rivals.find_map(|(_, rival)| self.given(rival))
    }

    /// A flag as the command line has it.
    fn given(&self, flag: &str) -> Option<String> {
        let value = self.line.value(flag)?;
        Some(match value {
            "true" => flag.to_owned(),
            value => format!("{flag} {value}"),
        })
    }

    /// Lists what has had no effect.
    fn finish(self) -> Report {
        let mut report = self.report;
        let idle = self.document.idle.iter().cloned();
        report.without_effect = idle.map(|path| (path, None)).collect();
        for entry in self.document.mapped() {
            if !self.used.contains(&entry.path) {
                let remark = self.remarks.iter().find(|(path, _)| *path == entry.path);
                let why = remark.map(|(_, why)| why.clone());
                report.without_effect.push((entry.path.clone(), why));
            }
        }
        report.automatic.clone_from(&self.document.automatic);
        report.unknown.clone_from(&self.document.unknown);
        report
    }
}

/// Whether two values are the same text or the same number.
fn is_same(left: &str, right: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    left == right || number(left).is_some_and(|value| number(right) == Some(value))
}
