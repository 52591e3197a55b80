//! Flags of the element type and of the loss scale.

use anyhow::ensure;
use burn_megatron::optimizer::{DynamicLossScale, LossScaleConfig};
use clap::Args;

use crate::device::Dtype;

/// In which numbers the model computes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Precision")]
pub struct PrecisionArguments {
    /// Element type of parameters and arithmetic; with one of 16 bits, gradients, main parameters and the optimizer's
    /// state are in f32
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// As --dtype bf16, by Megatron-LM's name
    #[arg(long, hide = true, conflicts_with_all = ["dtype", "fp16"])]
    bf16: bool,
    /// As --dtype f16, by Megatron-LM's name
    #[arg(long, hide = true, conflicts_with = "dtype")]
    fp16: bool,
    /// In f16, multiply the loss by this number, always [default: as large a number as the gradients allow]
    #[arg(
        long, value_name = "X",
        conflicts_with_all = ["initial_loss_scale", "min_loss_scale", "loss_scale_window", "hysteresis"]
    )]
    loss_scale: Option<f64>,
    /// The loss scale to begin with [default: 4294967296]
    #[arg(long, value_name = "X")]
    initial_loss_scale: Option<f64>,
    /// The loss scale never falls below this [default: 1]
    #[arg(long, value_name = "X")]
    min_loss_scale: Option<f64>,
    /// The loss scale doubles after N steps with finite gradients [default: 1000]
    #[arg(long, value_name = "N")]
    loss_scale_window: Option<u32>,
    /// The loss scale halves at the N-th step with a gradient that is not finite, and at each one after it [default: 2]
    #[arg(long, value_name = "N")]
    hysteresis: Option<u32>,
}

impl PrecisionArguments {
    /// The element type of parameters and arithmetic.
    pub fn dtype(&self) -> Dtype {
        match (self.bf16, self.fp16) {
            (true, _) => Dtype::Bf16,
            (_, true) => Dtype::F16,
            _ => self.dtype,
        }
    }

    /// How the loss is scaled: in f16 only.
    pub fn loss_scale(&self) -> Option<LossScaleConfig> {
        let usual = DynamicLossScale::default();
        let scale = match self.loss_scale {
            Some(loss_scale) => LossScaleConfig::Constant { loss_scale },
            None => LossScaleConfig::Dynamic(DynamicLossScale {
                initial_loss_scale: self.initial_loss_scale.unwrap_or(usual.initial_loss_scale),
                min_loss_scale: self.min_loss_scale.unwrap_or(usual.min_loss_scale),
                loss_scale_window: self.loss_scale_window.unwrap_or(usual.loss_scale_window),
                hysteresis: self.hysteresis.unwrap_or(usual.hysteresis),
            }),
        };
        (self.dtype() == Dtype::F16).then_some(scale)
    }

    /// Checks the loss scale.
    ///
    /// # Errors
    /// When it cannot be, or the type has none.
    pub fn validate(&self) -> anyhow::Result<()> {
        if let Some(config) = self.loss_scale() {
            config.init()?;
            return Ok(());
        }
        for (flag, is_given) in [
            ("--loss-scale", self.loss_scale.is_some()),
            ("--initial-loss-scale", self.initial_loss_scale.is_some()),
            ("--min-loss-scale", self.min_loss_scale.is_some()),
            ("--loss-scale-window", self.loss_scale_window.is_some()),
            ("--hysteresis", self.hysteresis.is_some()),
        ] {
            ensure!(!is_given, "{flag} needs --dtype f16: no other type has a scaled loss");
        }
        Ok(())
    }
}
