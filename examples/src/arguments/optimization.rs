//! Flags of the batches, the length of training and the optimizer.

use anyhow::{Context as _, ensure};
use burn_megatron::training::{BatchSizeRampUp, BatchSizeSchedule, WeightDecayConfig, WeightDecayIncrease};
use clap::{ArgAction, Args, ValueEnum};

use super::LearningRateArguments;
use super::learning_rate::Counting;

/// The default number of steps of a run.
const TRAIN_ITERS: u64 = 400;
/// The default weight decay.
const WEIGHT_DECAY: f64 = 0.1;
/// The default momentum of gradient descent.
const SGD_MOMENTUM: f64 = 0.9;

/// How the model is trained.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Optimization")]
pub struct OptimizationArguments {
    /// Samples that a rank takes through the model at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub micro_batch_size: usize,
    /// Samples per step over all ranks
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub global_batch_size: usize,
    /// Begin with a global batch of START samples, and reach --global-batch-size by INCREMENT at a time over SAMPLES
    /// samples of training; needs --train-samples
    #[arg(long, num_args = 3, value_names = ["START", "INCREMENT", "SAMPLES"], action = ArgAction::Set)]
    pub rampup_batch_size: Option<Vec<u64>>,
    /// Optimizer steps [default: 400]
    #[arg(long, value_name = "N")]
    pub train_iters: Option<u64>,
    /// Samples to train on, in place of --train-iters
    #[arg(long, value_name = "N")]
    pub train_samples: Option<u64>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub learning_rate: LearningRateArguments,
    /// Weight decay; biases and norms do not decay [default: 0.1]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// How the weight decay rises over the run
    #[arg(long, value_enum, value_name = "STYLE", default_value_t = WeightDecayStyle::Constant)]
    pub weight_decay_incr_style: WeightDecayStyle,
    /// Weight decay at the beginning, where it rises
    #[arg(long, value_name = "X")]
    pub start_weight_decay: Option<f64>,
    /// Weight decay at the end, where it rises
    #[arg(long, value_name = "X")]
    pub end_weight_decay: Option<f64>,
    /// Largest global norm of the gradient; 0 for no limit
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    pub clip_grad: f64,
    /// The optimizer: adam and fused_adam are the same AdamW, of one fused operation unless --no-fused-kernels; sgd is
    /// gradient descent with --sgd-momentum
    #[arg(long, value_enum, value_name = "NAME", default_value_t = OptimizerKind::Adam)]
    pub optimizer: OptimizerKind,
    /// Decay of Adam's mean of gradients
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub adam_beta1: f64,
    /// Decay of Adam's mean of squared gradients
    #[arg(long, value_name = "X", default_value_t = 0.95)]
    pub adam_beta2: f64,
    /// Added to the root of Adam's second moment
    #[arg(long, value_name = "X", default_value_t = 1e-8)]
    pub adam_eps: f64,
    /// What --optimizer sgd keeps of its momentum in each step; 0 for none [default: 0.9]
    #[arg(long, value_name = "X")]
    pub sgd_momentum: Option<f64>,
    /// Seed of initialisation, dropout and sample order
    #[arg(long, value_name = "N", default_value_t = 1234)]
    pub seed: u32,
}

/// An optimizer, by Megatron-LM's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerKind {
    /// AdamW.
    Adam,
    /// AdamW too.
    #[value(name = "fused_adam", alias = "fused-adam")]
    FusedAdam,
    /// Gradient descent with momentum.
    Sgd,
}

/// How the weight decay rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightDecayStyle {
    /// It does not.
    Constant,
    /// Along a line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

impl OptimizationArguments {
    /// Samples to train on: those of `--train-samples`, or `--train-iters` global batches.
    ///
    /// # Errors
    /// When both are given, or the samples are none or too many.
    pub fn train_samples(&self) -> anyhow::Result<u64> {
        ensure!(
            self.train_iters.is_none() || self.train_samples.is_none(),
            "--train-iters and --train-samples both say how long training lasts: give one of them"
        );
        let (flag, given) = match self.train_samples {
            Some(samples) => ("--train-samples", samples),
            None => ("--train-iters", self.train_iters.unwrap_or(TRAIN_ITERS)),
        };
        ensure!(given > 0, "{flag} must be at least 1, got 0");
        let samples = self.counting().samples(given);
        samples
            .filter(|&samples| samples < 1 << 32)
            .with_context(|| match self.train_samples {
                Some(_) => format!("{flag} must be below 2^32, got {given}"),
                None => format!(
                    "{flag} * --global-batch-size must be below 2^32, got {given} * {}",
                    self.global_batch_size
                ),
            })
    }

    /// The momentum of gradient descent, if that is the optimizer.
    ///
    /// # Errors
    /// When one is given for another optimizer.
    pub fn momentum(&self) -> anyhow::Result<Option<f64>> {
        if self.optimizer == OptimizerKind::Sgd {
            return Ok(Some(self.sgd_momentum.unwrap_or(SGD_MOMENTUM)));
        }
        ensure!(
            self.sgd_momentum.is_none(),
            "--sgd-momentum is for --optimizer sgd; adam and fused_adam have --adam-beta1"
        );
        Ok(None)
    }

    /// The smaller batches at the beginning, if there are any.
    ///
    /// # Errors
    /// When training is not counted in samples.
    pub fn ramp_up(&self) -> anyhow::Result<Option<BatchSizeRampUp>> {
        let Some(values) = &self.rampup_batch_size else {
            return Ok(None);
        };
        ensure!(
            self.train_samples.is_some(),
            "--rampup-batch-size counts samples, for its steps are of different sizes: give --train-samples in place \
             of --train-iters"
        );
        let [start, increment, samples] = values[..] else {
            anyhow::bail!("--rampup-batch-size takes three numbers, got {}", values.len());
        };
        let size = |value| usize::try_from(value).with_context(|| format!("--rampup-batch-size: {value} is too large"));
        Ok(Some(BatchSizeRampUp {
            start: size(start)?,
            increment: size(increment)?,
            samples,
        }))
    }

    /// The global batch size over the samples of the run.
    ///
    /// # Errors
    /// As [`ramp_up`](Self::ramp_up); when it does not fit the full size.
    pub fn batch_sizes(&self) -> anyhow::Result<BatchSizeSchedule> {
        Ok(BatchSizeSchedule::new(self.global_batch_size, self.ramp_up()?)?)
    }

    /// The number of optimizer steps, whatever they are counted in.
    ///
    /// # Errors
    /// As [`train_samples`](Self::train_samples) and [`batch_sizes`](Self::batch_sizes).
    pub fn num_steps(&self) -> anyhow::Result<u64> {
        Ok(self.batch_sizes()?.num_steps(self.train_samples()?))
    }

    /// How the weight decay goes.
    ///
    /// # Errors
    /// When flags are given that do not belong together.
    pub fn weight_decay(&self) -> anyhow::Result<WeightDecayConfig> {
        let (increase, style) = match self.weight_decay_incr_style {
            WeightDecayStyle::Constant => {
                for (flag, value) in [
                    ("--start-weight-decay", self.start_weight_decay),
                    ("--end-weight-decay", self.end_weight_decay),
                ] {
                    ensure!(
                        value.is_none(),
                        "{flag} needs --weight-decay-incr-style linear or cosine; a constant one is --weight-decay"
                    );
                }
                return Ok(WeightDecayConfig::constant(self.weight_decay.unwrap_or(WEIGHT_DECAY)));
            }
            WeightDecayStyle::Linear => (WeightDecayIncrease::Linear, "linear"),
            WeightDecayStyle::Cosine => (WeightDecayIncrease::Cosine, "cosine"),
        };
        let (Some(start), Some(end)) = (self.start_weight_decay, self.end_weight_decay) else {
            anyhow::bail!("--weight-decay-incr-style {style} needs --start-weight-decay and --end-weight-decay");
        };
        ensure!(
            self.weight_decay.is_none(),
            "--weight-decay is for --weight-decay-incr-style constant; {style} has --start-weight-decay and \
             --end-weight-decay"
        );
        Ok(WeightDecayConfig {
            increase,
            start,
            end,
            samples: self.train_samples()?,
        })
    }

    /// What the lengths of this command line are counted in.
    pub(super) fn counting(&self) -> Counting {
        match self.train_samples {
            Some(_) => Counting::Samples,
            None => Counting::Iterations {
                global_batch_size: self.global_batch_size as u64,
            },
        }
    }
}
