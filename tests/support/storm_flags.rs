//! The flags of a storm: which of the things that a seed decides are tried, and how many at once.

use anyhow::Context as _;

/// What a person has asked for.
#[derive(Clone, Copy, Debug)]
pub struct StormFlags {
    pub seed: u64,
    /// The only one to try, by number.
    pub only: Option<u64>,
    /// How many to try.
    pub count: u64,
    /// How many at once.
    pub jobs: u64,
}

impl StormFlags {
    /// Reads the program's arguments, where `count` is the flag that says how many, with what it is otherwise. Returns
    /// none where no flag asks for a storm of its own.
    pub fn from_arguments(count: (&str, u64)) -> anyhow::Result<Option<Self>> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let mut flags = Self {
            seed: 0,
            only: None,
            count: count.1,
            jobs: 2,
        };
        let mut is_asked = false;
        for pair in arguments.chunks(2) {
            let flag = pair[0].as_str();
            if !["--seed", count.0, "--only", "--jobs"].contains(&flag) {
                anyhow::ensure!(
                    !is_asked,
                    "unknown flag {flag}: expected --seed, {}, --only or --jobs",
                    count.0
                );
                return Ok(None);
            }
            let value = pair.get(1).with_context(|| format!("{flag} needs a number"))?;
            let value: u64 = value
                .parse()
                .with_context(|| format!("{flag} {value}: expected a number"))?;
            is_asked = true;
            match flag {
                "--seed" => flags.seed = value,
                "--only" => flags.only = Some(value),
                "--jobs" => flags.jobs = value.max(1),
                _ => flags.count = value,
            }
        }
        Ok(is_asked.then_some(flags))
    }
}
