//! Optimizers: make new parameters of gradients.
//!
//! [`ShardedOptimizer`] updates the module of a
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) by any [`ElementWise`] burn optimizer,
//! such as [`AdamW`], which has hyperparameters in f64, [`Adam`], [`Lion`], and [`Sgd`], whose momentum a checkpoint
//! can hold. [`Muon`] makes the momentum of whole matrices orthogonal; [`Adafactor`] keeps the second moment of their
//! rows and columns. [`AnyOptimizer`] is one of them, chosen when a
//! program runs.

mod adafactor;
mod adam;
mod adamw;
mod any;
mod bucket_state;
mod directions;
mod error;
mod factored;
mod factored_update;
mod groups;
mod kind;
mod lion;
mod loss_scale;
mod matrix;
mod memory;
mod muon;
mod offload;
mod piece;
mod sgd;
mod sharded;
mod sharded_offload;
#[cfg(test)]
mod stepped;
mod stored;
#[cfg(test)]
mod three_layers;

pub use crate::offload::OffloadError;
pub use adafactor::{Adafactor, AdafactorConfig, AdafactorState};
pub use adam::Adam;
pub use adamw::{AdamW, AdamWConfig, AdamWState};
pub use any::{AnyOptimizer, AnyOptimizerState};
pub use error::OptimizerError;
#[cfg(feature = "trainer")]
pub(crate) use groups::GroupMatcher;
pub use groups::{ParameterGroup, ParameterGroupError, ParameterGroups};
pub use kind::{OptimizerChoice, OptimizerKind, is_hidden_matrix};
pub use lion::{Lion, LionConfig, LionState};
pub use loss_scale::{DynamicLossScale, LossScaleConfig, LossScaleError, LossScaler, LossScalerState};
pub use memory::{MemoryParts, StateMemory, StateMemoryConfig, bytes_per_parameter, state_bytes_per_parameter};
pub use muon::{Muon, MuonConfig, MuonScale, MuonState};
pub use offload::OptimizerOffload;
pub use sgd::{Sgd, SgdConfig, SgdState};
pub use sharded::ShardedOptimizer;
pub use stored::{StateTensor, StoredOptimizer, TensorLayout};

pub use crate::data_parallel::{
    BucketForm, ElementWise, FactoredForm, FactoredMoment, FactoredStep, MatrixFactors, MatrixForm, SecondMoment,
};

use burn::tensor::Tensor;

/// Makes an optimizer with a gradient scale of a configuration.
macro_rules! configured {
    ($config:ident => $optimizer:ident) => {
        impl $config {
            /// Returns an optimizer of a module's parameters.
            pub fn init(&self) -> crate::data_parallel::ElementWiseOptimizer<$optimizer> {
                crate::data_parallel::ElementWiseOptimizer::from(self.build())
            }

            /// Returns an optimizer of tensors, for `ElementWiseOptimizer::from`, or for burn's `ModuleOptimizer`.
            pub fn build(&self) -> $optimizer {
                $optimizer {
                    config: *self,
                    gradient_scale: 1.0,
                }
            }
        }

        impl $optimizer {
            /// Returns the same optimizer with gradients multiplied by a number first, 1 unless this says otherwise:
            /// clipping without a pass of its own.
            pub fn with_gradient_scale(self, gradient_scale: f64) -> Self {
                Self {
                    gradient_scale,
                    ..self
                }
            }
        }
    };
}
use configured;

/// Returns a gradient with a share of the parameter added: weight decay that is not decoupled.
fn with_decay<const D: usize>(gradient: Tensor<D>, parameter: &Tensor<D>, weight_decay: f64) -> Tensor<D> {
    match weight_decay {
        0.0 => gradient,
        decay => gradient + parameter.clone().mul_scalar(decay),
    }
}

/// Returns a tensor multiplied by a number; the tensor itself if that is 1.
fn scaled<const D: usize>(tensor: Tensor<D>, factor: f64) -> Tensor<D> {
    if factor == 1.0 {
        tensor
    } else {
        tensor.mul_scalar(factor)
    }
}
