//! The numbers of a step, named as Megatron-LM names them in TensorBoard.
//!
//! The names are those of `megatron/training/training.py` of Megatron-LM at `d98e8a64`: `training_log` writes those of
//! a step, `evaluate_and_print_results` those of a validation, `Timers.write` of `megatron/core/timers.py` those of
//! timers. "vs samples" means that there is a second scalar with ` vs samples` after its name, whose step is the number
//! of samples trained on so far.
//!
//! | tag | what | vs samples | in Megatron-LM |
//! |---|---|---|---|
//! | `learning-rate` | of the step | yes | always |
//! | `batch-size` | samples of the step, over all ranks | yes | always |
//! | `lm loss` | mean cross-entropy in nats | yes | always, by the name in its loss function |
//! | `loss-scale` | what the loss was multiplied by | yes | `--log-loss-scale-to-tensorboard`, its default |
//! | `grad-norm` | L2 norm before clipping | yes | always |
//! | `num-zeros` | zeros in the gradient, where counted | yes | `--log-num-zeros-in-grad` |
//! | `world-size` | ranks | yes | `--log-world-size-to-tensorboard` |
//! | `iteration-time` | seconds | no | `--log-timers-to-tensorboard`, mean of an interval |
//! | `throughput` | TFLOP/s of the model per rank | no | the same with `--log-throughput` |
//! | `mem-reserved-bytes` | of a GPU's memory, most of any rank | no | `--log-memory-to-tensorboard`, now, first rank |
//! | `mem-max-allocated-bytes` | of the host's memory, most of any rank | no | the same, of the GPU's |
//! | `lm loss validation` | mean cross-entropy in nats | yes | always |
//! | `lm loss validation ppl` | its exponential, of 20 at most | yes | `--log-validation-ppl-to-tensorboard` |
//! | `lm loss validation-NAME` | the same of one data set, and `… ppl` | yes | `--multiple-validation-sets` |
//! | `NAME-time` | a timer's seconds, most of any rank | no | `--log-timers-to-tensorboard` |
//! | `mfu` | per cent of the stated peak | no | none |
//! | `tokens-per-second` | over all ranks | no | none |
//! | `communication-bytes` | sent by all ranks in the step | no | none |
//! | `skipped` | 1 if the step was skipped, otherwise 0 | no | none |

use std::borrow::Cow;

/// The largest loss whose exponential is written: Megatron-LM's.
const MAX_LOSS_OF_PERPLEXITY: f64 = 20.0;

/// A number at a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    /// Its name.
    pub tag: Cow<'static, str>,
    /// The number.
    pub value: f64,
    /// The step, or the samples, that it belongs to.
    pub step: u64,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunPosition {
    /// Steps taken.
    pub step: u64,
    /// Samples trained on, by all ranks together.
    pub consumed_samples: u64,
}

/// The numbers of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepScalars {
    /// The position after the step.
    pub position: RunPosition,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Samples of the step, over all ranks.
    pub global_batch_size: u64,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// What the loss was multiplied by.
    pub loss_scale: f64,
    /// L2 norm of the gradient, before clipping.
    pub grad_norm: f64,
    /// Zeros in the gradient, if counted.
    pub num_zeros: Option<u64>,
    /// Whether the step was skipped for a gradient that was not finite.
    pub is_skipped: bool,
    /// Ranks.
    pub world_size: usize,
    /// Seconds of the step.
    pub step_seconds: f64,
    /// Tokens per second, over all ranks.
    pub tokens_per_second: f64,
    /// The model's FLOP/s, over all ranks.
    pub model_flops_per_second: f64,
    /// Per cent of the stated peak, if one is known.
    pub mfu_percent: Option<f64>,
    /// The most bytes of a GPU's memory that any rank has reserved, if ranks compute on GPUs.
    pub reserved_device_bytes: Option<u64>,
    /// The most bytes of the host's memory that any rank had allocated.
    pub peak_memory_bytes: u64,
    /// Bytes that all ranks sent in the step.
    pub communication_bytes: u64,
}

/// The losses of a validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationScalars {
    /// Where the run was.
    pub position: RunPosition,
    /// The mean loss over all data sets, in nats, if there is one.
    pub loss: Option<f64>,
    /// The mean loss of each data set of a blend, with its name.
    pub of_sets: Vec<(String, f64)>,
}

/// Which of a step's numbers are wanted: those that Megatron-LM has flags for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarSelection {
    /// `throughput` and `mfu`.
    pub throughput: bool,
}

impl StepScalars {
    /// Returns the wanted scalars, those by step before those by samples.
    pub fn scalars(&self, selection: ScalarSelection) -> Vec<Scalar> {
        let with_samples = [
            ("learning-rate", Some(self.learning_rate)),
            ("batch-size", Some(self.global_batch_size as f64)),
            ("lm loss", Some(self.loss)),
            ("loss-scale", Some(self.loss_scale)),
            ("world-size", Some(self.world_size as f64)),
            ("grad-norm", Some(self.grad_norm)),
            ("num-zeros", self.num_zeros.map(|zeros| zeros as f64)),
        ];
        let per_rank = self.model_flops_per_second / 1e12 / self.world_size.max(1) as f64;
        let by_step = [
            ("iteration-time", Some(self.step_seconds)),
            ("throughput", selection.throughput.then_some(per_rank)),
            ("mfu", self.mfu_percent.filter(|_| selection.throughput)),
            ("tokens-per-second", Some(self.tokens_per_second)),
            (
                "mem-reserved-bytes",
                self.reserved_device_bytes.map(|bytes| bytes as f64),
            ),
            ("mem-max-allocated-bytes", Some(self.peak_memory_bytes as f64)),
            ("communication-bytes", Some(self.communication_bytes as f64)),
            ("skipped", Some(f64::from(u8::from(self.is_skipped)))),
        ];
        let RunPosition { step, consumed_samples } = self.position;
        let steps = with_samples.into_iter().chain(by_step);
        let steps = steps.filter_map(|(tag, value)| Some(scalar(tag, value?, step)));
        let samples = with_samples.into_iter();
        let samples = samples.filter_map(|(tag, value)| Some(scalar(vs_samples(tag), value?, consumed_samples)));
        steps.chain(samples).collect()
    }
}

impl ValidationScalars {
    /// Returns the scalars, those by step before those by samples.
    pub fn scalars(&self) -> Vec<Scalar> {
        let of_all = self.loss.map(|loss| (String::new(), loss));
        let of_sets = self.of_sets.iter().map(|(name, loss)| (format!("-{name}"), *loss));
        let named: Vec<(String, f64)> = of_all
            .into_iter()
            .chain(of_sets)
            .flat_map(|(suffix, loss)| {
                let perplexity = loss.min(MAX_LOSS_OF_PERPLEXITY).exp();
                [
                    (format!("lm loss validation{suffix}"), loss),
                    (format!("lm loss validation{suffix} ppl"), perplexity),
                ]
            })
            .collect();
        let RunPosition { step, consumed_samples } = self.position;
        let steps = named.iter().map(|(tag, value)| scalar(tag.clone(), *value, step));
        let samples = named.iter();
        let samples = samples.map(|(tag, value)| scalar(vs_samples(tag), *value, consumed_samples));
        steps.chain(samples).collect()
    }
}

/// Returns a timer's scalar: the seconds that the slowest rank took.
pub fn timer_scalar(name: &str, seconds: f64, step: u64) -> Scalar {
    scalar(format!("{name}-time"), seconds, step)
}

fn scalar(tag: impl Into<Cow<'static, str>>, value: f64, step: u64) -> Scalar {
    let tag = tag.into();
    Scalar { tag, value, step }
}

/// Returns the name of a scalar whose step is a number of samples.
fn vs_samples(tag: &str) -> String {
    format!("{tag} vs samples")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn step_scalars() -> StepScalars {
        StepScalars {
            position: RunPosition {
                step: 7,
                consumed_samples: 112,
            },
            learning_rate: 1.5e-4,
            global_batch_size: 16,
            loss: 2.5,
            loss_scale: 1024.0,
            grad_norm: 0.75,
            num_zeros: None,
            is_skipped: false,
            world_size: 4,
            step_seconds: 0.5,
            tokens_per_second: 4096.0,
            model_flops_per_second: 8e12,
            mfu_percent: Some(41.0),
            reserved_device_bytes: None,
            peak_memory_bytes: 1 << 20,
            communication_bytes: 12,
        }
    }

    fn find<'a>(scalars: &'a [Scalar], tag: &str) -> Option<&'a Scalar> {
        let mut found = scalars.iter().filter(|scalar| scalar.tag == tag);
        let first = found.next();
        assert!(found.next().is_none(), "{tag} is there twice");
        first
    }

    #[test]
    fn names_and_steps_are_megatrons() {
        let scalars = step_scalars().scalars(ScalarSelection { throughput: true });
        for (tag, value) in [
            ("learning-rate", 1.5e-4),
            ("batch-size", 16.0),
            ("lm loss", 2.5),
            ("loss-scale", 1024.0),
            ("grad-norm", 0.75),
            ("world-size", 4.0),
        ] {
            let by_step = find(&scalars, tag).expect(tag);
            assert_eq!((by_step.value, by_step.step), (value, 7), "{tag}");
            let by_samples = find(&scalars, &format!("{tag} vs samples")).expect(tag);
            assert_eq!((by_samples.value, by_samples.step), (value, 112), "{tag}");
        }
        for (tag, value) in [
            ("iteration-time", 0.5),
            ("throughput", 2.0),
            ("mfu", 41.0),
            ("tokens-per-second", 4096.0),
            ("mem-max-allocated-bytes", 1048576.0),
            ("communication-bytes", 12.0),
            ("skipped", 0.0),
        ] {
            let by_step = find(&scalars, tag).expect(tag);
            assert_eq!((by_step.value, by_step.step), (value, 7), "{tag}");
            assert!(find(&scalars, &format!("{tag} vs samples")).is_none(), "{tag}");
        }
        // Each step's are together, so that an event has all of them.
        assert!(scalars.is_sorted_by_key(|scalar| scalar.step));
    }

    #[test]
    fn what_is_not_known_or_not_wanted_is_left_out() {
        let plain = step_scalars().scalars(ScalarSelection { throughput: false });
        for tag in ["throughput", "mfu", "num-zeros", "mem-reserved-bytes"] {
            assert!(find(&plain, tag).is_none(), "{tag}");
        }
        let all = StepScalars {
            num_zeros: Some(3),
            reserved_device_bytes: Some(5),
            is_skipped: true,
            ..step_scalars()
        };
        let all = all.scalars(ScalarSelection { throughput: true });
        for (tag, value) in [
            ("num-zeros", 3.0),
            ("num-zeros vs samples", 3.0),
            ("mem-reserved-bytes", 5.0),
            ("skipped", 1.0),
        ] {
            assert_eq!(find(&all, tag).map(|scalar| scalar.value), Some(value), "{tag}");
        }
    }

    #[test]
    fn a_validation_has_a_loss_and_a_perplexity_of_each_set() {
        let validation = ValidationScalars {
            position: RunPosition {
                step: 100,
                consumed_samples: 1600,
            },
            loss: Some(2.0),
            of_sets: vec![("wiki".to_owned(), 1.0), ("code".to_owned(), 21.0)],
        };
        let scalars = validation.scalars();
        for (tag, value) in [
            ("lm loss validation", 2.0),
            ("lm loss validation ppl", 2.0_f64.exp()),
            ("lm loss validation-wiki", 1.0),
            ("lm loss validation-wiki ppl", 1.0_f64.exp()),
            ("lm loss validation-code", 21.0),
            ("lm loss validation-code ppl", 20.0_f64.exp()),
        ] {
            let by_step = find(&scalars, tag).expect(tag);
            assert_eq!((by_step.value, by_step.step), (value, 100), "{tag}");
            let by_samples = find(&scalars, &format!("{tag} vs samples")).expect(tag);
            assert_eq!((by_samples.value, by_samples.step), (value, 1600), "{tag}");
        }
        assert_eq!(scalars.len(), 12);
        assert_eq!(timer_scalar("optimizer", 0.25, 3).tag, "optimizer-time");
    }
}
