//! A micro-batch whose backward pass the caller's closure runs itself, and one without samples.

use burn::module::AutodiffModule;

use super::error::DataParallelError;
use super::watched::watched;
use super::wrapper::{DistributedDataParallel, StepPart};
use crate::autodiff::TrainingBackend;
use crate::collectives::catch_collective_error;

impl<B: TrainingBackend, M: AutodiffModule<B>> DistributedDataParallel<B, M> {
    /// Runs one micro-batch by a closure that goes forward and backward itself, and returns what the closure returns.
    ///
    /// As [`backward`](Self::backward), for code that calls burn's `backward` in a function of its own, as a
    /// `TrainStep` does. `run` gets a clone of the module, good for this pass only. The parameters' gradients go to the
    /// step's; none of them is in what `backward` returns. They are multiplied by `weight`: 1, or, where ranks have
    /// different numbers of samples, [`GlobalBatches::weight`](crate::data::GlobalBatches::weight).
    ///
    /// # Communication
    /// As [`backward`](Self::backward).
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    ///
    /// # Panics
    /// When `run` does.
    pub fn pass<R>(&mut self, part: StepPart, weight: f64, run: impl FnOnce(M) -> R) -> Result<R, DataParallelError> {
        self.begin()?;
        self.set_step_part(part);
        let hooked = self.hooked_weighted(self.module().clone(), weight);
        let is_compared = self.takes_comparison();
        let (result, is_same) = catch_collective_error(|| watched(is_compared, || run(hooked)))?;
        is_same?;
        self.close_pass(part);
        Ok(result)
    }

    /// Takes part in a micro-batch for which this rank has no samples: its gradients are zero.
    ///
    /// # Communication
    /// As [`backward`](Self::backward).
    ///
    /// # Errors
    /// As [`backward`](Self::backward).
    pub fn pass_without_samples(&mut self, part: StepPart) -> Result<(), DataParallelError> {
        self.begin()?;
        self.set_step_part(part);
        self.close_pass(part);
        Ok(())
    }

    /// Ends a micro-batch, and after the last one launches the step's reductions.
    pub(super) fn close_pass(&self, part: StepPart) {
        self.end_pass();
        if part == StepPart::Last {
            self.launch();
        }
    }
}
