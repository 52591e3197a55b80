//! The number of tokens of a global batch, counted while the first forward passes run: parameters that are on their way
//! come before it.

use std::cell::{Cell, OnceCell};

use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};
use crate::data::MicroBatch;

/// The unmasked tokens of all data-parallel ranks in a step.
pub(super) struct TokenCount {
    pending: Cell<Option<Pending<Vec<f64>>>>,
    total: OnceCell<f64>,
}

impl TokenCount {
    /// Starts to count.
    ///
    /// # Communication
    /// One all-reduce of one number over `data_group`.
    pub(super) fn start(micro_batches: &[MicroBatch], data_group: &ProcessGroup) -> Self {
        let own = micro_batches.iter().map(num_unmasked).sum::<f64>();
        let pending = data_group.all_reduce_start(vec![own], ReduceOp::Sum);
        Self {
            pending: Cell::new(Some(pending)),
            total: OnceCell::new(),
        }
    }

    /// Returns the number.
    ///
    /// # Errors
    /// When the collective failed.
    ///
    /// # Panics
    /// When it is asked again after that.
    pub(super) fn total(&self) -> Result<f64, CollectiveError> {
        if let Some(&total) = self.total.get() {
            return Ok(total);
        }
        let pending = self.pending.take().expect("a step ends with its first error");
        let total = pending.wait()?[0];
        Ok(*self.total.get_or_init(|| total))
    }
}

fn num_unmasked(micro_batch: &MicroBatch) -> f64 {
    match &micro_batch.loss_mask {
        None => micro_batch.targets.len() as f64,
        Some(mask) => mask.iter().map(|&weight| f64::from(weight)).sum(),
    }
}
