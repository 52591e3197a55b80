//! `Report`: what came out, as rows of a table and messages.
//!
//! `main` makes and prints it, `table` and `plot` draw it, `files` writes it.

use burn_megatron::parity::Tolerance;
use burn_megatron::training::StepMetrics;
use clap::ValueEnum;
use models::ModelConfig;

use super::jobs::RunSummary;
use super::judge::Verdict;
use super::table::{Cell, Table, Tone};
use crate::arguments::TrainingArguments;
use crate::figures::{bytes, median};

/// Everything that is reported of a comparison.
pub struct Report {
    /// The one-rank run.
    pub reference: RunSummary,
    /// Each layout, in the order asked for.
    pub comparisons: Vec<Comparison>,
    /// What the layouts were judged by.
    pub tolerance: Tolerance,
    /// What was trained, in a line.
    pub setting: String,
}

/// A layout's run and how it compares.
pub struct Comparison {
    pub summary: RunSummary,
    /// How it compares with the one-rank run.
    pub verdict: Verdict,
}

pub struct Cost {
    /// Tokens of the global batch over the time of a step.
    pub tokens_per_second: f64,
    /// The most bytes that any rank had allocated at once.
    pub peak_memory_bytes: u64,
    /// Bytes that all ranks together sent to each other in a step.
    pub communication_bytes: u64,
}

impl Verdict {
    pub fn holds(&self) -> bool {
        self.num_failures == 0
    }
}

impl RunSummary {
    /// What the run costs. Speed and traffic are medians of the steps after the second: the first two warm caches up.
    pub fn cost(&self) -> Cost {
        let settled = &self.metrics[self.metrics.len().saturating_sub(1).min(2)..];
        let median_of = |of: fn(&StepMetrics) -> f64| median(settled.iter().map(of).collect());
        Cost {
            tokens_per_second: median_of(|step| step.tokens_per_second),
            peak_memory_bytes: self
                .metrics
                .iter()
                .map(|step| step.peak_memory_bytes)
                .max()
                .unwrap_or(0),
            communication_bytes: median_of(|step| step.communication_bytes as f64) as u64,
        }
    }
}

impl Report {
    /// What breaks parity, a message per layout.
    pub fn failures(&self) -> Vec<String> {
        let broken = self.comparisons.iter().filter_map(|Comparison { summary, verdict }| {
            let first = verdict.first_failure.as_ref()?;
            let others = match verdict.num_failures - 1 {
                0 => String::new(),
                others => format!(" ({others} more differences)"),
            };
            Some(format!("{}: {first}{others}", summary.name))
        });
        broken.collect()
    }

    /// The relative difference of each step's loss from the one-rank run's.
    pub fn loss_differences(&self, comparison: &Comparison) -> Vec<f64> {
        let pairs = comparison.summary.metrics.iter().zip(&self.reference.metrics);
        pairs
            .map(|(part, whole)| (part.loss - whole.loss).abs() / whole.loss.abs())
            .collect()
    }

    /// The table, for people.
    pub fn table(&self) -> Table {
        let one = self.reference.cost();
        let mut rows = vec![self.row(&self.reference, None, &one)];
        for Comparison { summary, verdict } in &self.comparisons {
            rows.push(self.row(summary, Some(verdict), &one));
        }
        let mut tolerance = vec![Cell::faint("allowed"), Cell::faint(""), Cell::faint("equal")];
        let limits = [self.tolerance.loss, self.tolerance.gradient, self.tolerance.parameter];
        tolerance.extend(limits.map(|limit| Cell::faint(format!("{limit:.0e}"))));
        tolerance.resize(11, Cell::faint(""));
        rows.push(tolerance);
        Table {
            groups: vec![
                (2..6, "largest difference from one rank"),
                (7..9, "tokens per second"),
                (9..11, "memory and traffic"),
            ],
            header: vec![
                "layout",
                "ranks",
                "start",
                "loss",
                "gradient",
                "parameter",
                "parity",
                "all ranks",
                "vs one rank",
                "peak per rank",
                "sent per step",
            ],
            rows,
        }
    }

    fn row(&self, run: &RunSummary, verdict: Option<&Verdict>, one: &Cost) -> Vec<Cell> {
        let cost = run.cost();
        let mut row = vec![Cell::plain(&run.name), Cell::plain(run.world_size.to_string())];
        match verdict {
            None => row.resize(7, Cell::faint("-")),
            Some(verdict) => {
                row.push(if verdict.same_start {
                    Cell::plain("equal")
                } else {
                    Cell::new("differs", Tone::Bad)
                });
                for (worst, limit) in [
                    (verdict.worst_loss, self.tolerance.loss),
                    (verdict.worst_gradient, self.tolerance.gradient),
                    (verdict.worst_parameter, self.tolerance.parameter),
                ] {
                    let tone = if worst <= limit { Tone::Plain } else { Tone::Bad };
                    row.push(Cell::new(difference(worst), tone));
                }
                row.push(if verdict.holds() {
                    Cell::new("holds", Tone::Good)
                } else {
                    Cell::new("broken", Tone::Bad)
                });
            }
        }
        row.extend([
            Cell::plain(format!("{:.0}", cost.tokens_per_second)),
            Cell::plain(format!("{:.2}", cost.tokens_per_second / one.tokens_per_second)),
            Cell::plain(bytes(cost.peak_memory_bytes)),
            Cell::plain(bytes(cost.communication_bytes)),
        ]);
        row
    }
}

/// What is trained, in a line.
pub fn describe(arguments: &TrainingArguments, model: &dyn ModelConfig) -> String {
    let flags = &arguments.model;
    let optimization = &arguments.optimization;
    let dtype = arguments.precision.dtype().to_possible_value();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, {} steps of {}{} samples of {} tokens; {} with {} layers, {} features, {} heads: {} parameters; \
         dropout {}, clipping {}; {cores} CPU cores",
        dtype.as_ref().map_or("", |value| value.get_name()),
        // What is described has been validated.
        optimization.num_steps().unwrap_or_default(),
        match optimization.rampup_batch_size {
            None => "",
            Some(_) => "up to ",
        },
        optimization.global_batch_size,
        arguments.sample_length(model, None).unwrap_or_default(),
        model.family_name(),
        model.n_layers(),
        model.d_model(),
        model.n_heads(),
        model.num_parameters(),
        flags
            .hidden_dropout
            .unwrap_or(0.0)
            .max(flags.attention_dropout.unwrap_or(0.0)),
        match optimization.clip_grad {
            0.0 => "off".to_owned(),
            norm => format!("at norm {norm}"),
        },
    )
}

/// A difference with two digits; no digits where there is none.
fn difference(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else {
        format!("{value:.1e}")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn run(name: &str, world_size: usize, shift: f64) -> RunSummary {
        let metrics = (1..=5).map(|step| StepMetrics {
            step,
            global_batch_size: 8,
            loss: 5.0 / step as f64 + shift,
            grad_norm: 1.0,
            learning_rate: 1e-3,
            loss_scale: 1.0,
            is_skipped: false,
            num_zeros_in_grad: None,
            num_non_finite_in_grad: None,
            tokens_per_second: if step <= 2 { 1.0 } else { 100.0 * step as f64 },
            step_seconds: 1.0,
            model_flops_per_second: 1.0,
            peak_memory_bytes: 1024 * step,
            peak_device_memory_bytes: None,
            communication_bytes: 10,
        });
        RunSummary {
            name: name.to_owned(),
            world_size,
            metrics: metrics.collect(),
        }
    }

    /// A report of two layouts, the second of them broken.
    pub fn report() -> Report {
        let verdict = Verdict {
            same_start: true,
            worst_loss: 1.5e-7,
            ..Verdict::default()
        };
        let broken = Verdict {
            worst_gradient: 0.5,
            first_failure: Some("rank 1, step 1: gradient of \"w\", say".into()),
            num_failures: 3,
            ..verdict.clone()
        };
        Report {
            reference: run("one rank", 1, 0.0),
            comparisons: vec![
                Comparison {
                    summary: run("tp2", 2, 0.0),
                    verdict,
                },
                Comparison {
                    summary: run("dp2", 2, 1e-6),
                    verdict: broken,
                },
            ],
            tolerance: Tolerance::of(burn::tensor::DType::F32),
            setting: "a small model".into(),
        }
    }

    #[test]
    fn the_first_two_steps_do_not_count_for_speed() {
        let mut summary = run("tp2", 2, 0.0);
        assert_eq!(summary.cost().tokens_per_second, 400.0);
        assert_eq!(summary.cost().peak_memory_bytes, 5 * 1024);
        summary.metrics.truncate(1);
        assert_eq!(summary.cost().tokens_per_second, 1.0);
    }

    #[test]
    fn failures_name_the_layout_and_how_much_more_there_is() {
        assert_eq!(
            report().failures(),
            ["dp2: rank 1, step 1: gradient of \"w\", say (2 more differences)"]
        );
    }
}
