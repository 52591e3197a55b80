//! [`Report`]: what became of each key, for people.

use std::fmt;

/// A flag that a configuration became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Its name, with hyphens.
    pub flag: &'static str,
    /// Its value, if it takes one.
    pub value: Option<String>,
    /// The keys that it comes from.
    pub from: String,
}

/// What became of each key of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub flags: Vec<Emitted>,
    /// Keys without effect, some with the reason.
    pub without_effect: Vec<(String, Option<String>)>,
    /// Keys whose value is `"auto"`.
    pub automatic: Vec<String>,
    /// Keys that are not known, in words.
    pub unknown: Vec<String>,
    /// Where DeepSpeed does something else.
    pub notes: Vec<String>,
}

impl Emitted {
    /// The flag as one word of a command line.
    pub fn word(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.flag),
            None => self.flag.to_owned(),
        }
    }

    /// The flag as a person writes it.
    pub fn shown(&self) -> String {
        match &self.value {
            Some(value) => format!("{} {value}", self.flag),
            None => self.flag.to_owned(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "DeepSpeed's configuration as flags; no code of DeepSpeed runs:"
        )?;
        let width = self.flags.iter().map(|flag| flag.shown().len()).max().unwrap_or(0);
        for flag in &self.flags {
            writeln!(formatter, "  {:width$}  {}", flag.shown(), flag.from)?;
        }
        let plain = self.without_effect.iter().filter(|(_, why)| why.is_none());
        let plain: Vec<&str> = plain.map(|(path, _)| path.as_str()).collect();
        for (what, paths) in [
            ("without effect here", plain),
            (
                "\"auto\", as the flags say",
                self.automatic.iter().map(String::as_str).collect(),
            ),
        ] {
            if !paths.is_empty() {
                writeln!(formatter, "  {what}: {}", paths.join(", "))?;
            }
        }
        for (path, why) in &self.without_effect {
            if let Some(why) = why {
                writeln!(formatter, "  without effect here: {path}: {why}")?;
            }
        }
        for unknown in &self.unknown {
            writeln!(formatter, "  warning: {unknown}")?;
        }
        for note in &self.notes {
            writeln!(formatter, "  note: {note}")?;
        }
        Ok(())
    }
}
