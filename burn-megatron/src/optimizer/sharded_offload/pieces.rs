//! Choice of the pieces of a [`ShardedOptimizer`] that are offloaded.

use std::collections::HashMap;

use burn::module::Module;
use burn::optim::Optimizer;
use burn::tensor::{DType, Tensor};

use crate::data_parallel::{DistributedDataParallel, ElementWise, ElementWiseOptimizer, GradientEntry};
use crate::optimizer::offload::{HostPieceSpec, Offload};
use crate::optimizer::piece::main_of;
use crate::optimizer::{OptimizerError, OptimizerOffload, ShardedOptimizer, StoredOptimizer};
use crate::precision::is_half;

impl<O: Optimizer> ShardedOptimizer<O> {
    /// Returns an optimizer of several groups as [`with_groups`](Self::with_groups) does, whose state is not where the
    /// module is, or not all of it: the same updates, to the bit on the CPU.
    ///
    /// In a file, memory holds the state of three buckets during an update, and none between updates.
    ///
    /// # Errors
    /// As [`with_groups`](Self::with_groups); when a share is not from 0 to 1, no file can be made in the folder, or
    /// its disk has no room for this rank's state.
    pub fn with_groups_offloaded<M>(
        module: &DistributedDataParallel<M>,
        optimizers: Vec<ElementWiseOptimizer<O>>,
        group: impl Fn(&GradientEntry) -> usize + Send + 'static,
        offload: &OptimizerOffload,
    ) -> Result<Self, OptimizerError>
    where
        M: Module,
        O: ElementWise + StoredOptimizer,
    {
        offload.check()?;
        let offload = Offload::new(offload, module.context().rank(), module.dtype(), &module.inner_device());
        Self::build(module, optimizers, group, offload)
    }

    /// Offloads the share of the pieces that is asked for, those that are updated first: of those that were offloaded
    /// before, by name, what is held stays. Main values of the others are missing.
    pub(in crate::optimizer) fn hold_offloaded(
        &mut self,
        dtype: DType,
        former: &HashMap<String, usize>,
    ) -> Result<(), OptimizerError> {
        let Some(offload) = &mut self.offload else {
            return Ok(());
        };
        let total: usize = self.pieces.iter().map(|piece| piece.range.len()).sum();
        let mut order: Vec<usize> = (0..self.pieces.len()).collect();
        order.sort_by_key(|&number| (std::cmp::Reverse(self.pieces[number].bucket), self.pieces[number].place));
        let (mut specs, mut elements_held) = (Vec::new(), 0);
        for number in order {
            let piece = &self.pieces[number];
            let before = former.get(&piece.name);
            let is_due = (elements_held as f64) < offload.fraction * total as f64;
            // What was in memory stays there.
            let is_held = match before {
                Some(&before) => offload.state.holds(before),
                None => is_due,
            };
            if is_held && !piece.range.is_empty() {
                elements_held += piece.range.len();
                specs.push(HostPieceSpec {
                    number,
                    bucket: piece.bucket,
                    elements: piece.range.len(),
                    group: piece.group,
                    former: before.copied(),
                });
            }
        }
        Ok(offload.state.hold(&specs, is_half(dtype), &self.optimizers)?)
    }

    /// Returns whether what is offloaded has main values where the module's type needs them.
    pub(in crate::optimizer) fn offload_fits(&self, dtype: DType) -> bool {
        let offload = self.offload.as_ref();
        offload.is_none_or(|offload| offload.state.has_main() == is_half(dtype))
    }

    /// Makes the main values of a piece from the module's, `[range]`, where the range is not empty.
    pub(in crate::optimizer) fn make_main(
        &mut self,
        number: usize,
        value: Option<Tensor<1>>,
    ) -> Result<(), OptimizerError> {
        let main = value.and_then(main_of);
        match (&mut self.offload, main) {
            (Some(offload), Some(main)) if offload.state.holds(number) => {
                Ok(offload.state.set_main(number, main.into_data())?)
            }
            (_, main) => {
                self.pieces[number].main = main;
                Ok(())
            }
        }
    }

    /// Brings what was replaced to where it is held.
    ///
    /// # Errors
    /// When it cannot be written to its file.
    pub(crate) fn settle(&mut self) -> Result<(), OptimizerError> {
        match &mut self.offload {
            Some(offload) => Ok(offload.state.settle()?),
            None => Ok(()),
        }
    }
}
