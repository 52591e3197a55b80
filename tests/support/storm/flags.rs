//! The flags of a storm: which of the plans that a seed decides are tried, and how many at once.

use anyhow::Context as _;

use super::Test;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    pub seed: u64,
    /// The number of the first plan.
    pub first: u64,
    /// How many of what the storm counts.
    pub count: u64,
    /// How many plans at once.
    pub jobs: u64,
}

impl Flags {
    /// The storm's share in a test without flags.
    pub fn of_test(test: &Test) -> Self {
        Self {
            seed: test.seed,
            first: 0,
            count: test.count,
            jobs: 2,
        }
    }

    /// Reads the program's arguments after the storm's name. Returns none where no flag asks for a storm of its own.
    pub fn from_arguments(test: &Test) -> anyhow::Result<Option<Self>> {
        let arguments: Vec<String> = std::env::args().skip(2).collect();
        let (count, usual) = test.count_flag;
        let mut flags = Self {
            seed: 0,
            first: 0,
            count: usual,
            jobs: 2,
        };
        let mut only = None;
        let mut is_asked = false;
        for pair in arguments.chunks(2) {
            let flag = pair[0].as_str();
            if !["--seed", count, "--only", "--jobs"].contains(&flag) {
                anyhow::ensure!(
                    !is_asked,
                    "unknown flag {flag}: expected --seed, {count}, --only or --jobs"
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
                "--only" => only = Some(value),
                "--jobs" => flags.jobs = value.max(1),
                _ => flags.count = value,
            }
        }
        if let Some(only) = only {
            (flags.first, flags.count) = (only, test.units);
        }
        Ok(is_asked.then_some(flags))
    }
}
