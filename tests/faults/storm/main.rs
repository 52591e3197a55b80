//! A storm of random faults over short training jobs, each of which must end in time, name its cause, and leave
//! nothing.
//!
//! ```text
//! cargo test --release -p tests --test fault_storm -- --seed 7 --faults 200
//! cargo test --release -p tests --test fault_storm -- --seed 7 --only 42
//! ```
//!
//! Prints a line for each fault that went wrong, and one with the counts; fails if any did. Without these flags, a
//! test: a few faults of one seed.
//!
//! - [`plan`]: which faults there are, drawn from the seed.
//! - [`worker`]: the job, in this same binary: a launcher, and the ranks that it starts.
//! - [`trial`]: a job and its fault; [`untrusted_clients`]: those who talk garbage to its ports.
//! - [`judge`]: what must come of it.

mod judge;
mod plan;
// Other cases use more of it.
mod trial;
mod untrusted_clients;
mod worker;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use burn_megatron::launch::exit_code_of;
use cable::Cable;
use libtest_mimic::{Arguments, Trial};
use plan::Fault;
use storm_flags::StormFlags;
use tests::{cable, draw, problem, processes, storm_flags};
use trial::References;
use worker::variables;

/// The test's share of the storm: a seed whose first faults are a kill, a stop, a late rank, a cut, a pause and
/// garbage.
const TEST: Storm = Storm {
    seed: 7174,
    first: 0,
    faults: 6,
    jobs: 2,
};

fn main() -> ExitCode {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let done = match std::env::var(untrusted_clients::TARGET) {
        Ok(target) => untrusted_clients::bother(&target),
        Err(_) if !is_set(variables::MARKER) => run(),
        Err(_) if is_set("RANK") => worker::run_rank(),
        Err(_) => worker::launch(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        exit_code_of(error.as_ref(), 1)
    })
}

/// Which faults, and how many jobs at once.
#[derive(Clone, Copy, Debug)]
struct Storm {
    seed: u64,
    first: u64,
    faults: u64,
    jobs: u64,
}

fn run() -> anyhow::Result<ExitCode> {
    let Some(storm) = Storm::from_arguments()? else {
        let test = Trial::test("faults_of_one_seed_end_as_they_must", || match TEST.blow()? {
            0 => Ok(()),
            wrong => Err(format!("{wrong} of {} faults went wrong", TEST.faults).into()),
        });
        return Ok(libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code());
    };
    Ok(ExitCode::from(u8::from(storm.blow()? > 0)))
}

impl Storm {
    /// Returns none where no flag asks for a storm of its own.
    fn from_arguments() -> anyhow::Result<Option<Storm>> {
        let flags = StormFlags::from_arguments(("--faults", 200))?;
        Ok(flags.map(|flags| Storm {
            seed: flags.seed,
            first: flags.only.unwrap_or(0),
            faults: flags.only.map_or(flags.count, |_| 1),
            jobs: flags.jobs,
        }))
    }

    /// Runs all faults, prints what was wrong and the summary, and returns how many went wrong.
    fn blow(self) -> anyhow::Result<u64> {
        let namespaces = Cable::plug("try");
        if let Err(problem) = &namespaces {
            eprintln!("no faults between two nodes: {problem:#}");
        }
        let has_namespaces = namespaces.is_ok();
        drop(namespaces);
        let begun = Instant::now();
        let references = References::default();
        let next = AtomicU64::new(self.first);
        let end = self.first + self.faults;
        let (sender, results) = mpsc::channel();
        let mut summary = Summary::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                let (sender, references, next) = (sender.clone(), &references, &next);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end {
                            return;
                        }
                        let fault = Fault::draw(self.seed, number, has_namespaces);
                        let _ = sender.send((fault, trial::run(&fault, references)));
                    }
                });
            }
            drop(sender);
            for (fault, result) in results {
                summary.add(&fault, result);
            }
        });
        summary.print(self, begun.elapsed());
        Ok(summary.wrong.len() as u64)
    }
}

#[derive(Default)]
struct Summary {
    /// How many of each kind, the longest time to end, and which fault took it.
    kinds: BTreeMap<&'static str, (u64, Duration, u64)>,
    wrong: Vec<u64>,
}

impl Summary {
    fn add(&mut self, fault: &Fault, result: anyhow::Result<Duration>) {
        let (count, worst, number) = self.kinds.entry(fault.kind.name()).or_default();
        *count += 1;
        match result {
            Ok(time) if time > *worst => (*worst, *number) = (time, fault.number),
            Ok(_) => {}
            Err(error) => {
                println!("WRONG {fault}: {error:#}");
                self.wrong.push(fault.number);
            }
        }
    }

    fn print(&self, storm: Storm, time: Duration) {
        let kind = |(name, (count, worst, number)): (&&str, &(u64, Duration, u64))| {
            format!("{count} {name} (worst {:.1} s, fault {number})", worst.as_secs_f64())
        };
        let kinds: Vec<_> = self.kinds.iter().map(kind).collect();
        println!(
            "seed {}: {} faults in {:.0} s, {} wrong {:?}; time to end: {}",
            storm.seed,
            storm.faults,
            time.as_secs_f64(),
            self.wrong.len(),
            self.wrong,
            kinds.join(", ")
        );
    }
}
