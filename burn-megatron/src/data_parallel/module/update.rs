//! What changes a wrapped module: an optimizer's step, an update by the caller, a record.

use burn::module::Module;
use burn::optim::LearningRate;
use burn::store::ModuleRecord;
use burn::tensor::Tensor;

use super::binding::{Binding, one_device};
use super::replace::{make_leaves, replace_parameters};
use super::wrapper::{DistributedDataParallel, trains_nothing};
use crate::data_parallel::buckets::flat::part;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::replicas::agreement::compare_modules;
use crate::data_parallel::replicas::buffers::BufferSync;
use crate::data_parallel::replicas::undrawn::Undrawn;
use crate::offload::OffloadError;
use crate::parameters::list_parameters;

impl<M: Module> DistributedDataParallel<M> {
    /// Notes that an optimizer makes a step: all data-parallel ranks must make the same.
    pub(crate) fn count_step(&mut self, learning_rate: LearningRate) {
        self.progress.steps += 1;
        self.learning_rate = Some(learning_rate);
        self.note_progress();
    }

    fn note_progress(&self) {
        self.context.world_group().note_progress(self.progress.to_string());
    }

    /// Replaces the module by what `update` makes of it.
    ///
    /// That may be anything with the same fields: other values, parameters frozen or thawed, or moved to another
    /// device; an optimizer's step goes to [`step`](Self::step). Every rank of the data-parallel and of the tensor
    /// group makes the same updates. A parameter that comes back with another identifier, as from a record, keeps the
    /// declaration of its path. What the step has accumulated so far is lost if the trained parameters change. A
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) of 16-bit parameters has main values of its own: tell
    /// it of new ones by [`take_parameters`](crate::optimizer::ShardedOptimizer::take_parameters).
    ///
    /// # Communication
    /// None, unless parameters have come, gone or changed in more than their values: then the ranks of the
    /// data-parallel group compare their modules, by one all-gather of 16 bytes, and allocate new buckets if the old
    /// ones do not fit.
    ///
    /// # Errors
    /// When the module's parameters have become such that it could not be wrapped: with none that is trained, further
    /// steps are refused until another update thaws some. When that collective fails.
    pub fn update(&mut self, update: impl FnOnce(M) -> M) -> Result<(), DataParallelError> {
        self.progress.updates += 1;
        self.note_progress();
        self.replace_module(update)
    }

    /// Replaces the module's values by a record's, which this rank saved in this layout: see
    /// [`ParallelContext::load_record`](crate::context::ParallelContext::load_record). A
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) takes its main values from them, and keeps its state.
    ///
    /// # Communication
    /// None.
    ///
    /// # Errors
    /// When the record is not that of this rank's module, which is then left as it is.
    ///
    /// # Panics
    /// When burn does: the record has more or fewer layers than the module.
    pub fn load_record(&mut self, record: ModuleRecord) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        let loaded = self.context.load_record(self.module().clone(), record)?;
        self.records_loaded += 1;
        self.update(|_| loaded)
    }

    /// Returns how many records have been loaded: a copy of the parameters from before the last one is stale.
    pub(crate) fn records_loaded(&self) -> u32 {
        self.records_loaded
    }

    pub(in crate::data_parallel) fn replace_module(
        &mut self,
        update: impl FnOnce(M) -> M,
    ) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        self.release_parameters()?;
        self.module = self.module.take().map(update);
        let result = self.bind_again();
        // The update has replaced values, and may have read some that were only gathered.
        if self.has_sharded_parameters() && result.is_ok() {
            self.shard_parameters(&Undrawn::default())?;
        }
        result
    }

    /// Binds the parameters that an update has left.
    fn bind_again(&mut self) -> Result<(), DataParallelError> {
        let parameters = list_parameters(self.module());
        let device = one_device(self.module(), &parameters)?;
        if !self.is_untrained && self.binding.fits(&parameters, &device) {
            return Ok(());
        }
        let parameters = if self.make_leaves() {
            list_parameters(self.module())
        } else {
            parameters
        };
        self.is_untrained = trains_nothing(&parameters, &self.context);
        if self.is_untrained {
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        let device = one_device(self.module(), &parameters)?;
        if self.binding.fits(&parameters, &device) {
            return Ok(());
        }
        if !self.binding.resembles(&parameters, &device) {
            compare_modules(
                &parameters,
                &Undrawn::default(),
                &self.context,
                self.context.data_group(),
            )?;
        }
        self.context
            .transfer_declarations(&self.binding.parameters, &parameters);
        let former = Some(&self.binding.reducer);
        let shards = self.binding.shards.take();
        self.binding = Binding::new(parameters, self.options, &self.context, &device, former)?;
        self.binding.shards = shards;
        self.is_step_begun = false;
        self.restart_buffers();
        Ok(())
    }

    /// Makes parameters that a differentiable move has left as outputs trained leaves again; returns whether there were
    /// any.
    fn make_leaves(&mut self) -> bool {
        let mut has_made = false;
        self.module = self.module.take().map(|module| {
            let (module, made) = make_leaves(module);
            has_made = made;
            module
        });
        has_made
    }

    /// Looks again at the values that are not trained, which have been replaced and are equal on all ranks.
    pub(crate) fn restart_buffers(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            let module = self.module.as_ref().expect("absent inside `update` only");
            *buffers = BufferSync::new(module, &self.binding.parameters);
        }
    }

    /// Returns the values of the trained parameters, by number, `[len]`.
    #[cfg(test)]
    pub(crate) fn values(&self) -> Vec<Tensor<1>> {
        let values = super::replace::read_parameters(self.module(), &self.binding, &Undrawn::default());
        values.into_iter().flatten().collect()
    }

    /// Replaces the trained parameters for which `value` gives one, by number, `[len]`.
    ///
    /// # Errors
    /// When they are in a file that cannot be read or written.
    pub(crate) fn replace(&mut self, mut value: impl FnMut(usize) -> Option<Tensor<1>>) -> Result<(), OffloadError> {
        let binding = &self.binding;
        if let Some(shards) = &binding.shards {
            for bucket in 0..binding.layout.lengths().len() {
                let of_bucket = binding.entries.iter().filter(|entry| entry.bucket() == bucket);
                let pieces = of_bucket.filter_map(|entry| {
                    let (value, owned) = (value(entry.number)?, self.owned(entry));
                    (!owned.is_empty()).then(|| (entry.number, part(value, owned)))
                });
                shards.replace(bucket, pieces.collect())?;
            }
            return Ok(());
        }
        self.module = self
            .module
            .take()
            .map(|module| replace_parameters(module, binding, value));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::optim::SgdConfig;
    use burn::tensor::Device;

    use super::*;
    use crate::context::{ParallelContext, ParameterScope};
    use crate::data_parallel::{DataParallelConfig, StepPart};
    use crate::tensor_parallel::{ColumnParallelLinear, ColumnParallelLinearConfig};

    fn column(scope: &ParameterScope) -> ColumnParallelLinear {
        let config = ColumnParallelLinearConfig::new(3, 4);
        config
            .init(&Device::flex().autodiff(), scope)
            .expect("no size to divide")
    }

    fn names(wrapped: &DistributedDataParallel<ColumnParallelLinear>) -> Vec<&str> {
        wrapped
            .binding
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
    }

    #[test]
    fn a_loaded_record_keeps_its_declarations_and_is_trained() {
        let context = ParallelContext::single(1);
        let record = || column(&ParallelContext::single(2).root()).into_record();
        let layer = context
            .load_record(column(&context.scope("fc")), record())
            .expect("the same fields");
        let mut wrapped = DistributedDataParallel::new(layer, &context, DataParallelConfig::new()).expect("declared");
        assert_eq!(names(&wrapped), ["fc.weight", "fc.bias"]);

        wrapped
            .update(|layer| layer.load_record(record()))
            .expect("the same fields");
        assert_eq!(names(&wrapped), ["fc.weight", "fc.bias"]);
        let before = wrapped.module().weight.val().into_data();
        let input = Tensor::<2>::ones([2, 3], &Device::flex().autodiff());
        wrapped
            .backward(StepPart::Last, |layer| layer.forward(input).sum())
            .expect("one rank");
        let gradients = wrapped.gradients().expect("one rank");
        let mut optimizer = SgdConfig::new().init();
        let stepped = wrapped.step_whole_parameters(0.1, &mut optimizer, gradients);
        stepped.expect("the same fields");
        assert_ne!(wrapped.module().weight.val().into_data(), before);
    }
}
