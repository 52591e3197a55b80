//! `StepMetrics`: what is logged of a step, one JSON object per line.

use serde::{Deserialize, Deserializer, Serialize};

/// The figures of one optimiser step, over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// The step, counted from 1.
    pub step: u64,
    /// Samples of the step, over all ranks.
    pub global_batch_size: u64,
    /// Mean cross-entropy over the tokens of the global batch, in nats, before the step.
    ///
    /// `null` where it is not finite, and so is the norm: JSON has no such number.
    #[serde(deserialize_with = "nan_for_null")]
    pub loss: f64,
    /// L2 norm of the gradient over the whole model, before clipping.
    #[serde(deserialize_with = "nan_for_null")]
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
    /// The most bytes of the host's memory that any rank had allocated at once so far.
    pub peak_memory_bytes: u64,
    /// The most bytes of its GPU's memory that any rank's pools had reserved so far, whether or not they were in use;
    /// those of other libraries, such as NCCL, are not among them. Where ranks compute on CUDA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_device_memory_bytes: Option<u64>,
    /// Bytes that all ranks together sent to each other in the step.
    pub communication_bytes: u64,
}

fn nan_for_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_skipped_steps_are_read_back() {
        let metrics = StepMetrics {
            step: 1,
            global_batch_size: 8,
            loss: 2.5,
            grad_norm: f64::INFINITY,
            learning_rate: 1e-3,
            loss_scale: 65536.0,
            is_skipped: true,
            num_zeros_in_grad: None,
            num_non_finite_in_grad: Some(3),
            tokens_per_second: 1.0,
            step_seconds: 1.0,
            model_flops_per_second: 1.0,
            peak_memory_bytes: 1,
            peak_device_memory_bytes: None,
            communication_bytes: 0,
        };
        let line = serde_json::to_string(&metrics).unwrap();
        assert!(
            line.contains(r#""grad_norm":null"#) && !line.contains("num_zeros"),
            "{line}"
        );
        let mut read: StepMetrics = serde_json::from_str(&line).unwrap();
        assert!(read.grad_norm.is_nan());
        read.grad_norm = metrics.grad_norm;
        assert_eq!(read, metrics);
    }
}
