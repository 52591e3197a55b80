//! Flags as Megatron-LM takes them: with hyphens or underscores, and of a repeated one the last counts.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};

/// Parses the arguments of this program, or ends it with what is wrong.
///
/// A flag of several values needs `action = ArgAction::Set`: otherwise a repeated one adds to them.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    parse_shown().0
}

/// As [`parse`], and returns the flags that were given, each once and with the value that counts, for people.
pub fn parse_shown<A: CommandFactory + FromArgMatches>() -> (A, String) {
    parse_shown_from(A::command(), std::env::args_os())
}

/// As [`parse_shown`], by a command that takes the same flags, and with these arguments in place of the process's own;
/// the first is the program's name.
pub fn parse_shown_from<A: FromArgMatches>(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> (A, String) {
    parse_from(command, arguments).unwrap_or_else(|error| error.exit())
}

fn parse_from<A: FromArgMatches>(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(A, String), clap::Error> {
    let mut command = command.args_override_self(true);
    let matches = command.try_get_matches_from_mut(hyphenated(arguments))?;
    let given = given_flags(&command, &matches);
    let parsed = A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok((parsed, given))
}

fn given_flags(command: &Command, matches: &ArgMatches) -> String {
    let mut words = vec![];
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        words.extend(argument.get_long().map(|name| format!("--{name}")));
        if argument.get_action().takes_values() {
            let values = matches.get_raw(id).into_iter().flatten();
            words.extend(values.map(|value| value.to_string_lossy().into_owned()));
        }
    }
    words.join(" ")
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
        flags_and_text(line).map(|(flags, _)| flags)
    }

    fn flags_and_text(line: &str) -> Result<(Flags, String), clap::Error> {
        parse_from(Flags::command(), line.split(' ').map(OsString::from))
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

    #[test]
    fn given_flags_are_shown_once_with_the_value_that_counts() {
        let (_, shown) =
            flags_and_text("p --log_interval=1 --json_keys a_b c --append_eod --log-interval 2 x").unwrap();
        assert_eq!(shown, "--log-interval 2 --json-keys a_b c --append-eod x");
        assert_eq!(flags_and_text("p").unwrap().1, "");
    }
}
