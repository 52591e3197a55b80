//! Flags as Megatron-LM takes them: with hyphens or underscores, and of a repeated one the last counts.

use std::ffi::{OsStr, OsString};

use clap::{CommandFactory, FromArgMatches};

/// Parses the arguments of this program, or ends it with what is wrong.
///
/// A flag of several values needs `action = ArgAction::Set`: otherwise a repeated one adds to them.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit())
}

fn parse_from<A: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<A, clap::Error> {
    let mut command = A::command().args_override_self(true);
    let matches = command.try_get_matches_from_mut(hyphenated(arguments))?;
    A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Writes the names of flags with hyphens: `--json_keys=a_b` becomes `--json-keys=a_b`. What follows `--` stays.
fn hyphenated(arguments: impl IntoIterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut flags_end = false;
    arguments.into_iter().map(move |argument| {
        flags_end |= argument == "--";
        match argument.to_str() {
            Some(text) if !flags_end && text.starts_with("--") => {
                let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                OsString::from(name.replace('_', "-") + value)
            }
            _ => OsStr::to_os_string(&argument),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, Parser};

    use super::*;

    #[derive(Debug, PartialEq, Parser)]
    struct Flags {
        #[arg(long)]
        log_interval: Option<u32>,
        #[arg(long, num_args = 1.., action = ArgAction::Set)]
        json_keys: Vec<String>,
        #[arg(long)]
        append_eod: bool,
        rest: Vec<String>,
    }

    fn flags(line: &str) -> Result<Flags, clap::Error> {
        parse_from(line.split(' ').map(OsString::from))
    }

    #[test]
    fn underscores_are_hyphens_and_the_last_flag_counts() {
        let parsed = flags("p --json_keys a_b c --log_interval=1 --append_eod --log-interval 2 --append-eod").unwrap();
        assert_eq!((parsed.log_interval, parsed.append_eod), (Some(2), true));
        assert_eq!(parsed.json_keys, ["a_b", "c"]);
        assert_eq!(flags("p --json-keys a b --json_keys c").unwrap().json_keys, ["c"]);
        assert_eq!(flags("p -- --a_b").unwrap().rest, ["--a_b"]);
        assert!(flags("p --no_such").is_err());
    }
}
