//! Flags of the optimizer, its learning rate and the batches.

use clap::{Args, ValueEnum};

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
    /// Optimizer steps
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub train_iters: u64,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 2e-3)]
    pub lr: f64,
    /// Lowest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 2e-4)]
    pub min_lr: f64,
    /// How the learning rate comes down
    #[arg(long, value_enum, default_value_t = DecayStyle::Cosine)]
    pub lr_decay_style: DecayStyle,
    /// Step at which the decay ends [default: train-iters]
    #[arg(long, value_name = "N")]
    pub lr_decay_iters: Option<u64>,
    /// Steps over which the learning rate rises from zero [default: a twentieth of train-iters]
    #[arg(long, value_name = "N")]
    pub lr_warmup_iters: Option<u64>,
    /// Weight decay; biases and norms do not decay
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub weight_decay: f64,
    /// Largest global norm of the gradient; 0 for no limit
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    pub clip_grad: f64,
    /// Decay of Adam's mean of gradients
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub adam_beta1: f64,
    /// Decay of Adam's mean of squared gradients
    #[arg(long, value_name = "X", default_value_t = 0.95)]
    pub adam_beta2: f64,
    /// Added to the root of Adam's second moment
    #[arg(long, value_name = "X", default_value_t = 1e-8)]
    pub adam_eps: f64,
    /// Seed of initialisation, dropout and sample order
    #[arg(long, value_name = "N", default_value_t = 1234)]
    pub seed: u32,
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
}
