//! A storm of random faults over short training jobs, each of which must end in time, name its cause, and leave
//! nothing.
//!
//! ```text
//! cargo test --release -p tests --test tests -- fault_storm --seed 7 --faults 200
//! cargo test --release -p tests --test tests -- fault_storm --seed 7 --only 42
//! ```
//!
//! With `FAULT_STORM_MANY_RANKS=1` the jobs have 32 ranks, which meet over a tree.
//!
//! Prints a line for each fault that went wrong, and one with the counts; fails if any did. Without these flags, a
//! test: a few faults of one seed.
//!
//! - [`plan`]: which faults there are, drawn from the seed.
//! - [`worker`]: the job, in this same binary: a launcher, and the ranks that it starts.
//! - [`trial`]: a [`job`] and its fault; [`untrusted_clients`]: those who talk garbage to its ports.
//! - [`judge`]: what must come of it.

mod job;
mod judge;
mod plan;
mod trial;
mod untrusted_clients;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use burn_megatron::launch::exit_code_of;
use libtest_mimic::Trial;
use plan::Fault;
use tests::cable::Cable;
use tests::processes::MARKER;
use tests::storm::{self, Outcome, Storm, Test};
use trial::LossesOfLayouts;

/// The test's share of the storm: a seed whose first faults are a kill, a stop, a late rank, a cut, a pause and
/// garbage.
const TEST: Test = Test {
    name: "faults_of_one_seed_end_as_they_must",
    seed: 7174,
    count: 6,
    count_flag: ("--faults", 200),
    units: 1,
};

pub fn trial() -> Trial {
    storm::trial(TEST, Faults::prepare)
}

/// Runs the storm that the program's arguments ask for, if they do.
pub fn blow() -> anyhow::Result<Option<ExitCode>> {
    storm::run(TEST, Faults::prepare)
}

/// Is a launcher, a rank, or a client that is not trusted, if this process has been started for that.
pub fn play() -> Option<ExitCode> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let done = match std::env::var(untrusted_clients::TARGET) {
        Ok(target) => untrusted_clients::bother(&target),
        Err(_) if !is_set(MARKER) => return None,
        Err(_) if is_set("RANK") => worker::run_rank(),
        Err(_) => worker::launch(),
    };
    Some(done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        exit_code_of(error.as_ref(), 1)
    }))
}

/// Faults, each in a job of its own.
struct Faults {
    are_many: bool,
    has_namespaces: bool,
    undisturbed: LossesOfLayouts,
}

impl Faults {
    fn prepare() -> Self {
        let namespaces = Cable::plug("try");
        if let Err(problem) = &namespaces {
            eprintln!("no faults between two nodes: {problem:#}");
        }
        Self {
            are_many: std::env::var_os("FAULT_STORM_MANY_RANKS").is_some(),
            has_namespaces: namespaces.is_ok(),
            undisturbed: LossesOfLayouts::default(),
        }
    }
}

impl Storm for Faults {
    type Plan = Fault;
    /// How long the job took to end.
    type Score = Duration;

    fn draw(&self, seed: u64, number: u64, _: u64) -> Fault {
        Fault::draw(seed, number, self.are_many, self.has_namespaces)
    }

    fn run(&self, fault: &Fault) -> anyhow::Result<Duration> {
        trial::run(fault, &self.undisturbed)
    }

    fn summary(&self, outcome: &Outcome<Self>) -> String {
        // How many of each kind, the longest time to end, and which fault took it.
        let mut kinds: BTreeMap<&str, (u64, Duration, u64)> = BTreeMap::new();
        for (_, fault, time) in &outcome.plans {
            let (count, worst, number) = kinds.entry(fault.kind.name()).or_default();
            *count += 1;
            if let Some(time) = time.filter(|time| time > worst) {
                (*worst, *number) = (time, fault.number);
            }
        }
        let kind = |(name, (count, worst, number)): (&&str, &(u64, Duration, u64))| {
            format!("{count} {name} (worst {:.1} s, fault {number})", worst.as_secs_f64())
        };
        let kinds: Vec<_> = kinds.iter().map(kind).collect();
        let wrong = outcome.wrong();
        format!(
            "seed {}: {} faults in {:.0} s, {} wrong {wrong:?}; time to end: {}",
            outcome.flags.seed,
            outcome.flags.count,
            outcome.time.as_secs_f64(),
            wrong.len(),
            kinds.join(", ")
        )
    }
}
