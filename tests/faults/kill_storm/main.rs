//! A storm of `kill -9` over training runs that save every few steps: each resumes every time, and ends as if
//! undisturbed.
//!
//! ```text
//! cargo test -p tests --test kill_storm -- --seed 7 --kills 100
//! cargo test -p tests --test kill_storm -- --seed 7 --only 12
//! ```
//!
//! A life is a run of `pretrain_gpt` at a layout drawn from the seed, saving in the foreground or during training. It
//! is killed (one rank, the launcher, or all at once; most often while it saves) and resumed with `--load`, six times
//! over. After each kill, every checkpoint must be whole and equal, to the bit, the one that an undisturbed run made
//! at that step, and the next job must resume from the newest. At the end the loss of every step, and the last
//! checkpoint, must be those of the undisturbed run, to the bit. Prints a line for each life that went wrong, and one
//! with the counts. Without these flags it is a test: a few kills of one seed.
//!
//! - [`plan`]: which lives there are, drawn from the seed.
//! - [`life`]: a life, and what must be true of it.

mod life;
mod plan;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use tests::{draw, processes, storm_flags, training};

use life::{References, Score};
use plan::{KILLS, Life};
use storm_flags::StormFlags;

/// The test's share of the storm.
const TEST: Storm = Storm {
    seed: 5,
    first: 0,
    kills: 12,
    jobs: 2,
};

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// Which kills, and how many lives at once.
#[derive(Clone, Copy, Debug)]
struct Storm {
    seed: u64,
    first: u64,
    kills: u64,
    jobs: u64,
}

fn run() -> anyhow::Result<ExitCode> {
    let Some(storm) = Storm::from_arguments()? else {
        let test = Trial::test("killed_runs_end_as_if_undisturbed", || match TEST.blow() {
            0 => Ok(()),
            wrong => Err(format!("{wrong} lives went wrong").into()),
        });
        return Ok(libtest_mimic::run(&Arguments::from_args(), vec![test]).exit_code());
    };
    Ok(ExitCode::from(u8::from(storm.blow() > 0)))
}

impl Storm {
    /// Returns none where no flag asks for a storm of its own.
    fn from_arguments() -> anyhow::Result<Option<Storm>> {
        let flags = StormFlags::from_arguments(("--kills", 100))?;
        Ok(flags.map(|flags| Storm {
            seed: flags.seed,
            first: flags.only.unwrap_or(0),
            kills: flags.only.map_or(flags.count, |_| KILLS),
            jobs: flags.jobs,
        }))
    }

    /// Runs lives until all kills are spent, prints what was wrong and the summary, and returns how many went wrong.
    fn blow(self) -> u64 {
        let begun = Instant::now();
        let references = References::default();
        let supply = Mutex::new(Supply {
            next: self.first,
            kills: self.kills,
        });
        let (sender, results) = mpsc::channel();
        let mut summary = Summary::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                let (sender, references, supply) = (sender.clone(), &references, &supply);
                scope.spawn(move || {
                    let lock = || supply.lock().unwrap_or_else(PoisonError::into_inner);
                    loop {
                        let Some(life) = lock().take(self.seed) else { return };
                        let result = life::live(&life, references);
                        // Made up for by another life.
                        lock().kills += result.as_ref().map_or(0, |score| score.missed);
                        let _ = sender.send((life, result));
                    }
                });
            }
            drop(sender);
            for (life, result) in results {
                summary.add(&life, result);
            }
        });
        summary.print(self, begun.elapsed());
        summary.wrong.len() as u64
    }
}

/// The kills that no life has yet.
struct Supply {
    next: u64,
    kills: u64,
}

impl Supply {
    fn take(&mut self, seed: u64) -> Option<Life> {
        let kills = self.kills.min(KILLS);
        if kills == 0 {
            return None;
        }
        self.kills -= kills;
        self.next += 1;
        Some(Life::draw(seed, self.next - 1, kills))
    }
}

#[derive(Default)]
struct Summary {
    /// Lives of each layout.
    layouts: BTreeMap<&'static str, u64>,
    asynchronous: u64,
    score: Score,
    wrong: Vec<u64>,
}

impl Summary {
    fn add(&mut self, life: &Life, result: anyhow::Result<Score>) {
        *self.layouts.entry(life.layout.name).or_default() += 1;
        self.asynchronous += u64::from(life.is_asynchronous);
        match result {
            Ok(score) => {
                self.score.kills += score.kills;
                self.score.in_save += score.in_save;
                self.score.before_first += score.before_first;
                self.score.missed += score.missed;
            }
            Err(error) => {
                println!("WRONG {life}: {error:#}");
                self.wrong.push(life.number);
            }
        }
    }

    fn print(&self, storm: Storm, time: Duration) {
        let Score {
            kills,
            in_save,
            before_first,
            missed,
        } = self.score;
        let layouts: Vec<String> = self
            .layouts
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        println!(
            "seed {}: {kills} kills in {:.0} s, {in_save} of them during an unfinished save, {before_first} before the \
             first checkpoint, {missed} too late and made up for; lives: {} ({} asynchronous), {} wrong {:?}",
            storm.seed,
            time.as_secs_f64(),
            layouts.join(", "),
            self.asynchronous,
            self.wrong.len(),
            self.wrong,
        );
    }
}
