//! Tells a person how training goes: a progress bar on a terminal, plain lines otherwise.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use burn_megatron::training::StepMetrics;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::terminal::draw_target;

/// Where progress goes.
pub struct Progress {
    bar: Option<ProgressBar>,
    log_interval: u64,
    num_steps: u64,
    /// Losses of the steps since the last line.
    losses: Vec<f64>,
}

impl Progress {
    /// Returns the progress of a run of `num_steps` steps that tells of every `log_interval`-th.
    pub fn new(num_steps: u64, log_interval: u64) -> Self {
        let bar = draw_target().map(|target| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}<{eta} {msg}")
                .expect("the template is valid");
            let bar = ProgressBar::with_draw_target(Some(num_steps), target).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            bar,
            log_interval: log_interval.max(1),
            num_steps,
            losses: Vec::new(),
        }
    }

    /// Tells of a step; a line has the mean loss of the steps since the line before.
    pub fn step(&mut self, metrics: &StepMetrics) {
        self.losses.push(metrics.loss);
        if let Some(bar) = &self.bar {
            bar.set_position(metrics.step);
            bar.set_message(format!(
                "loss {:.4} · {:.0} tokens/s",
                metrics.loss, metrics.tokens_per_second
            ));
        }
        let is_due = metrics.step.is_multiple_of(self.log_interval);
        if is_due || metrics.step == 1 || metrics.step == self.num_steps {
            let mean_loss = self.losses.iter().sum::<f64>() / self.losses.len() as f64;
            self.losses.clear();
            self.line(&describe(metrics, mean_loss, self.num_steps));
        }
    }

    /// Tells of a validation.
    pub fn validation(&self, step: u64, loss: f64) {
        self.line(&format!(
            "step {step} | validation loss {loss:.4} | perplexity {:.2} per byte",
            loss.exp()
        ));
    }

    /// Prints a line, above the bar where there is one.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{text}")),
            // A closed standard output does not end training.
            None => drop(writeln!(std::io::stdout(), "{text}")),
        }
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn describe(metrics: &StepMetrics, mean_loss: f64, num_steps: u64) -> String {
    let scaled = match metrics.loss_scale {
        scale if metrics.is_skipped => format!(" | skipped at loss scale {scale}"),
        1.0 => String::new(),
        scale => format!(" | loss scale {scale}"),
    };
    format!(
        "step {}/{num_steps} | loss {:.4} | grad norm {:.3}{scaled} | lr {:.2e} | {:.0} tokens/s | {:.2} GFLOP/s | \
         peak {} per rank | sent {}/step",
        metrics.step,
        mean_loss,
        metrics.grad_norm,
        metrics.learning_rate,
        metrics.tokens_per_second,
        metrics.model_flops_per_second / 1e9,
        bytes(metrics.peak_memory_bytes),
        bytes(metrics.communication_bytes),
    )
}

/// A number of bytes with a unit that leaves it readable.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Metrics, of every step say, as JSON lines in a file.
pub struct JsonLines {
    file: std::io::BufWriter<std::fs::File>,
    path: std::path::PathBuf,
}

impl JsonLines {
    /// Creates the file, over one that exists.
    ///
    /// # Errors
    /// When it cannot be created, naming it.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file =
            std::fs::File::create(path).with_context(|| format!("cannot write metrics to {}", path.display()))?;
        Ok(Self {
            file: std::io::BufWriter::new(file),
            path: path.to_owned(),
        })
    }

    /// Opens the file of a run that continues after a step, and drops the lines of later steps, which will be written
    /// again. Creates the file if there is none, or if the run starts at its first step.
    ///
    /// # Errors
    /// When it cannot be read or written, naming it.
    pub fn go_on(path: &Path, step: u64) -> anyhow::Result<Self> {
        if step == 0 || !path.exists() {
            return Self::create(path);
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_before = |line: &&str| {
            let object: Option<serde_json::Value> = serde_json::from_str(line).ok();
            object.is_some_and(|object| object["step"].as_u64().is_some_and(|found| found <= step))
        };
        let kept: String = text.lines().filter(is_before).flat_map(|line| [line, "\n"]).collect();
        // Written whole or not at all, like everything that a continued run depends on.
        let temporary = path.with_extension("jsonl.tmp");
        std::fs::write(&temporary, kept)
            .and_then(|()| std::fs::rename(&temporary, path))
            .with_context(|| format!("cannot write metrics to {}", path.display()))?;
        let file = std::fs::OpenOptions::new().append(true).open(path);
        Ok(Self {
            file: std::io::BufWriter::new(file.with_context(|| format!("cannot write metrics to {}", path.display()))?),
            path: path.to_owned(),
        })
    }

    /// Writes one object, whole, so that a reader sees every finished step.
    ///
    /// # Errors
    /// When the file cannot be written, naming it.
    pub fn write(&mut self, metrics: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(metrics).context("metrics are plain numbers")?;
        writeln!(self.file, "{line}")
            .and_then(|()| self.file.flush())
            .with_context(|| format!("cannot write metrics to {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_readable_units() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
