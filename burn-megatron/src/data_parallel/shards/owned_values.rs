//! [`OwnedValues`]: this rank's elements of the trained parameters, one parameter at a time.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::parameter_shards::ParameterShards;
use crate::offload::OffloadError;

/// This rank's elements of the trained parameters, which its optimizer updates.
pub(crate) enum OwnedValues {
    /// By number, `[owned]`; none where it owns none, for a GPU has no memory of no bytes.
    Held(Vec<Option<Tensor<1>>>),
    /// Where each rank has its shards only.
    Sharded(Arc<ParameterShards>),
}

impl OwnedValues {
    /// Returns those of a parameter, `[owned]`, if there are any that were not taken before.
    ///
    /// # Errors
    /// When they are in a file, and cannot be read.
    pub(crate) fn take(&mut self, number: usize) -> Result<Option<Tensor<1>>, OffloadError> {
        match self {
            Self::Held(values) => Ok(values[number].take()),
            Self::Sharded(shards) => shards.piece(number),
        }
    }

    /// Returns those of a parameter, `[owned]`, and leaves them to be taken.
    ///
    /// # Errors
    /// When they are in a file, and cannot be read.
    pub(crate) fn look_at(&self, number: usize) -> Result<Option<Tensor<1>>, OffloadError> {
        match self {
            Self::Held(values) => Ok(values[number].clone()),
            Self::Sharded(shards) => shards.piece(number),
        }
    }

    /// Frees what is held of a parameter.
    pub(crate) fn forget(&mut self, number: usize) {
        if let Self::Held(values) = self {
            values[number] = None;
        }
    }

    /// Frees what is held of all parameters.
    pub(crate) fn clear(&mut self) {
        *self = Self::Held(Vec::new());
    }

    /// Expects to be asked for the parameters of these buckets, in their order.
    ///
    /// # Errors
    /// When they are in a file, and an earlier write has failed.
    pub(crate) fn expect(&self, buckets: &[usize]) -> Result<(), OffloadError> {
        match self {
            Self::Held(_) => Ok(()),
            Self::Sharded(shards) => shards.expect(buckets),
        }
    }
}
