//! A storm of `kill -9` over training runs that save every few steps: each resumes every time, and ends as if
//! undisturbed.
//!
//! ```text
//! cargo test -p tests --test tests -- kill_storm --seed 7 --kills 100
//! cargo test -p tests --test tests -- kill_storm --seed 7 --only 12
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

use libtest_mimic::Trial;
use tests::references::References;
use tests::storm::{self, Outcome, Storm, Test};

use life::{Reference, Score};
use plan::{KILLS, Layout, Life};

/// The test's share of the storm.
const TEST: Test = Test {
    name: "killed_runs_end_as_if_undisturbed",
    seed: 5,
    count: 6,
    count_flag: ("--kills", 100),
    units: KILLS,
};

pub fn trial() -> Trial {
    storm::trial(TEST, Lives::default)
}

/// Runs the storm that the program's arguments ask for, if they do.
pub fn blow() -> anyhow::Result<Option<ExitCode>> {
    storm::run(TEST, Lives::default)
}

/// Runs that are killed and resumed, and the undisturbed runs that they are compared with.
#[derive(Default)]
struct Lives {
    undisturbed: References<Layout, Reference>,
}

impl Storm for Lives {
    type Plan = Life;
    type Score = Score;

    fn draw(&self, seed: u64, number: u64, kills: u64) -> Life {
        Life::draw(seed, number, kills)
    }

    fn run(&self, life: &Life) -> anyhow::Result<Score> {
        let reference = self.undisturbed.of(life.layout, || Reference::run(life.layout))?;
        life::live(life, &reference)
    }

    fn missed(&self, score: &Score) -> u64 {
        score.missed
    }

    fn summary(&self, outcome: &Outcome<Self>) -> String {
        // Lives of each layout.
        let mut layouts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut asynchronous = 0;
        let mut score = Score::default();
        for (_, life, of_life) in &outcome.plans {
            *layouts.entry(life.layout.name).or_default() += 1;
            asynchronous += u64::from(life.is_asynchronous);
            score += of_life.unwrap_or_default();
        }
        let layouts: Vec<String> = layouts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let Score {
            kills,
            in_save,
            before_first,
            missed,
        } = score;
        let wrong = outcome.wrong();
        format!(
            "seed {}: {kills} kills in {:.0} s, {in_save} of them during an unfinished save, {before_first} before the \
             first checkpoint, {missed} too late and made up for; lives: {} ({asynchronous} asynchronous), {} wrong \
             {wrong:?}",
            outcome.flags.seed,
            outcome.time.as_secs_f64(),
            layouts.join(", "),
            wrong.len(),
        )
    }
}
