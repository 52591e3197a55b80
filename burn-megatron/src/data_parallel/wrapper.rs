//! `DistributedDataParallel`: any burn module, trained on several ranks that each see their own samples.

use std::sync::Arc;

use burn::config::Config;
use burn::module::{AutodiffModule, Module};
use burn::tensor::{DType, Tensor};

use super::agreement::{compare_modules, compare_parts, out_of_step};
use super::binding::{Binding, BindingOptions, one_device};
use super::buffers::BufferSync;
use super::error::DataParallelError;
use super::foreign_dropout::refuse_foreign_dropout;
use super::generators::separate_generators;
use super::gradient_entry::GradientEntry;
use super::gradients::ReducedGradients;
use super::hook_module::hook_module;
use super::progress::Progress;
use super::replace::{make_leaves, read_parameters, replace_parameters};
use super::replica_check::{Compared, check_replicas, compare_replicas, compare_tied};
use super::sync::{WeightSync, broadcast_module};
use super::watched::watched;
use super::weighted::weighted_sink;
use crate::autodiff::GradientSink;
use crate::autodiff::TrainingBackend;
use crate::collectives::catch_collective_error;
use crate::context::ParallelContext;
use crate::parameters::{ParameterEntry, list_parameters};

/// Configuration of [`DistributedDataParallel`].
#[derive(Config, Debug)]
pub struct DataParallelConfig {
    /// Elements per bucket; Megatron's default, the larger of 40 million and 1 million per data-parallel rank, if not
    /// given. A model that fits one bucket is reduced after its backward pass, not during it.
    pub bucket_size: Option<usize>,
    /// What happens to weights and buffers at wrapping.
    #[config(default = "WeightSync::Broadcast")]
    pub weight_sync: WeightSync,
    /// Whether buffers, such as a batch norm's running mean, are taken from the first rank at the start of each step.
    /// A float parameter that is not trained counts as a buffer if the first step changes it, and as frozen if not.
    #[config(default = true)]
    pub broadcast_buffers: bool,
    /// Whether each rank gets the gradients of its own shard of every bucket only, for a
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) that updates this shard and gathers the others.
    #[config(default = false)]
    pub shard_gradients: bool,
    /// Whether full buckets are reduced during the backward pass; if not, all of them after it.
    #[config(default = true)]
    pub overlap_grad_reduce: bool,
    /// Steps from one comparison of what tensor-parallel ranks were given to the next; the first step is always
    /// compared, and none if this is 0. In the step's first micro-batch the first input of a parallel layer is compared
    /// by its hash, and, without sequence parallelism, the loss: ranks that share each layer must see the same samples.
    /// 0 is for a loss with terms that differ by rank, such as a penalty of a rank's own shards.
    #[config(default = 100)]
    pub check_inputs_interval: usize,
}

/// Which part of a step a backward pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepPart {
    /// Other micro-batches follow: gradients are only accumulated.
    More,
    /// The step's last micro-batch: full buckets are reduced during the backward pass.
    Last,
}

/// A module whose gradients are accumulated over micro-batches and averaged over the data-parallel group.
///
/// One step: [`backward`](Self::backward) for each micro-batch, [`gradients`](Self::gradients), and
/// [`step`](Self::step) or [`update`](Self::update).
#[derive(Debug)]
pub struct DistributedDataParallel<B: TrainingBackend, M> {
    /// There is always one, except inside `update`.
    module: Option<M>,
    pub(super) context: ParallelContext,
    options: BindingOptions,
    pub(super) binding: Binding<B>,
    /// None where buffers are left alone.
    buffers: Option<BufferSync>,
    is_step_begun: bool,
    pub(super) check_inputs_interval: usize,
    /// Steps begun, those that were given up included.
    pub(super) steps_begun: u64,
    /// Whether the next micro-batch is one whose input is compared.
    pub(super) compares_next: bool,
    pub(super) progress: Progress,
    records_loaded: u32,
    /// Whether an update has left no parameter that is trained.
    is_untrained: bool,
}

impl<B: TrainingBackend, M: AutodiffModule<B>> DistributedDataParallel<B, M> {
    /// Wraps a module. Parameters without values get them, in the order of the module, as one rank alone draws them.
    ///
    /// One rank alone draws a parameter when it is first used: a serial program that uses its parts in another order
    /// than it declares them calls [`initialize`](crate::initialize), too, to start from the same values.
    ///
    /// Then every data-parallel rank and pipeline stage except the first gets a seed of its own for burn's generator
    /// (made of the context's seed and of what the generator draws next, so of the program's `B::seed`, too), so that
    /// burn's `Dropout` drops other elements for other samples; tensor ranks draw the same numbers. A later `B::seed`
    /// undoes this. These masks are independent, not those of one rank: for the same in every layout there is
    /// [`Dropout`](crate::random::Dropout). Make all modules of a program before the first is wrapped: what is drawn
    /// later is drawn from these generators.
    ///
    /// # Communication
    /// Over the data-parallel group and over the tensor group, one all-gather of 16 bytes to compare the modules, and
    /// one of 16 bytes over the model group. Over the data-parallel group, the allocation of the buckets, and one
    /// broadcast per parameter or, to verify, as [`check_replicas`]. Over the tensor group, one all-gather of 8 bytes
    /// per parameter that its ranks all hold, and a broadcast of 8 bytes; over the embedding group, one all-gather per
    /// tied parameter.
    ///
    /// # Errors
    /// When no parameter is trained, in a pipeline on any stage, when the ranks' modules differ, when a parameter has
    /// not declared its layout and there are tensor-parallel ranks, when parameters differ in type or device or one is
    /// there twice, when the module has burn's own `Dropout` and there are tensor-parallel ranks, when replicas differ
    /// that are not broadcast, or when a collective fails. When a parameter has no values and the module is a pipeline
    /// stage, or parts of it were converted from burn's layers: see [`initialize`](crate::initialize).
    pub fn new(module: M, context: &ParallelContext, config: DataParallelConfig) -> Result<Self, DataParallelError> {
        refuse_foreign_dropout(&module, context)?;
        let group = context.data_group();
        let options = BindingOptions {
            bucket_size: config.bucket_size.unwrap_or(40_000_000.max(1_000_000 * group.size())),
            is_sharded: config.shard_gradients,
            overlaps: config.overlap_grad_reduce,
        };
        // Before anything else looks at the module: even asking for its devices draws values.
        context.root().draw_whole::<B, M>(&module)?;
        let (module, _) = make_leaves::<B, M>(module);
        let parameters = list_parameters::<B, M>(&module);
        if trains_nothing(&parameters, context)
            || !compare_parts(Progress::default(), has_trained(&parameters), context)?
        {
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        compare_modules(&parameters, context, context.data_group())?;
        compare_modules(&parameters, context, context.tensor_group())?;
        let device = one_device::<B, M>(&module)?;
        let binding = Binding::new(parameters, options, context, &device, None)?;
        let module = match config.weight_sync {
            WeightSync::Broadcast => broadcast_module::<B, M>(module, |_| true, group)?,
            WeightSync::Verify => {
                compare_replicas::<B, M>(&module, Compared::Everything, context, group)?;
                module
            }
        };
        compare_replicas::<B, M>(&module, Compared::Everything, context, context.tensor_group())?;
        compare_tied::<B, M>(&module, context)?;
        separate_generators::<B>(&device, context)?;
        Ok(Self {
            buffers: config.broadcast_buffers.then(|| BufferSync::new::<B, M>(&module)),
            module: Some(module),
            context: context.clone(),
            options,
            binding,
            is_step_begun: false,
            check_inputs_interval: config.check_inputs_interval,
            steps_begun: 0,
            compares_next: false,
            progress: Progress::default(),
            records_loaded: 0,
            is_untrained: false,
        })
    }

    /// What was known of the ranks when the module was wrapped.
    pub(crate) fn context(&self) -> &ParallelContext {
        &self.context
    }

    /// The module.
    pub fn module(&self) -> &M {
        self.module.as_ref().expect("absent inside `update` only")
    }

    /// Returns the module.
    pub fn into_module(self) -> M {
        self.module.expect("absent inside `update` only")
    }

    /// Runs one micro-batch forward and backward, and returns its loss.
    ///
    /// `forward` gets a clone of the module, good for this pass only, and returns a loss of one element: the mean over
    /// this rank's part of the step, divided by the number of micro-batches. The gradient is added to the step's.
    ///
    /// # Communication
    /// What `forward` does; on the last micro-batch the start of one all-reduce (mean) per bucket over the
    /// data-parallel group, each as soon as it is full. On the first of a step, one broadcast per buffer of the module;
    /// in the steps that [`DataParallelConfig::check_inputs_interval`] names, two all-gathers of 16 and 8 bytes over
    /// the tensor group.
    ///
    /// # Errors
    /// When a collective fails or tensor-parallel ranks were given different samples: the step is lost. When the
    /// gradients of the step before have not been taken. When an update has left no parameter that is trained.
    ///
    /// # Panics
    /// When `forward` does.
    pub fn backward(
        &mut self,
        part: StepPart,
        forward: impl FnOnce(M) -> Tensor<B, 1>,
    ) -> Result<Tensor<B::InnerBackend, 1>, DataParallelError> {
        self.begin()?;
        self.set_step_part(part);
        let hooked = self.hooked(self.module().clone());
        let is_compared = self.takes_comparison();
        let value = catch_collective_error(|| {
            let (loss, is_same) = watched(is_compared, || forward(hooked));
            is_same?;
            let value = loss.clone().inner();
            if is_compared {
                self.compare_losses(value.clone())?;
            }
            loss.backward();
            Ok::<_, DataParallelError>(value)
        })??;
        self.close_pass(part);
        Ok(value)
    }

    /// Begins a step, unless it has been: for callers that run forward and backward passes by themselves, as a pipeline
    /// does. They then call [`hooked`](Self::hooked) for each graph, [`set_step_part`](Self::set_step_part) before each
    /// backward pass, [`end_pass`](Self::end_pass) after it, and [`launch`](Self::launch) after the last.
    ///
    /// # Communication
    /// On the first call of a step, one broadcast per buffer of the module.
    ///
    /// # Errors
    /// When a collective fails; when the gradients of the step before have not been taken; when an update has left no
    /// parameter that is trained.
    pub fn begin(&mut self) -> Result<(), DataParallelError> {
        if self.is_untrained {
            let parameters = list_parameters::<B, M>(self.module());
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        if self.binding.reducer.is_launched() {
            return Err(DataParallelError::StepNotTaken);
        }
        if !self.is_step_begun {
            self.is_step_begun = true;
            self.compares_next = self.is_input_check_due() && self.context.tensor_group().size() > 1;
            self.steps_begun += 1;
            if let Some(buffers) = &mut self.buffers {
                let module = self.module.as_ref().expect("absent inside `update` only");
                self.module = Some(buffers.sync::<B, M>(module, self.context.data_group())?);
            }
        }
        Ok(())
    }

    /// Returns a part of the module, or all of it, good for one graph, whose gradients go to the step's.
    pub fn hooked<P: Module<B>>(&self, part: P) -> P {
        let sink: Arc<dyn GradientSink<B::InnerBackend>> = self.binding.reducer.clone();
        hook_module::<B, P>(part, &self.binding, &sink)
    }

    /// As [`hooked`](Self::hooked), with every gradient multiplied by `weight` on its way.
    pub(super) fn hooked_weighted<P: Module<B>>(&self, part: P, weight: f64) -> P {
        let sink = weighted_sink::<B::InnerBackend>(self.binding.reducer.clone(), weight);
        hook_module::<B, P>(part, &self.binding, &sink)
    }

    /// Says which part of the step the next backward pass is, for the parameters that it reaches.
    ///
    /// After the last one that reaches a parameter no other may follow in the step, unless the parameter is reused.
    pub fn set_step_part(&self, part: StepPart) {
        self.binding.reducer.expect_last_micro_batch(part == StepPart::Last);
    }

    /// Ends the backward pass of a micro-batch, which may consist of several graphs: what they gave to a tied parameter
    /// is summed first, and added to the step's then, so that it does not matter how many they were.
    pub fn end_pass(&self) {
        self.binding.reducer.end_pass();
    }

    /// Forgets what the step has accumulated, for a caller whose forward or backward pass has failed.
    pub fn forget_step(&mut self) {
        self.is_step_begun = false;
        // The failure that brought the caller here is the one to tell.
        let _ = self.binding.reducer.forget_step();
    }

    /// Launches what has not been launched of the step's reductions.
    ///
    /// Called right after the last backward pass, not when the gradients are asked for: whatever the caller
    /// communicates in between, all ranks have launched all buckets before it.
    pub fn launch(&self) {
        self.binding.reducer.launch_rest(self.progress);
    }

    /// Waits for the reductions and returns the step's gradients: averaged over the data-parallel group, partial ones
    /// summed over the tensor group; where they are sharded, this rank's pieces of them.
    ///
    /// # Communication
    /// Waits for the buckets; over the model group, one all-gather of 16 bytes; under sequence parallelism one
    /// all-reduce of the partial gradients over the tensor group.
    ///
    /// # Errors
    /// When a collective fails, no parameter received a gradient on any data-parallel rank, no stage of a pipeline
    /// trains one, or the ranks have not made the same steps, or those of one stage not the same updates.
    pub fn gradients(&mut self) -> Result<ReducedGradients<B::InnerBackend>, DataParallelError> {
        self.is_step_begun = false;
        let binding = &self.binding;
        let reduced = binding.reducer.finish(self.progress)?;
        if !reduced.is_in_step {
            return Err(out_of_step(self.progress, self.context.data_group())?);
        }
        if !compare_parts(self.progress, !binding.entries.is_empty(), &self.context)? {
            return Err(DataParallelError::nothing_to_train(&binding.parameters));
        }
        let gradients =
            ReducedGradients::new(binding.entries.clone(), reduced, binding.reducer.clone(), &self.context)?;
        if gradients.is_empty() {
            Err(DataParallelError::NoGradients)
        } else {
            Ok(gradients)
        }
    }

    /// Notes that an optimizer makes a step: all data-parallel ranks must make the same.
    pub(crate) fn count_step(&mut self) {
        self.progress.steps += 1;
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
    /// [`ParallelContext::load_record`]. A [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) takes its main
    /// values from them, and keeps its state.
    ///
    /// # Communication
    /// None.
    ///
    /// # Errors
    /// When the record is not that of this rank's module, which is then left as it is.
    ///
    /// # Panics
    /// When burn does: the record has more or fewer layers than the module.
    pub fn load_record(&mut self, record: M::Record) -> Result<(), DataParallelError> {
        let loaded = self.context.load_record::<B, M>(self.module().clone(), record)?;
        self.records_loaded += 1;
        self.update(|_| loaded)
    }

    /// How many records have been loaded: a copy of the parameters from before the last one is stale.
    pub(crate) fn records_loaded(&self) -> u32 {
        self.records_loaded
    }

    pub(super) fn replace_module(&mut self, update: impl FnOnce(M) -> M) -> Result<(), DataParallelError> {
        self.module = self.module.take().map(update);
        let parameters = list_parameters::<B, M>(self.module());
        let device = one_device::<B, M>(self.module())?;
        if !self.is_untrained && self.binding.fits(&parameters, &device) {
            return Ok(());
        }
        let parameters = if self.make_leaves() {
            list_parameters::<B, M>(self.module())
        } else {
            parameters
        };
        self.is_untrained = trains_nothing(&parameters, &self.context);
        if self.is_untrained {
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        let device = one_device::<B, M>(self.module())?;
        if self.binding.fits(&parameters, &device) {
            return Ok(());
        }
        if !self.binding.resembles(&parameters, &device) {
            compare_modules(&parameters, &self.context, self.context.data_group())?;
        }
        self.context
            .transfer_declarations(&self.binding.parameters, &parameters);
        let former = Some(&self.binding.reducer);
        self.binding = Binding::new(parameters, self.options, &self.context, &device, former)?;
        self.is_step_begun = false;
        self.restart_buffers();
        Ok(())
    }

    /// Makes parameters that a differentiable move has left as outputs trained leaves again; returns whether there were
    /// any.
    fn make_leaves(&mut self) -> bool {
        let mut has_made = false;
        self.module = self.module.take().map(|module| {
            let (module, made) = make_leaves::<B, M>(module);
            has_made = made;
            module
        });
        has_made
    }

    /// Looks again at the values that are not trained, which have been replaced and are equal on all ranks.
    pub(crate) fn restart_buffers(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            *buffers = BufferSync::new::<B, M>(self.module.as_ref().expect("absent inside `update` only"));
        }
    }

    /// What is known of each trained parameter, in the module's order.
    pub fn trained(&self) -> &[GradientEntry] {
        &self.binding.entries
    }

    /// Which elements of a trained parameter this rank's optimizer updates: all, unless gradients are sharded.
    pub fn owned(&self, entry: &GradientEntry) -> std::ops::Range<usize> {
        if !self.options.is_sharded {
            return 0..entry.slot.len;
        }
        self.binding
            .layout
            .piece(entry.number, self.context.data_group().rank())
    }

    /// Which elements of a trained parameter this rank stores in a checkpoint: those of its shard, whether or not
    /// gradients are sharded, so that data-parallel ranks write in parallel.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn stored_piece(&self, entry: &GradientEntry) -> std::ops::Range<usize> {
        self.binding
            .layout
            .piece(entry.number, self.context.data_group().rank())
    }

    /// The element type of the trained parameters.
    pub fn dtype(&self) -> DType {
        self.binding.dtype
    }

    /// Returns the values of the trained parameters, by number, `[len]`.
    pub(crate) fn values(&self) -> Vec<Tensor<B::InnerBackend, 1>> {
        read_parameters(self.module(), &self.binding)
    }

    /// Replaces the trained parameters for which `value` gives one, by number, `[len]`.
    pub(crate) fn replace(&mut self, value: impl FnMut(usize) -> Option<Tensor<B::InnerBackend, 1>>) {
        let binding = &self.binding;
        self.module = self
            .module
            .take()
            .map(|module| replace_parameters(module, binding, value));
    }

    /// The parameters and buffers of the module, as they are bound.
    pub fn parameters(&self) -> &[ParameterEntry] {
        &self.binding.parameters
    }

    /// Compares the replicas of the module's trained parameters: see [`check_replicas`].
    ///
    /// # Errors
    /// As [`check_replicas`].
    pub fn check_replicas(&self) -> Result<(), DataParallelError> {
        check_replicas::<B, M>(self.module(), &self.context)
    }
}

/// Whether some parameter is trained.
fn has_trained(parameters: &[ParameterEntry]) -> bool {
    parameters.iter().any(|parameter| parameter.requires_grad)
}

/// Whether no step can train anything. A stage of a pipeline may be frozen as a whole; whether all are is compared in
/// each step.
fn trains_nothing(parameters: &[ParameterEntry], context: &ParallelContext) -> bool {
    context.pipeline_group().size() == 1 && !has_trained(parameters)
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn::optim::SgdConfig;
    use burn_flex::Flex;

    use super::*;
    use crate::context::ParameterScope;
    use crate::tensor_parallel::{ColumnParallelLinear, ColumnParallelLinearConfig};

    type B = Autodiff<Flex>;

    fn column(scope: &ParameterScope) -> ColumnParallelLinear<B> {
        let config = ColumnParallelLinearConfig::new(3, 4);
        config.init(&Default::default(), scope).expect("no size to divide")
    }

    fn names(wrapped: &DistributedDataParallel<B, ColumnParallelLinear<B>>) -> Vec<&str> {
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
            .load_record::<B, _>(column(&context.scope("fc")), record())
            .expect("the same fields");
        let mut wrapped = DistributedDataParallel::new(layer, &context, DataParallelConfig::new()).expect("declared");
        assert_eq!(names(&wrapped), ["fc.weight", "fc.bias"]);

        wrapped
            .update(|layer| layer.load_record(record()))
            .expect("the same fields");
        assert_eq!(names(&wrapped), ["fc.weight", "fc.bias"]);
        let before = wrapped.module().weight.val().into_data();
        let input = Tensor::<B, 2>::ones([2, 3], &Default::default());
        wrapped
            .backward(StepPart::Last, |layer| layer.forward(input).sum())
            .expect("one rank");
        let gradients = wrapped.gradients().expect("one rank");
        let mut optimizer = SgdConfig::new().init();
        wrapped.step(0.1, &mut optimizer, gradients).expect("the same fields");
        assert_ne!(wrapped.module().weight.val().into_data(), before);
    }
}
