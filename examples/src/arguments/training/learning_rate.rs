//! Flags of the learning rate over the course of training.

use anyhow::{Context as _, ensure};
use burn_megatron::training::{AnnealingStyle, LearningRateConfig, LearningRateDecay};
use clap::{Args, ValueEnum};

/// Of the model that is trained without flags.
const DEFAULT_LR: f64 = 2e-3;

/// The warm-up takes `1 / WARM_UP_SHARE` of a run by default.
const WARM_UP_SHARE: u64 = 20;

/// How the learning rate goes up and comes down. Lengths are in iterations with `--train-iters` and in samples with
/// `--train-samples`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Learning rate")]
pub struct LearningRateArguments {
    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = DEFAULT_LR)]
    pub lr: f64,
    /// Lowest learning rate [default: 0; 0.0002 with the default of --lr]
    #[arg(long, value_name = "RATE")]
    pub min_lr: Option<f64>,
    /// How the learning rate comes down
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = DecayStyle::Cosine)]
    pub lr_decay_style: DecayStyle,
    /// Step at which the decay ends [default: train-iters]
    #[arg(long, value_name = "N")]
    pub lr_decay_iters: Option<u64>,
    /// Sample at which the decay ends [default: train-samples]
    #[arg(long, value_name = "N")]
    pub lr_decay_samples: Option<u64>,
    /// How the learning rate comes down at last with --lr-decay-style WSD [default: exponential]
    #[arg(long, value_enum, value_name = "STYLE")]
    pub lr_wsd_decay_style: Option<WsdDecayStyle>,
    /// Steps over which it does so, the last before the end of the decay
    #[arg(long, value_name = "N")]
    pub lr_wsd_decay_iters: Option<u64>,
    /// Samples over which it does so, the last before the end of the decay
    #[arg(long, value_name = "N")]
    pub lr_wsd_decay_samples: Option<u64>,
    /// Steps over which the learning rate rises [default: a twentieth of train-iters]
    #[arg(long, value_name = "N")]
    pub lr_warmup_iters: Option<u64>,
    /// Samples over which the learning rate rises [default: a twentieth of train-samples]
    #[arg(long, value_name = "N")]
    pub lr_warmup_samples: Option<u64>,
    /// The same as a share of the steps or samples until the end of the decay
    #[arg(long, value_name = "SHARE")]
    pub lr_warmup_fraction: Option<f64>,
    /// Learning rate from which it rises
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    pub lr_warmup_init: f64,
}

/// How the learning rate comes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DecayStyle {
    /// It does not.
    Constant,
    /// Along a line.
    Linear,
    /// Along half a cosine.
    Cosine,
    /// With the inverse square root of the samples.
    InverseSquareRoot,
    /// Warm-up, stable, decay: not until the last steps or samples.
    #[value(name = "WSD", alias = "wsd")]
    Wsd,
}

/// How the learning rate comes down at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WsdDecayStyle {
    /// Along a line.
    Linear,
    /// Along half a cosine.
    Cosine,
    /// Exponentially.
    Exponential,
    /// With one minus the square root of the progress.
    #[value(name = "minus_sqrt", alias = "minus-sqrt")]
    MinusSqrt,
}

/// What the lengths of a command line are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::arguments) enum Counting {
    /// Steps of `global_batch_size` samples.
    Iterations { global_batch_size: u64 },
    /// Samples.
    Samples,
}

/// A length that has two flags: `--NAME-iters` and `--NAME-samples`.
struct Length {
    name: &'static str,
    iterations: Option<u64>,
    samples: Option<u64>,
}

impl Counting {
    /// Returns a length in samples, unless it is too large.
    pub(in crate::arguments) fn samples(self, length: u64) -> Option<u64> {
        match self {
            Counting::Iterations { global_batch_size } => length.checked_mul(global_batch_size),
            Counting::Samples => Some(length),
        }
    }

    /// The end of the flags of lengths that are counted so, and that of the others.
    fn units(self) -> [&'static str; 2] {
        match self {
            Counting::Iterations { .. } => ["iters", "samples"],
            Counting::Samples => ["samples", "iters"],
        }
    }

    /// Returns what one of a length's two flags says, in samples.
    fn one_of(self, length: Length) -> anyhow::Result<Option<u64>> {
        let Length {
            name,
            iterations,
            samples,
        } = length;
        let [unit, other_unit] = self.units();
        let (given, other) = match self {
            Counting::Iterations { .. } => (iterations, samples),
            Counting::Samples => (samples, iterations),
        };
        ensure!(
            other.is_none(),
            "--{name}-{other_unit} needs --train-{other_unit}: with --train-{unit} it is --{name}-{unit}"
        );
        let in_samples = |length| {
            let samples = self.samples(length);
            samples.with_context(|| format!("--{name}-{unit} is too large, got {length}"))
        };
        given.map(in_samples).transpose()
    }
}

impl LearningRateArguments {
    /// The learning rate over a run of `train_samples` samples.
    ///
    /// # Errors
    /// When flags are given that do not belong together.
    pub(in crate::arguments) fn config(
        &self,
        counting: Counting,
        train_samples: u64,
    ) -> anyhow::Result<LearningRateConfig> {
        let decay_samples = counting.one_of(Length {
            name: "lr-decay",
            iterations: self.lr_decay_iters,
            samples: self.lr_decay_samples,
        })?;
        let decay_samples = decay_samples.unwrap_or(train_samples);
        Ok(LearningRateConfig {
            decay: self.decay(counting)?,
            init: self.lr_warmup_init,
            max: self.lr,
            min: self
                .min_lr
                .unwrap_or(if self.lr == DEFAULT_LR { DEFAULT_LR / 10.0 } else { 0.0 }),
            warm_up_samples: self.warm_up_samples(counting, train_samples, decay_samples)?,
            decay_samples,
        })
    }

    fn warm_up_samples(&self, counting: Counting, train_samples: u64, decay_samples: u64) -> anyhow::Result<u64> {
        let given = counting.one_of(Length {
            name: "lr-warmup",
            iterations: self.lr_warmup_iters,
            samples: self.lr_warmup_samples,
        })?;
        match (self.lr_warmup_fraction, given) {
            (None, Some(samples)) => Ok(samples),
            (None, None) => Ok(match counting {
                // Whole steps.
                Counting::Iterations { global_batch_size } => {
                    train_samples / global_batch_size.max(1) / WARM_UP_SHARE * global_batch_size
                }
                Counting::Samples => train_samples / WARM_UP_SHARE,
            }),
            (Some(share), None) => {
                ensure!(
                    (0.0..1.0).contains(&share),
                    "--lr-warmup-fraction must be in [0, 1), got {share}"
                );
                Ok((share * decay_samples as f64).round() as u64)
            }
            (Some(_), Some(_)) => {
                let [unit, _] = counting.units();
                anyhow::bail!(
                    "--lr-warmup-fraction and --lr-warmup-{unit} both say how long the warm-up is: give one of them"
                )
            }
        }
    }

    fn decay(&self, counting: Counting) -> anyhow::Result<LearningRateDecay> {
        let length = counting.one_of(Length {
            name: "lr-wsd-decay",
            iterations: self.lr_wsd_decay_iters,
            samples: self.lr_wsd_decay_samples,
        })?;
        let decay = match self.lr_decay_style {
            DecayStyle::Constant => LearningRateDecay::Constant,
            DecayStyle::Linear => LearningRateDecay::Linear,
            DecayStyle::Cosine => LearningRateDecay::Cosine,
            DecayStyle::InverseSquareRoot => LearningRateDecay::InverseSquareRoot,
            DecayStyle::Wsd => LearningRateDecay::WarmUpStableDecay {
                style: match self.lr_wsd_decay_style.unwrap_or(WsdDecayStyle::Exponential) {
                    WsdDecayStyle::Linear => AnnealingStyle::Linear,
                    WsdDecayStyle::Cosine => AnnealingStyle::Cosine,
                    WsdDecayStyle::Exponential => AnnealingStyle::Exponential,
                    WsdDecayStyle::MinusSqrt => AnnealingStyle::MinusSquareRoot,
                },
                samples: length
                    .with_context(|| format!("--lr-decay-style WSD needs --lr-wsd-decay-{}", counting.units()[0]))?,
            },
        };
        if self.lr_decay_style != DecayStyle::Wsd {
            for (flag, is_given) in [
                ("--lr-wsd-decay-style", self.lr_wsd_decay_style.is_some()),
                ("--lr-wsd-decay-iters", self.lr_wsd_decay_iters.is_some()),
                ("--lr-wsd-decay-samples", self.lr_wsd_decay_samples.is_some()),
            ] {
                ensure!(!is_given, "{flag} is for --lr-decay-style WSD");
            }
        }
        Ok(decay)
    }
}
