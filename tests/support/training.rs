//! A run of `pretrain_gpt` that saves: its flags, its processes, what it says, its losses and its checkpoints.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use burn_megatron::checkpoint::Checkpoint;
use serde_json::Value;

use crate::processes::{Marked, isolate, variable_of};
use crate::program::{pretrain_gpt, training_text};

/// Longest run on a busy machine.
const END_LIMIT: Duration = Duration::from_secs(120);
/// Time for the kernel to end what was killed.
const GONE_LIMIT: Duration = Duration::from_secs(5);
/// A model with which a step takes milliseconds.
const MODEL: &str = "--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --micro-batch-size 2 \
     --global-batch-size 8 --hidden-dropout 0.1 --eval-iters 0 --log-interval 1 --lr 0.01";

/// A command line of `pretrain_gpt`, in a folder of its own: what it says is in `stdout` and `stderr` there, its
/// metrics in `log.jsonl`.
#[derive(Clone, Debug)]
pub struct Training {
    program: PathBuf,
    folder: PathBuf,
    flags: Vec<String>,
}

impl Training {
    /// Trains the small model for `steps` steps, with further flags.
    pub fn new(folder: &Path, steps: u64, flags: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).context("the test's folder")?;
        let log = folder.join("log.jsonl");
        let training = Self {
            program: pretrain_gpt()?,
            folder: folder.to_owned(),
            flags: Vec::new(),
        };
        let training = training.with(MODEL).with(&format!("--train-iters {steps}")).with(flags);
        Ok(training
            .with_path("--log-jsonl", &log)
            .with_path("--data-path", &training_text()))
    }

    pub fn with(mut self, flags: &str) -> Self {
        self.flags.extend(flags.split_whitespace().map(str::to_owned));
        self
    }

    pub fn with_path(mut self, flag: &str, path: &Path) -> Self {
        self.flags.push(flag.to_owned());
        self.flags.push(path.display().to_string());
        self
    }

    /// Replaces the value of a flag that is there.
    pub fn with_other(mut self, flag: &str, value: &str) -> Self {
        let place = self.flags.iter().position(|found| found == flag);
        let place = place.unwrap_or_else(|| panic!("{flag} is not among {:?}", self.flags));
        value.clone_into(&mut self.flags[place + 1]);
        self
    }

    pub fn start(&self) -> anyhow::Result<Run> {
        self.start_prepared(|_| {})
    }

    /// Starts it; `prepare` may change the command.
    pub fn start_prepared(&self, prepare: impl FnOnce(&mut Command)) -> anyhow::Result<Run> {
        let output = |name: &str| File::create(self.folder.join(name));
        let mut command = Command::new(&self.program);
        isolate(&mut command)
            .args(&self.flags)
            .env_remove("RUST_LOG")
            .stdout(output("stdout")?)
            .stderr(output("stderr")?);
        prepare(&mut command);
        let mut job = Marked::new(self.folder.display());
        job.start(&mut command).context("cannot start pretrain_gpt")?;
        Ok(Run {
            job,
            folder: self.folder.clone(),
        })
    }

    /// Runs it to its end, which must be a good one.
    pub fn run(&self) -> anyhow::Result<Ended> {
        let ended = self.start()?.end()?;
        ended.expect_code(0)?;
        Ok(ended)
    }

    /// The metrics of each step that have nothing to do with time or memory, as text, so that every bit counts.
    pub fn losses(&self) -> anyhow::Result<BTreeMap<u64, String>> {
        parse_losses(&fs::read_to_string(self.folder.join("log.jsonl")).context("log.jsonl")?)
    }

    /// The same of a run that was killed, maybe within a line.
    pub fn losses_so_far(&self) -> anyhow::Result<BTreeMap<u64, String>> {
        let text = fs::read_to_string(self.folder.join("log.jsonl")).unwrap_or_default();
        parse_losses(text.rsplit_once('\n').map_or("", |(lines, _)| lines))
    }
}

fn parse_losses(text: &str) -> anyhow::Result<BTreeMap<u64, String>> {
    let mut losses = BTreeMap::new();
    for line in text.lines() {
        let metrics: Value = serde_json::from_str(line).with_context(|| format!("in log.jsonl: {line}"))?;
        let step = metrics["step"].as_u64().context("a line has a step")?;
        let kept = ["loss", "grad_norm", "learning_rate", "loss_scale", "is_skipped"];
        let kept = kept.map(|name| format!("{name} {}", metrics[name])).join(", ");
        ensure!(losses.insert(step, kept).is_none(), "step {step} is twice in log.jsonl");
    }
    Ok(losses)
}

/// A run under way. Killed when it is dropped.
#[derive(Debug)]
pub struct Run {
    job: Marked,
    folder: PathBuf,
}

impl Run {
    pub fn launcher(&self) -> u32 {
        self.job.launchers[0].id()
    }

    /// The launcher and all ranks.
    pub fn processes(&self) -> Vec<u32> {
        self.job.processes()
    }

    /// The process of each rank that has been started.
    pub fn ranks(&self) -> BTreeMap<usize, u32> {
        let rank = |pid: u32| variable_of(pid, "RANK")?.parse().ok();
        let processes = self.processes().into_iter();
        processes.filter_map(|pid| Some((rank(pid)?, pid))).collect()
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(self.folder.join("stdout")).unwrap_or_default()
    }

    pub fn has_ended(&mut self) -> bool {
        self.job.launchers[0].has_ended()
    }

    /// Waits until rank 0 has reported a step.
    pub fn wait_for_step(&mut self, step: u64) -> anyhow::Result<()> {
        let line = format!("step {step}/");
        let is_there = |run: &Self| run.stdout().lines().any(|found| found.starts_with(&line));
        let begun = Instant::now();
        while !is_there(self) {
            if self.has_ended() || begun.elapsed() > END_LIMIT {
                bail!("step {step} does not come:\n{}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn stderr(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    /// Waits for the launcher, and checks that no process is left.
    pub fn end(mut self) -> anyhow::Result<Ended> {
        let Some(status) = self.job.launchers[0].wait_within(END_LIMIT)? else {
            bail!("does not end within {END_LIMIT:?}:\n{}{}", self.stdout(), self.stderr())
        };
        self.job.expect_end_within(GONE_LIMIT)?;
        Ok(Ended {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
        })
    }
}

#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn expect_code(&self, code: i32) -> anyhow::Result<()> {
        ensure!(
            self.status.code() == Some(code),
            "{} instead of {code}\n{}{}",
            self.status,
            self.stdout,
            self.stderr
        );
        Ok(())
    }

    /// The step after which it resumed; `None` if it began from scratch.
    pub fn resumed_after(&self) -> Option<u64> {
        resumed_after(&self.stdout)
    }

    /// The step after which it says that it stopped, and why.
    pub fn stopped(&self) -> anyhow::Result<(u64, &str)> {
        let parse = |line: &str| -> Option<(u64, usize)> {
            let rest = line.strip_prefix("stopped after step ")?;
            let (step, why) = rest.split_once(": ")?;
            Some((step.parse().ok()?, line.len() - why.len()))
        };
        let found = self
            .stdout
            .lines()
            .find_map(|line| parse(line).map(|(step, at)| (step, &line[at..])));
        found.with_context(|| format!("it does not say that it stopped:\n{}{}", self.stdout, self.stderr))
    }
}

/// The step after which a program reports that it resumes.
pub fn resumed_after(stdout: &str) -> Option<u64> {
    let mut lines = stdout.lines();
    lines.find_map(|line| line.strip_prefix("continuing after step ")?.parse().ok())
}

/// The steps that a program reports as saved, or as being saved, in order.
pub fn reported_saves(stdout: &str) -> Vec<u64> {
    let step = |line: &str| {
        let (step, what) = line.strip_prefix("step ")?.split_once(" | ")?;
        ["saved", "is being saved"].contains(&what).then(|| step.parse().ok())?
    };
    stdout.lines().filter_map(step).collect()
}

/// All that a checkpoint says and holds: its state, and the name, size and checksum of every shard, compared with the
/// bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub iteration: u64,
    pub state: Value,
    pub shards: Vec<(String, u64, u64)>,
    pub arrays: Vec<String>,
}

impl Content {
    /// Reads a checkpoint.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let checkpoint = Checkpoint::open(path)?;
        checkpoint.verify()?;
        let shards = checkpoint.files().iter();
        Ok(Self {
            iteration: checkpoint.iteration(),
            state: checkpoint.state().clone(),
            shards: shards
                .map(|file| (file.name.clone(), file.bytes, file.checksum()))
                .collect(),
            arrays: checkpoint.arrays().iter().map(|array| array.name.clone()).collect(),
        })
    }

    /// Says what is different from what was expected.
    pub fn expect_same(&self, expected: &Self) -> anyhow::Result<()> {
        ensure!(
            self.iteration == expected.iteration,
            "iteration {} for {}",
            self.iteration,
            expected.iteration
        );
        ensure!(
            self.state == expected.state,
            "state {} for {}",
            self.state,
            expected.state
        );
        ensure!(
            self.arrays == expected.arrays,
            "arrays {:?} for {:?}",
            self.arrays,
            expected.arrays
        );
        ensure!(
            self.shards == expected.shards,
            "shards {:x?} for {:x?}",
            self.shards,
            expected.shards
        );
        Ok(())
    }
}

/// The names in a folder, sorted; nothing where there is none.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Whether a name is that of a folder that is being written, replaced or removed.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(".iter_")
}

/// The folder of a step's checkpoint.
pub fn of_step(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("iter_{step:07}"))
}

/// The content of every checkpoint in a folder, by iteration. Whatever else is there is the lock, or says by its name
/// that it is temporary.
///
/// # Errors
/// A folder named as a checkpoint is none that is whole, or the library takes another for the latest.
pub fn read_all(folder: &Path) -> anyhow::Result<BTreeMap<u64, Content>> {
    let mut contents = BTreeMap::new();
    for name in names(folder) {
        if let Some(digits) = name.strip_prefix("iter_") {
            let content = Content::read(&folder.join(&name))?;
            ensure!(
                digits.parse() == Ok(content.iteration),
                "{name} is of iteration {}",
                content.iteration
            );
            contents.insert(content.iteration, content);
        } else {
            ensure!(
                name == ".lock" || is_temporary(&name),
                "{name} is in the folder of checkpoints"
            );
        }
    }
    let latest = Checkpoint::latest(folder)?.map(|checkpoint| checkpoint.iteration());
    let newest = contents.keys().next_back().copied();
    ensure!(latest == newest, "{latest:?} is taken for the latest of {newest:?}");
    Ok(contents)
}
