//! Tells a person how training goes: a progress bar on a terminal, plain lines otherwise.

use std::io::Write;
use std::time::Duration;

use burn_megatron::training::StepMetrics;
use burn_megatron_monitoring::progress::readable;
use indicatif::{ProgressBar, ProgressStyle};

use crate::figures::bytes;
use crate::monitoring::StepNote;
use crate::session::ValidationLosses;
use crate::terminal::draw_target;

/// Where progress goes.
pub struct Progress {
    bar: Option<ProgressBar>,
    log_interval: u64,
    num_steps: u64,
    /// Losses of the steps since the last line.
    losses: Vec<f64>,
    /// Steps so far, and those of them that changed no parameter.
    num_done: u64,
    num_skipped: u64,
}

impl Progress {
    /// Returns the progress of a run of `num_steps` steps that tells of every `log_interval`-th.
    pub fn new(num_steps: u64, log_interval: u64) -> Self {
        let bar = draw_target().map(|target| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed}<{prefix} {msg}")
                .expect("the template is valid");
            let bar = ProgressBar::with_draw_target(Some(num_steps), target).with_style(style);
            bar.set_prefix("?");
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            bar,
            log_interval: log_interval.max(1),
            num_steps,
            losses: Vec::new(),
            num_done: 0,
            num_skipped: 0,
        }
    }

    /// Reports a step; a line has the mean loss of the steps since the line before.
    pub fn step(&mut self, metrics: &StepMetrics, note: &StepNote) {
        self.losses.push(metrics.loss);
        self.num_done += 1;
        self.num_skipped += u64::from(metrics.is_skipped);
        if let Some(bar) = &self.bar {
            bar.set_position(metrics.step);
            bar.set_prefix(note.remaining.map_or("?".to_owned(), readable));
            bar.set_message(format!(
                "loss {:.4} · {:.0} tokens/s",
                metrics.loss, metrics.tokens_per_second
            ));
        }
        let is_due = metrics.step.is_multiple_of(self.log_interval);
        if is_due || metrics.step == 1 || metrics.step == self.num_steps {
            let mean_loss = self.losses.iter().sum::<f64>() / self.losses.len() as f64;
            self.losses.clear();
            self.line(&describe(metrics, note, mean_loss, self.num_steps));
        }
    }

    pub fn validation(&self, step: u64, losses: &ValidationLosses, of_bytes: bool) {
        let unit = if of_bytes { "byte" } else { "token" };
        let of_each = losses.of_sets.iter().map(|(name, loss)| (format!(" of {name}"), *loss));
        for (name, loss) in std::iter::once((String::new(), losses.loss)).chain(of_each) {
            self.line(&format!(
                "step {step} | validation loss{name} {loss:.4} | perplexity {:.2} per {unit}",
                loss.exp()
            ));
        }
    }

    /// Prints a line, above the bar where there is one.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{text}")),
            // A closed standard output does not end training.
            None => drop(writeln!(std::io::stdout(), "{text}")),
        }
    }

    /// Takes the bar off the screen, and warns of a run that has changed nothing.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.num_done > 0 && self.num_skipped == self.num_done {
            self.line(
                "warning: every step was skipped, so no parameter has changed: give a smaller --initial-loss-scale, or \
                 more steps for the loss scale to fall",
            );
        }
    }
}

fn describe(metrics: &StepMetrics, note: &StepNote, mean_loss: f64, num_steps: u64) -> String {
    let scaled = match metrics.loss_scale {
        scale if metrics.is_skipped => format!(" | skipped at loss scale {scale}"),
        1.0 => String::new(),
        scale => format!(" | loss scale {scale}"),
    };
    let peak = match metrics.peak_device_memory_bytes {
        None => format!("peak {} per rank", bytes(metrics.peak_memory_bytes)),
        Some(on_device) => format!(
            "peak {} of GPU memory and {} of the host's per rank",
            bytes(on_device),
            bytes(metrics.peak_memory_bytes)
        ),
    };
    let throughput = note
        .throughput
        .as_ref()
        .map_or(String::new(), |text| format!(" | {text}"));
    let remaining = note.remaining.filter(|_| metrics.step < num_steps);
    let remaining = remaining.map_or(String::new(), |time| format!(" | {} left", readable(time)));
    format!(
        "step {}/{num_steps} | loss {:.4} | grad norm {:.3}{scaled} | lr {:.2e} | {:.0} tokens/s | {:.2} GFLOP/s | \
         {peak} | sent {}/step{throughput}{remaining}",
        metrics.step,
        mean_loss,
        metrics.grad_norm,
        metrics.learning_rate,
        metrics.tokens_per_second,
        metrics.model_flops_per_second / 1e9,
        bytes(metrics.communication_bytes),
    )
}
