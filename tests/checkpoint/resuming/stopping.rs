//! Runs that are asked to stop: by SIGTERM, wherever it arrives, and by the clock. All ranks save the last whole step
//! together, and the resumed run is the undisturbed one, to the bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tests::references::References;

use tests::processes::send;
use tests::program::{expect_same, losses};
use tests::training::{Content, Ended, Run, Training, is_temporary, names, of_step, read_all};

/// Enough that a signal arrives before the end, a second of training.
const STEPS: u64 = 150;
const SHARDED: &str = "--world-size 2 --use-distributed-optimizer";
const STAGES: &str = "--pipeline-model-parallel-size 2";

/// What came of a run that nothing stopped.
struct Undisturbed {
    losses: BTreeMap<u64, String>,
    last: Content,
}

impl Undisturbed {
    fn run(flags: &str) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let save = folder.path().join("save");
        let training = Training::new(folder.path(), STEPS, flags)?.with_path("--save", &save);
        training.run()?;
        Ok(Self {
            losses: training.losses()?,
            last: Content::read(&of_step(&save, STEPS))?,
        })
    }
}

/// The undisturbed run, and the same in pieces.
struct Pair {
    folder: TempDir,
    undisturbed: Arc<Undisturbed>,
    pieces: Training,
}

impl Pair {
    fn new(flags: &'static str) -> anyhow::Result<Self> {
        static RUNS: References<&str, Undisturbed> = References::new();
        let folder = TempDir::new()?;
        let save = folder.path().join("save");
        let pieces = Training::new(folder.path(), STEPS, flags)?;
        Ok(Self {
            undisturbed: RUNS.of(flags, || Undisturbed::run(flags))?,
            pieces: pieces.with_path("--save", &save).with_path("--load", &save),
            folder,
        })
    }

    fn save(&self) -> std::path::PathBuf {
        self.folder.path().join("save")
    }

    /// Signals the run after a few steps, checks how it stops, and resumes it to the end. Returns how it stopped.
    fn interrupt(self, more: &str, signal: impl FnOnce(&Run)) -> anyhow::Result<Ended> {
        let pieces = self.pieces.clone().with(more);
        let mut run = pieces.start()?;
        run.wait_for_step(5)?;
        signal(&run);
        let ended = run.end()?;
        ended.expect_code(143)?;
        let (stopped, why) = ended.stopped()?;
        ensure!(why == "asked to by SIGTERM", "it stops because: {why}");
        ensure!(stopped < STEPS, "it ran to the end");
        ensure!(!ended.stderr.contains("failed"), "a rank fails:\n{}", ended.stderr);
        self.expect_saved(stopped)?;
        let rest = pieces.run()?;
        ensure!(rest.resumed_after() == Some(stopped), "{}", rest.stdout);
        self.expect_undisturbed(&pieces)?;
        Ok(ended)
    }

    /// The newest checkpoint is that of the last step that was taken.
    fn expect_saved(&self, stopped: u64) -> anyhow::Result<()> {
        let newest = read_all(&self.save())?.keys().next_back().copied();
        ensure!(
            newest == Some(stopped),
            "stopped after step {stopped}, and {newest:?} is saved"
        );
        let taken = self.pieces.losses()?;
        ensure!(
            taken.keys().copied().eq(1..=stopped),
            "not the steps up to {stopped} are in the log"
        );
        let left: Vec<String> = names(&self.save())
            .into_iter()
            .filter(|name| is_temporary(name))
            .collect();
        ensure!(left.is_empty(), "{left:?} is left");
        Ok(())
    }

    fn expect_undisturbed(&self, pieces: &Training) -> anyhow::Result<()> {
        ensure!(
            pieces.losses()? == self.undisturbed.losses,
            "other losses than undisturbed"
        );
        let last = Content::read(&of_step(&self.save(), STEPS))?;
        last.expect_same(&self.undisturbed.last).context("the last checkpoint")
    }
}

pub fn sigterm_to_the_launcher_saves() -> anyhow::Result<()> {
    for (layout, more) in [(SHARDED, ""), (STAGES, "--async-save --save-interval 2")] {
        let ended = Pair::new(layout)?
            .interrupt(more, |run| send(run.launcher(), libc::SIGTERM))
            .with_context(|| format!("{layout} {more}"))?;
        // As long as --distributed-timeout-minutes.
        let patience = "signal 15 (SIGTERM): the ranks have 600s to end in good order";
        ensure!(ended.stderr.contains(patience), "{}", ended.stderr);
    }
    Ok(())
}

pub fn sigterm_to_one_rank_saves_on_all() -> anyhow::Result<()> {
    for (layout, more) in [(SHARDED, "--async-save --save-interval 1"), (STAGES, "")] {
        Pair::new(layout)?
            .interrupt(more, |run| send(run.ranks()[&1], libc::SIGTERM))
            .with_context(|| format!("{layout} {more}"))?;
    }
    Ok(())
}

/// As a supervisor does that asks all processes of a job; the ranks hear of it from their launcher, too.
pub fn sigterm_to_every_process_saves() -> anyhow::Result<()> {
    let all = |run: &Run| run.processes().into_iter().for_each(|pid| send(pid, libc::SIGTERM));
    Pair::new(SHARDED)?.interrupt("", all)?;
    Ok(())
}

/// One step on four ranks, one on two, the rest on one: the losses say which samples each step has seen.
pub fn run_with_other_numbers_of_data_parallel_ranks_sees_each_sample_once() -> anyhow::Result<()> {
    const STEPS: u64 = 5;
    let folder = TempDir::new()?;
    let one = Training::new(&folder.path().join("one"), STEPS, "--dtype f64")?;
    one.run()?;
    let save = folder.path().join("save");
    let pieces = Training::new(&folder.path().join("pieces"), STEPS, "--dtype f64")?;
    let pieces = pieces.with_path("--save", &save).with_path("--load", &save);
    // A step is taken in any case.
    let one_step = "--use-distributed-optimizer --exit-duration-in-mins 0.000001";
    for (number, flags) in [
        format!("--world-size 4 {one_step}"),
        format!("--world-size 2 {one_step}"),
        String::new(),
    ]
    .iter()
    .enumerate()
    {
        let before = (number > 0).then_some(number as u64);
        let ended = pieces.clone().with(flags).run()?;
        ensure!(ended.resumed_after() == before, "{flags:?}: {}", ended.stdout);
    }
    let steps = pieces.losses()?;
    ensure!(steps.keys().copied().eq(1..=STEPS), "steps {:?}", steps.keys());
    let [pieces, one] = ["pieces", "one"].map(|name| losses(&folder.path().join(name).join("log.jsonl")));
    expect_same(&pieces?, &one?)
}

pub fn run_in_pieces_of_time_is_the_same_run() -> anyhow::Result<()> {
    let pair = Pair::new(SHARDED)?;
    // 0.4 s; a step is taken in any case.
    let pieces = pair.pieces.clone().with("--exit-duration-in-mins 0.0067");
    let mut previous = None;
    for piece in 1_u64.. {
        let ended = pieces.run()?;
        ensure!(ended.resumed_after() == previous, "{}", ended.stdout);
        let Ok((stopped, why)) = ended.stopped() else {
            ensure!(piece > 1, "it does not stop:\n{}", ended.stdout);
            return pair.expect_undisturbed(&pieces);
        };
        ensure!(why == "--exit-duration-in-mins is over", "it stops because: {why}");
        ensure!(previous < Some(stopped), "no step was taken");
        // At the very last step it stops, too.
        pair.expect_saved(stopped)?;
        if stopped == STEPS {
            return pair.expect_undisturbed(&pieces);
        }
        previous = Some(stopped);
    }
    unreachable!("there are more pieces than numbers")
}
