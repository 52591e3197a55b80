//! Storms: many plans, each decided by a seed and its number, tried a few at a time, and one line for what came of
//! them.
//!
//! ```text
//! cargo test -p tests --test tests -- STORM --seed 7 --COUNT 200 --jobs 3
//! cargo test -p tests --test tests -- STORM --seed 7 --only 42
//! ```
//!
//! Prints a line for each plan that went wrong, and the summary; fails if any did. Without these flags it is a test: a
//! few plans of one seed.

mod draw;
mod flags;

use std::fmt;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use parking_lot::Mutex;

pub use draw::Draw;
pub use flags::Flags;

/// The test that a storm is by itself, and what it counts.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    pub name: &'static str,
    pub seed: u64,
    pub count: u64,
    /// The flag that says how many of what the storm counts, and how many they are without it.
    pub count_flag: (&'static str, u64),
    /// The most of them in one plan.
    pub units: u64,
}

/// What each storm has of its own: what is drawn, how it is tried and judged, and how it is summed up.
pub trait Storm: Sync {
    /// What is tried; its text says all of it.
    type Plan: fmt::Display + Send;
    /// What is known of a plan that went right.
    type Score: Send;

    /// Draws a plan with so much of what the storm counts.
    fn draw(&self, seed: u64, number: u64, units: u64) -> Self::Plan;

    /// Tries a plan.
    fn run(&self, plan: &Self::Plan) -> anyhow::Result<Self::Score>;

    /// How much of what the storm counts was in the plan and did not come to pass: other plans make up for it.
    fn missed(&self, _score: &Self::Score) -> u64 {
        0
    }

    /// Sums up, in one line.
    fn summary(&self, outcome: &Outcome<Self>) -> String;
}

/// All that came of a storm.
pub struct Outcome<S: Storm + ?Sized> {
    pub flags: Flags,
    pub time: Duration,
    /// Plans by number, in the order in which they ended, with their scores if they went right.
    pub plans: Vec<(u64, S::Plan, Option<S::Score>)>,
}

impl<S: Storm + ?Sized> Outcome<S> {
    /// The numbers of the plans that went wrong.
    pub fn wrong(&self) -> Vec<u64> {
        let wrong = self.plans.iter().filter(|(_, _, score)| score.is_none());
        wrong.map(|(number, ..)| *number).collect()
    }
}

/// Runs the storm that the program's arguments ask for, if they do.
pub fn run<S: Storm>(test: Test, prepare: fn() -> S) -> anyhow::Result<Option<ExitCode>> {
    let Some(flags) = Flags::from_arguments(&test)? else {
        return Ok(None);
    };
    let wrong = blow(&prepare(), flags, test.units);
    Ok(Some(ExitCode::from(u8::from(!wrong.is_empty()))))
}

/// Returns the test that a storm is by itself.
pub fn trial<S: Storm + 'static>(test: Test, prepare: fn() -> S) -> Trial {
    Trial::test(test.name, move || {
        let wrong = blow(&prepare(), Flags::of_test(&test), test.units);
        match wrong.len() {
            0 => Ok(()),
            count => Err(format!("{count} went wrong: {wrong:?}").into()),
        }
    })
}

/// Tries plans of at most `units` each until all that is counted is spent, prints what was wrong and the summary, and
/// returns the numbers of the plans that went wrong.
fn blow<S: Storm>(storm: &S, flags: Flags, units: u64) -> Vec<u64> {
    let begun = Instant::now();
    let supply = Mutex::new(Supply {
        next: flags.first,
        left: flags.count,
    });
    let (sender, results) = mpsc::channel();
    let mut plans = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..flags.jobs {
            let (sender, supply) = (sender.clone(), &supply);
            scope.spawn(move || {
                let lock = || supply.lock();
                loop {
                    let Some((number, units)) = lock().take(units) else {
                        return;
                    };
                    let plan = storm.draw(flags.seed, number, units);
                    let result = storm.run(&plan);
                    lock().left += result.as_ref().map_or(0, |score| storm.missed(score));
                    let _ = sender.send((number, plan, result));
                }
            });
        }
        drop(sender);
        for (number, plan, result) in results {
            if let Err(error) = &result {
                println!("WRONG {plan}: {error:#}");
            }
            plans.push((number, plan, result.ok()));
        }
    });
    let outcome = Outcome {
        flags,
        time: begun.elapsed(),
        plans,
    };
    println!("{}", storm.summary(&outcome));
    outcome.wrong()
}

/// What no plan has yet.
struct Supply {
    next: u64,
    left: u64,
}

impl Supply {
    /// The number of the next plan, and how much of what is counted it has, at most `units`.
    fn take(&mut self, units: u64) -> Option<(u64, u64)> {
        let units = self.left.min(units);
        if units == 0 {
            return None;
        }
        self.left -= units;
        self.next += 1;
        Some((self.next - 1, units))
    }
}
