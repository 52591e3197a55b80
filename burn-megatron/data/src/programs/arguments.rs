//! Flags as Megatron-LM takes them: with hyphens or underscores, and of a repeated one the last counts. Flags of other
//! programs that change nothing are taken out before clap sees them, which knows none of them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::names::{Effect, Table, effect_of, refusal, unknown};

/// The arguments of a program, and how they were given.
#[derive(Clone, Debug)]
pub struct Parsed<A> {
    /// The arguments.
    pub arguments: A,
    /// The flags that were given, each once and with the value that counts, for people.
    pub given: String,
    /// The flags that were given and have no effect, for people.
    pub without_effect: Vec<String>,
}

/// Parses the arguments of this program, or ends it with what is wrong.
///
/// A flag of several values needs `action = ArgAction::Set`: otherwise a repeated one adds to them.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    parse_from(A::command(), std::env::args_os(), &[]).arguments
}

/// As [`parse`], by a command that takes the same flags, with these arguments in place of the process's own, of which
/// the first is the program's name, and with flags of other programs, by their names with hyphens. Those of flags that
/// have a value end in `=`.
///
/// All flags that are not known are named at once, each with the known one that is spelled most like it.
pub fn parse_from<A: FromArgMatches>(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
    foreign: &Table,
) -> Parsed<A> {
    try_parse_from(command, arguments, foreign).unwrap_or_else(|error| error.exit())
}

fn try_parse_from<A: FromArgMatches>(
    command: Command,
    arguments: impl IntoIterator<Item = OsString>,
    foreign: &Table,
) -> Result<Parsed<A>, clap::Error> {
    let mut command = command.args_override_self(true);
    command.build();
    let words: Vec<OsString> = hyphenated(arguments).collect();
    let program = words.first().and_then(|path| Path::new(path).file_name()?.to_str());
    command.set_bin_name(program.unwrap_or_default());
    // Subcommands have flags of their own.
    let (words, mut without_effect) = if command.has_subcommands() {
        (words, vec![])
    } else {
        without_foreign(&command, words, foreign)
            .map_err(|wrong| command.error(ErrorKind::UnknownArgument, wrong.join("\nerror: ")))?
    };
    let matches = command.try_get_matches_from_mut(words)?;
    let given = given_flags(&command, &matches);
    for (name, role) in foreign {
        let is_given = |flag: &str| given.split(' ').any(|word| word == flag);
        if let Effect::Needs(other) = role
            && is_given(name)
            && !is_given(other)
        {
            without_effect.push(format!("{name} (without {other})"));
        }
    }
    let arguments = A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    Ok(Parsed {
        arguments,
        given,
        without_effect,
    })
}

/// Takes the flags of other programs out of a command line, and returns those without effect; or what is wrong with
/// them and with those that are not known.
fn without_foreign(
    command: &Command,
    words: Vec<OsString>,
    foreign: &Table,
) -> Result<(Vec<OsString>, Vec<String>), Vec<String>> {
    let names = |argument: &Arg| -> Vec<String> {
        let long = argument.get_long().map(str::to_owned).into_iter();
        let aliases = argument.get_all_aliases().unwrap_or_default();
        let all = long.chain(aliases.into_iter().map(str::to_owned));
        all.map(|name| format!("--{name}")).collect()
    };
    let known: Vec<String> = command.get_arguments().flat_map(names).collect();
    let (mut own, mut idle, mut wrong) = (vec![], vec![], vec![]);
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy().into_owned();
        let (name, attached) = text
            .split_once('=')
            .map_or((&*text, None), |(name, value)| (name, Some(value)));
        if text == "--" {
            own.push(word);
            own.extend(rest);
            break;
        }
        if !text.starts_with("--") || known.iter().any(|known| known == name) {
            own.push(word);
            continue;
        }
        let is_value = |next: &OsString| !next.to_string_lossy().starts_with("--");
        let mut value = || attached.map(OsString::from).or_else(|| rest.next_if(is_value));
        let switch = effect_of(&[foreign], name);
        let effect = switch.or_else(|| effect_of(&[foreign], &format!("{name}=")));
        match effect {
            Some(Effect::Means(words)) => own.extend(words.split(' ').map(OsString::from)),
            Some(Effect::Only([], why)) => wrong.push(refusal(name, "", &[], why)),
            Some(Effect::Needs(_)) | None => {
                let foreign = foreign.iter().map(|(name, _)| name.trim_end_matches('='));
                let names = known.iter().map(String::as_str).chain(foreign);
                wrong.extend(unknown("", name, names, false).err());
            }
            _ if switch.is_some() => idle.push(name.to_owned()),
            Some(effect) => match value().map(|value| value.to_string_lossy().into_owned()) {
                None => wrong.push(format!("{name} needs a value")),
                Some(value) => match effect {
                    Effect::Only(values, why) if !values.contains(&&*value) => {
                        wrong.push(refusal(name, &value, values, why));
                    }
                    _ => idle.push(format!("{name} {value}")),
                },
            },
        }
        // What follows it is no value of the flag before it.
        while let Some(value) = rest.next_if(is_value) {
            if !matches!(effect, Some(Effect::Only([], _) | Effect::Needs(_)) | None) {
                wrong.push(format!("unexpected value {:?} after {name}", value.to_string_lossy()));
            }
        }
    }
    if wrong.is_empty() { Ok((own, idle)) } else { Err(wrong) }
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
    use crate::names::refused;

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

    const FOREIGN: &Table = &[
        ("--fused", Effect::Idle),
        ("--num-workers=", Effect::Idle),
        ("--experts=", Effect::Only(&["1"], "there are none")),
        ("--log-often", Effect::Means("--log-interval 1")),
        ("--relu", refused("it is another model")),
        ("--append-eod", Effect::Needs("--log-interval")),
    ];

    fn parsed(line: &str) -> Result<Parsed<Flags>, clap::Error> {
        try_parse_from(Flags::command(), line.split(' ').map(OsString::from), FOREIGN)
    }

    fn flags(line: &str) -> Result<Flags, clap::Error> {
        parsed(line).map(|parsed| parsed.arguments)
    }

    #[test]
    fn underscores_are_hyphens_and_the_last_flag_counts() {
        let parsed = flags("p --json_keys a_b c --log_interval=1 --append_eod --log-interval 2 --append-eod").unwrap();
        assert_eq!((parsed.log_interval, parsed.append_eod), (Some(2), true));
        assert_eq!(parsed.json_keys, ["a_b", "c"]);
        assert_eq!(flags("p --json-keys a b --json_keys c").unwrap().json_keys, ["c"]);
        assert_eq!(flags("p -- --a_b --fused").unwrap().rest, ["--a_b", "--fused"]);
        assert!(flags("p --no_such").is_err());
    }

    #[test]
    fn given_flags_are_shown_once_with_the_value_that_counts() {
        let line = "p --log_interval=1 --json_keys a_b c --append_eod --log-interval 2 x";
        assert_eq!(
            parsed(line).unwrap().given,
            "--log-interval 2 --json-keys a_b c --append-eod x"
        );
        assert_eq!(parsed("p").unwrap().given, "");
    }

    #[test]
    fn flags_of_other_programs_have_their_values_and_are_listed() {
        let parsed =
            parsed("p b --fused --json-keys a --num_workers 2 --experts=1 --num-workers=3 --append-eod").unwrap();
        assert_eq!(
            parsed.without_effect,
            [
                "--fused",
                "--num-workers 2",
                "--experts 1",
                "--num-workers 3",
                "--append-eod (without --log-interval)"
            ]
        );
        assert_eq!(
            (parsed.arguments.json_keys, parsed.arguments.rest),
            (vec!["a".to_owned()], vec!["b".to_owned()])
        );
        let with_both = super::tests::parsed("p --log-often --append-eod").unwrap();
        assert_eq!(
            (with_both.arguments.log_interval, with_both.without_effect.len()),
            (Some(1), 0)
        );
    }

    #[test]
    fn all_unknown_flags_are_named_with_their_nearest_ones() {
        let line = "p --log-intervall 3 --relu big --num-worker 1 --experts 2 --num-workers --zzzzzzzzzz=1 --fused x";
        let error = parsed(line).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let message = error.to_string();
        let lines: Vec<&str> = message.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(
            lines,
            [
                "error: --log-intervall is not known: the nearest known name is --log-interval",
                "error: --relu cannot be honoured: it is another model",
                "error: --num-worker is not known: the nearest known name is --num-workers",
                "error: --experts 2 cannot be honoured: there are none",
                "error: --num-workers needs a value",
                "error: --zzzzzzzzzz is not known: the nearest known name is --json-keys",
                "error: unexpected value \"x\" after --fused",
            ]
        );
    }
}
