//! One life: a run that is killed and resumed, again and again, and what must be true after each kill and at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tests::processes::send;

use crate::faults::kill_storm::plan::{Kill, Layout, Life, Moment, STEPS, Victim};
use tests::training::{
    Content, Ended, Run, Training, is_temporary, names, of_step, read_all, reported_saves, resumed_after,
};

/// Longest wait for a kill's moment.
const MOMENT_LIMIT: Duration = Duration::from_secs(60);
/// How often the folder of checkpoints is looked at.
const GLANCE: Duration = Duration::from_micros(100);

/// An undisturbed run of a layout, which saved after every step.
#[derive(Debug)]
pub struct Reference {
    losses: BTreeMap<u64, String>,
    contents: BTreeMap<u64, Content>,
    /// From the start to the first step.
    start_time: Duration,
    /// Of a step with its save.
    step_time: Duration,
    /// Median, from the making of the temporary folder to its last name.
    save_time: Duration,
}

impl Reference {
    pub fn run(layout: Layout) -> anyhow::Result<Self> {
        Self::try_run(layout).with_context(|| format!("the undisturbed run of {}", layout.name))
    }

    fn try_run(layout: Layout) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let save = folder.path().join("save");
        let training = Training::new(folder.path(), STEPS, layout.flags)?;
        let training = training.with("--save-interval 1").with_path("--save", &save);
        let begun = Instant::now();
        let mut run = training.start()?;
        run.wait_for_step(1)?;
        let start_time = begun.elapsed();
        let mut lives: HashMap<String, (Instant, Instant)> = HashMap::new();
        while !run.has_ended() {
            let now = Instant::now();
            for name in names(&save).into_iter().filter(|name| is_temporary(name)) {
                lives.entry(name).or_insert((now, now)).1 = now;
            }
            sleep(GLANCE);
        }
        let step_time = (begun.elapsed() - start_time) / STEPS as u32;
        run.end()?.expect_code(0)?;
        let mut save_times: Vec<Duration> = lives.values().map(|(first, last)| *last - *first).collect();
        save_times.sort_unstable();
        let reference = Self {
            losses: training.losses()?,
            contents: read_all(&save)?,
            start_time,
            step_time,
            save_time: *save_times.get(save_times.len() / 2).context("no save was seen")?,
        };
        let all = 1..=STEPS;
        ensure!(
            reference.losses.keys().copied().eq(all.clone()),
            "not every step is in the log"
        );
        ensure!(reference.contents.keys().copied().eq(all), "not every step was saved");
        Ok(reference)
    }
}

/// What came of a life.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Kills that struck.
    pub kills: u64,
    /// Kills while there was a temporary folder.
    pub in_save: u64,
    /// Kills before the first checkpoint.
    pub before_first: u64,
    /// Kills for which the run was over too early.
    pub missed: u64,
}

impl AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.kills += other.kills;
        self.in_save += other.in_save;
        self.before_first += other.before_first;
        self.missed += other.missed;
    }
}

/// Lives a life to its end.
///
/// # Errors
/// What was wrong after which kill, or at the end.
pub fn live(life: &Life, reference: &Reference) -> anyhow::Result<Score> {
    let folder = TempDir::new()?;
    let save = folder.path().join("save");
    let training = Training::new(folder.path(), STEPS, life.layout.flags)?;
    let mut lived = Lived {
        training: training
            .with(&life.flags())
            .with_path("--save", &save)
            .with_path("--load", &save),
        life,
        reference,
        save,
        resumes_after: None,
        newest: None,
        losses: BTreeMap::new(),
        score: Score::default(),
    };
    for (number, kill) in life.kills.iter().enumerate() {
        let is_over = lived.job(kill).with_context(|| format!("kill {number}, {kill:?}"))?;
        if is_over {
            lived.score.missed = (life.kills.len() - number) as u64;
            return Ok(lived.score);
        }
    }
    lived.last_job().context("the job that is not killed")?;
    Ok(lived.score)
}

struct Lived<'a> {
    training: Training,
    life: &'a Life,
    reference: &'a Reference,
    save: PathBuf,
    /// The step after which the next job must resume.
    resumes_after: Option<u64>,
    /// The newest checkpoint that was found.
    newest: Option<u64>,
    /// The losses of all jobs: one that goes back drops later steps from the log, and the next may begin after them.
    losses: BTreeMap<u64, String>,
    score: Score,
}

impl Lived<'_> {
    /// Starts a job and kills it; returns whether it was over before.
    fn job(&mut self, kill: &Kill) -> anyhow::Result<bool> {
        let mut run = self.training.start()?;
        let victims = self.wait_for_moment(&mut run, kill)?;
        let saves = names(&self.save).iter().any(|name| is_temporary(name));
        for pid in victims {
            send(pid, libc::SIGKILL);
        }
        let ended = run.end()?;
        self.judge_start(&ended)?;
        if ended.status.success() {
            self.judge_end()?;
            return Ok(true);
        }
        if let Victim::Rank(rank) = kill.victim {
            let victim = format!("rank {rank}");
            let is_reported = ended
                .stderr
                .lines()
                .any(|line| line.contains(&victim) && line.contains("SIGKILL"));
            ensure!(is_reported, "it did not end because of the kill:\n{}", ended.stderr);
        }
        self.score.kills += 1;
        self.score.in_save += u64::from(saves);
        self.judge_kill(&ended)
            .with_context(|| format!("there is {:?}", names(&self.save)))?;
        self.score.before_first += u64::from(self.newest.is_none());
        self.prepare_next(kill)?;
        Ok(false)
    }

    /// Waits for a kill's moment, or for the end; returns the processes to kill.
    fn wait_for_moment(&self, run: &mut Run, kill: &Kill) -> anyhow::Result<Vec<u32>> {
        let begun = Instant::now();
        let mut wait_until = |claim: &mut dyn FnMut(&Run) -> bool, glance: Duration| {
            while !claim(run) && !run.has_ended() {
                ensure!(
                    begun.elapsed() < MOMENT_LIMIT,
                    "the moment does not come:\n{}",
                    run.stdout()
                );
                sleep(glance);
            }
            Ok(())
        };
        if let Moment::AtStart { share } = kill.moment {
            sleep(self.reference.start_time.mul_f64(share));
        }
        // Looked up before the moment comes: it takes as long as a step.
        let mut processes = Vec::new();
        let mut is_there = |run: &Run| {
            let ranks = run.ranks();
            processes = match kill.victim {
                Victim::Rank(rank) => ranks.get(&rank).copied().into_iter().collect(),
                Victim::Launcher => vec![run.launcher()],
                Victim::All => run.processes(),
            };
            let is_at_start = matches!(kill.moment, Moment::AtStart { .. });
            let come = ranks.len() == self.life.layout.ranks || is_at_start;
            come && !processes.is_empty()
        };
        wait_until(&mut is_there, Duration::from_millis(1))?;
        match kill.moment {
            Moment::AtStart { .. } => {}
            Moment::InSave { before, share } => {
                let mut seen: HashSet<String> = HashSet::new();
                let mut has_come = |_: &Run| {
                    seen.extend(names(&self.save).into_iter().filter(|name| is_temporary(name)));
                    // Those of the job before are removed by this one.
                    seen.len() as u64 > before
                };
                wait_until(&mut has_come, GLANCE)?;
                sleep(self.reference.save_time.mul_f64(share));
            }
            Moment::AfterStep { steps, share } => {
                let step = format!("step {}/", self.resumes_after.unwrap_or(0) + steps);
                let mut has_come = |run: &Run| run.stdout().lines().any(|line| line.starts_with(&step));
                wait_until(&mut has_come, GLANCE)?;
                sleep(self.reference.step_time.mul_f64(share));
            }
        }
        Ok(processes)
    }

    /// Checks that the job resumed after the expected step, if it got that far.
    fn judge_start(&self, ended: &Ended) -> anyhow::Result<()> {
        let resumed = resumed_after(&ended.stdout);
        let got_so_far = resumed.is_some() || ended.stdout.lines().any(|line| line.starts_with("step "));
        ensure!(
            !got_so_far || resumed == self.resumes_after,
            "it resumes after {resumed:?}, not {:?}",
            self.resumes_after
        );
        Ok(())
    }

    /// Checks that every checkpoint is whole and, to the bit, that of the undisturbed run, and that none that was
    /// reported as saved is lost.
    fn judge_kill(&mut self, ended: &Ended) -> anyhow::Result<()> {
        let newest = self.compare(&self.save)?;
        let mut saved = reported_saves(&ended.stdout);
        if self.life.is_asynchronous {
            // The last save has only begun.
            saved.pop();
        }
        let saved = saved.last().copied();
        ensure!(newest >= saved, "{newest:?} is the newest, though {saved:?} was saved");
        ensure!(
            newest >= self.newest,
            "{newest:?} is the newest, though there was {:?}",
            self.newest
        );
        self.newest = newest;
        let losses = self.training.losses_so_far()?;
        self.add(losses)
    }

    /// Compares losses with those of the undisturbed run.
    fn add(&mut self, losses: BTreeMap<u64, String>) -> anyhow::Result<()> {
        for (step, loss) in losses {
            let expected = self.reference.losses.get(&step).map_or("nothing", String::as_str);
            ensure!(loss == expected, "step {step}: {loss}; undisturbed: {expected}");
            self.losses.insert(step, loss);
        }
        Ok(())
    }

    /// Compares all checkpoints with those of the undisturbed run, and returns the newest.
    fn compare(&self, save: &Path) -> anyhow::Result<Option<u64>> {
        let contents = read_all(save)?;
        for (step, content) in &contents {
            let expected = self.reference.contents.get(step).context("a step that there is not")?;
            content
                .expect_same(expected)
                .with_context(|| format!("checkpoint of step {step}"))?;
        }
        Ok(contents.keys().next_back().copied())
    }

    fn prepare_next(&mut self, kill: &Kill) -> anyhow::Result<()> {
        let names = names(&self.save).into_iter();
        let steps: Vec<u64> = names
            .filter_map(|name| name.strip_prefix("iter_")?.parse().ok())
            .collect();
        let oldest = steps.iter().copied().min();
        let (step, load) = match (oldest, kill.goes_back) {
            (Some(oldest), true) => {
                // A folder with checkpoints that the run has not come to is refused.
                for &later in steps.iter().filter(|step| **step > oldest) {
                    std::fs::remove_dir_all(of_step(&self.save, later))?;
                }
                self.newest = Some(oldest);
                (Some(oldest), of_step(&self.save, oldest))
            }
            _ => (self.newest, self.save.clone()),
        };
        self.resumes_after = step;
        self.training = self.training.clone().with_other("--load", &load.display().to_string());
        Ok(())
    }

    fn last_job(&mut self) -> anyhow::Result<()> {
        let ended = self.training.run()?;
        self.judge_start(&ended)?;
        self.judge_end()
    }

    /// Checks that the outcome is as if no process had been killed.
    fn judge_end(&mut self) -> anyhow::Result<()> {
        let log = self.training.losses()?;
        let went_back = self.life.kills.iter().any(|kill| kill.goes_back);
        ensure!(
            went_back || log == self.reference.losses,
            "the log is not that of the undisturbed run: {log:?}"
        );
        self.add(log)?;
        ensure!(self.losses == self.reference.losses, "not every step was in a log");
        let newest = self.compare(&self.save)?;
        ensure!(newest == Some(STEPS), "the last checkpoint is {newest:?}");
        let left: Vec<String> = names(&self.save)
            .into_iter()
            .filter(|name| is_temporary(name))
            .collect();
        ensure!(left.is_empty(), "{left:?} is left");
        Ok(())
    }
}
