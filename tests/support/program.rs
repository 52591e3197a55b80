//! What the tests of launchers and devices share: the programs, built on demand, small flags, and their losses.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::processes::{Process, isolate};
use crate::references::References;

pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub seconds: f64,
}

impl Ended {
    /// The first line of stderr with `text` in it.
    pub fn expect_line(&self, text: &str) -> anyhow::Result<&str> {
        let line = self.stderr.lines().find(|line| line.contains(text));
        line.with_context(|| format!("no line contains {text:?}:\n{}", self.stderr))
    }

    pub fn expect_code(&self, code: i32) -> anyhow::Result<()> {
        ensure!(
            self.code == Some(code),
            "{:?} instead of {code}\n{}",
            self.code,
            self.stderr
        );
        Ok(())
    }

    /// Fails unless the program has failed, with all of these words on stderr.
    pub fn expect_refusal(&self, words: &[&str]) -> anyhow::Result<()> {
        ensure!(self.code != Some(0), "it is taken: {}", self.stdout);
        words.iter().try_for_each(|words| {
            ensure!(self.stderr.contains(words), "{words:?} is not in:\n{}", self.stderr);
            Ok(())
        })
    }
}

pub fn pretrain_gpt() -> anyhow::Result<PathBuf> {
    build("pretrain_gpt")
}

/// Builds a program as the tests' own build does, for all devices, and returns its path. Cargo is asked once: it takes
/// a second to find that nothing has changed.
pub fn build(example: &'static str) -> anyhow::Result<PathBuf> {
    static BUILT: References<&str, PathBuf> = References::new();
    let built = BUILT.of(example, || {
        Ok(build_with_cargo("--example", example)?.join("examples").join(example))
    })?;
    Ok(built.to_path_buf())
}

/// Builds a program of a library, as [`build`] does, and returns its path.
pub fn build_bin(name: &'static str) -> anyhow::Result<PathBuf> {
    Ok(build_with_cargo("--bin", name)?.join(name))
}

/// Returns the folder of the profile.
fn build_with_cargo(kind: &str, name: &str) -> anyhow::Result<PathBuf> {
    // target/<profile>/deps/<this test>
    let test = std::env::current_exe()?;
    let folder = test
        .parent()
        .and_then(Path::parent)
        .context("a test is in target/<profile>/deps")?;
    let mut command = Command::new(std::env::var_os("CARGO").context("cargo runs the tests and sets CARGO")?);
    // With any other selection of packages the crates have other features, and are built again.
    command.args(["build", "--quiet", "--workspace", kind, name]);
    if folder.ends_with("release") {
        command.arg("--release");
    }
    if let Some(target) = folder.parent() {
        command.arg("--target-dir").arg(target);
    }
    ensure!(command.status()?.success(), "cargo cannot build {name}");
    Ok(folder.to_owned())
}

/// Sources, to be trained on.
pub fn training_text() -> PathBuf {
    crate::folder().join("../burn-megatron/comm/src/launch")
}

/// Four ranks, two per model, a model and text small enough for two cores. Run by every launcher alike.
pub fn flags(steps: usize) -> Vec<String> {
    let flags = format!(
        "--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --micro-batch-size 2 \
         --global-batch-size 4 --eval-iters 0 --train-iters {steps} --dtype f64 --lr-decay-style constant --data-path"
    );
    let text = training_text().display().to_string();
    flags.split_whitespace().map(str::to_owned).chain([text]).collect()
}

/// The flags of four ranks, two per model.
pub const FOUR_RANKS: [&str; 4] = ["--tensor-model-parallel-size", "2", "--world-size", "4"];

/// Returns the loss of each step in a `--log-jsonl` file.
pub fn losses(log: &Path) -> anyhow::Result<Vec<f64>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("no log at {}", log.display()))?;
    let loss = |line: &str| -> anyhow::Result<f64> {
        let metrics: serde_json::Value = serde_json::from_str(line)?;
        metrics["loss"].as_f64().context("a step has a loss")
    };
    text.lines().map(loss).collect()
}

/// Fails unless the losses of two runs are the same to 1e-12, the f64 tolerance of every layout.
pub fn expect_same(left: &[f64], right: &[f64]) -> anyhow::Result<()> {
    let is_close = |(left, right): (&f64, &f64)| (left - right).abs() <= 1e-12 * right.abs();
    ensure!(
        left.len() == right.len() && !left.is_empty() && left.iter().zip(right).all(is_close),
        "the losses differ: {left:?} and {right:?}"
    );
    Ok(())
}

/// The losses of one rank, in one process that ran once for all trials.
pub fn losses_of_one_rank(steps: usize) -> anyhow::Result<Arc<Vec<f64>>> {
    static RUNS: References<usize, Vec<f64>> = References::new();
    RUNS.of(steps, || {
        let folder = TempDir::new()?;
        let log = folder.path().join("one.jsonl");
        let mut command = Command::new(pretrain_gpt()?);
        command.args(flags(steps)).arg("--log-jsonl").arg(&log);
        end(start(&mut command)?, Duration::from_secs(60))?.expect_code(0)?;
        losses(&log)
    })
}

/// Runs a program in a folder, [isolated](isolate), and kills it after `limit`. `flags` are words; each of `more` is
/// one, whatever is in it.
pub fn run(program: &'static str, folder: &Path, flags: &str, more: &[&str], limit: Duration) -> anyhow::Result<Ended> {
    let mut command = Command::new(build(program)?);
    isolate(&mut command)
        .current_dir(folder)
        .args(flags.split_whitespace())
        .args(more)
        .env_remove("RUST_LOG");
    end(start(&mut command)?, limit)
}

/// A command under way.
pub struct Started {
    pub process: Process,
    pub begun: Instant,
}

/// Starts a command with its outputs caught.
pub fn start(command: &mut Command) -> anyhow::Result<Started> {
    command.env_remove("MASTER_PORT").env_remove("MASTER_ADDR");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let process = Process::start(command).with_context(|| format!("cannot start {:?}", command.get_program()))?;
    Ok(Started {
        process,
        begun: Instant::now(),
    })
}

/// Waits for a command; kills it and fails when it takes longer than `limit` from its start.
pub fn end(started: Started, limit: Duration) -> anyhow::Result<Ended> {
    let Started { mut process, begun } = started;
    let (stdout, stderr) = process.take_outputs();
    let (status, stdout, stderr) = std::thread::scope(|scope| {
        let (stdout, stderr) = (scope.spawn(|| read(stdout)), scope.spawn(|| read(stderr)));
        let status = process.wait_within(limit.saturating_sub(begun.elapsed()));
        let seconds = begun.elapsed().as_secs_f64();
        // What it has written so far ends here if it is still running.
        drop(process);
        let text = |thread: std::thread::ScopedJoinHandle<'_, String>| thread.join().unwrap_or_default();
        (status.map(|status| (status, seconds)), text(stdout), text(stderr))
    });
    let (status, seconds) = status?;
    let status = status.with_context(|| format!("does not end within {limit:?}:\n{stderr}"))?;
    Ok(Ended {
        code: status.code(),
        stdout,
        stderr,
        seconds,
    })
}

fn read(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What there is of it counts.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns whether a program is in PATH.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
