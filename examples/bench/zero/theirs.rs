//! PyTorch's side: a Python program that trains the same model on the same number of ranks, and prints what it
//! measured.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use models::ModelFamily as _;
use models::gpt::GptConfig;
use serde::Deserialize;

use super::variant::Mode;
use super::{Arguments, Figures, WARM_UP_STEPS, refusals, threads_per_rank, training, variant::Variant, world_size};

/// What the program may take longer than its ranks, to load PyTorch and to end.
const GRACE: Duration = Duration::from_secs(60);

/// The program with the flags of every run.
pub struct Peer<'a> {
    python: &'a Path,
    script: &'a Path,
    flags: Vec<String>,
    timeout: Duration,
}

/// The last line that it prints.
#[derive(Deserialize)]
struct Report {
    step_seconds: f64,
    peak_bytes: u64,
    loss: f64,
}

impl<'a> Peer<'a> {
    /// The program that trains what our ranks train.
    ///
    /// # Errors
    /// When it cannot, naming the flag.
    pub fn new(arguments: &'a Arguments, python: &'a Path) -> anyhow::Result<Self> {
        let family = arguments.training.model.family()?.name;
        ensure!(
            family == GptConfig::NAME,
            "--python compares --model-family {}, got {family}: leave one of them out",
            GptConfig::NAME
        );
        let stage_0 = Variant {
            stage: 0,
            overlaps: true,
        };
        let training = training(arguments, stage_0)?;
        let model = GptConfig::from_settings(&training.model.settings(training.vocabulary_size()?));
        refusals::check_comparable(&training, &model)?;
        let seq_length = training.model.sample_length(&model);
        let config = training.training_config(seq_length)?;
        let world_size = world_size(&training);
        let timeout = Duration::from_secs(arguments.peer_timeout_secs);
        let flags = [
            ("--num-layers", model.n_layers.to_string()),
            ("--hidden-size", model.d_model.to_string()),
            ("--num-attention-heads", model.n_heads.to_string()),
            ("--seq-length", seq_length.to_string()),
            ("--max-position-embeddings", model.max_seq_length.to_string()),
            ("--padded-vocab-size", model.padded_vocab(1).to_string()),
            ("--micro-batch-size", config.micro_batch_size.to_string()),
            ("--num-micro-batches", config.num_micro_batches(world_size)?.to_string()),
            ("--world-size", world_size.to_string()),
            ("--threads", threads_per_rank(world_size)?.to_string()),
            ("--steps", arguments.steps.to_string()),
            ("--warmup", WARM_UP_STEPS.to_string()),
            ("--lr", training.optimization.learning_rate.lr.to_string()),
            ("--weight-decay", config.weight_decay.start.to_string()),
            ("--adam-beta1", config.adam_beta1.to_string()),
            ("--adam-beta2", config.adam_beta2.to_string()),
            ("--adam-eps", config.adam_eps.to_string()),
            ("--clip-grad", config.clip_grad.to_string()),
            ("--timeout-secs", timeout.as_secs().to_string()),
            ("--parent", std::process::id().to_string()),
        ];
        Ok(Self {
            python,
            script: &arguments.script,
            flags: flags.map(|(flag, value)| format!("{flag}={value}")).to_vec(),
            timeout,
        })
    }

    /// Trains in a mode.
    ///
    /// # Errors
    /// When the program fails, with what it wrote, or takes too long, after which it is ended.
    pub fn run(&self, mode: Mode, folder: &Path) -> anyhow::Result<Figures> {
        let [stdout, stderr] = ["theirs.out", "theirs.err"].map(|name| folder.join(name));
        let create = |path: &Path| File::create(path).with_context(|| format!("cannot write {}", path.display()));
        let (python, script) = (self.python.display(), self.script.display());
        let child = Command::new(self.python)
            .arg(self.script)
            .arg(format!("--mode={}", mode.name))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?)
            .spawn()
            .with_context(|| format!("cannot start {python}: --python names an interpreter with PyTorch"))?;
        let ended = Running(child).wait(self.timeout + GRACE);
        let messages = fs::read(&stderr).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let messages = messages.unwrap_or_default();
        let status = ended.with_context(|| format!("{python} {script}, mode {}:\n{messages}", mode.name))?;
        ensure!(
            status.success(),
            "{python} {script} failed in mode {} ({status}):\n{messages}",
            mode.name
        );
        let text = fs::read_to_string(&stdout).with_context(|| format!("cannot read {}", stdout.display()))?;
        parse(&text).with_context(|| format!("{script}, mode {}", mode.name))
    }
}

/// Reads the last line.
fn parse(text: &str) -> anyhow::Result<Figures> {
    let last = text.lines().last().unwrap_or_default();
    let report: Report = serde_json::from_str(last).with_context(|| {
        format!("expected JSON with step_seconds, peak_bytes and loss in the last line, got {last:?}")
    })?;
    ensure!(
        report.loss.is_finite() && report.step_seconds > 0.0,
        "expected a finite loss and a time, got {} and {} s",
        report.loss,
        report.step_seconds
    );
    Ok(Figures {
        step_seconds: report.step_seconds,
        peak_bytes: report.peak_bytes,
        sent_bytes: None,
        loss: report.loss,
    })
}

/// A process that is ended and reaped when this is dropped. Its ranks end with it.
struct Running(Child);

impl Running {
    /// Waits until it ends by itself.
    fn wait(mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("it took longer than {} s and was ended", limit.as_secs());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_report() {
        let figures =
            parse("a warning\n{\"step_seconds\": 0.5, \"peak_bytes\": 7, \"loss\": 5.9}\n").expect("a report");
        assert_eq!((figures.step_seconds, figures.peak_bytes), (0.5, 7));
        for text in [
            "",
            "no JSON",
            "{\"step_seconds\": 0.5}",
            "{\"step_seconds\": 0.5, \"peak_bytes\": 7, \"loss\": NaN}",
            "{\"step_seconds\": 0, \"peak_bytes\": 7, \"loss\": 1}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_process_that_takes_too_long_is_ended() {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep");
        let start = Instant::now();
        let error = Running(child).wait(Duration::from_millis(100)).expect_err("too long");
        assert!(error.to_string().contains("was ended"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
