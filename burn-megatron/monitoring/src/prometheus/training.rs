//! [`TrainingMetrics`]: what a run says of itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::text::{Family, Kind, Sample, encode};
use crate::scalars::{StepScalars, ValidationScalars};

/// The metrics of a run: the last step's, and sums since this process started. Names are in base units.
#[derive(Clone, Debug, Default)]
pub struct TrainingMetrics {
    last: Option<StepScalars>,
    validation: ValidationScalars,
    remaining: Option<Duration>,
    steps: u64,
    skipped_steps: u64,
    samples: u64,
    tokens: f64,
    communication_bytes: u64,
    /// When the last step ended, in seconds since 1970.
    ended: f64,
}

impl TrainingMetrics {
    /// Notes a step, and the time that the steps after it will take.
    pub fn step(&mut self, step: &StepScalars, remaining: Option<Duration>) {
        self.steps += 1;
        self.skipped_steps += u64::from(step.is_skipped);
        self.samples += step.global_batch_size;
        self.tokens += (step.tokens_per_second * step.step_seconds).round();
        self.communication_bytes += step.communication_bytes;
        self.remaining = remaining;
        self.last = Some(step.clone());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.ended = now.map_or(0.0, |now| now.as_secs_f64());
    }

    /// Notes a validation.
    pub fn validation(&mut self, validation: &ValidationScalars) {
        self.validation = validation.clone();
    }

    /// Returns them as Prometheus reads them; nothing before the first step.
    pub fn text(&self) -> String {
        let Some(last) = &self.last else {
            return String::new();
        };
        let mut families = self.gauges(last);
        families.extend(self.counters());
        encode(&families)
    }

    fn gauges(&self, last: &StepScalars) -> Vec<Family> {
        let gauge = |name, help, value: Option<f64>| Family {
            name,
            help,
            kind: Kind::Gauge,
            samples: value.map(Sample::from).into_iter().collect(),
        };
        let some = |name, help, value: f64| gauge(name, help, Some(value));
        vec![
            some("burn_megatron_step", "The last step.", last.position.step as f64),
            some(
                "burn_megatron_consumed_samples",
                "Samples trained on, those before the checkpoint included.",
                last.position.consumed_samples as f64,
            ),
            some(
                "burn_megatron_loss",
                "Mean cross-entropy of the last step in nats.",
                last.loss,
            ),
            self.validation_loss(),
            some(
                "burn_megatron_learning_rate",
                "Learning rate of the last step.",
                last.learning_rate,
            ),
            some(
                "burn_megatron_loss_scale",
                "What the loss was multiplied by.",
                last.loss_scale,
            ),
            some(
                "burn_megatron_gradient_norm",
                "L2 norm of the last gradient before clipping.",
                last.grad_norm,
            ),
            some("burn_megatron_ranks", "Ranks of the run.", last.world_size as f64),
            some(
                "burn_megatron_step_seconds",
                "Time of the last step.",
                last.step_seconds,
            ),
            some(
                "burn_megatron_tokens_per_second",
                "Tokens of the last step over its time.",
                last.tokens_per_second,
            ),
            some(
                "burn_megatron_model_flops_per_second",
                "FLOPs of the model in the last step over its time.",
                last.model_flops_per_second,
            ),
            gauge(
                "burn_megatron_model_flops_utilization_ratio",
                "Share of the stated peak, from 0 to 1.",
                last.mfu_percent.map(|percent| percent / 100.0),
            ),
            some(
                "burn_megatron_peak_memory_bytes",
                "Most memory of the host that any rank had allocated.",
                last.peak_memory_bytes as f64,
            ),
            gauge(
                "burn_megatron_device_memory_reserved_bytes",
                "Most memory of its GPU that any rank has reserved.",
                last.reserved_device_bytes.map(|bytes| bytes as f64),
            ),
            gauge(
                "burn_megatron_remaining_seconds",
                "Estimated time to the end of training.",
                self.remaining.map(|time| time.as_secs_f64()),
            ),
            some(
                "burn_megatron_last_step_timestamp_seconds",
                "When the last step ended, since 1970.",
                self.ended,
            ),
        ]
    }

    fn validation_loss(&self) -> Family {
        let sets = self.validation.of_sets.iter().map(|(name, loss)| Sample {
            labels: vec![("set", name.clone())],
            value: *loss,
        });
        Family {
            name: "burn_megatron_validation_loss",
            help: "Mean cross-entropy of the last validation in nats.",
            kind: Kind::Gauge,
            samples: self.validation.loss.map(Sample::from).into_iter().chain(sets).collect(),
        }
    }

    fn counters(&self) -> [Family; 5] {
        let counter = |name, help, value: f64| Family {
            name,
            help,
            kind: Kind::Counter,
            samples: vec![value.into()],
        };
        [
            counter("burn_megatron_steps_total", "Steps of this process.", self.steps as f64),
            counter(
                "burn_megatron_skipped_steps_total",
                "Steps of this process that a gradient which is not finite made void.",
                self.skipped_steps as f64,
            ),
            counter(
                "burn_megatron_samples_total",
                "Samples that this process trained on, all ranks together.",
                self.samples as f64,
            ),
            counter(
                "burn_megatron_tokens_total",
                "Tokens that this process trained on, all ranks together.",
                self.tokens,
            ),
            counter(
                "burn_megatron_communication_bytes_total",
                "Bytes that all ranks sent.",
                self.communication_bytes as f64,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalars::tests::step_scalars;

    fn value(text: &str, name: &str) -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map(|value| value.parse().unwrap())
    }

    #[test]
    fn the_last_step_is_there_and_sums_rise() {
        let mut metrics = TrainingMetrics::default();
        assert_eq!(metrics.text(), "");
        let mut step = StepScalars {
            is_skipped: true,
            step_seconds: 0.25,
            mfu_percent: Some(40.0),
            communication_bytes: 100,
            ..step_scalars()
        };
        metrics.step(&step, Some(Duration::from_secs(90)));
        step.position.step = 12;
        step.is_skipped = false;
        step.loss = f64::INFINITY;
        metrics.step(&step, None);
        metrics.validation(&ValidationScalars {
            loss: Some(3.0),
            of_sets: vec![("wiki".to_owned(), 2.0)],
            ..ValidationScalars::default()
        });
        let text = metrics.text();
        for (name, expected) in [
            ("burn_megatron_step", 12.0),
            ("burn_megatron_loss", f64::INFINITY),
            ("burn_megatron_model_flops_utilization_ratio", 0.4),
            ("burn_megatron_steps_total", 2.0),
            ("burn_megatron_skipped_steps_total", 1.0),
            ("burn_megatron_samples_total", 32.0),
            ("burn_megatron_tokens_total", 2048.0),
            ("burn_megatron_communication_bytes_total", 200.0),
            ("burn_megatron_validation_loss", 3.0),
            ("burn_megatron_validation_loss{set=\"wiki\"}", 2.0),
        ] {
            assert_eq!(value(&text, name), Some(expected), "{name}\n{text}");
        }
        for absent in [
            "burn_megatron_remaining_seconds",
            "burn_megatron_device_memory_reserved_bytes",
        ] {
            assert_eq!(value(&text, absent), None);
        }
        // A name, its help and its kind once each, whatever the labels.
        let kinds: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut names: Vec<&str> = kinds.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
        names.dedup();
        assert_eq!(names.len(), kinds.len());
        for line in kinds {
            assert_eq!(line.ends_with("counter"), line.contains("_total "), "{line}");
        }
    }
}
