//! The passes of a step: micro-batches, and what callers that run passes by themselves do instead.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;

use super::hook_module::hook_module;
use super::wrapper::{DistributedDataParallel, StepPart};
use crate::autodiff::GradientSink;
use crate::collectives::{CollectiveError, catch_collective_error, unwrap_or_unwind};
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::gradients::reduced::ReducedGradients;
use crate::data_parallel::gradients::weighted::weighted_sink;
use crate::data_parallel::replicas::agreement::{compare_parts, out_of_step};
use crate::data_parallel::watched::watched;
use crate::parameters::list_parameters;

impl<M: Module> DistributedDataParallel<M> {
    /// Runs one micro-batch forward and backward, and returns its loss.
    ///
    /// `forward` gets a clone of the module, good for this pass only, and returns a loss of one element: the mean over
    /// this rank's part of the step, divided by the number of micro-batches. The gradient is added to the step's.
    ///
    /// # Communication
    /// What `forward` does; on the last micro-batch the start of one all-reduce (mean) per bucket over the
    /// data-parallel group, each as soon as it is full. On the first of a step, one broadcast per buffer of the module;
    /// in the steps that [`check_inputs_interval`] names, two all-gathers of 16 and 8 bytes over the tensor group.
    ///
    /// # Errors
    /// When a collective fails or tensor-parallel ranks were given different samples: the step is lost. When the loss
    /// has several elements. When the gradients of the step before have not been taken. When an update has left no
    /// parameter that is trained.
    ///
    /// # Panics
    /// When `forward` does.
    ///
    /// [`check_inputs_interval`]: crate::data_parallel::DataParallelConfig::check_inputs_interval
    pub fn backward(
        &mut self,
        part: StepPart,
        forward: impl FnOnce(M) -> Tensor<1>,
    ) -> Result<Tensor<1>, DataParallelError> {
        self.begin()?;
        let hooked = self.hooked(self.module_in_flight().clone());
        let is_compared = self.takes_comparison();
        let value = catch_collective_error(|| {
            let (loss, is_same) = watched(is_compared, || forward(hooked));
            is_same?;
            refuse_several(&loss.dims())?;
            let value = loss.clone().inner();
            if is_compared {
                self.compare_losses(value.clone())?;
            }
            self.set_step_part(part);
            loss.backward();
            Ok::<_, DataParallelError>(value)
        })??;
        self.close_pass(part)?;
        Ok(value)
    }

    /// Runs one micro-batch by a closure that goes forward and backward itself, and returns what the closure returns.
    ///
    /// Does as [`backward`](Self::backward), for code that calls burn's `backward` in a function of its own, as a
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
        // Every parameter that gets a gradient has been read before.
        self.binding.reducer.expect_last_micro_batch(part == StepPart::Last);
        let hooked = self.hooked_weighted(self.module_in_flight().clone(), weight);
        let is_compared = self.takes_comparison();
        let (result, is_same) = catch_collective_error(|| watched(is_compared, || run(hooked)))?;
        is_same?;
        self.close_pass(part)?;
        Ok(result)
    }

    /// Takes part in a micro-batch for which this rank has no samples: its gradients are zero.
    ///
    /// # Communication
    /// As [`backward`](Self::backward).
    ///
    /// # Errors
    /// As [`backward`](Self::backward); when parameters are sharded, which the other ranks gather from this one as they
    /// come to them.
    pub fn pass_without_samples(&mut self, part: StepPart) -> Result<(), DataParallelError> {
        if self.has_sharded_parameters() {
            return Err(DataParallelError::PassWithoutSamples);
        }
        self.begin()?;
        self.binding.reducer.expect_last_micro_batch(part == StepPart::Last);
        self.close_pass(part)
    }

    /// Ends a micro-batch, and after the last one launches the step's reductions.
    pub(crate) fn close_pass(&self, part: StepPart) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        self.end_pass();
        if part == StepPart::Last {
            self.launch();
        }
        Ok(())
    }

    /// Begins a step, unless it has been: for callers that run forward and backward passes by themselves, as a pipeline
    /// does. They then call [`hooked`](Self::hooked) for each graph, [`set_step_part`](Self::set_step_part) before each
    /// backward pass, [`end_pass`](Self::end_pass) after it, and [`launch`](Self::launch) after the last.
    ///
    /// # Communication
    /// On the first call of a step, one broadcast per buffer of the module, and at
    /// [`check_replicas_interval`](crate::data_parallel::DataParallelConfig::check_replicas_interval) that of
    /// [`check_replicas`](Self::check_replicas).
    ///
    /// # Errors
    /// When a collective fails or replicas differ; when the gradients of the step before have not been taken; when an
    /// update has left no parameter that is trained.
    pub fn begin(&mut self) -> Result<(), DataParallelError> {
        if self.is_untrained {
            let parameters = list_parameters(self.module_in_flight());
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        if self.binding.reducer.is_launched() {
            return Err(DataParallelError::StepNotTaken);
        }
        if !self.is_step_begun {
            self.release_parameters()?;
            self.check_replicas_at_interval()?;
            self.is_step_begun = true;
            self.compares_next = self.is_input_check_due() && self.context.tensor_group().size() > 1;
            // Whatever the first step uses, of the forward pass, the reduction or the optimizer, is loaded in it.
            self.context.wait_for_gpu_calls(self.steps_begun == 0);
            self.steps_begun += 1;
            if self.buffers.as_ref().is_some_and(|buffers| !buffers.is_idle()) {
                self.wait_for_parameters()?;
                self.sync_buffers()?;
            }
        }
        Ok(())
    }

    fn sync_buffers(&mut self) -> Result<(), CollectiveError> {
        if let (Some(buffers), Some(module)) = (&mut self.buffers, &self.module) {
            self.module = Some(buffers.sync(module, self.context.data_group())?);
        }
        Ok(())
    }

    /// Returns what takes the gradients of a graph whose parameters another module hooks, by number.
    pub(crate) fn sink(&self) -> Arc<dyn GradientSink> {
        self.binding.reducer.clone()
    }

    /// Returns a part of the module, or all of it, good for one graph, whose gradients go to the step's.
    pub fn hooked<P: Module>(&self, part: P) -> P {
        hook_module::<P>(part, &self.binding, &self.sink())
    }

    /// As [`hooked`](Self::hooked), with every gradient multiplied by `weight` on its way.
    fn hooked_weighted<P: Module>(&self, part: P, weight: f64) -> P {
        let sink = weighted_sink(self.sink(), weight);
        hook_module::<P>(part, &self.binding, &sink)
    }

    /// Says which part of the step the next backward pass is, for the parameters that it reaches.
    ///
    /// After the last one that reaches a parameter no other may follow in the step, unless the parameter is reused.
    ///
    /// # Panics
    /// When parameters of the last update do not come, with that error: see
    /// [`wait_for_parameters`](Self::wait_for_parameters).
    pub fn set_step_part(&self, part: StepPart) {
        unwrap_or_unwind(self.wait_for_parameters());
        self.binding.reducer.expect_last_micro_batch(part == StepPart::Last);
    }

    /// Ends the backward pass of a micro-batch, which may consist of several graphs: what they gave to a tied parameter
    /// is summed first, and added to the step's then, so that it does not matter how many they were.
    ///
    /// # Panics
    /// When a reduction or the gathering of a parameter failed, with that error.
    pub fn end_pass(&self) {
        self.binding.reducer.end_pass();
        unwrap_or_unwind(self.end_gathering());
    }

    /// Forgets what the step has accumulated, for a caller whose forward or backward pass has failed.
    pub fn forget_step(&mut self) {
        self.is_step_begun = false;
        // The failure that brought the caller here is the one to tell.
        let _ = self.wait_for_parameters();
        let _ = self.binding.reducer.forget_step();
    }

    /// Launches what has not been launched of the step's reductions.
    ///
    /// Called right after the last backward pass, not when the gradients are asked for: whatever the caller
    /// communicates in between, all ranks have launched all buckets before it.
    ///
    /// # Panics
    /// As [`set_step_part`](Self::set_step_part).
    pub fn launch(&self) {
        unwrap_or_unwind(self.wait_for_parameters());
        self.binding.reducer.launch_rest(self.progress, self.stated());
    }

    /// Waits for the reductions and returns the step's gradients: averaged over the data-parallel group, partial ones
    /// summed over the tensor group; where they are sharded, this rank's pieces of them.
    ///
    /// # Communication
    /// Waits for the buckets; over the model group, one all-gather of 16 bytes; under sequence parallelism one
    /// all-reduce of the partial gradients over the tensor group.
    ///
    /// # Errors
    /// When a collective fails, a GPU has lost work, no parameter received a gradient on any data-parallel rank, no
    /// stage of a pipeline trains one, or the ranks have not made the same steps or are not in the same, or those of
    /// one stage have not made the same updates.
    pub fn gradients(&mut self) -> Result<ReducedGradients, DataParallelError> {
        self.is_step_begun = false;
        let binding = &self.binding;
        let reduced = binding.reducer.finish(self.progress, self.stated())?;
        if !reduced.is_in_step {
            return Err(out_of_step(self.progress, self.stated(), self.context.data_group())?);
        }
        if !compare_parts(self.progress, !binding.entries.is_empty(), &self.context)? {
            return Err(DataParallelError::nothing_to_train(&binding.parameters));
        }
        let gradients = ReducedGradients::new(
            binding.entries.clone(),
            reduced,
            binding.reducer.clone(),
            binding.finalisation,
            &self.context,
        )?;
        #[cfg(feature = "cuda")]
        crate::cuda::check_work()?;
        if gradients.is_empty() {
            Err(DataParallelError::NoGradients)
        } else {
            Ok(gradients)
        }
    }
}

/// Fails if a loss has several elements: burn would differentiate their sum.
pub(crate) fn refuse_several(shape: &[usize]) -> Result<(), DataParallelError> {
    match shape.iter().product() {
        1 => Ok(()),
        _ => Err(DataParallelError::LossShape { shape: shape.to_vec() }),
    }
}
