//! `DistributedDataParallel`: any burn module, trained on several ranks that each see their own samples.

use std::sync::Arc;

use burn::config::Config;
use burn::module::Module;
use burn::optim::LearningRate;
use burn::tensor::{DType, Device};
use parking_lot::Mutex;

use super::binding::{Binding, BindingOptions, one_device};
use super::bucket_in_flight::BucketInFlight;
use super::replace::{gather_anew, make_leaves, touch_parameters};
use crate::collectives::unwrap_or_unwind;
use crate::context::ParallelContext;
use crate::data_parallel::buckets::bucket_parameter::default_bucket_size;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::progress::Progress;
use crate::data_parallel::replicas::agreement::{compare_modules, compare_parts};
use crate::data_parallel::replicas::buffers::BufferSync;
use crate::data_parallel::replicas::foreign_dropout::refuse_foreign_dropout;
use crate::data_parallel::replicas::generators::separate_generators;
use crate::data_parallel::replicas::replica_check::{
    Compared, check_replicas, check_tensor_replicas, compare_replicas, compare_tied,
};
use crate::data_parallel::replicas::sync::{WeightSync, broadcast_module};
use crate::data_parallel::replicas::undrawn::Undrawn;
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::data_parallel::shards::parameter_offload::ParameterOffload;
use crate::parameters::ParameterEntry;

/// Configuration of [`DistributedDataParallel`].
#[derive(Config, Debug)]
pub struct DataParallelConfig {
    /// Elements per bucket; Megatron's default, the larger of 40 million and 1 million per data-parallel rank, if not
    /// given. A model that fits one bucket is reduced after its backward pass, not during it.
    pub bucket_size: Option<usize>,
    /// What happens to weights and buffers at wrapping.
    #[config(default = "WeightSync::Broadcast")]
    pub weight_sync: WeightSync,
    /// `true` if buffers, such as a batch norm's running mean, are taken from the first rank at the start of each step.
    /// A float parameter that is not trained counts as a buffer if the first step changes it, and as frozen if not.
    #[config(default = true)]
    pub broadcast_buffers: bool,
    /// What the ranks share out among themselves. All but [`ShardingStrategy::NoShard`] are for a
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer), which updates this rank's shard of every bucket.
    #[config(default = "ShardingStrategy::NoShard")]
    pub sharding: ShardingStrategy,
    /// `true` if full buckets are reduced during the backward pass; if not, all of them after it.
    #[config(default = true)]
    pub overlap_grad_reduce: bool,
    /// With [`ShardingStrategy::OptimGradsParams`], whether a layer's parameters are gathered while the layer before it
    /// is computed.
    #[config(default = true)]
    pub overlap_param_gather: bool,
    /// With [`ShardingStrategy::OptimGradsParams`], where each rank's shards are while they are not gathered.
    #[config(default = "ParameterOffload::None")]
    pub offload_parameters: ParameterOffload,
    /// Steps from one comparison of what tensor-parallel ranks were given to the next; the first step is always
    /// compared, and none if this is 0. In the step's first micro-batch the first input of a parallel layer is compared
    /// by its hash, and, without sequence parallelism, the loss: ranks that share each layer must see the same samples.
    /// 0 is for a loss with terms that differ by rank, such as a penalty of a rank's own shards.
    #[config(default = 100)]
    pub check_inputs_interval: usize,
    /// Steps from one comparison of replicas, as by [`check_replicas`], to the next; none if this is 0. It is made when
    /// the step that follows begins.
    #[config(default = 0)]
    pub check_replicas_interval: usize,
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
pub struct DistributedDataParallel<M> {
    /// There is always one, except inside `update`.
    pub(in crate::data_parallel) module: Option<M>,
    pub(in crate::data_parallel) context: ParallelContext,
    pub(in crate::data_parallel) options: BindingOptions,
    pub(in crate::data_parallel) offload_parameters: ParameterOffload,
    pub(in crate::data_parallel) binding: Binding,
    /// None where buffers are left alone.
    pub(in crate::data_parallel) buffers: Option<BufferSync>,
    pub(in crate::data_parallel) is_step_begun: bool,
    pub(in crate::data_parallel) check_inputs_interval: usize,
    pub(in crate::data_parallel) check_replicas_interval: usize,
    /// Steps begun, those that were given up included.
    pub(in crate::data_parallel) steps_begun: u64,
    /// `true` if the next micro-batch is one whose input is compared.
    pub(in crate::data_parallel) compares_next: bool,
    pub(in crate::data_parallel) progress: Progress,
    /// That of the last step.
    pub(in crate::data_parallel) learning_rate: Option<LearningRate>,
    pub(in crate::data_parallel) records_loaded: u32,
    /// `true` if an update has left no parameter that is trained.
    pub(in crate::data_parallel) is_untrained: bool,
    /// Buckets of the last update that have not been waited for.
    pub(in crate::data_parallel) in_flight: Mutex<Vec<Arc<BucketInFlight>>>,
}

impl<M: Module> DistributedDataParallel<M> {
    /// Wraps a module. Parameters without values get them, in the order of the module, as one rank alone draws them.
    ///
    /// One rank alone draws a parameter when it is first used: a serial program that uses its parts in another order
    /// than it declares them calls [`initialize`](crate::initialize), too, to start from the same values.
    ///
    /// Then every data-parallel rank and pipeline stage except the first gets a seed of its own for burn's generator
    /// (made of the context's seed and of what the generator draws next, so of the program's `Device::seed`, too), so
    /// that burn's `Dropout` drops other elements for other samples; tensor ranks draw the same numbers. A later seed
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
    /// that are not broadcast, when parameters are to be offloaded and are not sharded or no file can be made for them,
    /// or when a collective fails. When a parameter has no values and the module is a pipeline
    /// stage, or parts of it were converted from burn's layers: see [`initialize`](crate::initialize).
    pub fn new(module: M, context: &ParallelContext, config: DataParallelConfig) -> Result<Self, DataParallelError> {
        refuse_foreign_dropout(&module, context)?;
        config.sharding.check_stages(context.pipeline_group().size())?;
        let instances = context.replica_group().size();
        if instances > 1 && !config.sharding.shards_optimizer() {
            return Err(DataParallelError::InstancesOfNothing { instances });
        }
        if config.offload_parameters != ParameterOffload::None && !config.sharding.shards_parameters() {
            return Err(DataParallelError::OffloadOfWhole);
        }
        config.offload_parameters.check()?;
        let group = context.data_group();
        let options = BindingOptions {
            bucket_size: config.bucket_size.unwrap_or_else(|| default_bucket_size(group.size())),
            sharding: config.sharding,
            overlaps: config.overlap_grad_reduce,
            gathers_ahead: config.overlap_param_gather,
        };
        // Before anything else looks at the module: even asking for its devices draws values.
        let undrawn = Undrawn::of(&module, config.sharding, context);
        if undrawn.is_empty() {
            context.root().draw_whole(&module)?;
        }
        let (module, _) = make_leaves(module);
        let parameters = undrawn.list(&module);
        if trains_nothing(&parameters, context)
            || !compare_parts(Progress::default(), has_trained(&parameters), context)?
        {
            return Err(DataParallelError::nothing_to_train(&parameters));
        }
        compare_modules(&parameters, &undrawn, context, context.data_group())?;
        compare_modules(&parameters, &undrawn, context, context.tensor_group())?;
        let device = one_device(&module, &parameters)?;
        let binding = Binding::new(parameters, options, context, &device, None)?;
        // What is undrawn is the same by its name and the seed.
        let is_drawn = |number: usize| !undrawn.contains(binding.parameters[number].id);
        let compared = Compared::Drawn(&undrawn);
        let module = match config.weight_sync {
            WeightSync::Broadcast => broadcast_module(module, is_drawn, group)?,
            WeightSync::Verify => {
                compare_replicas(&module, compared, context, group)?;
                module
            }
        };
        compare_replicas(&module, compared, context, context.tensor_group())?;
        compare_tied(&module, context)?;
        separate_generators(&device, context)?;
        let mut wrapped = Self {
            buffers: config
                .broadcast_buffers
                .then(|| BufferSync::new(&module, &binding.parameters)),
            module: Some(module),
            context: context.clone(),
            options,
            offload_parameters: config.offload_parameters,
            binding,
            is_step_begun: false,
            check_inputs_interval: config.check_inputs_interval,
            check_replicas_interval: config.check_replicas_interval,
            steps_begun: 0,
            compares_next: false,
            progress: Progress::default(),
            learning_rate: None,
            records_loaded: 0,
            is_untrained: false,
            in_flight: Mutex::default(),
        };
        if config.sharding.shards_parameters() {
            wrapped.shard_parameters(&undrawn)?;
            undrawn.forget(context);
        }
        Ok(wrapped)
    }

    /// Returns what was known of the ranks when the module was wrapped.
    pub(crate) fn context(&self) -> &ParallelContext {
        &self.context
    }

    /// The module, after [waiting](Self::wait_for_parameters) for its parameters.
    ///
    /// # Panics
    /// When that fails.
    pub fn module(&self) -> &M {
        unwrap_or_unwind(self.wait_for_parameters());
        self.module_in_flight()
    }

    /// Returns the module, after [waiting](Self::wait_for_parameters) for its parameters.
    ///
    /// # Panics
    /// When that fails.
    pub fn into_module(self) -> M {
        unwrap_or_unwind(self.wait_for_parameters());
        let module = self.module.expect("absent inside `update` only");
        // Those that are sharded are gathered.
        touch_parameters(&module);
        module
    }

    /// Returns what is known of each trained parameter, in the module's order.
    pub fn trained(&self) -> &[GradientEntry] {
        &self.binding.entries
    }

    /// Returns which elements of a trained parameter this rank's optimizer updates: all, unless gradients are sharded.
    pub fn owned(&self, entry: &GradientEntry) -> std::ops::Range<usize> {
        if !self.options.sharding.shards_optimizer() {
            return 0..entry.slot.len;
        }
        self.binding
            .layout
            .piece(entry.number, self.context.shard_group().rank())
    }

    /// Where the elements that [`owned`](Self::owned) names begin in this rank's part of their bucket: in the whole
    /// bucket, unless gradients are sharded.
    pub(crate) fn owned_place(&self, entry: &GradientEntry) -> usize {
        let in_bucket = entry.slot.offset + self.owned(entry).start;
        let before = if self.options.sharding.shards_optimizer() {
            self.context.shard_group().rank() * self.binding.layout.shard_length(entry.slot.bucket)
        } else {
            0
        };
        in_bucket.saturating_sub(before)
    }

    /// Which elements of a trained parameter this rank stores in a checkpoint: those of its shard, whether or not
    /// gradients are sharded, so that data-parallel ranks write in parallel. None of them, where a rank of another
    /// instance of the optimizer does.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn stored_piece(&self, entry: &GradientEntry) -> std::ops::Range<usize> {
        match self.context.replica_group().rank() {
            0 => self
                .binding
                .layout
                .piece(entry.number, self.context.shard_group().rank()),
            _ => 0..0,
        }
    }

    /// The element type of the trained parameters.
    pub fn dtype(&self) -> DType {
        self.binding.dtype
    }

    /// The device of the trained parameters, without autodiff.
    pub(crate) fn inner_device(&self) -> Device {
        self.binding.device.clone().inner()
    }

    /// The parameters and buffers of the module, as they are bound.
    pub fn parameters(&self) -> &[ParameterEntry] {
        &self.binding.parameters
    }

    /// Returns a part of the module, or all of it, whose sharded parameters go with it.
    pub(crate) fn gathered_anew<P: Module>(&self, part: P) -> P {
        gather_anew(part, &self.binding)
    }

    /// Compares the replicas of the module's trained parameters: see [`check_replicas`].
    ///
    /// # Errors
    /// As [`check_replicas`].
    pub fn check_replicas(&self) -> Result<(), DataParallelError> {
        self.wait_for_parameters()?;
        let gathered = || self.gathered_anew(self.module_in_flight().clone());
        match self.binding.shards {
            // Of a shard there is one; tensor-parallel ranks have replicas.
            Some(_) if self.context.replica_group().size() > 1 => check_replicas(&gathered(), &self.context),
            Some(_) if self.context.tensor_group().size() == 1 => Ok(()),
            Some(_) => check_tensor_replicas(&gathered(), &self.context),
            None => check_replicas(self.module(), &self.context),
        }
    }
}

/// Returns whether some parameter is trained.
fn has_trained(parameters: &[ParameterEntry]) -> bool {
    parameters.iter().any(|parameter| parameter.requires_grad)
}

/// Whether no step can train anything. A stage of a pipeline may be frozen as a whole; whether all are is compared in
/// each step.
pub(in crate::data_parallel) fn trains_nothing(parameters: &[ParameterEntry], context: &ParallelContext) -> bool {
    context.pipeline_group().size() == 1 && !has_trained(parameters)
}
