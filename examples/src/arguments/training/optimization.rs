//! Flags of the batches, the length of training and the optimizer.

use anyhow::{Context as _, ensure};
use burn_megatron::optimizer::{
    AdafactorConfig, MuonConfig, MuonScale, OptimizerChoice, OptimizerKind as Kind, ParameterGroup, ParameterGroups,
};
use burn_megatron::training::{BatchSizeRampUp, BatchSizeSchedule, WeightDecayConfig, WeightDecayIncrease};
use clap::{ArgAction, Args, ValueEnum};

use super::learning_rate::Counting;
use crate::arguments::LearningRateArguments;

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
    /// gradient descent with --sgd-momentum; lion is Lion with --lion-beta1 and --lion-beta2; muon is Muon
    /// for the matrices of hidden layers and adam for the rest; adafactor is Adafactor, whose --lr is a share of the
    /// size of a parameter
    #[arg(long, value_enum, value_name = "NAME", default_value_t = OptimizerKind::Adam)]
    pub optimizer: OptimizerKind,
    /// Add the weight decay of --optimizer adam to the gradient, as Adam had it before AdamW
    #[arg(long)]
    pub no_decoupled_weight_decay: bool,
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
    /// What --optimizer lion's mean of gradients counts in the direction of a step [default: 0.9]
    #[arg(long, value_name = "X")]
    pub lion_beta1: Option<f64>,
    /// Decay of --optimizer lion's mean of gradients [default: 0.99]
    #[arg(long, value_name = "X")]
    pub lion_beta2: Option<f64>,
    /// What Muon keeps of the mean of gradients in each step [default: 0.95]
    #[arg(long, value_name = "X")]
    pub muon_momentum: Option<f64>,
    /// Whether Muon's direction is made of the gradient and the mean, or of the mean alone [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub muon_use_nesterov: Option<bool>,
    /// Steps of Muon's Newton-Schulz iteration [default: 5]
    #[arg(long, value_name = "N")]
    pub muon_num_ns_steps: Option<usize>,
    /// What Muon multiplies an orthogonal matrix by, by its shape [default: spectral]
    #[arg(long, value_enum, value_name = "MODE")]
    pub muon_scale_mode: Option<MuonScaleMode>,
    /// What Muon multiplies it by in addition; Megatron-LM's default is 1. With 0.2 and spectral, as in Moonlight, the
    /// learning rate is that of AdamW [default: 0.2]
    #[arg(long, value_name = "X")]
    pub muon_extra_scale_factor: Option<f64>,
    /// The power of the number of the step that new squares count in Adafactor's mean of squares [default: -0.8]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub adafactor_beta2_decay: Option<f64>,
    /// The smallest root of Adafactor's mean of squares [default: the epsilon of the main parameters' type]
    #[arg(long, value_name = "X")]
    pub adafactor_eps1: Option<f64>,
    /// The smallest size of a parameter that Adafactor's steps are in proportion to [default: 0.001]
    #[arg(long, value_name = "X")]
    pub adafactor_eps2: Option<f64>,
    /// The root mean square above which Adafactor makes a direction smaller [default: 1]
    #[arg(long, value_name = "X")]
    pub adafactor_clip_threshold: Option<f64>,
    /// Train parameters whose names match otherwise than the others:
    /// `PATTERN:lr_mult=0.1,weight_decay=0,optimizer=sgd`, any of the three, optimizers adam, adam_l2, sgd, lion,
    /// muon and adafactor. `*` is a part of a name, `**` any number of parts, `{a,b}` either; the first flag that
    /// matches counts. May be given several times
    #[arg(long, value_name = "GROUP")]
    pub param_group: Vec<ParameterGroup>,
    /// Do not train parameters whose names match, whatever --param-group says. May be given several times
    #[arg(long, value_name = "PATTERN")]
    pub freeze: Vec<String>,
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
    /// Steps by the sign of a mean of gradients.
    Lion,
    /// Momentum made orthogonal, for the matrices of hidden layers; AdamW for the rest.
    Muon,
    /// The second moment of rows and columns.
    Adafactor,
}

/// What Muon multiplies an orthogonal matrix by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MuonScaleMode {
    /// The root of the larger of its sizes.
    Spectral,
    /// The root of outputs over inputs.
    #[value(name = "unit_rms_norm", alias = "unit-rms-norm")]
    UnitRmsNorm,
    /// The same, and 1 at least.
    #[value(name = "shape_scaling", alias = "shape-scaling")]
    ShapeScaling,
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

    /// The momentum of gradient descent, if that is the optimizer of some parameters.
    ///
    /// # Errors
    /// When one is given for another optimizer.
    pub fn momentum(&self) -> anyhow::Result<Option<f64>> {
        if self.uses(Kind::Sgd) {
            return Ok(Some(self.sgd_momentum.unwrap_or(SGD_MOMENTUM)));
        }
        ensure!(
            self.sgd_momentum.is_none(),
            "--sgd-momentum is for --optimizer sgd, or a --param-group with optimizer=sgd; adam and fused_adam have \
             --adam-beta1, lion has --lion-beta1 and muon --muon-momentum"
        );
        Ok(None)
    }

    /// The optimizer of what has no other by a group.
    fn kind(&self) -> Kind {
        match self.optimizer {
            OptimizerKind::Adam | OptimizerKind::FusedAdam if self.no_decoupled_weight_decay => Kind::Adam,
            OptimizerKind::Adam | OptimizerKind::FusedAdam => Kind::AdamW,
            OptimizerKind::Sgd => Kind::Sgd,
            OptimizerKind::Lion => Kind::Lion,
            OptimizerKind::Muon => Kind::Muon,
            OptimizerKind::Adafactor => Kind::Adafactor,
        }
    }

    /// Whether some parameters have this optimizer.
    fn uses(&self, kind: Kind) -> bool {
        self.kind() == kind || self.param_group.iter().any(|group| group.optimizer == Some(kind))
    }

    /// The optimizer, and the settings of those that groups have.
    ///
    /// # Errors
    /// When flags are given that are for another optimizer.
    pub fn optimizer_choice(&self) -> anyhow::Result<OptimizerChoice> {
        // Groups with `optimizer=adam` add the decay to the gradient, too.
        ensure!(
            !self.no_decoupled_weight_decay || self.uses(Kind::Adam) || self.uses(Kind::AdamW),
            "--no-decoupled-weight-decay is for --optimizer adam, or a --param-group with optimizer=adam: sgd always \
             adds the decay to the gradient, lion, muon and adafactor never"
        );
        let mut choice = OptimizerChoice::new(self.kind());
        let betas = [("--lion-beta1", self.lion_beta1), ("--lion-beta2", self.lion_beta2)];
        for ((flag, given), beta) in betas.into_iter().zip(&mut choice.lion_betas) {
            ensure!(
                given.is_none() || self.uses(Kind::Lion),
                "{flag} is for --optimizer lion, or a --param-group with optimizer=lion"
            );
            *beta = given.unwrap_or(*beta);
        }
        choice.muon = self.muon()?;
        choice.adafactor = self.adafactor()?;
        Ok(choice)
    }

    fn muon(&self) -> anyhow::Result<MuonConfig> {
        let is_used = self.uses(Kind::Muon);
        for (flag, is_given) in [
            ("--muon-momentum", self.muon_momentum.is_some()),
            ("--muon-use-nesterov", self.muon_use_nesterov.is_some()),
            ("--muon-num-ns-steps", self.muon_num_ns_steps.is_some()),
            ("--muon-scale-mode", self.muon_scale_mode.is_some()),
            ("--muon-extra-scale-factor", self.muon_extra_scale_factor.is_some()),
        ] {
            ensure!(
                is_used || !is_given,
                "{flag} is for --optimizer muon, or a --param-group with optimizer=muon"
            );
        }
        let usual = MuonConfig::new();
        let scale_mode = self.muon_scale_mode.map(|mode| match mode {
            MuonScaleMode::Spectral => MuonScale::Spectral,
            MuonScaleMode::UnitRmsNorm => MuonScale::UnitRmsNorm,
            MuonScaleMode::ShapeScaling => MuonScale::ShapeScaling,
        });
        Ok(MuonConfig {
            momentum: self.muon_momentum.unwrap_or(usual.momentum),
            use_nesterov: self.muon_use_nesterov.unwrap_or(usual.use_nesterov),
            num_ns_steps: self.muon_num_ns_steps.unwrap_or(usual.num_ns_steps),
            scale_mode: scale_mode.unwrap_or(usual.scale_mode),
            extra_scale_factor: self.muon_extra_scale_factor.unwrap_or(usual.extra_scale_factor),
            ..usual
        })
    }

    fn adafactor(&self) -> anyhow::Result<AdafactorConfig> {
        for (flag, given) in [
            ("--adafactor-beta2-decay", self.adafactor_beta2_decay),
            ("--adafactor-eps1", self.adafactor_eps1),
            ("--adafactor-eps2", self.adafactor_eps2),
            ("--adafactor-clip-threshold", self.adafactor_clip_threshold),
        ] {
            ensure!(
                given.is_none() || self.uses(Kind::Adafactor),
                "{flag} is for --optimizer adafactor, or a --param-group with optimizer=adafactor"
            );
        }
        let usual = AdafactorConfig::new();
        Ok(AdafactorConfig {
            beta2_decay: self.adafactor_beta2_decay.unwrap_or(usual.beta2_decay),
            eps1: self.adafactor_eps1,
            eps2: self.adafactor_eps2.unwrap_or(usual.eps2),
            clip_threshold: self.adafactor_clip_threshold.unwrap_or(usual.clip_threshold),
            ..usual
        })
    }

    /// The groups of parameters that are trained otherwise than the others, or not at all.
    pub fn groups(&self) -> Option<ParameterGroups> {
        let frozen = self.freeze.iter().map(|pattern| ParameterGroup::frozen(pattern));
        let given = self.param_group.iter().cloned().map(|mut group| {
            if self.no_decoupled_weight_decay && group.optimizer == Some(Kind::AdamW) {
                group.optimizer = Some(Kind::Adam);
            }
            group
        });
        let groups: Vec<ParameterGroup> = frozen.chain(given).collect();
        (!groups.is_empty()).then(|| groups.into())
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
    pub(in crate::arguments) fn counting(&self) -> Counting {
        match self.train_samples {
            Some(_) => Counting::Samples,
            None => Counting::Iterations {
                global_batch_size: self.global_batch_size as u64,
            },
        }
    }
}
