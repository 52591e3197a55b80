//! `StepMetrics`: what is logged of a step, one JSON object per line.
//!
//! Written by training programs, read by `compare_sharding` and by whoever plots.

use serde::{Deserialize, Serialize};

/// The figures of one optimiser step, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The step, counted from 1.
    pub step: u64,
    /// Samples of the step, over all ranks.
    pub global_batch_size: u64,
    /// Mean cross-entropy over the tokens of the global batch, in nats, before the step.
    pub loss: f64,
    /// L2 norm of the gradient over the whole model, before clipping.
    pub grad_norm: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// What the loss was multiplied by for the backward pass; 1 without loss scaling.
    pub loss_scale: f64,
    /// Whether a gradient was not finite, so that the step changed nothing but the loss scale.
    pub is_skipped: bool,
    /// Elements of the gradient of the whole model that are zero, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_zeros_in_grad: Option<u64>,
    /// Elements of the gradient of the whole model that are infinite or not a number, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_non_finite_in_grad: Option<u64>,
    /// Tokens of the global batch over the step's time.
    pub tokens_per_second: f64,
    /// The step's time, the slowest rank's waiting included.
    pub step_seconds: f64,
    /// Model FLOPs of the step over its time; attention is not halved for causality.
    pub model_flops_per_second: f64,
    /// The most bytes that any rank had allocated at once so far.
    pub peak_memory_bytes: u64,
    /// Bytes that all ranks together sent to each other in the step.
    pub communication_bytes: u64,
}
